"""Scratch files and folders disappear, also when their process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from joulediff.archive import scratch
from joulediff.archive.scratch import open_scratch_file, open_scratch_folder, write_whole

LIMIT_S = 60.0
USE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from joulediff.archive.scratch import open_scratch_file, open_scratch_folder
with {opener}() as place:
    (place if place.is_file() else place / "file").write_bytes(b"content")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_written_file_replaces_another(tmp_path: Path) -> None:
    for content in (b"old", b"new content"):
        write_whole(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    write_whole(tmp_path / "whole", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("refused", ["open", "link"])
def test_a_file_system_without_unnamed_files(refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(95, "Operation not supported")

    with monkeypatch.context() as patched:
        patched.setattr(scratch.os, refused, refuse)
        write_whole(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_scratch_file_is_shared_between_processes_and_has_no_name(folder: Path) -> None:
    with open_scratch_file() as path:
        subprocess.run([sys.executable, "-c", f"open({str(path)!r}, 'wb').write(b'content')"], check=True)
        assert path.read_bytes() == b"content"
        if sys.platform == "linux":
            assert list(folder.iterdir()) == []
    assert list(folder.iterdir()) == []


def test_a_scratch_folder_is_removed(folder: Path) -> None:
    with open_scratch_folder() as place:
        (place / "file").touch()
        assert list(folder.iterdir()) == [place]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("opener", ["open_scratch_file", "open_scratch_folder"])
def test_a_killed_process_leaves_no_scratch(opener: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", USE_AND_DIE.format(opener=opener)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    end_s = time.monotonic() + LIMIT_S
    while list(tmp_path.iterdir()) and time.monotonic() < end_s:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []
