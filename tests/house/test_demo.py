"""The demo: its commands exist, its programs do the same job, and recordings that are missing are left out."""

import importlib.util
import shutil

import pytest
from click.testing import CliRunner

import paths
from joulediff.cli.diff import command as diff_command
from joulediff.pysource.programs import load_step

ROOT = paths.ROOT
GOLDEN = ROOT / "tests" / "golden" / "match"


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bundle(root):
    """Put two recordings where the demo looks for those of an H200."""
    folder = root / "examples" / "h200"
    folder.mkdir(parents=True)
    shutil.copy(GOLDEN / "h200_bert.jd", folder / "wasteful.jd")
    shutil.copy(GOLDEN / "h200_bert_again.jd", folder / "lean.jd")


def test_without_recordings_it_compares_the_programs_alone(demo, tmp_path):
    names = [command[0] for command in demo.commands(tmp_path)]
    assert names == ["doctor", "diff"]


def test_recordings_that_are_there_are_compared_last(demo, tmp_path):
    bundle(tmp_path)
    assert demo.commands(tmp_path)[-1] == ["diff", "examples/h200/wasteful.jd", "examples/h200/lean.jd"]


def test_one_recording_alone_is_no_diff(demo, tmp_path):
    bundle(tmp_path)
    (tmp_path / "examples" / "h200" / "lean.jd").unlink()
    assert len(demo.commands(tmp_path)) == 2


def test_the_diff_of_recordings_is_shown_anywhere(demo, tmp_path, monkeypatch):
    bundle(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(diff_command, demo.commands(tmp_path)[-1][1:], standalone_mode=False)
    assert done.exception is None
    assert done.return_value == 0
    assert "NVIDIA H200" in done.output
    assert "all of a step" in done.output


def test_programs_named_in_the_demo_exist(demo):
    named = [word for command in demo.commands(ROOT) for word in command if word.endswith(".py")]
    assert named
    assert all((ROOT / word).exists() for word in named)


def test_options_of_the_demo_are_known(demo):
    known = {name for option in diff_command.params for name in option.opts}
    used = [word for command in demo.commands(ROOT) if command[0] == "diff" for word in command if word.startswith("-")]
    assert set(used) <= known


def test_both_programs_compute_the_same():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    try:
        wasteful, lean = (load_step(str(ROOT / "examples" / f"{name}.py"))() for name in ("wasteful", "lean"))
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(wasteful, lean, rtol=1e-4, atol=1e-5)
