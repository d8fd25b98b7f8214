"""docs/make_cases.py: the page of cases, the README's part and case.toml match the recordings."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

import paths
from joulediff.cases.case import Measured, read_case
from joulediff.cases.judge import Judgement
from joulediff.cases.library import find_cases
from joulediff.cases.results import write_results

ROOT = paths.ROOT
LIBRARY = Path("src/joulediff/cases/library")
GOLDEN = Path("tests/golden/cases")


def load_maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_cases", ROOT / "docs" / "make_cases.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


maker = load_maker()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two cases, of which one is recorded."""
    for case in ("pytorch-153195", "hf-14450"):
        shutil.copytree(ROOT / LIBRARY / case, tmp_path / LIBRARY / case)
    kept = GOLDEN / "h200" / "pytorch-153195"
    shutil.copytree(ROOT / kept, tmp_path / kept)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(f"# A\n{maker.BEGIN}\nold\n{maker.END}\nafter\n")
    return tmp_path


def test_page_readme_and_cases_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert maker.main(["--check"]) == 0, f"run python docs/make_cases.py: {capsys.readouterr().err}"


def test_every_case_of_the_library_is_on_the_page() -> None:
    page = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")
    assert [case.id for case in find_cases(None) if f"\n### {case.id}\n" not in page] == []


def test_a_check_writes_nothing_and_names_the_changes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert maker.main(["--check"], project) == 1
    assert not (project / "docs" / "cases.md").exists()
    assert "README.md would change" in capsys.readouterr().err


def test_the_written_pages_are_up_to_date(project: Path) -> None:
    assert maker.main([], project) == 0
    assert maker.main(["--check"], project) == 0


def test_the_page_has_recorded_cases_and_others(project: Path) -> None:
    maker.main([], project)
    page = (project / "docs" / "cases.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| [pytorch-153195]"))
    assert "`torch.float32_matmul_precision`" in row and "confirmed | found |" in row
    missing = next(line for line in page.splitlines() if line.startswith("| [hf-14450]"))
    assert missing.endswith("| not recorded yet |") and "x" not in missing.split("|")[2]
    words = " ".join(page.split())
    assert re.search(r"Recorded on NVIDIA H200 \(20\d\d-\d\d-\d\d \d\d:\d\d UTC\): 1 of 1 found and confirmed", words)
    assert "1 not recorded yet" in words


def test_a_case_that_failed_stays_on_the_page(project: Path) -> None:
    failed = Judgement("hf-14450", "failed", note="lean: build() raised ValueError: no such model", seconds=3.0)
    write_results(project / GOLDEN / "h200", [failed, Judgement("pytorch-153195", "found", device="NVIDIA H200")])
    maker.main([], project)
    page = (project / "docs" / "cases.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| [hf-14450]"))
    assert row.endswith("| failed |")
    assert "\nFailed: lean: build() raised ValueError: no such model.\n" in page
    assert "1 of 2 found and confirmed" in page and "1 failed" in page
    assert "1 found and confirmed, 1 failed" in (project / "README.md").read_text(encoding="utf-8")
    assert "not recorded yet" not in page


def test_the_readme_shows_the_best_and_keeps_the_rest(project: Path) -> None:
    maker.main([], project)
    text = (project / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# A\n") and text.endswith("\nafter\n") and "\nold\n" not in text
    assert "`joulediff cases run pytorch-153195`" in text
    assert "hf-14450" not in text


def test_a_readme_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(SystemExit, match="has no such part: put <!-- cases"):
        maker.put_between("no marks here", "part")


def test_what_was_measured_is_in_the_case(project: Path) -> None:
    folder = project / LIBRARY / "pytorch-153195"
    file = folder / "case.toml"
    bare = file.read_text(encoding="utf-8").partition("[[measured]]")[0]
    file.write_text(bare, encoding="utf-8")
    maker.main([], project)
    (measured,) = read_case(folder).measured
    assert measured.device == "NVIDIA H200"
    assert measured.energy_ratio == pytest.approx(6.4, abs=0.5)


def test_a_new_measurement_takes_the_place_of_the_device_s_old_one() -> None:
    old = Measured("GPU 1", "2026-01-01", "torch 2", 2.0, 2.0)
    other = Measured("GPU 2", "2026-01-01", "torch 2", 3.0, None)
    text = maker.put_measured(maker.put_measured('title = "a"\n', old), other)
    text = maker.put_measured(text, Measured("GPU 1", "2026-02-02", "torch 3", 1.5, None, "a note"))
    assert text.count("[[measured]]") == 2
    assert "2026-02-02" in text and "energy_ratio = 3.0" in text and "energy_ratio = 2.0" not in text
    assert maker.put_measured(text, None) == text


def test_of_several_machines_the_first_is_shown(project: Path) -> None:
    maker.main([], project)
    page = (project / "docs" / "cases.md").read_text(encoding="utf-8")
    shutil.copytree(project / GOLDEN / "h200", project / GOLDEN / "cpu")
    shutil.rmtree(project / GOLDEN / "cpu" / "pytorch-153195")
    shutil.copytree(ROOT / GOLDEN / "h200" / "vllm-9471", project / GOLDEN / "cpu" / "pytorch-153195")
    maker.main([], project)
    assert (project / "docs" / "cases.md").read_text(encoding="utf-8") == page
