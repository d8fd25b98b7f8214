"""The environment variables that steer a framework, by an allow list: what is not on it is never read.

A recording is made to be shared, so it must not carry secrets, user names or places. A name with a word of
`SECRETS` is refused whatever list it is on, words of a value that hold a path or a URL are left out, and a
prefix lets in only what looks like a switch: no name of a place, no value that could be a token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

MAX_CHARS = 200
SECRETS = ("AUTH", "CERT", "COOKIE", "CREDENTIAL", "KEY", "PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "TOKEN")
# Holds TOKEN and is a switch.
_NO_SECRETS = frozenset({"TOKENIZERS_PARALLELISM"})

_NAMES = frozenset(
    """
    OMP_NUM_THREADS OMP_DYNAMIC OMP_PROC_BIND OMP_PLACES OMP_SCHEDULE OMP_WAIT_POLICY OMP_MAX_ACTIVE_LEVELS
    OPENBLAS_NUM_THREADS OPENBLAS_CORETYPE GOTO_NUM_THREADS BLIS_NUM_THREADS VECLIB_MAXIMUM_THREADS
    NUMEXPR_NUM_THREADS NUMEXPR_MAX_THREADS DNNL_MAX_CPU_ISA ONEDNN_MAX_CPU_ISA DNNL_DEFAULT_FPMATH_MODE
    ONEDNN_DEFAULT_FPMATH_MODE ATEN_CPU_CAPABILITY MALLOC_ARENA_MAX MALLOC_CONF PYTHONHASHSEED PYTHONMALLOC
    PYTHONOPTIMIZE PYTHONDEVMODE

    PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER
    CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_FORCE_PTX_JIT CUDA_DISABLE_PTX_JIT
    CUDA_CACHE_DISABLE CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_SCALE_LAUNCH_QUEUES CUBLAS_WORKSPACE_CONFIG
    CUBLASLT_WORKSPACE_SIZE CUBLAS_EMULATE_SINGLE_PRECISION CUDNN_CONV_WSCAP_DBG NVIDIA_TF32_OVERRIDE
    HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_LAUNCH_BLOCKING HSA_OVERRIDE_GFX_VERSION HSA_ENABLE_SDMA
    GPU_MAX_HW_QUEUES AMD_SERIALIZE_KERNEL MIOPEN_FIND_MODE MIOPEN_FIND_ENFORCE DISABLE_ADDMM_CUDA_LT

    NCCL_ALGO NCCL_PROTO NCCL_NTHREADS NCCL_BUFFSIZE NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_MIN_CTAS
    NCCL_MAX_CTAS NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_SHM_DISABLE NCCL_NVLS_ENABLE NCCL_IB_DISABLE
    NCCL_CUMEM_ENABLE NCCL_LAUNCH_MODE NCCL_CROSS_NIC NCCL_COLLNET_ENABLE WORLD_SIZE LOCAL_WORLD_SIZE

    JAX_PLATFORMS JAX_PLATFORM_NAME JAX_ENABLE_X64 JAX_DISABLE_JIT JAX_DEFAULT_MATMUL_PRECISION
    JAX_NUMPY_DTYPE_PROMOTION JAX_NUMPY_RANK_PROMOTION JAX_DEBUG_NANS JAX_THREEFRY_PARTITIONABLE
    JAX_DISABLE_MOST_OPTIMIZATIONS XLA_FLAGS LIBTPU_INIT_ARGS XLA_PYTHON_CLIENT_PREALLOCATE
    XLA_PYTHON_CLIENT_MEM_FRACTION XLA_PYTHON_CLIENT_ALLOCATOR XLA_CLIENT_MEM_FRACTION

    TF_XLA_FLAGS TF_ENABLE_ONEDNN_OPTS TF_NUM_INTEROP_THREADS TF_NUM_INTRAOP_THREADS TF_GPU_ALLOCATOR
    TF_FORCE_GPU_ALLOW_GROWTH TF_GPU_THREAD_MODE TF_GPU_THREAD_COUNT TF_CUDNN_DETERMINISTIC TF_DETERMINISTIC_OPS
    TF_CUDNN_USE_AUTOTUNE TF_CUDNN_USE_FRONTEND TF_USE_CUBLASLT TF_USE_LEGACY_KERAS TF_ENABLE_AUTO_MIXED_PRECISION
    TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32 TF_ENABLE_CUDNN_TENSOR_OP_MATH_FP32 TF_DISABLE_MKL KERAS_BACKEND

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
# Their makers keep switches under these, hundreds and more with every release: a list would be old soon.
_PREFIXES = ("MKL_", "KMP_", "GOMP_", "PYTORCH_", "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_")
# Under a prefix, names with these words hold places, people and machines.
_PLACES = frozenset(
    "ADDR ADDRESS DIR ENDPOINT FILE FOLDER HOME HOST HOSTNAME PATH PORT PROXY URI URL USER".split()  # noqa: SIM905
)
# A long run of letters mixed with digits is a token or an identifier before it is a switch.
_TOKEN_LIKE = re.compile(r"(?=[A-Za-z+-]*\d)(?=[\d+-]*[A-Za-z])[A-Za-z\d+-]{20,}|\d{12,}", re.ASCII)
_PATH_LIKE = re.compile(r"[/\\@]|^~")


def is_allowed(name: str) -> bool:
    """Return whether a variable of this name may be recorded at all."""
    if name in _NO_SECRETS:
        return True
    if any(word in name.upper() for word in SECRETS):
        return False
    return name in _NAMES or _is_switch(name)


def read_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the allowed variables that are set, with values cut to `MAX_CHARS` and without paths."""
    found = {}
    for name, value in sorted((os.environ if variables is None else variables).items()):
        if is_allowed(name) and (kept := _without_places(value, strict=name not in _NAMES)) is not None:
            found[name] = kept
    return found


def _is_switch(name: str) -> bool:
    shaped = re.fullmatch("[A-Z0-9_]+", name) is not None
    return shaped and name.startswith(_PREFIXES) and _PLACES.isdisjoint(name.split("_"))


def _without_places(value: str, *, strict: bool) -> str | None:
    """Return the words of a value that are no path; None where nothing else was there."""
    if strict and _TOKEN_LIKE.search(value):
        return None
    words = value.split()
    kept = [word for word in words if not _PATH_LIKE.search(word)]
    return " ".join(kept)[:MAX_CHARS] if kept or not words else None
