"""The API calls of a script as JSON (`joulediff.apis/1`): the whole record, and back from a file of any origin."""

from __future__ import annotations

from joulediff.archive import apis
from joulediff.archive.codec import to_plain
from joulediff.model.apis.api_run import ApiRun
from joulediff.model.errors import ArchiveError
from joulediff.report.json import dump

_DAMAGED = "copy it again from where it was made, or run `joulediff apis` again"
_TOO_LARGE = "name a JSON file that `joulediff apis` wrote"


def api_run_to_json(run: ApiRun) -> str:
    """Return a run as JSON text, complete."""
    return dump(to_plain(run))


def api_run_from_json(data: bytes) -> ApiRun:
    """Return the run in JSON text; raises ArchiveError that names the place of a wrong value."""
    try:
        return apis.from_json(data)
    except ArchiveError as error:
        raise ArchiveError(error.what, fix=error.fix or _DAMAGED) from None
    except (MemoryError, RecursionError):
        raise ArchiveError("it needs more memory than there is", fix=_TOO_LARGE) from None
