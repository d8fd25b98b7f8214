"""The judgement of a case: every outcome, the judged finding, and its rank in the profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import paths
from case_builders import make_case
from diff_builders import changed, finding, gelu, gpt2_diff, host_wait, same_diff, unlike_diff, unmeasured_diff
from joulediff.archive.reader import load
from joulediff.cases.case import Case
from joulediff.cases.judge import STILL_THERE, judge, judge_same, rank_finding
from joulediff.diagnosis.compare import diagnose
from joulediff.model.diff import Diff
from joulediff.model.energy import Ratio
from joulediff.model.finding import Cause, Finding
from joulediff.model.place import Place
from joulediff.model.run import Run
from run_builders import RunBuilder

ALIKE = Ratio(1.0, 0.99, 1.01)
MORE = Ratio(1.3, 1.28, 1.32)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return make_case(tmp_path / "tf32", needs={"torch": "2.4", "transformers": "5"})


def finding_of(number: int, kind: Any, key: str | None, **changes: Any) -> Finding:
    changes.setdefault("word", "cause confirmed")
    return finding(
        number,
        *changes.pop("energies", (2.0, 1.0)),
        id=str(number),
        kind=kind,
        cause=Cause("setting", key, 1, 2, None, None),
        **changes,
    )


def test_a_waste_that_is_found(case: Case) -> None:
    first = finding(2, 61.0, 39.0)
    judged = judge(case, gpt2_diff(findings=(first, gelu())), None, 31.0)
    assert judged.case == "tf32"
    assert (judged.outcome, judged.finding, judged.note) == ("found", "f2", "")
    assert judged.detected and judged.right and judged.confirmed
    assert judged.proof == first.proof.word
    assert judged.end_to_end == Ratio(1.239, 1.219, 1.26)
    assert (judged.told_kind, judged.told_key, judged.verdict) == ("misconfiguration", "allow_tf32", "waste")
    assert (judged.saved_share, judged.whole_saved_share, judged.region_delta_j) == (0.036, None, 22.0)
    assert judged.region_ratio == pytest.approx(61 / 39)
    assert (judged.seconds, judged.device, judged.versions) == (31.0, "NVIDIA H200", "")


def test_the_saving_of_the_whole_program_is_stored(tmp_path: Path) -> None:
    case = make_case(tmp_path / "gelu", kind="api_misuse", keys=["config.activation_function"])
    judged = judge(case, gpt2_diff(), None, None)
    assert (judged.outcome, judged.finding) == ("found", "f1")
    assert (judged.saved_share, judged.whole_saved_share) == (0.119, 0.117)


@pytest.mark.parametrize(
    ("wanted", "said", "right"),
    [
        ("allow_tf32", "config.allow_tf32", True),
        ("config.allow_tf32", "allow_tf32", True),
        ("allow_tf32", "matmul.allow_tf32", True),
        ("cudnn.allow_tf32", "matmul.allow_tf32", False),
        ("lr", "optimizer.param_groups[0]['lr']", True),
        ("allow_tf32", "tf32", False),
        ("allow_tf32", "other and allow_tf32", True),
        ("allow_tf32", "benchmark and allow_tf32", False),
        ("allow_tf32", None, False),
    ],
)
def test_a_key_is_right_by_its_whole_name_or_its_last_part(
    tmp_path: Path, wanted: str, said: str | None, right: bool
) -> None:
    case = make_case(tmp_path / "x", keys=["other", wanted])
    judged = judge(case, gpt2_diff(findings=(finding_of(1, "misconfiguration", said),)), None, None)
    assert judged.key_right == right
    assert judged.outcome == ("found" if right else "partly")


@pytest.mark.parametrize(
    ("findings", "outcome", "which", "note"),
    [
        ((finding_of(2, "misconfiguration", "allow_tf32"), finding_of(1, "redundant", "x")), "found", "2", ""),
        (
            (finding_of(1, "redundant", "x"), finding_of(2, "misconfiguration", "allow_tf32")),
            "partly",
            "1",
            "reported redundant: x; expected misconfiguration: allow_tf32 or torch.float32_matmul_precision",
        ),
        ((finding_of(1, "misconfiguration", "allow_tf32", word="observed"),), "partly", "1", "not confirmed"),
        (
            (finding_of(1, "redundant", "contiguous"), finding_of(2, "misconfiguration", "x")),
            "partly",
            "1",
            "reported redundant: contiguous; expected misconfiguration: allow_tf32 or torch.float32_matmul_precision",
        ),
        (
            (finding_of(1, "api_misuse", None),),
            "partly",
            "1",
            "reported API misuse: no key; expected misconfiguration: allow_tf32 or torch.float32_matmul_precision",
        ),
        (
            (finding_of(1, "misconfiguration", "allow_tf32", energies=(1.0, 2.0)),),
            "missed",
            None,
            "a difference without a finding: 1.24x (1.22 .. 1.26)",
        ),
    ],
)
def test_which_finding_is_judged(
    case: Case, findings: tuple[Finding, ...], outcome: str, which: str | None, note: str
) -> None:
    judged = judge(case, gpt2_diff(findings=findings), None, None)
    assert (judged.outcome, judged.finding, judged.note) == (outcome, which, note)
    assert judged.detected == (which is not None)


@pytest.mark.parametrize(
    ("kind", "also", "outcome"),
    [
        ("misconfiguration", [], "found"),
        ("misconfiguration", ["redundant"], "found"),
        ("redundant", ["api_misuse", "redundant"], "found"),
        ("redundant", ["api_misuse"], "partly"),
        ("redundant", [], "partly"),
    ],
)
def test_a_kind_may_be_another_right_one(tmp_path: Path, kind: str, also: list[str], outcome: str) -> None:
    case = make_case(tmp_path / "x", also=also)
    judged = judge(case, gpt2_diff(findings=(finding_of(1, kind, "allow_tf32"),)), None, None)
    assert (judged.outcome, judged.kind_right, judged.told_kind) == (outcome, outcome == "found", kind)


def test_only_the_first_finding_against_the_wasteful_program_counts(tmp_path: Path) -> None:
    case = make_case(tmp_path / "x", also=["redundant"])
    wrong, right = finding_of(1, "redundant", "contiguous"), finding_of(2, "redundant", "allow_tf32")
    against_lean = finding_of(3, "redundant", "contiguous", energies=(1.0, 2.0))
    for findings, outcome, which in (
        ((wrong, right), "partly", "1"),
        ((right, wrong), "found", "2"),
        ((against_lean, right, wrong), "found", "2"),
    ):
        judged = judge(case, gpt2_diff(findings=findings), None, None)
        assert (judged.outcome, judged.finding) == (outcome, which)


PROGRAM = """\
import torch

def build():
    x = torch.zeros(
        8,
        dtype=torch.float64,
    )
    def step():
        for _ in range(3):
            y = x + 1
        return y
    return step
"""
INSIDE_TORCH = Place("torch/nn/functional.py", 5, "relu", "dtype=torch.float64,")


def at(line: int, text: str | None = None) -> Place:
    return Place("cases/x/wasteful.py", line, "step", text)


@pytest.mark.parametrize(
    ("location", "path", "told", "right"),
    [
        (at(6), (), "dtype=torch.float64,", True),
        (at(6, "    dtype=torch.float64,"), (), "dtype=torch.float64,", True),
        (at(4), (), "dtype=torch.float64,", True),
        (at(200, "y = x + 1"), (), "y = x + 1", True),
        (at(6, "z = x.t()"), (), "z = x.t()", False),
        (at(9), (), "for _ in range(3):", False),
        (at(10), (), "y = x + 1", True),
        (INSIDE_TORCH, (), None, False),
        (INSIDE_TORCH, (at(11), at(10), INSIDE_TORCH), "y = x + 1", True),
        (INSIDE_TORCH, (at(10), at(11), INSIDE_TORCH), "return y", False),
        (at(11), (at(10),), "y = x + 1", True),
        (None, (), None, False),
        (at(99), (), None, False),
    ],
    ids=[
        "the line",
        "with its text",
        "the first line of its statement",
        "a line that moved",
        "a program that changed",
        "the head of a block is not its body",
        "a line of a body",
        "a line inside a library",
        "the caller of a library",
        "only the innermost caller",
        "the call path where the cause lies elsewhere",
        "no place",
        "a place outside of the file",
    ],
)
def test_a_line_is_judged_by_its_text(
    tmp_path: Path, location: Place | None, path: tuple[Place, ...], told: str | None, right: bool
) -> None:
    case = make_case(tmp_path / "x", lines=["dtype=torch.float64,", "y = x + 1"])
    case.wasteful.write_text(PROGRAM)
    first = finding_of(1, "misconfiguration", "allow_tf32", path_a=path)
    first = replace(first, cause=replace(first.cause, location_a=location))
    judged = judge(case, gpt2_diff(findings=(first,)), None, None)
    assert (judged.told_line, judged.line_right) == (told, right)
    assert judged.outcome == ("found" if right else "partly")
    if not right:
        assert judged.note.startswith("reported the line ")


def test_nothing_measured_is_missed(case: Case) -> None:
    for ratio, note in (
        (ALIKE, "no difference measured: 1.00x (0.99 .. 1.01)"),
        (Ratio(1.1, 1.02, 1.18), "a difference without a finding: 1.10x (1.02 .. 1.18)"),
        (Ratio(0.8, 0.7, 0.9), "the lean program uses more energy: 0.80x (0.70 .. 0.90)"),
    ):
        judged = judge(case, gpt2_diff(findings=(), ratio=ratio), None, None)
        assert (judged.outcome, judged.note) == ("missed", note)
    judged = judge(case, unlike_diff(), None, None)
    assert (judged.outcome, judged.end_to_end) == ("missed", None)
    assert judged.note == "the energies of the two programs cannot be compared"
    judged = judge(case, unmeasured_diff(), None, None)
    assert (judged.outcome, judged.note) == ("missed", "the energy of a step is unknown")


RIGHT = finding_of(1, "misconfiguration", "allow_tf32")
OTHER = finding_of(1, "redundant", "contiguous")


@pytest.mark.parametrize(
    ("diff", "outcome", "note"),
    [
        (gpt2_diff(findings=(), ratio=ALIKE), "fixed upstream", "1.00x (0.99 .. 1.01)"),
        (gpt2_diff(findings=(OTHER,), ratio=ALIKE), "fixed upstream", "1.00x (0.99 .. 1.01)"),
        (gpt2_diff(findings=(), ratio=Ratio(0.8, 0.7, 0.9)), "fixed upstream", "0.80x (0.70 .. 0.90)"),
        (gpt2_diff(findings=(RIGHT,), ratio=ALIKE), "found", STILL_THERE),
        (gpt2_diff(findings=(RIGHT,), ratio=MORE), "found", STILL_THERE),
        (gpt2_diff(findings=(changed(RIGHT, word="observed"),), ratio=MORE), "partly", f"{STILL_THERE}; not confirmed"),
        (
            gpt2_diff(findings=(), ratio=MORE),
            "missed",
            f"{STILL_THERE}; a difference without a finding: 1.30x (1.28 .. 1.32)",
        ),
        (unlike_diff(), "missed", "the energies of the two programs cannot be compared"),
        (unmeasured_diff(), "missed", "the energy of a step is unknown"),
    ],
)
def test_fixed_is_said_by_the_case_and_shown_by_the_meter(tmp_path: Path, diff: Diff, outcome: str, note: str) -> None:
    judged = judge(make_case(tmp_path / "x", fixed="since torch 2.7"), diff, None, None)
    assert (judged.outcome, judged.note) == (outcome, note)


def test_the_lean_program_against_itself(case: Case) -> None:
    clean = judge_same(case, same_diff(), None, 12.0)
    assert (clean.outcome, clean.detected, clean.seconds) == ("clean", False, 12.0)
    alarm = judge_same(case, gpt2_diff(), None, None)
    assert (alarm.outcome, alarm.finding) == ("false alarm", "f1")
    assert alarm.note == "3 findings, the first: API misuse: activation_function"
    assert judge_same(case, unlike_diff(), None, None).outcome == "missed"


def profile() -> Run:
    """Return a run in which `bmm` takes the most time, `addmm` of the MLP comes next, and `gelu` last."""
    made = RunBuilder()
    work = [("aten::bmm", "attn", 9e-3), ("aten::addmm", "attn.out", 1e-3), ("aten::gelu", "act", 5e-4)]
    work += [("aten::addmm", f"transformer.h.{layer}.mlp.c_fc", 2e-3) for layer in range(4)]
    for name, module, seconds in work:
        op = made.op(name, module=module, module_type="M")
        made.kernel(f"{name}_kernel", seconds, op=op)
    return made.build(traced_s=0.1, settings={"package.torch": "2.11.0", "package.transformers": "5.17.0"})


def test_the_place_in_the_profile_is_that_of_the_findings_module(case: Case) -> None:
    judged = judge(case, gpt2_diff(), profile(), None)
    assert (judged.rank_energy, judged.rank_time) == (None, 2), "energy is not known without a meter"
    assert judged.versions == "torch 2.11.0, transformers 5.17.0"
    first = finding(1, 2.0, 1.0, where="attn.out")
    assert rank_finding(profile(), first) == (None, 3)
    assert rank_finding(profile(), replace(first, where="somewhere")) == (None, 2), "the costliest of that name"


def test_findings_without_operators_have_no_place() -> None:
    assert rank_finding(profile(), host_wait()) == (None, None)
    assert rank_finding(profile(), changed(gelu(), ops_a=())) == (None, None)
    assert rank_finding(profile(), changed(gelu(), ops_a=("aten::sort",))) == (None, None)


def test_a_recording_of_a_gpu_has_places_by_energy_and_by_time(case: Case) -> None:
    a, b = (load(paths.GOLDEN / "pairs" / f"tf32-{side}.jd") for side in "ab")
    judged = judge(case, diagnose(a, b), a, None)
    assert (judged.outcome, judged.told_kind) == ("partly", "unknown"), "there is no program left to try"
    assert (judged.rank_energy, judged.rank_time) == (1, 1)
    assert judged.device == "NVIDIA H200" and judged.versions.startswith("torch 2.")
