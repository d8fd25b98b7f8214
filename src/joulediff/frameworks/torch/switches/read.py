"""Every flag of PyTorch that chooses kernels, and the devices the program has started.

Flags are found by walking `torch.backends`, since each release brings new ones. Reading changes nothing: no setter is
called, CUDA is not started (functions that would start it wait until the program has), and no warning is shown.
PyTorch has two interfaces to TF32 and refuses to read the old one after the new one was used: both are read, each
guarded, and the one that answers is there.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

from joulediff.frameworks.settings import UNREADABLE, put
from joulediff.frameworks.torch.switches.schedule import read_schedule
from joulediff.model.run import Setting

# Functions without parameters that only tell.
_TELLS = re.compile(r"is_\w+|\w+_(enabled|allowed)|get_cpu_capability")
_CALLS = {
    "default_dtype": "get_default_dtype",
    "deterministic.enabled": "are_deterministic_algorithms_enabled",
    "deterministic.warn_only": "is_deterministic_algorithms_warn_only_enabled",
    "float32_matmul_precision": "get_float32_matmul_precision",
    "grad_enabled": "is_grad_enabled",
    "inference_mode": "is_inference_mode_enabled",
    "num_interop_threads": "get_num_interop_threads",
    "num_threads": "get_num_threads",
    "autocast.cache": "is_autocast_cache_enabled",
}
_VALUES = {
    "deterministic.fill_uninitialized_memory": "utils.deterministic.fill_uninitialized_memory",
    "version.cuda": "version.cuda",
    "version.git": "version.git_version",
    "version.hip": "version.hip",
}
# Objects that answer to names they do not list.
_HOLDERS = {
    "cuda.matmul": (
        "allow_tf32",
        "allow_fp16_accumulation",
        "allow_fp16_reduced_precision_reduction",
        "allow_fp16_reduced_precision_reduction_split_k",
        "allow_bf16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction_split_k",
        "fp32_precision",
    ),
    "cudnn.conv": ("fp32_precision",),
    "cudnn.rnn": ("fp32_precision",),
    "mkldnn.conv": ("fp32_precision",),
    "mkldnn.matmul": ("fp32_precision",),
    "mkldnn.rnn": ("fp32_precision",),
    "python_native.cutedsl": ("enabled",),
    "python_native.triton": ("enabled",),
}
# These look at the devices, which starts CUDA. Those with a parameter set it, and only tell without one.
_WITH_CUDA = (
    "cuda.is_ck_sdpa_available",
    "cudnn.version",
    "cusparselt.version",
    "cuda.preferred_linalg_library",
    "cuda.preferred_blas_library",
    "cuda.cublas_workspace_size",
    "cuda.cublaslt_workspace_size",
)
_COMPILER = {
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
_GIB = 2**30


def put_torch(found: dict[str, Setting]) -> None:
    """Add the settings of PyTorch, under `torch.` and, once CUDA is started, `device.`."""
    import torch

    started = torch.cuda.is_initialized()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _put_globals(found)
        _put_backends(found, started=started)
        _put_compiler(found)
        if started:
            _put_cuda(found)


def _put_globals(found: dict[str, Setting]) -> None:
    import torch

    put(found, "torch.default_device", _default_device)
    for name, path in _CALLS.items():
        put(found, f"torch.{name}", _call, torch, path)
    for name, path in _VALUES.items():
        put(found, f"torch.{name}", _get, torch, path)
    for kind in ("cpu", "cuda"):
        put(found, f"torch.autocast.{kind}.enabled", _call, torch, "is_autocast_enabled", kind)
        put(found, f"torch.autocast.{kind}.dtype", _call, torch, "get_autocast_dtype", kind)


def _default_device() -> str:
    """Return the default device as it was set: `get_default_device` makes a tensor to find a missing index."""
    import torch
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    active = [mode for mode in _get_current_function_mode_stack() if isinstance(mode, DeviceContext)]
    chosen = active[-1] if active else getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)  # noqa: SLF001
    return "cpu" if chosen is None else str(chosen.device)


def _put_backends(found: dict[str, Setting], *, started: bool) -> None:
    import torch

    for path, backend in sorted(_backends()):
        for name in _public_names(backend):
            if f"{path}.{name}".removeprefix("torch.backends.") not in _WITH_CUDA:
                put(found, f"{path}.{name}", _read_flag, backend, name)
    for name in [f"{holder}.{each}" for holder, names in _HOLDERS.items() for each in names]:
        put(found, f"torch.backends.{name}", _get, torch.backends, name)
    if started:
        for name in _WITH_CUDA:
            put(found, f"torch.backends.{name}", _call, torch.backends, name)
        cache = "cuda.cufft_plan_cache.max_size"
        put(found, f"torch.backends.{cache}", _get, torch.backends, cache)


def _backends() -> Iterator[tuple[str, Any]]:
    """Yield the modules of `torch.backends` by their paths: those that exist, not those that could be imported."""
    for path, module in list(sys.modules.items()):
        if re.fullmatch(r"torch\.backends(\.[a-z]\w*)*", path) and module is not None:
            yield path, module


def _public_names(backend: Any) -> list[str]:
    """Return names that may be flags. Backends with properties are objects that wrap their module as `m`."""
    inner = vars(backend).get("m")
    names = {*vars(type(backend)), *vars(backend), *(vars(inner) if inner is not None else ())}
    return sorted(name for name in names if re.fullmatch("[a-z][a-z0-9_]*", name) and name != "m")


def _read_flag(backend: Any, name: str) -> object:
    value = getattr(backend, name)
    if not callable(value):
        return value
    if _TELLS.fullmatch(name) and not inspect.isclass(value) and not inspect.signature(value).parameters:
        return value()
    raise TypeError(f"{name} is no flag")


def _get(start: Any, path: str) -> Any:
    return reduce(getattr, path.split("."), start)


def _call(start: Any, path: str, *arguments: object) -> object:
    """Return what a function tells; an enumeration's member as its name: `_BlasBackend.Default` is `default`."""
    value = _get(start, path)(*arguments)
    is_member = type(value).__name__.endswith("Backend")
    return str(value).rpartition(".")[2].lower() if is_member else value


def _put_compiler(found: dict[str, Setting]) -> None:
    for path, names in _COMPILER.items():
        if (config := sys.modules.get(path)) is not None:
            for name in names:
                put(found, f"{path}.{name}", _get, config, name)


def _put_cuda(found: dict[str, Setting]) -> None:
    import torch

    put(found, "torch.cuda.allocator", _call, torch, "cuda.memory.get_allocator_backend")
    put(found, "torch.cuda.arch_list", lambda: ",".join(torch.cuda.get_arch_list()))
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", lambda _: True)  # noqa: SLF001
    for index in range(torch.cuda.device_count()):
        if has_context(index):
            _put_device(found, index)


def _put_device(found: dict[str, Setting], index: int) -> None:
    import torch

    at = f"device.cuda:{index}"
    put(found, f"{at}.driver", _driver_version)
    if torch.version.hip is None:
        put(found, f"{at}.schedule", read_schedule, index)
    with suppress(*UNREADABLE):
        card = torch.cuda.get_device_properties(index)
        put(found, f"{at}.name", lambda: card.name)
        put(found, f"{at}.capability", lambda: f"{card.major}.{card.minor}")
        put(found, f"{at}.memory_gib", lambda: round(card.total_memory / _GIB, 1))
        put(found, f"{at}.multiprocessors", lambda: card.multi_processor_count)


def _driver_version() -> str:
    text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    version = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    if version is None:
        raise ValueError("the driver does not tell its version")
    return version.group(1)
