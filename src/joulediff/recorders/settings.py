"""What a program ran under: flags, environment, versions, machine and model, as one flat mapping.

Names are dotted (`torch.backends.cuda.matmul.allow_tf32`) and values plain, so that two runs are compared key by
key. What cannot be read is absent, never guessed, and costs only itself. Nothing here identifies a person or a
machine: no user, no host name, no path.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import psutil

from joulediff.recorders.environment import MAX_CHARS, read_environment
from joulediff.runs import Setting

# What reading a flag of another program's library may raise: versions differ, and so do builds.
UNREADABLE = (AssertionError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)

# Distributions, and the module that tells whether the program uses one.
_PACKAGES = {
    "accelerate": "accelerate",
    "apex": "apex",
    "bitsandbytes": "bitsandbytes",
    "deepspeed": "deepspeed",
    "diffusers": "diffusers",
    "einops": "einops",
    "flash-attn": "flash_attn",
    "flashinfer-python": "flashinfer",
    "flax": "flax",
    "jax": "jax",
    "jaxlib": "jaxlib",
    "keras": "keras",
    "kernels": "kernels",
    "lightning": "lightning",
    "megatron-core": "megatron.core",
    "numpy": "numpy",
    "onnxruntime": "onnxruntime",
    "peft": "peft",
    "pytorch-lightning": "pytorch_lightning",
    "safetensors": "safetensors",
    "scipy": "scipy",
    "sglang": "sglang",
    "tensorflow": "tensorflow",
    "timm": "timm",
    "tokenizers": "tokenizers",
    "torch": "torch",
    "torchao": "torchao",
    "torchaudio": "torchaudio",
    "torchvision": "torchvision",
    "transformer-engine": "transformer_engine",
    "transformers": "transformers",
    "triton": "triton",
    "vllm": "vllm",
    "xformers": "xformers",
}
_GIB = 2**30


def collect_settings(models: Mapping[str, object] = MappingProxyType({})) -> dict[str, Setting]:
    """Return every setting that can be read now, by dotted name in order.

    `models` are the program's, by the names they are to have. Frameworks the program did not import are not asked,
    and no device is started.
    """
    found: dict[str, Setting] = {f"env.{name}": value for name, value in read_environment().items()}
    _put_host(found)
    _put_packages(found)
    if "torch" in sys.modules:
        from joulediff.recorders.torch.settings import put_torch

        put_torch(found)
    if models:
        from joulediff.recorders.modelconfig import put_model

        for name, model in models.items():
            put_model(found, name, model)
    return dict(sorted(found.items()))


def put(found: dict[str, Setting], name: str, read: Callable[..., object], *arguments: object) -> None:
    """Add what `read` returns under `name`; nothing where it cannot be read or is no setting."""
    with contextlib.suppress(*UNREADABLE):
        found[name] = to_setting(read(*arguments))


def to_setting(value: object) -> Setting:
    """Return a value as a setting. Raises TypeError for what has no stable plain form."""
    if isinstance(value, str):
        # A lone surrogate, from a name that is no UTF-8, could not be stored.
        return value.encode("utf-8", "replace").decode()[:MAX_CHARS]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if type(value).__name__ in ("dtype", "device", "layout", "memory_format"):
        return str(value).removeprefix("torch.")
    raise TypeError(f"{type(value).__name__} is no setting")


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
    """Yield the fields of the first entry alone: the kernel writes the rest, one a core, as it is read."""
    with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip():
                return
            name, _, value = line.partition(":")
            yield name.strip(), value.strip()


def _put_packages(found: dict[str, Setting]) -> None:
    for name, module in _PACKAGES.items():
        if module in sys.modules:
            put(found, f"package.{name}", _version, name, module)
    for name, version in _nvidia_wheels():
        put(found, f"package.{name}", str, version)


def _version(name: str, module: str) -> str:
    """Return what the module says, and else its metadata, which leave out `+cu130`."""
    version = getattr(sys.modules[module], "__version__", None)
    return version if isinstance(version, str) else importlib.metadata.version(name)


def _nvidia_wheels() -> Iterator[tuple[str, str]]:
    """Yield the CUDA libraries that came as wheels, from the names of their folders.

    They are no modules to be imported; reading the metadata of every distribution instead takes 26 ms for 64 of them.
    """
    for folder in dict.fromkeys(sys.path):
        with contextlib.suppress(OSError):
            for entry in sorted(os.listdir(folder or "."), reverse=True):  # noqa: PTH208 - many entries, few wanted
                if entry.startswith("nvidia_") and entry.endswith(".dist-info"):
                    name, _, version = entry.removesuffix(".dist-info").partition("-")
                    yield name.replace("_", "-"), version
