"""Let the compiler of PyTorch read the plain code of a function whose calls are measured.

The compiler reads the code of each function that it compiles, and knows no constant that is an object of ours. Calls
inside compiled code are not seen then; the call of the compiled function is.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from joulediff.frameworks.torch.after_import import call_after_import, forget_import

_MODULE = "torch._dynamo.bytecode_transformation"
# The function that reads code, of newer versions and of older ones.
_READERS = ("_cached_cleaned_instructions", "cleaned_instructions")
_plain: list[Callable[[CodeType], CodeType]] = []


def read_plain_code(plain_code: Callable[[CodeType], CodeType]) -> Callable[[], None]:
    """Let the compiler read the code that `plain_code` returns for a function's own; return what ends that."""
    _plain.append(plain_code)
    call_after_import(_MODULE, _wrap)

    def end() -> None:
        if plain_code in _plain:
            _plain.remove(plain_code)
        if not _plain:
            forget_import(_MODULE, _wrap)

    return end


def _wrap(module: ModuleType) -> None:
    name = next((each for each in _READERS if hasattr(module, each)), None)
    read = None if name is None else getattr(module, name)
    if name is None or read is None or hasattr(read, "reads_plain_code"):
        return

    @functools.wraps(read)
    def read_instructions(code: CodeType, *args: Any, **kwargs: Any) -> Any:
        for plain_code in _plain:
            code = plain_code(code)
        return read(code, *args, **kwargs)

    read_instructions.reads_plain_code = True  # type: ignore[attr-defined]
    # Other modules of the compiler have the function by its name.
    for each in list(sys.modules.values()):
        if getattr(each, "__name__", "").startswith("torch._dynamo") and vars(each).get(name) is read:
            setattr(each, name, read_instructions)
