"""Make text from a recording harmless for a terminal.

Anyone can write the names in a recording: an escape sequence must not colour, clear or retitle the reader's terminal,
and no mark may turn the direction of text. Characters that do not print are shown by their codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

_Record = TypeVar("_Record")


def plain_text(text: str) -> str:
    r"""Return `text` with every character that does not print as its escape: `\x1b`, `\n`, `\u202e`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def plain_record(record: _Record) -> _Record:
    """Return a dataclass, tuple or mapping with all its texts sanitized, at any depth."""
    cleaned: Any = record
    if isinstance(record, str):
        cleaned = plain_text(record)
    elif isinstance(record, tuple):
        cleaned = tuple(plain_record(each) for each in record)
    elif isinstance(record, Mapping):
        cleaned = {plain_record(name): plain_record(each) for name, each in record.items()}
    elif is_dataclass(record) and not isinstance(record, type):
        cleaned = replace(record, **{f.name: plain_record(getattr(record, f.name)) for f in fields(record)})
    return cleaned  # type: ignore[no-any-return]
