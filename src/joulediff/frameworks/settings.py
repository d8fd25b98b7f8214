"""The settings of a program: flags, environment, versions, machine and model, as one flat mapping.

Names are dotted (`torch.backends.cuda.matmul.allow_tf32`) and values plain, so that two runs are compared key by
key. A setting that cannot be read is absent, never guessed. Nothing here identifies a person or a machine: no user,
no host name, no path.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from joulediff.frameworks.framework import frameworks, loaded_frameworks
from joulediff.model.run import MAX_SETTING_CHARS, Setting, to_setting

# Exceptions that reading a flag may raise: versions and builds of libraries differ.
UNREADABLE = (AssertionError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)

# Distributions, and the module that a program which uses one has imported.
_PACKAGES = {
    "accelerate": "accelerate",
    "apex": "apex",
    "bitsandbytes": "bitsandbytes",
    "deepspeed": "deepspeed",
    "diffusers": "diffusers",
    "einops": "einops",
    "flash-attn": "flash_attn",
    "flashinfer-python": "flashinfer",
    "kernels": "kernels",
    "lightgbm": "lightgbm",
    "lightning": "lightning",
    "megatron-core": "megatron.core",
    "numba": "numba",
    "numpy": "numpy",
    "onnxruntime": "onnxruntime",
    "pandas": "pandas",
    "peft": "peft",
    "polars": "polars",
    "safetensors": "safetensors",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
    "sglang": "sglang",
    "timm": "timm",
    "tokenizers": "tokenizers",
    "transformer-engine": "transformer_engine",
    "transformers": "transformers",
    "vllm": "vllm",
    "xformers": "xformers",
    "xgboost": "xgboost",
}
_GIB = 2**30


def collect_settings(models: Mapping[str, object] = MappingProxyType({})) -> dict[str, Setting]:
    """Return every setting that can be read now, sorted by dotted name.

    `models` are the program's models by name. Frameworks that the program did not import are left out, and no device
    is started.
    """
    found: dict[str, Setting] = {f"env.{name}": value for name, value in read_environment().items()}
    _put_host(found)
    _put_packages(found)
    for framework in loaded_frameworks():
        if framework.read_settings is not None:
            framework.read_settings(found)
    for name, model in models.items():
        put_model(found, name, model)
    return dict(sorted(found.items()))


def put(found: dict[str, Setting], name: str, read: Callable[..., object], *arguments: object) -> None:
    """Add the result of `read` under `name`, if it can be read and is a setting."""
    with contextlib.suppress(*UNREADABLE):
        found[name] = to_setting(read(*arguments))


def _put_host(found: dict[str, Setting]) -> None:
    system = platform.uname()
    cpu: dict[str, str] = {}
    with contextlib.suppress(OSError):
        cpu = dict(_first_processor())
    put(found, "host.python", platform.python_version)
    put(found, "host.python_implementation", platform.python_implementation)
    put(found, "host.os", lambda: system.system)
    put(found, "host.kernel", lambda: system.release)
    put(found, "host.machine", lambda: system.machine)
    put(found, "host.glibc", lambda: (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[1])
    put(found, "host.cpu", lambda: cpu.get("model name") or platform.processor())
    if "flags" in cpu:
        found["host.hypervisor"] = "hypervisor" in cpu["flags"].split()
    put(found, "host.cores", lambda: psutil.cpu_count(logical=True))
    put(found, "host.cores_physical", lambda: psutil.cpu_count(logical=False))
    put(found, "host.cores_usable", lambda: len(os.sched_getaffinity(0)))
    put(found, "host.memory_gib", lambda: round(psutil.virtual_memory().total / _GIB, 1))


def _first_processor() -> Iterator[tuple[str, str]]:
    """Yield the fields of the first entry alone: the kernel writes one entry for each core while it is read."""
    with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip():
                return
            name, _, value = line.partition(":")
            yield name.strip(), value.strip()


def _put_packages(found: dict[str, Setting]) -> None:
    packages = dict(_PACKAGES)
    for framework in frameworks():
        packages |= framework.packages
    for name, module in packages.items():
        if module in sys.modules:
            put(found, f"package.{name}", _version, name, module)
    for name, version in _nvidia_wheels():
        put(found, f"package.{name}", str, version)


def _version(name: str, module: str) -> str:
    """Return the version in the module, else that in its metadata, which lacks `+cu130`."""
    version = getattr(sys.modules[module], "__version__", None)
    return version if isinstance(version, str) else importlib.metadata.version(name)


def _nvidia_wheels() -> Iterator[tuple[str, str]]:
    """Yield the CUDA libraries that were installed as wheels, by the names of their folders.

    They have no modules to import; reading the metadata of every distribution instead takes 26 ms for 64 of them.
    """
    for folder in dict.fromkeys(sys.path):
        with contextlib.suppress(OSError):
            for entry in sorted(os.listdir(folder or "."), reverse=True):  # noqa: PTH208 - many entries, few wanted
                if entry.startswith("nvidia_") and entry.endswith(".dist-info"):
                    name, _, version = entry.removesuffix(".dist-info").partition("-")
                    yield name.replace("_", "-"), version


SECRETS = ("AUTH", "CERT", "COOKIE", "CREDENTIAL", "KEY", "PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "TOKEN")
# Contains TOKEN and is a switch.
_NO_SECRETS = frozenset({"TOKENIZERS_PARALLELISM"})

_NAMES = frozenset(
    """
    OMP_NUM_THREADS OMP_DYNAMIC OMP_PROC_BIND OMP_PLACES OMP_SCHEDULE OMP_WAIT_POLICY OMP_MAX_ACTIVE_LEVELS
    OPENBLAS_NUM_THREADS OPENBLAS_CORETYPE GOTO_NUM_THREADS BLIS_NUM_THREADS VECLIB_MAXIMUM_THREADS
    NUMEXPR_NUM_THREADS NUMEXPR_MAX_THREADS DNNL_MAX_CPU_ISA ONEDNN_MAX_CPU_ISA DNNL_DEFAULT_FPMATH_MODE
    ONEDNN_DEFAULT_FPMATH_MODE MALLOC_ARENA_MAX MALLOC_CONF PYTHONHASHSEED PYTHONMALLOC
    PYTHONOPTIMIZE PYTHONDEVMODE

    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER
    CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_FORCE_PTX_JIT CUDA_DISABLE_PTX_JIT
    CUDA_CACHE_DISABLE CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_SCALE_LAUNCH_QUEUES CUBLAS_WORKSPACE_CONFIG
    CUBLASLT_WORKSPACE_SIZE CUBLAS_EMULATE_SINGLE_PRECISION CUDNN_CONV_WSCAP_DBG NVIDIA_TF32_OVERRIDE
    HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_LAUNCH_BLOCKING HSA_OVERRIDE_GFX_VERSION HSA_ENABLE_SDMA
    GPU_MAX_HW_QUEUES AMD_SERIALIZE_KERNEL MIOPEN_FIND_MODE MIOPEN_FIND_ENFORCE

    NCCL_ALGO NCCL_PROTO NCCL_NTHREADS NCCL_BUFFSIZE NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_MIN_CTAS
    NCCL_MAX_CTAS NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_SHM_DISABLE NCCL_NVLS_ENABLE NCCL_IB_DISABLE
    NCCL_CUMEM_ENABLE NCCL_LAUNCH_MODE NCCL_CROSS_NIC NCCL_COLLNET_ENABLE WORLD_SIZE LOCAL_WORLD_SIZE

    TOKENIZERS_PARALLELISM USE_TORCH USE_TF USE_FLAX USE_HUB_KERNELS HF_HUB_OFFLINE TRANSFORMERS_OFFLINE
    HF_HUB_ENABLE_HF_TRANSFER HF_ENABLE_PARALLEL_LOADING ACCELERATE_MIXED_PRECISION ACCELERATE_USE_CPU
    ACCELERATE_DYNAMO_BACKEND ACCELERATE_USE_FSDP ACCELERATE_USE_DEEPSPEED FLASH_ATTENTION_DETERMINISTIC
    XFORMERS_DISABLE_FLASH_ATTN XFORMERS_FORCE_DISABLE_TRITON

    VLLM_USE_V1 VLLM_ATTENTION_BACKEND VLLM_USE_FLASHINFER_SAMPLER VLLM_FLASH_ATTN_VERSION
    VLLM_USE_TRITON_FLASH_ATTN VLLM_WORKER_MULTIPROC_METHOD VLLM_ENABLE_V1_MULTIPROCESSING VLLM_USE_DEEP_GEMM
    VLLM_USE_TRITON_AWQ VLLM_FUSED_MOE_CHUNK_SIZE VLLM_CPU_KVCACHE_SPACE VLLM_CPU_OMP_THREADS_BIND
    VLLM_DISABLE_COMPILE_CACHE VLLM_TARGET_DEVICE SGLANG_ENABLE_TORCH_COMPILE SGLANG_IS_FLASHINFER_AVAILABLE
    SGLANG_ENABLE_DETERMINISTIC_INFERENCE

    NVTE_FLASH_ATTN NVTE_FUSED_ATTN NVTE_UNFUSED_ATTN NVTE_ALLOW_NONDETERMINISTIC_ALGO NVTE_FRAMEWORK
    NVTE_TORCH_COMPILE NVTE_BIAS_GELU_NVFUSION
    """.split()  # noqa: SIM905 - read as words
)
# Families of switches with hundreds of names, more with every release.
_PREFIXES = ("MKL_", "KMP_", "GOMP_")
# Under a prefix, names with these words contain paths, hosts or user names.
_PLACES = frozenset(
    "ADDR ADDRESS DIR ENDPOINT FILE FOLDER HOME HOST HOSTNAME PATH PORT PROXY URI URL USER".split()  # noqa: SIM905
)
# A long run of letters mixed with digits is more likely a token or an identifier than a switch.
_TOKEN_LIKE = re.compile(r"(?=[A-Za-z+-]*\d)(?=[\d+-]*[A-Za-z])[A-Za-z\d+-]{20,}|\d{12,}", re.ASCII)
_PATH_LIKE = re.compile(r"[/\\@]|^~")


def is_allowed(name: str) -> bool:
    """Return whether a variable of this name may be recorded."""
    if name in _NO_SECRETS:
        return True
    if any(word in name.upper() for word in SECRETS):
        return False
    return _is_listed(name) or _is_switch(name)


def read_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the allowed variables that are set, with values cut to `MAX_SETTING_CHARS` and without paths."""
    found = {}
    for name, value in sorted((os.environ if variables is None else variables).items()):
        if is_allowed(name) and (kept := _without_places(value, strict=not _is_listed(name))) is not None:
            found[name] = kept
    return found


def _is_listed(name: str) -> bool:
    return name in _NAMES or any(name in framework.variables for framework in frameworks())


def _is_switch(name: str) -> bool:
    shaped = re.fullmatch("[A-Z0-9_]+", name) is not None
    prefixes = (*_PREFIXES, *(each for framework in frameworks() for each in framework.variable_prefixes))
    return shaped and name.startswith(prefixes) and _PLACES.isdisjoint(name.split("_"))


def _without_places(value: str, *, strict: bool) -> str | None:
    """Return the words of a value that are not paths; None if all are paths."""
    if strict and _TOKEN_LIKE.search(value):
        return None
    words = value.split()
    kept = [word for word in words if not _PATH_LIKE.search(word)]
    return " ".join(kept)[:MAX_SETTING_CHARS] if kept or not words else None


# Longer tables are data: the first characters of their text are recorded.
MAX_ENTRIES = 64
MAX_DEPTH = 4
# At the begin of a string, or of a string in a list.
_LOCAL_PATH = re.compile(r"""(?:^|")(?:[/~\\]|\.{1,2}[/\\]|[A-Za-z]:[/\\]|\w+://)""")
# `pad_token_id` and `num_key_value_heads` are no secrets.
_SECRET = re.compile(r"(.*_)?(api_?key|auth|token|secret|password|credentials?)")
# Entries that to_dict() lacks: the origin of the weights, and the choice of kernels for attention and experts.
_HIDDEN = ("_name_or_path", "_attn_implementation", "_experts_implementation")
_LABELS = ("id2label", "label2id")


def put_model(found: dict[str, Setting], name: str, model: Any) -> None:
    """Add the settings of one model, all under `model.<name>`."""
    at = f"model.{name}"
    put(found, f"{at}.class", lambda: f"{type(model).__module__}.{type(model).__qualname__}")
    put(found, f"{at}.parameters", lambda: sum(int(p.numel()) for p in model.parameters()))
    put(found, f"{at}.dtype", lambda: ",".join(sorted({str(to_setting(p.dtype)) for p in model.parameters()})) or None)
    put(found, f"{at}.training", lambda: bool(model.training))
    with contextlib.suppress(*UNREADABLE):
        _put_config(found, f"{at}.config", model.config)


def _put_config(found: dict[str, Setting], at: str, config: Any) -> None:
    more = {name: getattr(config, name, None) for name in _HIDDEN}
    for key, value in _flatten({**_fields(config), **{k: v for k, v in more.items() if v}}, MAX_DEPTH):
        put(found, f"{at}.{key}", to_setting, value)


def _fields(config: object) -> Mapping[Any, Any]:
    if isinstance(config, Mapping):
        return config
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {field.name: getattr(config, field.name, None) for field in dataclasses.fields(config)}
    with contextlib.suppress(*UNREADABLE):
        plain = config.to_dict()  # type: ignore[attr-defined]
        return plain if isinstance(plain, Mapping) else {}
    return {}


def _flatten(fields: Mapping[Any, Any], depth: int) -> Iterator[tuple[str, Setting]]:
    for key, value in fields.items():
        if key in _LABELS or _is_secret(str(key), value):
            continue
        nested = isinstance(value, Mapping) and depth > 1 and len(value) <= MAX_ENTRIES
        if nested and all(isinstance(each, str) for each in value):
            yield from ((f"{key}.{inner}", each) for inner, each in _flatten(value, depth - 1))
            continue
        with contextlib.suppress(*UNREADABLE):
            setting = _as_text(value) if isinstance(value, Mapping | list | tuple) else to_setting(value)
            if not _is_local_path(setting):
                yield str(key), setting


def is_shareable(name: str, value: Setting) -> bool:
    """Return whether a value of this name may be recorded: it is no label, secret, identifier or path."""
    is_identifier = isinstance(value, str) and _TOKEN_LIKE.search(value) is not None
    return not (name in _LABELS or is_identifier or _is_secret(name, value) or _is_local_path(value))


def _is_secret(name: str, value: object) -> bool:
    return isinstance(value, str) and _SECRET.fullmatch(name.lower()) is not None


def _is_local_path(value: Setting) -> bool:
    return isinstance(value, str) and _LOCAL_PATH.search(value) is not None


def _as_text(value: object) -> str:
    """Return a list or a table as JSON. Raises TypeError if an entry has no stable text."""
    return json.dumps(value, sort_keys=True)[:MAX_SETTING_CHARS]
