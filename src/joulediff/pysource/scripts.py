"""Checks a script before it is run: a file that cannot run gives an error without a traceback.

Nothing of the script runs here.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from joulediff.model.errors import ProgramError

NOTEBOOK = ".ipynb"


def check_script(script: str, *, parses: bool = True) -> None:
    """Raise ProgramError if a script cannot be read, or with `parses` is no Python of this version."""
    path = Path(script)
    if path.is_dir():
        raise ProgramError(f"{script} is a folder, not a script", fix=f"name a file in it: {path / 'FILE.py'}")
    if path.suffix == ".jd":
        raise ProgramError(f"{script} is a recording, not a script", fix=f"show it: joulediff show {script}")
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        raise ProgramError(f"there is no file {script}", fix="check the path, and the folder you are in") from None
    except OSError as error:
        raise ProgramError(f"{script} cannot be read ({error.strerror})", fix="check that you may read it") from error
    if parses and path.suffix != NOTEBOOK:
        check_source(source, script)


def check_source(source: bytes, name: str) -> None:
    """Raise ProgramError if source is no Python of this version."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ProgramError(
            f"{name} is no valid Python{line}: {what}",
            fix="correct it; a script for another Python version needs --python and that version's joulediff",
        ) from error
