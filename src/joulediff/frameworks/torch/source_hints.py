"""PyTorch in source code: its values and predicates, and the calls that change its settings or those of a model.

torch is not imported: classes are known by name.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from joulediff.frameworks.torch.switches.table import (
    AUTOCAST_KINDS,
    DEFAULT_DEVICE,
    DEFAULT_DEVICE_SETTER,
    PREFIX,
    RENAMED,
    SWITCHES,
    autocast_names,
)
from joulediff.model.run import to_setting
from joulediff.pysource.setting_sites import UNKNOWN, Effect, Setters, ValueOf, value_in
from joulediff.pysource.tracing.value_origin import qualified

# Code of torch.fx and of torch.package has these in place of a file.
GENERATED = ("<eval_with_key>", "<torch_package")
_TENSOR = "torch.Tensor"
_MODULE = "torch.nn.modules.module.Module"
# Called without arguments, these only read a flag.
_PREDICATE = re.compile(r"(is|are|has)_\w+|get_\w*(enabled|precision|dtype|mode|threads)\w*|\w+_enabled|\w+_allowed")
_FLAGS = re.compile(r"(torch\.backends(?:\.\w+)?)\.(?:set_)?flags")
# The parameters of `flags()` of these backends, each of which has a default and so is set in any case.
_FLAG_NAMES = {
    "torch.backends.cudnn": ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32"),
    "torch.backends.mkldnn": ("enabled", "deterministic", "allow_tf32"),
}
_DTYPE = re.compile(r"torch\.(b?float\d*|half|double|u?int\d+|bool)")
_DTYPES = {"half": "float16", "float": "float32", "double": "float64"}


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


def _functions() -> dict[str, tuple[Effect, ...]]:
    found: defaultdict[str, list[Effect]] = defaultdict(list)
    for switch in SWITCHES:
        for setter in switch.setters:
            found[PREFIX + setter.function].append(setter.to_effect(switch.name))
    found[PREFIX + DEFAULT_DEVICE_SETTER.function].append(DEFAULT_DEVICE_SETTER.to_effect(DEFAULT_DEVICE))
    return {name: tuple(effects) for name, effects in found.items()}


def _effects_of(function: str, call: ast.Call, value_of: ValueOf) -> Iterator[tuple[str, object]]:
    if flags := _FLAGS.fullmatch(function):
        yield from _flags(flags.group(1), call, value_of, has_defaults=function.endswith(".flags"))
    if function.endswith("autocast"):
        yield from _autocast(function, call, value_of)


def _flags(backend: str, call: ast.Call, value_of: ValueOf, *, has_defaults: bool) -> Iterator[tuple[str, object]]:
    words = _FLAG_NAMES.get(backend, ())
    found: dict[str, object] = dict.fromkeys(words, UNKNOWN) if has_defaults else {}
    found |= {each.arg.removeprefix("_"): value_of(each.value) for each in call.keywords if each.arg}
    found |= {word: value_of(each) for word, each in zip(words, call.args, strict=False)}
    yield from ((f"{backend}.{word}", value) for word, value in found.items())


def _autocast(function: str, call: ast.Call, value_of: ValueOf) -> Iterator[tuple[str, object]]:
    fixed = re.search(r"\.(cpu|cuda)\.", function)
    kind = fixed.group(1) if fixed else value_in(call, Effect("", 0, "device_type"), value_of)
    for each in AUTOCAST_KINDS:
        if kind == each or kind not in AUTOCAST_KINDS:
            enabled, dtype = autocast_names(each)
            yield enabled, value_in(call, Effect("", None, "enabled", True), value_of)
            yield dtype, value_in(call, Effect("", None, "dtype"), value_of)


def _constant(name: str) -> object:
    """Return a data type by its recorded name."""
    if not _DTYPE.fullmatch(name):
        return UNKNOWN
    word = name.removeprefix(PREFIX)
    return _DTYPES.get(word, word)


SETTERS = Setters(
    package="torch",
    functions=_functions(),
    effects_of=_effects_of,
    constant=_constant,
    renamed=RENAMED,
    words={"torch_dtype": "dtype"},
    methods={
        "eval": Effect("training", None, "", False),
        "train": Effect("training", 0, "", True),
        "half": Effect("dtype", None, "", "float16"),
        "bfloat16": Effect("dtype", None, "", "bfloat16"),
        "float": Effect("dtype", None, "", "float32"),
        "double": Effect("dtype", None, "", "float64"),
    },
    casts=("to",),
)
