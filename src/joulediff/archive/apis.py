"""The record of a script's API calls as checked JSON, alone or as the one entry of a `.jd` file beside its manifest.

Neither is trusted: sizes, numbers and references are checked before a record is made. The record that is written
passes the same checks.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any

from joulediff.archive.check import INT64, check_version
from joulediff.archive.codec import Document, from_plain, read_json, shown, to_plain
from joulediff.archive.container import JSON_FACTOR, MANIFEST, missing_bytes
from joulediff.model.apis.api_run import SCHEMA, ApiRun
from joulediff.model.errors import ArchiveError

MANIFEST_SCHEMA = "joulediff.apis"
FORMAT = 1
MIN_READER = 1
ENTRY = "apis.json"
# A call site takes about 700 bytes, so this is room for 50,000 of them with a call tree.
MAX_RECORD_BYTES = 64 * 10**6
_RECORD = Document(within=" in its record")
_NAME_ONE = "name a recording, or its JSON, that `joulediff apis` wrote"
_NEVER_NEGATIVE = frozenset(
    {
        "calls",
        "column",
        "count",
        "cpu_s",
        "input_bytes",
        "isolated_calls",
        "line",
        "longest_s",
        "period_s",
        "seconds",
        "self_seconds",
        "shortest_s",
    }
)


def is_manifest(manifest: Any) -> bool:
    """Return whether a manifest is that of a script's API calls."""
    return isinstance(manifest, dict) and manifest.get("schema") == MANIFEST_SCHEMA


def to_entries(run: ApiRun) -> dict[str, bytes]:
    """Return the entries of the file of a run; raises ArchiveError if it contradicts itself."""
    plain = to_plain(run)
    check_values(plain)
    _check_references(run)
    record = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    if len(record) > MAX_RECORD_BYTES:
        raise ArchiveError(
            f"the calls and sources take {len(record):,} bytes, and {MAX_RECORD_BYTES:,} are allowed",
            fix="measure fewer libraries, or fewer modules of the program",
        )
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "format": FORMAT,
        "min_reader": MIN_READER,
        "tool": to_plain(run.tool),
        "record": {"size_bytes": len(record), "sha256": hashlib.sha256(record).hexdigest()},
    }
    return {MANIFEST: json.dumps(manifest, indent=1).encode(), ENTRY: record}


def from_entries(manifest: Any, entries: Mapping[str, memoryview], size_bytes: int) -> ApiRun:
    """Return the run in the entries of a file; raises ArchiveError if they are none, or were changed."""
    check_version(manifest, schema=MANIFEST_SCHEMA, newest=FORMAT)
    data, listed = entries.get(ENTRY), manifest.get("record")
    if data is None:
        raise ArchiveError(f"its entry {ENTRY} is missing")
    if not isinstance(listed, dict):
        raise ArchiveError(f"its manifest does not list its entry {ENTRY}")
    memory = JSON_FACTOR * (len(entries[MANIFEST]) + len(data))
    if missing_bytes(size_bytes, memory):
        raise ArchiveError(f"it claims to hold {memory} bytes in a file of {size_bytes}")
    record = bytes(data) if len(data) <= MAX_RECORD_BYTES else b""
    if listed.get("size_bytes") != len(data) or listed.get("sha256") != hashlib.sha256(record).hexdigest():
        raise ArchiveError(f"its entry {ENTRY} was changed after it was written")
    return from_json(record)


def from_json(data: bytes) -> ApiRun:
    """Return the run in JSON text; raises ArchiveError that names the place of a wrong value."""
    if len(data) > MAX_RECORD_BYTES:
        raise ArchiveError(f"it has {len(data):,} bytes; {MAX_RECORD_BYTES:,} are allowed", fix=_NAME_ONE)
    plain = read_json(data)
    check_schema(plain, SCHEMA, "record of API calls", _NAME_ONE)
    check_values(plain)
    run: ApiRun = from_plain(ApiRun, plain, "apis", _RECORD)
    _check_references(run)
    return run


def check_schema(plain: Any, schema: str, what: str, fix: str) -> None:
    """Raise ArchiveError unless JSON data names this schema; a later one of its family needs a newer joulediff."""
    found = plain.get("schema") if isinstance(plain, dict) else None
    if found == schema:
        return
    if not isinstance(found, str):
        raise ArchiveError(f"it holds no {what}", fix=fix)
    if found.rpartition("/")[0] == schema.rpartition("/")[0]:
        raise ArchiveError(f"it is a {shown(found)}, too new to be read", fix="install a newer joulediff")
    raise ArchiveError(f"it is a {shown(found)}, no {schema}", fix=fix)


def check_values(plain: Any) -> None:
    """Raise ArchiveError for a number that is not finite, too large, or negative where it counts or times."""
    for key, value in _numbers(plain):
        if isinstance(value, float) and not math.isfinite(value):
            raise ArchiveError(f"its {shown(key)} holds a number that is not finite")
        if isinstance(value, int) and not INT64[0] <= value <= INT64[1]:
            raise ArchiveError(f"its {shown(key)} holds {shown(value)}, which is out of range")
        if value < 0 and key in _NEVER_NEGATIVE:
            raise ArchiveError(f"its {shown(key)} holds {shown(value)}, which is negative")


def _numbers(plain: Any) -> Iterator[tuple[str, int | float]]:
    """Yield all numbers with the key of each. One iterator is kept for each level: a file may be deep or wide."""
    levels: list[Iterator[tuple[str, Any]]] = [iter([("record", plain)])]
    while levels:
        for key, node in levels[-1]:
            if isinstance(node, dict):
                levels.append(iter(node.items()))
                break
            if isinstance(node, list):
                levels.append(zip(repeat(key), node, strict=False))
                break
            if isinstance(node, int | float):
                yield key, node
        else:
            levels.pop()


def _check_references(run: ApiRun) -> None:
    for name in (*run.ledger, *(domain for api in run.apis for domain in api.domains)):
        if name not in run.domains:
            raise ArchiveError(f"it has energy of the domain {shown(name)}, which is not among its domains")
    for at, node in enumerate(run.tree):
        if node.parent is not None and not 0 <= node.parent < at:
            raise ArchiveError(f"node {at} of its call tree refers to node {node.parent}, which is not above it")
        if not 0 <= node.api < len(run.apis):
            raise ArchiveError(f"node {at} of its call tree refers to API {node.api} of {len(run.apis)}")
        sites = len(run.apis[node.api].sites)
        if not 0 <= node.site < sites:
            raise ArchiveError(f"node {at} of its call tree refers to site {node.site} of {sites}")
