"""PyTorch's settings: how each is read, changed, set in source code, and which others change with it.

Every name stands here once. Other modules derive from it: `read` records all settings, `change` changes them, `spans`
tracks them inside a step, `torch.source_hints` finds the lines that set them. Names of one switch are aliases: one
change shows in all of them. torch is not imported. Flags of `torch.backends` that are only read and assigned need no
row: `read` and `change` discover them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from joulediff.model.run import Op
from joulediff.pysource.setting_sites import UNKNOWN, Effect

PREFIX = "torch."
# How a setting is changed while a program runs. `functions`: by its setter. `attribute`: by assigning it.
# `precision`: by its key. `tf32`: by a function of torch._C. The others have separate code in `change`.
Change = Literal["functions", "attribute", "precision", "tf32", "dtype", "deterministic", "reduction"]
PrecisionKey = tuple[str, str]


class Setter(NamedTuple):
    """A function below `torch` that sets a switch: to `value`, or to its argument of that position or name."""

    function: str
    position: int | None = 0
    keyword: str = ""
    value: object = UNKNOWN

    def to_effect(self, setting: str) -> Effect:
        """Return the effect of a call on a setting."""
        return Effect(setting, self.position, self.keyword, self.value)


@dataclass(frozen=True, slots=True)
class Switch:
    """One setting. Paths are below `torch`; without a `getter` it is the attribute at `path`."""

    name: str
    change: Change | None = None
    """None for one that cannot be changed while a program runs."""
    getter: str | None = None
    """The function that returns it; with `argument`, if it takes one."""
    argument: str | None = None
    setter: str | None = None
    attribute: str | None = None
    """The path of the attribute, if it differs from the recorded name."""
    needs_cuda: bool = False
    """Reading it starts CUDA, so it is read only once the program has started that."""
    core: tuple[str, ...] = ()
    """Functions of torch._C that return it without starting anything, and that set it."""
    is_tracked: bool = False
    """Read at every operator, as a step may change it."""
    key: PrecisionKey | None = None
    """The key of a precision; those of the same backend, or of any, follow its `all`."""
    controls: tuple[PrecisionKey, ...] = ()
    """The precisions that an older switch sets."""
    variables: tuple[str, ...] = ()
    """Variables of the environment that set it, too."""
    rank: int | None = None
    """Place among its aliases: 0 is the name that readers know best."""
    setters: tuple[Setter, ...] = ()
    known_as: str | None = None
    """The function that readers know, where the recorded name is no name of PyTorch."""

    @property
    def path(self) -> str:
        """Return the path of the attribute that holds it."""
        return self.attribute or self.name.removeprefix(PREFIX)


GRADIENTS = "torch.grad_enabled"
INFERENCE = "torch.inference_mode"
THREADS = "torch.num_threads"
MATMUL_WORD = "torch.float32_matmul_precision"
MATMUL_TF32 = "torch.backends.cuda.matmul.allow_tf32"
MKLDNN_MATMUL = "torch.backends.mkldnn.matmul.fp32_precision"
# Recorded, and no switch.
ARCHITECTURES = "torch.cuda.arch_list"
FACTS = ("torch.version.", ARCHITECTURES, "torch.backends.cudnn.version", "torch.backends.cusparselt")
# How operators come about, not how they run: recorded operators are below autograd.
MODES: dict[str, Literal["grad", "inference"]] = {GRADIENTS: "grad", INFERENCE: "inference"}
_DEBUG_MODE = Setter("set_deterministic_debug_mode", None)
AUTOCAST_KINDS = ("cpu", "cuda")
# `sdp_kernel()` of torch.backends.cuda takes them in this order.
_SDP_KINDS = ("flash", "math", "mem_efficient", "cudnn")


def _sdp(kind: str) -> Switch:
    return Switch(
        f"torch.backends.cuda.{kind}_sdp_enabled",
        "functions",
        getter=f"backends.cuda.{kind}_sdp_enabled",
        setter=f"backends.cuda.enable_{kind}_sdp",
        core=(f"_get_{kind}_sdp_enabled",),
        is_tracked=True,
        setters=(
            Setter(f"backends.cuda.enable_{kind}_sdp", 0, "enabled"),
            Setter("nn.attention.sdpa_kernel", None),
            Setter("backends.cuda.sdp_kernel", _SDP_KINDS.index(kind), f"enable_{kind}", True),
        ),
    )


def _library(name: str, keyword: str) -> Switch:
    """Return a setting whose one function sets its argument, and returns the setting without an argument."""
    path = f"backends.cuda.{name}"
    setters = (Setter(path, 0, keyword),)
    return Switch(f"torch.{path}", "functions", getter=path, setter=path, needs_cuda=True, setters=setters)


def _precision(name: str, key: PrecisionKey, rank: int, *, is_tracked: bool = False) -> Switch:
    return Switch(name, "precision", key=key, rank=rank, is_tracked=is_tracked)


def autocast_names(kind: str) -> tuple[str, str]:
    """Return the settings of autocast for a device: whether it is on, and its type."""
    return f"torch.autocast.{kind}.enabled", f"torch.autocast.{kind}.dtype"


def _autocast(kind: str) -> tuple[Switch, Switch]:
    enabled, dtype = autocast_names(kind)
    return (
        Switch(enabled, getter="is_autocast_enabled", argument=kind),
        Switch(dtype, getter="get_autocast_dtype", argument=kind),
    )


SWITCHES: tuple[Switch, ...] = (
    *map(_sdp, ("flash", "mem_efficient", "math", "cudnn")),
    Switch("torch.backends.cudnn.enabled", core=("_get_cudnn_enabled",), is_tracked=True),
    Switch("torch.backends.cudnn.benchmark", core=("_get_cudnn_benchmark",), is_tracked=True),
    Switch("torch.backends.cudnn.deterministic", core=("_get_cudnn_deterministic",), is_tracked=True),
    Switch("torch.backends.mkldnn.enabled", core=("_get_mkldnn_enabled",), is_tracked=True),
    Switch(
        "torch.deterministic.enabled",
        "deterministic",
        getter="are_deterministic_algorithms_enabled",
        core=("_get_deterministic_algorithms",),
        is_tracked=True,
        setters=(Setter("use_deterministic_algorithms", 0, "mode"), _DEBUG_MODE),
        known_as="torch.use_deterministic_algorithms",
    ),
    Switch(
        "torch.anomaly_detection.enabled",
        "functions",
        getter="is_anomaly_enabled",
        setter="set_anomaly_enabled",
        setters=(Setter("autograd.set_detect_anomaly", 0, "mode"), Setter("set_anomaly_enabled", 0, "enabled")),
        known_as="torch.autograd.set_detect_anomaly",
    ),
    Switch(
        "torch.deterministic.warn_only",
        "deterministic",
        getter="is_deterministic_algorithms_warn_only_enabled",
        setters=(Setter("use_deterministic_algorithms", None, "warn_only", False), _DEBUG_MODE),
    ),
    Switch(
        "torch.deterministic.fill_uninitialized_memory",
        "attribute",
        attribute="utils.deterministic.fill_uninitialized_memory",
    ),
    Switch(
        THREADS,
        "functions",
        getter="get_num_threads",
        setter="set_num_threads",
        is_tracked=True,
        variables=("OMP_NUM_THREADS", "MKL_NUM_THREADS"),
        rank=12,
        setters=(Setter("set_num_threads"),),
    ),
    # Precisions, each below the ones it follows.
    _precision("torch.backends.fp32_precision", ("generic", "all"), 0),
    _precision("torch.backends.cudnn.fp32_precision", ("cuda", "all"), 1),
    _precision("torch.backends.mkldnn.fp32_precision", ("mkldnn", "all"), 2),
    _precision("torch.backends.cuda.matmul.fp32_precision", ("cuda", "matmul"), 6, is_tracked=True),
    _precision("torch.backends.cudnn.conv.fp32_precision", ("cuda", "conv"), 8, is_tracked=True),
    _precision("torch.backends.cudnn.rnn.fp32_precision", ("cuda", "rnn"), 9),
    _precision(MKLDNN_MATMUL, ("mkldnn", "matmul"), 7),
    _precision("torch.backends.mkldnn.conv.fp32_precision", ("mkldnn", "conv"), 10),
    _precision("torch.backends.mkldnn.rnn.fp32_precision", ("mkldnn", "rnn"), 11),
    # The older switches of precision. Of the two that set one thing, the coarser stands first. `allow_tf32` is better
    # known than the word, which does more.
    Switch(
        MATMUL_TF32,
        "tf32",
        core=("_get_cublas_allow_tf32", "_set_cublas_allow_tf32"),
        is_tracked=True,
        controls=(("cuda", "matmul"),),
        rank=3,
    ),
    Switch(
        "torch.backends.cudnn.allow_tf32",
        "tf32",
        core=("_get_cudnn_allow_tf32", "_set_cudnn_allow_tf32"),
        is_tracked=True,
        controls=(("cuda", "conv"), ("cuda", "rnn")),
        rank=5,
    ),
    Switch("torch.backends.mkldnn.allow_tf32", "tf32", core=("_get_onednn_allow_tf32", "_set_onednn_allow_tf32")),
    Switch(
        MATMUL_WORD,
        "tf32",
        getter="get_float32_matmul_precision",
        core=("_get_float32_matmul_precision", "_set_float32_matmul_precision"),
        is_tracked=True,
        controls=(("cuda", "matmul"), ("mkldnn", "matmul")),
        rank=4,
        setters=(Setter("set_float32_matmul_precision", 0, "precision"),),
    ),
    *(
        Switch(f"torch.backends.cuda.matmul.allow_{kind}_reduced_precision_reduction{split}", "reduction")
        for kind in ("fp16", "bf16")
        for split in ("", "_split_k")
    ),
    Switch("torch.backends.cuda.matmul.allow_fp16_accumulation", "attribute"),
    Switch("torch.backends.python_native.cutedsl.enabled", "attribute"),
    Switch("torch.backends.python_native.triton.enabled", "attribute"),
    Switch("torch.backends.cuda.cufft_plan_cache.max_size", "attribute", needs_cuda=True),
    Switch(
        "torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed",
        "functions",
        getter="backends.cuda.fp16_bf16_reduction_math_sdp_allowed",
        setter="backends.cuda.allow_fp16_bf16_reduction_math_sdp",
        setters=(Setter("backends.cuda.allow_fp16_bf16_reduction_math_sdp", 0, "enabled"),),
    ),
    Switch(
        "torch.backends.mha.get_fastpath_enabled",
        "functions",
        getter="backends.mha.get_fastpath_enabled",
        setter="backends.mha.set_fastpath_enabled",
        setters=(Setter("backends.mha.set_fastpath_enabled", 0, "value"),),
    ),
    _library("preferred_linalg_library", "backend"),
    _library("preferred_blas_library", "backend"),
    _library("cublas_workspace_size", "size"),
    _library("cublaslt_workspace_size", "size"),
    Switch("torch.default_dtype", "dtype", getter="get_default_dtype", setters=(Setter("set_default_dtype", 0, "d"),)),
    Switch(
        GRADIENTS,
        "functions",
        getter="is_grad_enabled",
        setter="_C._set_grad_enabled",
        setters=(
            Setter("no_grad", None, "", False),
            Setter("autograd.no_grad", None, "", False),
            Setter("enable_grad", None, "", True),
            Setter("set_grad_enabled", 0, "mode"),
            Setter("autograd.set_grad_enabled", 0, "mode"),
            Setter("inference_mode", None, "", False),
            Setter("autograd.inference_mode", None, "", False),
        ),
    ),
    Switch(
        INFERENCE,
        getter="is_inference_mode_enabled",
        setters=(Setter("inference_mode", 0, "mode", True), Setter("autograd.inference_mode", 0, "mode", True)),
    ),
    Switch(
        "torch.autocast.cache",
        "functions",
        getter="is_autocast_cache_enabled",
        setter="set_autocast_cache_enabled",
        setters=(Setter("set_autocast_cache_enabled"),),
    ),
    *(switch for kind in AUTOCAST_KINDS for switch in _autocast(kind)),
    Switch(
        "torch.num_interop_threads",
        getter="get_num_interop_threads",
        setters=(Setter("set_num_interop_threads"),),
    ),
    Switch("torch.version.cuda"),
    Switch("torch.version.git", attribute="version.git_version"),
    Switch("torch.version.hip"),
    Switch("torch.backends.cuda.is_ck_sdpa_available", getter="backends.cuda.is_ck_sdpa_available", needs_cuda=True),
    Switch("torch.backends.cudnn.version", getter="backends.cudnn.version", needs_cuda=True),
    Switch("torch.backends.cusparselt.version", getter="backends.cusparselt.version", needs_cuda=True),
)
BY_NAME = {switch.name: switch for switch in SWITCHES}
# Attributes that hold a setting of another name.
RENAMED = {PREFIX + switch.attribute: switch.name for switch in SWITCHES if switch.attribute is not None}
# `read` has its own code for it: the getter would create a tensor.
DEFAULT_DEVICE = "torch.default_device"
DEFAULT_DEVICE_SETTER = Setter("set_default_device", 0, "device")
# Settings of the compiler, in modules that the program may not have loaded. They are recorded, and not changed.
COMPILER = {
    "torch._dynamo.config": (
        "assume_static_by_default",
        "automatic_dynamic_shapes",
        "cache_size_limit",
        "capture_dynamic_output_shape_ops",
        "capture_scalar_outputs",
        "disable",
        "recompile_limit",
        "suppress_errors",
    ),
    "torch._inductor.config": (
        "coordinate_descent_tuning",
        "cpp_wrapper",
        "emulate_precision_casts",
        "epilogue_fusion",
        "fallback_random",
        "force_disable_caches",
        "freezing",
        "layout_optimization",
        "max_autotune",
        "max_autotune_gemm",
        "max_autotune_gemm_backends",
        "shape_padding",
        "triton.cudagraphs",
        "triton.cudagraph_trees",
    ),
}


@dataclass(frozen=True, slots=True)
class Scope:
    """The operators that settings of one prefix can act on; what is not stated does not limit them."""

    device: str = ""
    """The kind of device that the operators run on."""
    words: tuple[str, ...] = ()
    """Parts of the operators' names."""
    is_compiled: bool = False

    def has(self, op: Op) -> bool:
        """Return whether a setting of this scope can act on an operator."""
        return (
            op.device.startswith(self.device)
            and (not self.words or any(word in op.name for word in self.words))
            and (op.compiled or not self.is_compiled)
        )


_ON_GPU, _ON_HOST, _COMPILED = Scope("cuda"), Scope("cpu"), Scope(is_compiled=True)
# Operators that cuDNN has code for in PyTorch; attention by cuDNN has settings of its own.
_CUDNN = Scope(
    words=("cudnn", "miopen", "conv", "batch_norm", "rnn", "lstm", "gru", "ctc_loss", "grid_sampl", "affine")
)
_ATTENTION = Scope(words=("attention",))
# By prefix; a setting must be in every scope whose prefix it has.
SCOPES: tuple[tuple[str, Scope], ...] = (
    *((f"{module}.", _COMPILED) for module in COMPILER),
    ("env.TORCHDYNAMO_", _COMPILED),
    ("env.TORCHINDUCTOR_", _COMPILED),
    ("torch.backends.cuda.", _ON_GPU),
    ("torch.backends.cudnn.", _ON_GPU),
    ("torch.autocast.cuda.", _ON_GPU),
    ("env.CUBLAS", _ON_GPU),
    ("env.CUDNN", _ON_GPU),
    ("env.CUDA_", _ON_GPU),
    ("torch.backends.mkldnn.", _ON_HOST),
    ("torch.backends.mkl.", _ON_HOST),
    ("torch.autocast.cpu.", _ON_HOST),
    *((f"torch.backends.cudnn.{name}", _CUDNN) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")),
    *((f"torch.backends.cudnn.{name}", _CUDNN) for name in ("conv.", "rnn.")),
    *((f"torch.backends.cuda.{kind}_sdp_enabled", _ATTENTION) for kind in _SDP_KINDS),
    ("torch.backends.cuda.cufft_plan_cache.", Scope(words=("fft",))),
)


def acts_on(setting: str, ops: Sequence[Op]) -> bool:
    """Return whether a setting may act on one of these operators; it may unless its scopes exclude it."""
    scopes = [scope for prefix, scope in SCOPES if setting.startswith(prefix)]
    return all(any(scope.has(op) for op in ops) for scope in scopes)


_WORST_RANK = 1 + max(switch.rank for switch in SWITCHES if switch.rank is not None)


@cache
def aliases(name: str) -> tuple[str, ...]:
    """Return the settings that may change when this one does because they are the same switch; not itself."""
    own = _sets(BY_NAME[name]) if name in BY_NAME else set()
    found = {*own, *(other.name for other in SWITCHES if name in _sets(other))}
    return tuple(sorted(found, key=_rank))


def group_aliases(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the names in groups of one switch each, the best-known name first, in the order they are given.

    Two names that only a third one joins, such as a precision above both, are in one group only if it is given, too.
    """
    left = dict.fromkeys(names)
    groups = []
    while left:
        group, queue = [], [next(iter(left))]
        while queue:
            name = queue.pop()
            if name in left:
                del left[name]
                group.append(name)
                queue += aliases(name)
        groups.append(tuple(sorted(group, key=_word_first if _does_more(group) else _rank)))
    return groups


def _sets(switch: Switch) -> set[str]:
    """Return the settings that change when a switch does."""
    keys = {*switch.controls, *_below(switch.key)}
    found = {each.name for each in SWITCHES if each.key in keys}
    found |= {each.name for each in SWITCHES if each is not switch and {*each.controls} & {*switch.controls}}
    return found | {f"env.{name}" for name in switch.variables}


def _below(key: PrecisionKey | None) -> set[PrecisionKey]:
    """Return the precisions that follow another one."""
    if key is None or key[1] != "all":
        return set()
    known = {each.key for each in SWITCHES if each.key is not None and each.key != key}
    return {each for each in known if key[0] in ("generic", each[0])}


def _does_more(group: list[str]) -> bool:
    """Return whether more changed than `allow_tf32` alone can change."""
    return MATMUL_WORD in group and MKLDNN_MATMUL in group


def _word_first(name: str) -> tuple[int, str]:
    return (-1, name) if name == MATMUL_WORD else _rank(name)


def _rank(name: str) -> tuple[int, str]:
    rank = BY_NAME[name].rank if name in BY_NAME else None
    return (_WORST_RANK if rank is None else rank), name
