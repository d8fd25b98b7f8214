"""PyTorch's values and functions as they appear in source code. torch is not imported: classes are known by name."""

from __future__ import annotations

import re
from typing import Any

from joulediff.model.run import to_setting
from joulediff.pysource.value_origin import qualified

# Code of torch.fx and of torch.package has these in place of a file.
GENERATED = ("<eval_with_key>", "<torch_package")
_TENSOR = "torch.Tensor"
_MODULE = "torch.nn.modules.module.Module"
# Called without arguments, these only read a flag.
_PREDICATE = re.compile(r"(is|are|has)_\w+|get_\w*(enabled|precision|dtype|mode|threads)\w*|\w+_enabled|\w+_allowed")


def describe_value(value: Any) -> str | None:
    """Return a tensor by shape, type and device, a module by its class; None for any other value."""
    kinds = {qualified(kind) for kind in type(value).__mro__}
    if _TENSOR in kinds:
        shape = "x".join(map(str, value.shape)) or "scalar"
        return f"tensor({shape}, {to_setting(value.dtype)}, {value.device})"
    return qualified(type(value)) if _MODULE in kinds else None


def is_predicate(name: str, function: Any) -> bool:
    """Return whether a function of PyTorch only reads a flag."""
    home = getattr(function, "__module__", None) or ""
    return home.partition(".")[0] == "torch" and _PREDICATE.fullmatch(name) is not None
