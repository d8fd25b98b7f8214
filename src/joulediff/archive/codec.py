"""Records as plain data for JSON, and back by the types their fields declare.

Reading is strict: what a field does not allow is an `ArchiveError` that names the place. A key no field
knows is ignored, and a field with a default may be missing: files of other versions stay readable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from joulediff.model.errors import ArchiveError

# Enough for 64 bits, as seeds have them. Python reads longer numbers in quadratic time.
MAX_DIGITS = 20
MAX_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class Document:
    """What is read: how messages call it, and whether null stands for a number that was not finite."""

    within: str = " in its manifest"
    null_is_nan: bool = False


_MANIFEST = Document()


def to_plain(value: Any) -> Any:
    """Return a record, tuple, mapping or scalar as what JSON knows."""
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {to_scalar(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(each) for each in value]
    return to_scalar(value)


def to_scalar(value: Any) -> Any:
    """Return the plain Python number or text behind a subclass or a scalar of NumPy; text as valid Unicode."""
    if isinstance(value, str):
        text = str.__str__(value)
        return text if is_unicode(text) else text.encode("utf-8", "replace").decode("utf-8")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return value.item() if hasattr(value, "item") else value


def is_unicode(text: str) -> bool:
    """Return whether the text can be stored: names of files may carry half a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def from_plain(hint: Any, value: Any, place: str, document: Document = _MANIFEST) -> Any:
    """Return what `hint`, the type of a record's field, makes of plain data found at `place`."""
    origin, options = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return _record(hint, value, place, document)
    if origin in (Union, UnionType):
        return _one_of(options, value, place, document)
    if origin is Literal:
        return _expect(isinstance(value, str) and value in options, value, place, document)
    if origin is tuple:
        _expect(isinstance(value, list), value, place, document)
        return tuple(from_plain(options[0], each, f"{place}[{at}]", document) for at, each in enumerate(value))
    if origin is not None:
        _expect(isinstance(value, dict) and all(map(is_unicode, value)), value, place, document)
        return {key: from_plain(options[1], each, f"{place}.{key}", document) for key, each in value.items()}
    if hint is float and value is None and document.null_is_nan:
        return math.nan
    if hint is float:
        return float(_expect(type(value) in (float, int), value, place, document))
    if hint is int:
        return _expect(type(value) is int and abs(value) < 10**MAX_DIGITS, value, place, document)
    return _expect(type(value) is hint and (hint is not str or is_unicode(value)), value, place, document)


def read_json(data: bytes) -> Any:
    """Return what JSON text holds; raises ArchiveError for text that is none, or too deep."""
    try:
        return json.loads(data, parse_int=_parse_int)
    except RecursionError:
        raise ArchiveError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise ArchiveError(f"its JSON cannot be parsed ({shown(error)})") from None


def shown(value: object) -> str:
    """Return a value from a file as it may stand in a message: one short line."""
    text = str(value) if isinstance(value, str | int | float | Exception) else type(value).__name__
    words = " ".join(text[: 2 * MAX_SHOWN_CHARS].split())
    line = "".join(c if c.isprintable() else "?" for c in words)
    return line if len(line) <= MAX_SHOWN_CHARS else line[: MAX_SHOWN_CHARS - 1] + "…"


def _record(kind: Any, value: Any, place: str, document: Document) -> Any:
    _expect(isinstance(value, dict), value, place, document)
    hints, found = _hints(kind), {}
    for field in fields(kind):
        if field.name in value:
            found[field.name] = from_plain(hints[field.name], value[field.name], f"{place}.{field.name}", document)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ArchiveError(f"{shown(place)}.{field.name} is missing{document.within}")
    try:
        return kind(**found)
    except ValueError as error:
        raise ArchiveError(f"{shown(place)} is impossible: {shown(error)}") from None


def _one_of(options: tuple[Any, ...], value: Any, place: str, document: Document) -> Any:
    if value is None:
        return _expect(NoneType in options, value, place, document)
    real = [option for option in options if option is not NoneType]
    hint = real[0] if len(real) == 1 else type(value)
    _expect(hint in real, value, place, document)
    return from_plain(hint, value, place, document)


def _expect(holds: bool, value: Any, place: str, document: Document) -> Any:  # noqa: FBT001
    if not holds:
        kind = "null" if value is None else type(value).__name__
        note = f" {shown(value)}" if isinstance(value, str | int | float) else ""
        raise ArchiveError(f"{shown(place)}{document.within} may not be the {kind}{note}")
    return value


def _parse_int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
