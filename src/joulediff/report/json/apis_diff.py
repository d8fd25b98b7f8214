"""The comparison of two runs of scripts as JSON (`joulediff.apis-diff/1`): the whole record, and back."""

from __future__ import annotations

from joulediff.archive.apis import MAX_RECORD_BYTES, check_schema, check_values
from joulediff.archive.codec import Document, from_plain, read_json, to_plain
from joulediff.model.apis.api_diff import SCHEMA, ApiDiff
from joulediff.model.errors import ArchiveError
from joulediff.report.json import dump

_DIFF = Document(within="")
_NAME_ONE = "name a JSON file that `joulediff diff` wrote"
_DAMAGED = "copy it again from where it was made, or compare the runs again"


def api_diff_to_json(diff: ApiDiff) -> str:
    """Return a comparison as JSON text, complete."""
    return dump(to_plain(diff))


def api_diff_from_json(data: bytes) -> ApiDiff:
    """Return the comparison in JSON text; raises ArchiveError that names the place of a wrong value."""
    if len(data) > MAX_RECORD_BYTES:
        raise ArchiveError(f"it has {len(data):,} bytes; {MAX_RECORD_BYTES:,} are allowed", fix=_NAME_ONE)
    try:
        plain = read_json(data)
        check_schema(plain, SCHEMA, "diff of API calls", _NAME_ONE)
        check_values(plain)
        found: ApiDiff = from_plain(ApiDiff, plain, "diff", _DIFF)
    except ArchiveError as error:
        raise ArchiveError(error.what, fix=error.fix or _DAMAGED) from None
    except (MemoryError, RecursionError):
        raise ArchiveError("it needs more memory than there is", fix=_NAME_ONE) from None
    return found
