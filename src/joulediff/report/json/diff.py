"""A diff as JSON, and back from a file that anyone may have written. Every report can be made from it.

The names are those of the dataclasses in `model/diff` and `model/finding`. A number that is not finite is null.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from joulediff.archive.codec import Document, from_plain, read_json, shown, to_plain
from joulediff.model.diff import SCHEMA, Diff
from joulediff.model.errors import ArchiveError
from joulediff.report.json import dump

# A diff of two runs of 10,000 operators takes about 2 MB.
MAX_DIFF_BYTES = 64 * 10**6
# Names of kernels with template arguments have up to a few thousand. Longer texts are cut when they are read.
MAX_TEXT_CHARS = 20_000
_DIFF = Document(within="", null_is_nan=True)
_NAME_ONE = "name a JSON file that `joulediff diff` wrote"
_DAMAGED = "copy it again from where it was made, or compare the runs again"
_FAMILY = SCHEMA.rpartition("/")[0]
_FIRST = f"{_FAMILY}/1"


def diff_to_json(diff: Diff) -> str:
    """Return a diff as JSON text, complete."""
    # A diff is read back, and only valid Unicode is.
    return dump(to_plain(diff))


def diff_from_json(data: bytes) -> Diff:
    """Return the diff in JSON text; raises ArchiveError that names the place of a wrong value."""
    if len(data) > MAX_DIFF_BYTES:
        raise ArchiveError(f"it has {len(data):,} bytes; {MAX_DIFF_BYTES:,} are allowed", fix=_NAME_ONE)
    try:
        plain = read_json(data)
        _check_schema(plain)
        for node in _containers(plain):
            _mend(node)
            _add_proof(node)
        found: Diff = from_plain(Diff, plain, "diff", _DIFF)
    except ArchiveError as error:
        raise ArchiveError(error.what, fix=error.fix or _DAMAGED) from None
    except (MemoryError, RecursionError):
        raise ArchiveError("it needs more memory than there is", fix=_NAME_ONE) from None
    return found


def _check_schema(plain: Any) -> None:
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if schema in (SCHEMA, _FIRST):
        return
    if not isinstance(schema, str):
        raise ArchiveError("it holds no diff", fix=_NAME_ONE)
    if schema.rpartition("/")[0] == _FAMILY:
        raise ArchiveError(f"it is a {shown(schema)}, too new to be read", fix="install a newer joulediff")
    raise ArchiveError(f"it is a {shown(schema)}, no {SCHEMA}", fix=_NAME_ONE)


def _containers(plain: Any) -> Iterator[dict[Any, Any] | list[Any]]:
    """Yield all mappings and lists, without recursion: a file may be nested deeply."""
    todo = [plain]
    while todo:
        node = todo.pop()
        if isinstance(node, dict | list):
            yield node
            children = node.values() if isinstance(node, dict) else node
            todo.extend(child for child in children if isinstance(child, dict | list))


def _mend(node: dict[Any, Any] | list[Any]) -> None:
    """Cut texts that are too long, and give energies with unknown bounds an infinite interval."""
    for key, value in list(node.items()) if isinstance(node, dict) else enumerate(node):
        if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
            node[key] = value[: MAX_TEXT_CHARS - 1] + "…"
        elif isinstance(value, dict) and value.keys() >= {"joules", "low", "high", "source"}:
            node[key] = _energy(value)


def _add_proof(node: dict[Any, Any] | list[Any]) -> None:
    """Give a finding of the first schema its word of proof: it says only whether a trial succeeded."""
    if isinstance(node, dict) and "confirmed" in node and "proof" not in node:
        node["proof"] = "replacement confirmed" if node["confirmed"] is True else "observed"


def _energy(plain: dict[Any, Any]) -> dict[Any, Any] | None:
    if plain["joules"] is None:
        return None
    ends = {"low": -math.inf, "high": math.inf}
    return {**plain, **{end: limit for end, limit in ends.items() if plain[end] is None}}
