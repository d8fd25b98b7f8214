"""Makes a recorded operator callable again.

An archive is untrusted data: only operators that compute on their tensors are built, by the names of PyTorch's own
dispatcher, and none that accesses files or the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from joulediff.frameworks.torch.capture.arguments import decode
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Op

# Operators of PyTorch itself that reach beyond their tensors.
_REFUSED = frozenset({"aten::from_file", "aten::save", "aten::_print", "aten::set_", "aten::to_mkldnn"})
COLLECTIVES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem", "_dtensor")


def bind(op: Op, tensors: Sequence[Any]) -> partial[Any]:
    """Return a function that runs `op` on these very tensors, with nothing left to decode when it is called."""
    args, kwargs = decode(op.arguments, tensors)
    return partial(find_function(op), *args, **kwargs)


def refuse(op: Op) -> None:
    """Raise where `op` cannot be built on any tensors."""
    find_function(op)
    decode(op.arguments, [None] * len(op.inputs))


def find_function(op: Op) -> Any:
    """Return the function behind an operator; raises JoulediffError for one that must not or cannot be called."""
    import torch

    namespace, _, name = op.name.partition("::")
    refused = JoulediffError(f"{op.name} cannot be run again from a record", fix="it is measured within the program")
    if not name.isidentifier() or not namespace.isidentifier() or op.name in _REFUSED:
        raise refused
    if namespace == "triton":
        raise refused
    if namespace in COLLECTIVES:  # the others do not run it again
        raise JoulediffError("a collective waits for other processes", fix=refused.fix)
    try:
        return getattr(getattr(getattr(torch.ops, namespace), name), op.overload)
    except (AttributeError, RuntimeError) as error:
        raise JoulediffError(
            f"this PyTorch ({torch.__version__}) has no operator {op.name}.{op.overload}",
            fix="load the library that registers it, or use the version that recorded it",
        ) from error
