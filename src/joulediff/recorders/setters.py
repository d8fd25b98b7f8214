"""Which settings a call of a framework's own functions sets, by the names that programs write.

Names alone: no framework is imported. A value is what the call says in plain words, and `UNKNOWN` where it says none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

UNKNOWN = object()
Resolve = Callable[[ast.AST], str | None]

_CUDA = "torch.backends.cuda"
_SDP = tuple(f"{_CUDA}.{kind}_sdp_enabled" for kind in ("flash", "mem_efficient", "math", "cudnn"))
_DTYPES = {"half": "float16", "float": "float32", "double": "float64"}
_FLAGS = re.compile(r"(torch\.backends(?:\.\w+)?)\.(?:set_)?flags")
# The words of `torch.backends.cudnn.flags()`, each of which has a default and so is set in any case.
_CUDNN_FLAGS = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")
_MKLDNN_FLAGS = ("enabled", "deterministic", "allow_tf32")


class Effect(NamedTuple):
    """A setting that a call sets: to `value`, or to its argument of that position or name."""

    setting: str
    position: int | None = 0
    keyword: str = ""
    value: object = UNKNOWN


def _constant(setting: str, value: object) -> Effect:
    return Effect(setting, None, "", value)


_NO_GRAD = (_constant("torch.grad_enabled", False),)
_SET_GRAD = (Effect("torch.grad_enabled", 0, "mode"),)
_INFERENCE = (Effect("torch.inference_mode", 0, "mode", True), _constant("torch.grad_enabled", False))
_SETTERS: dict[str, tuple[Effect, ...]] = {
    "torch.set_float32_matmul_precision": (Effect("torch.float32_matmul_precision", 0, "precision"),),
    "torch.set_num_threads": (Effect("torch.num_threads"),),
    "torch.set_num_interop_threads": (Effect("torch.num_interop_threads"),),
    "torch.set_default_dtype": (Effect("torch.default_dtype", 0, "d"),),
    "torch.set_default_device": (Effect("torch.default_device", 0, "device"),),
    "torch.use_deterministic_algorithms": (
        Effect("torch.deterministic.enabled", 0, "mode"),
        Effect("torch.deterministic.warn_only", None, "warn_only", False),
    ),
    "torch.set_deterministic_debug_mode": (
        _constant("torch.deterministic.enabled", UNKNOWN),
        _constant("torch.deterministic.warn_only", UNKNOWN),
    ),
    "torch.set_autocast_cache_enabled": (Effect("torch.autocast.cache"),),
    "torch.no_grad": _NO_GRAD,
    "torch.autograd.no_grad": _NO_GRAD,
    "torch.enable_grad": (_constant("torch.grad_enabled", True),),
    "torch.set_grad_enabled": _SET_GRAD,
    "torch.autograd.set_grad_enabled": _SET_GRAD,
    "torch.inference_mode": _INFERENCE,
    "torch.autograd.inference_mode": _INFERENCE,
    "torch.nn.attention.sdpa_kernel": tuple(_constant(name, UNKNOWN) for name in _SDP),
    f"{_CUDA}.sdp_kernel": tuple(
        Effect(name, at, f"enable_{word}", True)
        for at, (name, word) in enumerate(
            zip((_SDP[0], _SDP[2], _SDP[1], _SDP[3]), ("flash", "math", "mem_efficient", "cudnn"), strict=True)
        )
    ),
    **{
        f"{_CUDA}.enable_{name.split('.')[-1].removesuffix('_enabled')}": (Effect(name, 0, "enabled"),) for name in _SDP
    },
    f"{_CUDA}.allow_fp16_bf16_reduction_math_sdp": (
        Effect(f"{_CUDA}.fp16_bf16_reduction_math_sdp_allowed", 0, "enabled"),
    ),
    **{
        f"{_CUDA}.{name}": (Effect(f"{_CUDA}.{name}", 0, word),)
        for name, word in (
            ("preferred_linalg_library", "backend"),
            ("preferred_blas_library", "backend"),
            ("cublas_workspace_size", "size"),
            ("cublaslt_workspace_size", "size"),
        )
    },
    "torch.backends.mha.set_fastpath_enabled": (Effect("torch.backends.mha.get_fastpath_enabled", 0, "value"),),
}


def effects_of(function: str, call: ast.Call | None, resolve: Resolve) -> Iterator[tuple[str, object]]:
    """Yield the settings that a call sets, each with its value; `call` is None for a decorator without brackets."""
    for effect in _SETTERS.get(function, ()):
        yield effect.setting, _value_in(call, effect, resolve)
    if call is None:
        return
    if flags := _FLAGS.fullmatch(function):
        yield from _flags(flags.group(1), call, resolve, own=function.endswith(".flags"))
    if function.startswith("torch.") and function.endswith("autocast"):
        yield from _autocast(function, call, resolve)


def value_of(node: ast.AST | None, resolve: Resolve) -> object:
    """Return what an expression says in plain words: a constant, or a data type of PyTorch by its recorded name."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if isinstance(node.operand.value, int | float) else UNKNOWN
    name = resolve(node) if isinstance(node, ast.Attribute | ast.Name) else None
    if name is not None and re.fullmatch(r"torch\.(b?float\d*|half|double|u?int\d+|bool)", name):
        word = name.removeprefix("torch.")
        return _DTYPES.get(word, word)
    return UNKNOWN


def _value_in(call: ast.Call | None, effect: Effect, resolve: Resolve) -> object:
    given = [each.value for each in call.keywords if each.arg and each.arg == effect.keyword] if call else []
    if call and effect.position is not None and effect.position < len(call.args):
        given.append(call.args[effect.position])
    return value_of(given[0], resolve) if given else effect.value


def _flags(backend: str, call: ast.Call, resolve: Resolve, *, own: bool) -> Iterator[tuple[str, object]]:
    words = {"torch.backends.cudnn": _CUDNN_FLAGS, "torch.backends.mkldnn": _MKLDNN_FLAGS}.get(backend, ())
    found: dict[str, object] = dict.fromkeys(words, UNKNOWN) if own else {}
    found |= {each.arg.removeprefix("_"): value_of(each.value, resolve) for each in call.keywords if each.arg}
    found |= {word: value_of(each, resolve) for word, each in zip(words, call.args, strict=False)}
    yield from ((f"{backend}.{word}", value) for word, value in found.items())


def _autocast(function: str, call: ast.Call, resolve: Resolve) -> Iterator[tuple[str, object]]:
    fixed = re.search(r"\.(cpu|cuda)\.", function)
    kind = fixed.group(1) if fixed else _value_in(call, Effect("", 0, "device_type"), resolve)
    for each in (kind,) if kind in ("cpu", "cuda") else ("cpu", "cuda"):
        yield f"torch.autocast.{each}.enabled", _value_in(call, Effect("", None, "enabled", True), resolve)
        yield f"torch.autocast.{each}.dtype", _value_in(call, Effect("", None, "dtype"), resolve)
