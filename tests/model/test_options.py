"""A default of an option stands in `model/options` and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import click
import pytest

import joulediff
from joulediff.cli import cli
from joulediff.cli.options import read_share
from joulediff.model.errors import JoulediffError
from joulediff.model.options import (
    CASE_OPTIONS,
    DOCTOR_OPTIONS,
    DiffOptions,
    MeasureOptions,
    RecordOptions,
    ScaleOptions,
)
from paths import ROOT

RECORD, DIFF = RecordOptions(), DiffOptions()
SOURCE = ROOT / "src" / "joulediff"
Options = MeasureOptions | DiffOptions


@pytest.mark.parametrize(
    ("function", "options", "others"),
    [
        (joulediff.measure, MeasureOptions(), set()),
        (joulediff.record, RECORD, {"precision", "is_step", "loop", "loop_after"}),
        (joulediff.diff, DIFF, {"confirm", "gate_s"}),
        (joulediff.check_machine, DOCTOR_OPTIONS, {"label", "seconds", "precision"}),
    ],
)
def test_public_functions_have_the_options_as_keywords(
    function: Callable[..., Any], options: Options, others: set[str]
) -> None:
    found = signature(function).parameters
    names = {field.name for field in fields(options)} - others
    assert names <= found.keys()
    assert {name: found[name].default for name in names} == {name: getattr(options, name) for name in names}


def params(*names: str) -> dict[str, click.Parameter]:
    command: Any = cli
    for name in names:
        command = command.get_command(click.Context(command), name)
    return {str(each.name): each for each in command.params}


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (("measure",), MeasureOptions()),
        (("record",), RECORD),
        (("diff",), RECORD),
        (("diff",), DIFF),
        (("match",), DIFF),
        (("scale",), ScaleOptions()),
        (("doctor",), DOCTOR_OPTIONS),
        (("cases", "run"), CASE_OPTIONS),
    ],
)
def test_commands_have_the_same_defaults(command: tuple[str, ...], options: Options) -> None:
    found = params(*command)
    names = {field.name for field in fields(options)} & found.keys() - {"label"}  # the command names it by its file
    assert names
    for name in names:
        given, wanted = found[name].default, getattr(options, name)
        is_share = isinstance(given, str) and given.endswith("%")
        assert (read_share(given) if is_share else given) == wanted, name


# Options whose name other things have too.
OTHER_WORDS = {"label", "source", "cpp", "slower"}
OPTION_NAMES = {field.name for kind in (RECORD, DIFF) for field in fields(kind)} - OTHER_WORDS


def literals(path: Path) -> list[str]:
    """Return the parameters and fields of options whose default is written out."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            pairs = list(zip([each.arg for each in arguments.kwonlyargs], arguments.kw_defaults, strict=True))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            pairs = [(node.target.id, node.value)]
        for name, value in pairs:
            if name in OPTION_NAMES and isinstance(value, ast.Constant) and value.value is not None:
                found.append(f"{path.relative_to(SOURCE)}:{node.lineno} {name}")
    return found


def test_no_other_default_is_written_out() -> None:
    files = [path for path in SOURCE.rglob("*.py") if "library" not in path.parts and path.name != "options.py"]
    assert len(files) > 50
    assert [each for path in files for each in literals(path)] == []
    assert literals(SOURCE / "model" / "options.py"), "the search finds what it looks for"


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_replay_without_seconds(seconds: float) -> None:
    with pytest.raises(JoulediffError, match="cannot replay for"):
        RecordOptions(replay_seconds=seconds).check_replay()
    RecordOptions(replay_seconds=seconds, replay=False).check_replay()
