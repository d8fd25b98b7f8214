"""Digests of recorded results find edits; judgements that are computed anew say so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from case_builders import GELU, make_case
from diff_builders import gpt2_diff, side
from joulediff.archive.writer import save
from joulediff.cases.case import Case
from joulediff.cases.judge import Judgement
from joulediff.cases.recompute import Change, recompute
from joulediff.cases.recorded import find_edited, read_recorded
from joulediff.cases.results import judge_diff, open_results, read_results
from joulediff.model.errors import JoulediffError
from joulediff.report.json.diff import diff_to_json
from run_builders import gpt2_run


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return make_case(tmp_path / "lib" / "gelu", **GELU)


@pytest.fixture
def kept(tmp_path: Path, case: Case) -> Path:
    """A folder as `joulediff cases run --keep` leaves it: a case with a diff, one that failed, one that did not run."""
    folder = tmp_path / "kept"
    (folder / case.id).mkdir(parents=True)
    diff = gpt2_diff(a=side("wasteful", 612.4), b=side("lean", 494.2))
    (folder / case.id / "diff.json").write_text(diff_to_json(diff))
    save(gpt2_run(), folder / case.id / "a.jd")
    with open_results(folder) as results:
        results.add(replace(judge_diff(case, folder / case.id), seconds=31.0))
        results.add(Judgement("broken", "failed", note="no such model", seconds=2.0))
        results.add(Judgement("elsewhere", "not run", note="only on cuda"))
    return folder


def edited(folder: Path) -> list[str]:
    return list(find_edited(folder, {each.case: each for each in read_results(folder)}))


def change_json(path: Path, change: Any) -> None:
    plain = json.loads(path.read_text())
    change(plain)
    path.write_text(json.dumps(plain))


def test_results_as_recorded_are_not_edited(kept: Path) -> None:
    assert edited(kept) == []
    assert set(read_recorded(kept).cases) == {"gelu", "broken"}


def test_an_edited_saving_is_found(kept: Path) -> None:
    def halve(diff: Any) -> None:
        diff["findings"][0]["confirmation"]["saved_j"] /= 2

    change_json(kept / "gelu" / "diff.json", halve)
    assert edited(kept) == ["gelu/diff.json"]


def test_an_edited_recording_is_found(kept: Path) -> None:
    save(gpt2_run(label="other"), kept / "gelu" / "a.jd")
    assert edited(kept) == ["gelu/a.jd"]
    (kept / "gelu" / "a.jd").unlink()
    assert edited(kept) == ["gelu/a.jd"]


@pytest.mark.parametrize(
    ("name", "value", "judged"), [("seconds", 1.0, "gelu"), ("note", "a fault of the machine", "broken")]
)
def test_an_edited_judgement_is_found(kept: Path, name: str, value: Any, judged: str) -> None:
    def change(results: Any) -> None:
        next(each for each in results["judgements"] if each["case"] == judged)[name] = value

    change_json(kept / "results.json", change)
    assert edited(kept) == [f"the judgement of {judged}"]


def test_a_case_that_was_left_out_is_found(kept: Path) -> None:
    change_json(kept / "results.json", lambda plain: plain["judgements"].pop(1))
    assert edited(kept) == ["the judgement of broken"]


def test_a_case_without_digests_is_found(kept: Path) -> None:
    (kept / "recorded.json").unlink()
    assert edited(kept) == ["broken without digests", "gelu without digests"]


def test_a_judgement_that_stays_is_not_written(kept: Path, case: Case) -> None:
    before = (kept / "results.json").read_bytes()
    assert list(recompute(kept, [case])) == []
    assert (kept / "results.json").read_bytes() == before


def test_a_judgement_that_changed_says_from_what_and_with_which_version(kept: Path, case: Case) -> None:
    stricter = replace(case, lines=("no such line",))
    assert list(recompute(kept, [stricter])) == [Change("gelu", ("outcome", "line_right", "note"))]
    judged = {each.case: each for each in read_results(kept)}
    assert (judged["gelu"].outcome, judged["gelu"].seconds) == ("partly", 31.0)
    (plain,) = [each for each in json.loads((kept / "results.json").read_text())["judgements"] if each["recomputed"]]
    assert plain["recomputed"]["fields"] == ["outcome", "line_right", "note"]
    assert plain["recomputed"]["from"] == ["diff.json", "a.jd", "case.toml"]
    assert plain["recomputed"]["version"]
    assert judged["broken"].outcome == "failed"
    assert edited(kept) == [], "nothing measured changed"


def test_fields_of_several_recomputations_add_up(kept: Path, case: Case) -> None:
    list(recompute(kept, [replace(case, lines=("no such line",))]))
    list(recompute(kept, [replace(case, keys=("other",))], ["gelu"]))
    judged = next(each for each in read_results(kept) if each.case == "gelu")
    assert judged.recomputed is not None
    assert judged.recomputed.fields == ("outcome", "line_right", "note", "key_right")


def test_an_edited_folder_is_refused(kept: Path, case: Case) -> None:
    change_json(kept / "gelu" / "diff.json", lambda diff: diff.update(delta_j=1.0))
    with pytest.raises(JoulediffError, match=r"is not as it was recorded: gelu/diff\.json"):
        list(recompute(kept, [case]))


def test_a_case_that_is_not_kept_is_refused(kept: Path, case: Case) -> None:
    with pytest.raises(JoulediffError, match="has no result of broken"):
        list(recompute(kept, [case], ["broken"]))
