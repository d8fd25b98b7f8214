"""A full disk is an error of the environment, with what to do, wherever it shows."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from joulediff.cli import main
from joulediff.model.errors import full_disk
from joulediff.process.main import ProgressSender, _explain
from joulediff.process.protocol import Sender


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_no_fault_of_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/tmp/joulediff-x")

    monkeypatch.setattr("joulediff.cli.cli.main", fail)
    with pytest.raises(SystemExit) as ended:
        main([])
    shown = capsys.readouterr().err
    assert ended.value.code == 1
    assert shown.startswith(f"joulediff: cannot write /tmp/joulediff-x: {os.strerror(number)}\n  free space")
    assert "fault" not in shown


def test_another_error_of_the_system_is_still_a_fault() -> None:
    assert full_disk(OSError(errno.EACCES, "no")) is None
    assert full_disk(ValueError("x")) is None


def test_a_full_disk_in_the_process_of_the_program(tmp_path: Path) -> None:
    with (tmp_path / "pipe").open("wb") as file:
        failure = _explain(OSError(errno.ENOSPC, "No space left on device"), ProgressSender(Sender(file.fileno())))
    assert (failure.kind, failure.what) == ("error", "cannot write: No space left on device")
    assert failure.fix is not None and "TMPDIR" in failure.fix


def test_a_report_to_a_full_device(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("the system has no /dev/full")
    kept = os.dup(1)
    try:
        with open("/dev/full", "w") as full:  # noqa: PTH123
            monkeypatch.setattr("sys.stdout", full)
            with pytest.raises(SystemExit) as ended:
                main(["--version"])
            monkeypatch.undo()
            assert ended.value.code == 1
            os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    assert "No space left on device" in capfd.readouterr().err
