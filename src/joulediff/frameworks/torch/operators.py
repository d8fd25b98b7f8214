"""PyTorch's operators: those that read, copy or run under another name. Data alone; torch is not imported."""

from __future__ import annotations

from joulediff.frameworks.framework import Operators
from joulediff.frameworks.torch.schemas import read_schema


def _convert_format(name: str) -> str:
    word = "contiguous_format" if name == "contiguous" else name
    return f".to(memory_format=torch.{word})"


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
    },
    # The function of torch.autograd.graph that calls the C++ engine.
    engine_call="_engine_run_backward",
    kernel_namespaces=("at", "c10", "native"),
    convert_format=_convert_format,
    read_schema=read_schema,
)
