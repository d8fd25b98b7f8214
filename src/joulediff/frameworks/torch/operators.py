"""PyTorch's operators: those that read, copy or run under another name. Data alone; torch is not imported."""

from __future__ import annotations

from joulediff.frameworks.framework import Operators
from joulediff.frameworks.torch.schemas import read_schema


def _convert_format(name: str) -> str:
    word = "contiguous_format" if name == "contiguous" else name
    return f".to(memory_format=torch.{word})"


# Calls that run a product of matrices, by the operator `@` too.
_PRODUCTS = ("linear", "matmul", "einsum", "mm", "bmm", "addmm", "baddbmm", "tensordot", "mv", "dot", "inner")

OPERATORS = Operators(
    namespaces=("aten", "prims"),
    unnamed=("aten",),
    reads=frozenset({"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::is_nonzero"}),
    copies=frozenset({"aten::clone"}),
    products=frozenset(f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "matmul", "mv", "addmv")),
    copy_calls=("contiguous", "clone"),
    calls={
        "clone": ("contiguous", "repeat_interleave", "clone", "reshape", "flatten", "repeat", "tile"),
        "copy_": ("copy_", "to", "contiguous", "repeat_interleave", "pad"),
        "_to_copy": ("to", "float", "double", "half", "bfloat16", "type", "cuda", "cpu", "long", "int"),
        "cat": ("cat", "concat", "concatenate", "hstack", "vstack", "stack"),
        "index_select": ("repeat_interleave", "index_select"),
        "_local_scalar_dense": ("item", "tolist", "float", "int", "bool"),
        "constant_pad_nd": ("pad",),
        "native_layer_norm": ("layer_norm",),
        "native_group_norm": ("group_norm",),
        "native_batch_norm": ("batch_norm",),
        "convolution": ("conv2d", "conv1d", "conv3d", "conv_transpose2d", "conv_transpose1d", "conv_transpose3d"),
        "im2col": ("unfold",),
        "col2im": ("fold",),
        "_fft_r2c": ("rfft", "rfft2", "rfftn", "fft", "fft2", "fftn", "stft"),
        "_fft_c2r": ("irfft", "irfft2", "irfftn", "istft"),
        "_fft_c2c": ("fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "stft"),
        "_linalg_solve_ex": ("solve",),
        "_linalg_svd": ("svd", "svdvals", "pinv"),
        "_linalg_eigh": ("eigh", "eigvalsh"),
        "linalg_inv_ex": ("inv", "inverse"),
        "linalg_cholesky_ex": ("cholesky",),
        **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), _PRODUCTS),
        **dict.fromkeys(("mv", "addmv", "dot"), _PRODUCTS),
    },
    # The function of torch.autograd.graph that calls the C++ engine.
    engine_call="_engine_run_backward",
    detach_call="detach",
    kernel_namespaces=("at", "c10", "native"),
    convert_format=_convert_format,
    read_schema=read_schema,
)
