"""Reports as JSON: complete, and named by a schema that later versions keep readable.

Each report is a dataclass that the codec of archives writes. A number that is not finite is null: unknown, never zero.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields
from typing import Any, TypeVar

from joulediff.archive.codec import to_plain

# C1 controls, marks that turn the direction of text, and lone surrogates; json escapes the rest itself.
_UNSAFE = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_Record = TypeVar("_Record")


def dump(record: Any) -> str:
    """Return a dataclass or plain data as JSON text that can be written anywhere.

    Names come from other people's programs: characters that control a terminal, or are no Unicode, are escaped.
    """
    plain = _finite(to_plain(record, keep_text=True))
    text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def copy_fields(kind: type[_Record], source: object, **others: Any) -> _Record:
    """Return a `kind` with the fields of `source` that have the same names, and with `others`."""
    names = [field.name for field in fields(kind) if field.name not in others]  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names}, **others)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value
