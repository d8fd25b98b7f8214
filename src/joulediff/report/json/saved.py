"""A result in JSON that can be read back, whichever it is: its schema says that."""

from __future__ import annotations

from joulediff.archive.codec import read_json
from joulediff.model.apis import api_diff, api_run
from joulediff.model.apis.api_diff import ApiDiff
from joulediff.model.apis.api_run import ApiRun
from joulediff.model.diff import Diff
from joulediff.model.errors import ArchiveError
from joulediff.report.json.apis import api_run_from_json
from joulediff.report.json.apis_diff import api_diff_from_json
from joulediff.report.json.diff import MAX_DIFF_BYTES, diff_from_json

# Equal for all results.
MAX_BYTES = MAX_DIFF_BYTES


def result_from_json(data: bytes) -> Diff | ApiDiff | ApiRun:
    """Return the result in JSON text; raises ArchiveError for any other text."""
    family = _family(data)
    if family == _family_of(api_run.SCHEMA):
        return api_run_from_json(data)
    if family == _family_of(api_diff.SCHEMA):
        return api_diff_from_json(data)
    return diff_from_json(data)


def _family(data: bytes) -> str | None:
    if len(data) > MAX_BYTES:
        return None
    try:
        plain = read_json(data)
    except (ArchiveError, MemoryError):  # raised once more by the reader, with its advice
        return None
    schema = plain.get("schema") if isinstance(plain, dict) else None
    return _family_of(schema) if isinstance(schema, str) else None


def _family_of(schema: str) -> str:
    return schema.rpartition("/")[0]
