"""`benchmarks/house.py` counts by its rules, on an invented tree and on this one."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import paths

SCRIPT = paths.ROOT / "benchmarks" / "house.py"
FILES = {
    "__init__.py": "",
    "cli/diff.py": "from joulediff.energy import ledger, costs\nfrom joulediff.model.energy import Energy",
    "cli/show.py": "from joulediff.model.energy import Energy\nprint(Energy(1, 2, 3).joules)",
    "energy/ledger.py": "from .costs import cost\ndef f(energy):\n    return energy.low_j",
    "energy/costs.py": "import joulediff.model.energy\ncost = joulediff.model.energy.Energy",
    "model/energy.py": "class Energy:\n    joules: float\n    low: float\n    high: float",
    "model/forms.py": (
        "class Span:\n    energy_j: float\n    low_j: float | None\n    high_j: float\n"
        "class Half:\n    joules: float\n    half_j: float\n"
        "class Shot:\n    domains: dict[str, Half]\n"
        "class List:\n    rows: list[Half]\n"
        "class Curve:\n    energy_j: np.ndarray\n    doubt_j: np.ndarray\n"
        "class Diff:\n    delta_j: float\n    delta_low_j: float\n    delta_high_j: float\n"
        "class Power:\n    power_w: float\n    low: float\n    high: float\n"
    ),
    "model/signature.py": (
        "def same(a, b):\n    return a.sum_x == b.sum_x\n"
        "def row(s):\n    return s.sum_x, s.sum_abs, s.sum_x2\n"
        "def mean(s):\n    return s.sum_x / s.sum_x2\n"
    ),
    "cases/library/tf32/lean.py": "from joulediff.model import forms\n",
}


@pytest.fixture
def house() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("house", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules["house"]


@pytest.fixture
def tree(house: ModuleType, tmp_path: Path) -> dict[str, object]:
    for place, text in FILES.items():
        path = tmp_path / "src" / "joulediff" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return house.read_tree(tmp_path)


def test_programs_of_cases_are_left_out(tree: dict[str, object]) -> None:
    assert len(tree) == len(FILES) - 1


def test_every_way_to_import_a_module_counts(house: ModuleType, tree: dict[str, object]) -> None:
    imports = house.find_imports(tree)
    assert imports["joulediff.cli.diff"] == {
        "joulediff.energy.ledger",
        "joulediff.energy.costs",
        "joulediff.model.energy",
    }
    assert imports["joulediff.energy.ledger"] == {"joulediff.energy.costs"}
    assert imports["joulediff.energy.costs"] == {"joulediff.model.energy"}
    assert house.find_single_importers(tree) == ["joulediff.energy.ledger"]


def test_entries_of_a_list_are_not_alone(house: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "src" / "joulediff"
    (folder / "meters").mkdir(parents=True)
    names = [f"m{number}" for number in range(house.LIST_ENTRIES)]
    for name in names:
        (folder / "meters" / f"{name}.py").write_text("")
    (folder / "other.py").write_text("")
    (folder / "main.py").write_text(f"from joulediff.meters import {', '.join(names)}\nimport joulediff.other")
    tree = house.read_tree(tmp_path)
    assert len(house.find_single_importers(tree)) == len(names) + 1
    assert house.find_lone_importers(tree) == ["joulediff.other"]


def test_forms_of_an_energy_are_found_by_their_fields(house: ModuleType, tree: dict[str, object]) -> None:
    assert [name.rpartition(".")[2] for name in house.find_energy_forms(tree)] == ["Half", "Shot", "Span"]


def test_functions_that_compare_signatures_are_found(house: ModuleType, tree: dict[str, object]) -> None:
    assert [name.rpartition(".")[2] for name in house.find_signature_rules(tree)] == ["row", "same"]


def test_files_that_read_a_field_of_an_energy_count_for_joules(house: ModuleType, tree: dict[str, object]) -> None:
    assert house.find_joule_files(tree) == [
        "joulediff.cli.show",
        "joulediff.energy.ledger",
        "joulediff.model.energy",
        "joulediff.model.forms",
    ]


def test_a_folder_with_too_many_files_is_named(house: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "src" / "joulediff"
    folder.mkdir(parents=True)
    for number in range(house.MOST_FILES + 1):
        (folder / f"m{number}.py").write_text("")
    assert house.find_large_folders(house.read_tree(tmp_path)) == [f"joulediff ({house.MOST_FILES + 1})"]


def test_a_folder_without_the_package_is_an_error(house: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no package src/joulediff"):
        house.read_tree(tmp_path)


def test_this_tree_has_figures(house: ModuleType) -> None:
    tree = house.read_tree(paths.ROOT)
    figures = house.count(tree)
    assert list(figures) == ["files", "lines", *house.COUNTS]
    # A rule that finds nothing in this tree has lost the names that it looks for.
    for title in ("files", "lines", "rules for equal signatures", "files that unpack joules, meter to row"):
        assert figures[title] > 0, title
