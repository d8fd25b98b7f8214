"""Cases in folders: their entries, entries that are refused, and which cases can run here."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from case_builders import make_case, write_case, write_toml
from joulediff.cases.case import Case, CaseError, Measured, read_case
from joulediff.cases.library import choose_device, find_case, find_cases, lacks


def test_a_case_with_all_entries(tmp_path: Path) -> None:
    text = """
        title = "Float32 products without TF32"
        system = "PyTorch"
        origin = "published"
        links = ["https://example.org/1"]
        kind = "misconfiguration"
        keys = ["allow_tf32"]
        lines = ["y = a @ b"]
        devices = ["cuda"]
        needs = { torch = "2.4", transformers = "5" }
        stand_in = true
        expected = "TF32 is off"
        about = '''One
        paragraph.'''
        differs = "smaller"
        fixed = "since 2.7"
        processes = 2

        [[measured]]
        device = "NVIDIA H200"
        date = "2026-11-15"
        versions = "torch 2.11.0"
        energy_ratio = 6
        time_ratio = 6.5
        note = ""

        [[measured]]
        device = "CPU"
        date = "2026-11-16"
        versions = ""
        energy_ratio = 1.5
    """
    case = read_case(write_toml(tmp_path / "tf32", text))
    assert (case.id, case.origin, case.kind, case.keys) == ("tf32", "published", "misconfiguration", ("allow_tf32",))
    assert case.needs == {"torch": "2.4", "transformers": "5"}
    assert (case.wasteful, case.lean) == (tmp_path / "tf32" / "wasteful.py", tmp_path / "tf32" / "lean.py")
    assert case.measured[0] == Measured("NVIDIA H200", "2026-11-15", "torch 2.11.0", 6.0, 6.5)
    assert case.measured[1].time_ratio is None
    assert (case.processes, case.fixed, case.differs) == (2, "since 2.7", "smaller")
    assert (case.expected, case.lines, case.stand_in) == ("TF32 is off", ("y = a @ b",), True)


def test_what_may_be_left_out(tmp_path: Path) -> None:
    case = make_case(tmp_path / "tf32")
    assert (case.links, case.needs, case.expected, case.fixed, case.measured) == ((), {}, "", "", ())
    assert case.processes == 1


def test_kinds_that_are_right_too(tmp_path: Path) -> None:
    assert make_case(tmp_path / "tf32").also == ()
    assert make_case(tmp_path / "both", also=["redundant", "api_misuse"]).also == ("redundant", "api_misuse")


@pytest.mark.parametrize(
    ("changes", "what", "fix"),
    [
        ({"titel": "x"}, "titel is not an entry of a case", "there are: title, system"),
        ({"title": None}, "title is missing", "docs/add-a-case.md"),
        ({"keys": []}, "keys is empty", "docs/add-a-case.md"),
        ({"about": ""}, "about is empty", "docs/add-a-case.md"),
        ({"keys": "allow_tf32"}, "keys may not be the str allow_tf32", "docs/add-a-case.md"),
        ({"kind": "misuse"}, "kind may not be misuse", "one of misconfiguration, api_misuse, redundant"),
        ({"also": ["redundant", "misuse"]}, "also may not be misuse", "one of misconfiguration, api_misuse, redundant"),
        ({"also": "redundant"}, "also may not be the str redundant", "docs/add-a-case.md"),
        ({"origin": "theirs"}, "origin may not be theirs", "one of published, ours"),
        ({"devices": ["cpu", "tpu"]}, "devices may not be tpu", "one of cpu, cuda"),
        ({"devices": "cuda"}, "devices may not be the str cuda", "docs/add-a-case.md"),
        ({"needs": {"torch": 2.4}}, "needs.torch may not be the float 2.4", "docs/add-a-case.md"),
        ({"processes": "2"}, "processes may not be the str 2", "docs/add-a-case.md"),
        ({"measured": [{"device": "x"}]}, "measured[0].date is missing", "docs/add-a-case.md"),
        ({"measured": [{"devise": "x"}]}, "devise is not an entry of a case in measured[0]", "there are: device, date"),
        ({"measured": 3}, "measured may not be the int 3", "docs/add-a-case.md"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path: Path, changes: dict[str, Any], what: str, fix: str) -> None:
    folder = write_case(tmp_path / "tf32", **changes)
    with pytest.raises(CaseError) as raised:
        read_case(folder)
    assert raised.value.what == f"{folder / 'case.toml'}: {what}"
    assert raised.value.fix is not None and raised.value.fix.startswith(fix)


def test_a_folder_that_is_not_a_case(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"cannot read .*case\.toml \(No such file"):
        read_case(tmp_path)
    with pytest.raises(CaseError, match="is not TOML"):
        read_case(write_toml(tmp_path / "bad", "title = "))
    (write_case(tmp_path / "half") / "lean.py").unlink()
    with pytest.raises(CaseError, match=r"half has no lean\.py"):
        read_case(tmp_path / "half")


def test_the_published_ones_come_first(tmp_path: Path) -> None:
    for name, origin in (("b", "ours"), ("a", "ours"), ("d", "published"), ("c", "published")):
        write_case(tmp_path / name, origin=origin)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "notes.txt").write_text("no case")
    assert [case.id for case in find_cases(tmp_path)] == ["c", "d", "a", "b"]
    with pytest.raises(CaseError, match="there is no folder"):
        find_cases(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("tf32", "did you mean matmul-tf32? "),
        ("gelo-new", "did you mean gelu-new? "),
        ("zzz", "`joulediff cases list`"),
    ],
)
def test_near_names_are_offered(tmp_path: Path, name: str, fix: str) -> None:
    for each in ("matmul-tf32", "gelu-new"):
        write_case(tmp_path / each)
    assert find_case("gelu-new", tmp_path).id == "gelu-new"
    with pytest.raises(CaseError, match=f"no case is called {name}") as raised:
        find_case(name, tmp_path)
    assert raised.value.fix is not None and raised.value.fix.startswith(fix)


@pytest.mark.parametrize(
    ("needs", "here", "why"),
    [
        ({}, {}, None),
        ({"torch": "2.4"}, {"torch": "2.4.0+cu124"}, None),
        ({"torch": "2.4.0"}, {"torch": "2.4"}, None),
        ({"torch": "2.4"}, {"torch": "2.13.0a0+git123"}, None),
        ({"torch": "2.4", "diffusers": "0"}, {"torch": "2.4"}, "needs diffusers"),
        ({"transformers": "5"}, {"transformers": "4.57.1"}, "needs transformers 5 (4.57.1 here)"),
        ({"torch": "2.10"}, {"torch": "2.9.1"}, "needs torch 2.10 (2.9.1 here)"),
    ],
)
def test_what_a_case_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs: dict[str, str], here: dict[str, str], why: str | None
) -> None:
    def version(name: str) -> str:
        if name not in here:
            raise metadata.PackageNotFoundError(name)
        return here[name]

    monkeypatch.setattr(metadata, "version", version)
    assert lacks(make_case(tmp_path / "tf32", needs=needs), "cuda") == why


def test_where_a_case_runs(tmp_path: Path) -> None:
    both, cuda, cpu = (make_case(tmp_path / "-".join(d), devices=d) for d in (["cpu", "cuda"], ["cuda"], ["cpu"]))
    assert [choose_device(case, has_gpu=True) for case in (both, cuda, cpu)] == ["cuda", "cuda", "cpu"]
    assert [choose_device(case, has_gpu=False) for case in (both, cuda, cpu)] == ["cpu"] * 3
    assert lacks(cuda, "cpu") == "only on cuda"
    assert lacks(cpu, "cpu") is None


def test_every_case_of_the_library_is_one() -> None:
    cases = find_cases()
    assert len({case.id for case in cases}) == len(cases)
    for case in cases:
        for program in (case.wasteful, case.lean):
            compile(program.read_text(encoding="utf-8"), str(program), "exec")


@pytest.mark.parametrize("case", find_cases(), ids=lambda case: case.id)
def test_a_case_of_the_library_says_what_its_report_says(case: Case) -> None:
    assert case.expected and case.differs
    assert case.links and all(link.startswith("https://") for link in case.links)
    programs = [path for path in case.folder.glob("*.py") if path != case.lean]
    code = {line.strip() for path in programs for line in path.read_text(encoding="utf-8").splitlines()}
    assert case.lines and [line for line in case.lines if line not in code] == []
