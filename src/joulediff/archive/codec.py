"""Converts dataclasses to plain data for JSON, and back by the types their fields declare.

Reading is strict: a value that its field does not allow raises an `ArchiveError` that names the place. Unknown keys
are ignored and a field with a default may be missing, so files of other versions stay readable.

A field's metadata says where JSON differs from the dataclass: `{"name": "regions"}` stores the field under another key,
`{"inline": True}` stores the fields of a nested dataclass beside those of the outer one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from joulediff.model.errors import ArchiveError

# Enough for 64 bits, as seeds have them. Python reads longer numbers in quadratic time.
MAX_DIGITS = 20
MAX_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class Document:
    """The document that is read: its name in messages, and whether null stands for a number that is not finite."""

    within: str = " in its manifest"
    null_is_nan: bool = False


_MANIFEST = Document()


def to_plain(value: Any, *, keep_text: bool = False) -> Any:
    """Return a dataclass, tuple, mapping or scalar as data that JSON can hold.

    Text becomes valid Unicode; with `keep_text` it stays as it is, for a writer that escapes it.
    """
    if is_dataclass(value):
        return _from_record(value, keep_text=keep_text)
    if isinstance(value, Mapping):
        return {to_scalar(key, keep_text=keep_text): to_plain(each, keep_text=keep_text) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(each, keep_text=keep_text) for each in value]
    return to_scalar(value, keep_text=keep_text)


def to_scalar(value: Any, *, keep_text: bool = False) -> Any:
    """Return the plain Python number or text behind a subclass or a scalar of NumPy; text as valid Unicode."""
    if isinstance(value, str):
        text = str.__str__(value)
        return text if keep_text or is_unicode(text) else text.encode("utf-8", "replace").decode("utf-8")
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
    """Return plain data as a value of the type `hint`; errors name `place`, where it was found."""
    origin, options = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return _record(hint, value, place, document)
    if origin in (Union, UnionType):
        return _one_of(options, value, place, document)
    if origin is Literal:
        return _expect(isinstance(value, str) and value in options, value, place, document)
    if origin in (tuple, Sequence):
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
    """Return the data in JSON text; raises ArchiveError for other text, or JSON that is nested too deeply."""
    try:
        return json.loads(data, parse_int=_parse_int)
    except RecursionError:
        raise ArchiveError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise ArchiveError(f"its JSON cannot be parsed ({shown(error)})") from None


def shown(value: object) -> str:
    """Return a value from a file as one short printable line, for messages."""
    text = str(value) if isinstance(value, str | int | float | Exception) else type(value).__name__
    words = " ".join(text[: 2 * MAX_SHOWN_CHARS].split())
    line = "".join(c if c.isprintable() else "?" for c in words)
    return line if len(line) <= MAX_SHOWN_CHARS else line[: MAX_SHOWN_CHARS - 1] + "…"


def _from_record(value: Any, *, keep_text: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    kind: Any = type(value)
    for member in _members(kind):
        plain = to_plain(getattr(value, member.field.name), keep_text=keep_text)
        if member.is_inline:
            found |= plain
        else:
            found[member.key] = plain
    return found


def _record(kind: Any, value: Any, place: str, document: Document) -> Any:
    _expect(isinstance(value, dict), value, place, document)
    found = {}
    for member in _members(kind):
        name = member.field.name
        if member.is_inline:
            if member.is_required or not value.keys().isdisjoint(_keys(member.hint)):
                found[name] = _record(member.hint, value, place, document)
        elif member.key in value:
            found[name] = from_plain(member.hint, value[member.key], f"{place}.{member.key}", document)
        elif member.is_required:
            raise ArchiveError(f"{shown(place)}.{member.key} is missing{document.within}")
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


@dataclass(frozen=True, slots=True)
class _Member:
    """A field of a dataclass, its type, and its place in JSON."""

    field: Field[Any]
    hint: Any

    @property
    def key(self) -> str:
        return str(self.field.metadata.get("name", self.field.name))

    @property
    def is_inline(self) -> bool:
        return bool(self.field.metadata.get("inline", False))

    @property
    def is_required(self) -> bool:
        return self.field.default is MISSING and self.field.default_factory is MISSING


@cache
def _members(kind: Any) -> tuple[_Member, ...]:
    hints = get_type_hints(kind)
    found = tuple(_Member(field, hints[field.name]) for field in fields(kind))
    for member in found:
        if member.is_inline and not is_dataclass(member.hint):
            raise TypeError(f"{kind.__name__}.{member.field.name} is no dataclass, so it cannot be inline")
    keys = [key for member in found for key in (_keys(member.hint) if member.is_inline else (member.key,))]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise TypeError(f"{kind.__name__} has the key {min(twice)} twice in JSON")
    return found


@cache
def _keys(kind: Any) -> tuple[str, ...]:
    """Return the keys that a dataclass has in JSON, those of inline fields among them."""
    return tuple(key for each in _members(kind) for key in (_keys(each.hint) if each.is_inline else (each.key,)))
