"""Call paths from the step to an operator."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from pathlib import Path

import pytest
import torch

import joulediff
from joulediff.frameworks.framework import source_hints
from joulediff.frameworks.named_regions import current_region, region
from joulediff.frameworks.torch.capture.capture import Captured, capture_step
from joulediff.model.run import Frame, Run
from joulediff.pysource.call_path import MAX_LINE, STANDARD_LIBRARY, CallPaths, name_file, read_sources

HERE = Path(__file__)
LINES = HERE.read_text(encoding="utf-8").splitlines()


def path_of(found: Captured, name: str) -> list[Frame]:
    """Return the frames of the first operator of a name, outermost first."""
    run = Run("step", None, "", "", ops=found.ops, frames=found.frames)
    return list(run.call_path(next(op.id for op in found.ops if op.name == name)))


def line_with(text: str) -> int:
    """Return the number of the only line that ends with a mark."""
    (found,) = [number for number, line in enumerate(LINES, 1) if line.endswith(text)]
    return found


def inner(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.softplus(x).cos()  # mark: inner


def outer(x: torch.Tensor) -> torch.Tensor:
    return inner(x) + 1  # mark: outer


def test_frames_tell_file_line_and_function() -> None:
    x = torch.randn(3)
    path = path_of(capture_step(lambda: outer(x), root=HERE.parent), "aten::softplus")
    own = [(frame.file, frame.line, frame.function) for frame in path if frame.owner is None]
    assert own[1:] == [
        (HERE.name, line_with("# mark: " + "outer"), "outer"),
        (HERE.name, line_with("# mark: " + "inner"), "inner"),
    ]
    assert "<lambda>" in own[0][2]
    assert len(path) == len(own), "softplus is called from C++ right away"


def test_the_users_code_and_libraries_are_distinguished() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 4)), torch.randn(2, 3)
    path = path_of(capture_step(lambda: model(x)), "aten::addmm")
    owners = [frame.owner for frame in path]
    assert owners[0] is None
    assert set(owners[1:]) == {"torch"}
    assert path[-1].file == str(Path("torch", "nn", "modules", "linear.py"))
    assert path[-1].function == ("Linear.forward" if sys.version_info >= (3, 11) else "forward")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_paths_are_the_same_in_every_grad_mode(mode) -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 4)), torch.randn(2, 3)

    def step() -> torch.Tensor:
        with mode():
            return model(x)

    path = path_of(capture_step(step), "aten::addmm")
    assert path[-1].file == str(Path("torch", "nn", "modules", "linear.py"))
    assert len(path) == len(path_of(capture_step(lambda: model(x)), "aten::addmm"))


def test_no_frame_of_ours_and_none_outside_of_the_step_is_shown() -> None:
    x = torch.randn(3)

    @joulediff.region("part")
    def step() -> torch.Tensor:
        return x + 1

    path = path_of(capture_step(step), "aten::add")
    assert [frame.function.rpartition(".")[2] for frame in path if frame.owner is None] == ["step"]
    assert not any("joulediff" + os.sep in frame.file for frame in path)
    assert {frame.owner for frame in path} <= {None, STANDARD_LIBRARY}, "the decorator is contextlib's"


def test_frames_are_kept_once() -> None:
    x = torch.randn(3)

    def step() -> torch.Tensor:
        y = x
        for _ in range(5):
            y = (y + 1) * (y + 2)
        return y

    found = capture_step(step)
    assert len(found.ops) == 15
    assert len(found.frames) == len(set(found.frames)) == 1, "three calls in one line are one frame"


def test_different_lines_are_different_frames() -> None:
    x = torch.randn(3)

    def step() -> torch.Tensor:
        a = x + 1
        b = x + 2
        return a * b

    found = capture_step(step)
    lines = [found.frames[op.frame].line for op in found.ops if op.frame is not None]
    assert lines == [lines[0], lines[0] + 1, lines[0] + 2]


def test_codes_that_are_gone_are_not_mistaken_for_others() -> None:
    """Functions made and dropped in the step may be given each other's addresses."""
    x = torch.randn(3)

    def step() -> None:
        for i in range(30):
            space: dict[str, object] = {}
            exec(compile(f"def f{i}(x):\n    return x + {i}", f"file{i}.py", "exec"), space)
            space[f"f{i}"](x)  # type: ignore[operator]

    found = capture_step(step)
    assert [found.frames[op.frame].function for op in found.ops if op.frame is not None] == [f"f{i}" for i in range(30)]


def test_recursion_and_generators_have_full_paths() -> None:
    x = torch.randn(3)

    def down(depth: int) -> torch.Tensor:
        return down(depth - 1) if depth else next(generate())

    def generate():
        yield x.sin()

    path = path_of(capture_step(lambda: down(50)), "aten::sin")
    names = [frame.function.rpartition(".")[2] for frame in path]
    assert names.count("down") == 51
    assert names[-1] == "generate"


@pytest.mark.parametrize(
    ("file", "shown", "owner"),
    [
        ("/home/me/project/train.py", "train.py", None),
        ("/home/me/project/parts/model.py", "parts/model.py", None),
        ("/home/me/other/train.py", "/home/me/other/train.py", None),
        ("/opt/env/lib/python3.11/site-packages/torch/nn/a.py", "torch/nn/a.py", "torch"),
        ("/usr/lib/python3/dist-packages/numpy/b.py", "numpy/b.py", "numpy"),
        ("/opt/env/lib/python3.11/site-packages/six.py", "six.py", "six"),
        ("/home/me/project/.venv/lib/site-packages/einops/c.py", "einops/c.py", "einops"),
        ("<string>", "<string>", None),
        ("<ipython-input-1>", "<ipython-input-1>", None),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>", STANDARD_LIBRARY),
        ("<eval_with_key>.12", "<eval_with_key>.12", "torch"),
    ],
)
@pytest.mark.skipif(os.sep != "/", reason="written with slashes")
def test_files_are_named_from_their_package_or_the_programs_folder_on(file: str, shown: str, owner: str | None) -> None:
    assert name_file(file, "/home/me/project/", source_hints()) == (shown, owner)


def test_the_standard_library_is_pythons() -> None:
    assert name_file(threading.__file__, "/nowhere/") == ("threading.py", STANDARD_LIBRARY)
    linked = str(Path(sysconfig.get_path("stdlib"), "json", "decoder.py"))
    assert name_file(linked, "/nowhere/")[1] == STANDARD_LIBRARY


def test_the_cases_that_come_with_the_program_count_as_the_users_own() -> None:
    ours = Path(joulediff.__file__).parent
    paths = CallPaths((lambda: None).__code__, root=ours)
    assert paths.here(call_from(str(ours / "cases" / "library" / "example" / "wasteful.py"))) is not None
    (found,) = [each for each in paths.frames if each.function == "called"]
    assert (found.file, found.owner) == (str(Path("cases", "example", "wasteful.py")), None)
    others = CallPaths((lambda: None).__code__, root=ours)
    for ours_too in ("session.py", "cases/run.py"):
        others.here(call_from(str(ours / ours_too)))
    assert "called" not in {each.function for each in others.frames}


def call_from(file: str):
    space: dict[str, object] = {}
    exec(compile("import sys\ndef called():\n    return sys._getframe()", file, "exec"), space)
    return space["called"]()  # type: ignore[operator]


def test_another_threads_path_ends_where_the_thread_begins() -> None:
    paths, found = CallPaths((lambda: None).__code__), []
    thread = threading.Thread(target=lambda: found.append(paths.here(sys._getframe())))
    thread.start()
    thread.join()
    assert paths.frames[0].owner == STANDARD_LIBRARY
    assert paths.frames[found[0]].owner is None


def test_no_frame_is_no_path() -> None:
    assert CallPaths((lambda: None).__code__).here(None) is None


# --- Regions. ---


def test_regions_name_operators() -> None:
    x = torch.randn(3)

    def step() -> torch.Tensor:
        with joulediff.region("prefill"):
            y = x + 1
            with joulediff.region("a/b"):
                y = y * 2
        return y - 1

    assert [op.region for op in capture_step(step).ops] == ["prefill", "prefill/a∕b", None]


def test_a_region_ends_with_an_exception_and_belongs_to_its_thread() -> None:
    seen: list[str | None] = []
    with pytest.raises(ValueError, match="no"), region("outer"):
        thread = threading.Thread(target=lambda: seen.append(current_region()))
        thread.start()
        thread.join()
        seen.append(current_region())
        raise ValueError("no")
    assert seen == [None, "outer"]
    assert current_region() is None


# --- Sources. ---


def test_lines_around_recorded_ones_are_read(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("\n".join(f"line {n}" for n in range(1, 101)) + "\n" + "x" * 1000)
    frames = [Frame("program.py", 50, "f", None, None), Frame("program.py", 60, "f", None, 0)]
    (found,) = read_sources(frames, {"program.py": str(file)})
    assert (found.file, found.first) == ("program.py", 42)
    assert found.text.splitlines() == [f"line {n}" for n in range(42, 69)]
    library, last = read_sources(
        [Frame("program.py", 1, "f", "lib", None), Frame("program.py", 101, "f", "lib", None)],
        {"program.py": str(file)},
    )
    assert library.text.splitlines() == ["line 1", "line 2", "line 3"]
    assert last.text.splitlines()[-1] == "x" * MAX_LINE


def test_files_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00" * 10)
    files = {"gone.py": str(tmp_path / "gone.py"), "binary.py": str(tmp_path / "binary.py"), "folder": str(tmp_path)}
    frames = [Frame(name, 3, "f", None, None) for name in (*files, "<string>", "<eval_with_key>.1")]
    assert read_sources(frames, files) == ()


def test_frames_say_where_their_files_are() -> None:
    x = torch.randn(3)
    found = capture_step(lambda: outer(x), root=HERE.parent)
    assert found.files[HERE.name] == str(HERE)
    texts = [source.text for source in read_sources(found.frames, found.files)]
    assert any("def inner(" in text and "def outer(" in text for text in texts)


def test_a_file_outside_of_the_root_does_not_name_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/alice"))
    place = str(Path("/home/alice/lib/helper.py"))
    assert name_file(place, f"{os.sep}work{os.sep}") == (str(Path("~/lib/helper.py")), None)
    assert name_file(place, str(Path("/home/alice/lib")) + os.sep) == ("helper.py", None)
