"""Two runs of scripts compared: what differs, what is noise, and which lines are the same code."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from api_run_builders import FILE, NET, SOURCE, Between, Calls, Program, make_api_run
from joulediff.diagnosis.api_runs.align import align
from joulediff.diagnosis.api_runs.compare import compare_api_runs
from joulediff.model.apis.api_diff import ApiDiff, LinePlace
from joulediff.model.apis.api_run import ApiRun
from joulediff.model.energy import joules_of
from joulediff.model.measurement import Condition
from joulediff.model.run import SourceText


def moved(run: ApiRun, lines: int, source: str, *, file: str = FILE) -> ApiRun:
    """Return a run of another version of its file, whose measured lines are `lines` further down."""

    def down(line: int | None) -> int | None:
        return None if line is None else line + lines

    apis = tuple(
        replace(
            api,
            sites=tuple(
                replace(site, line=site.line + lines, file=file) if site.file == FILE else site for site in api.sites
            ),
        )
        for api in run.apis
    )
    gaps = tuple(
        replace(gap, file=file, after_line=down(gap.after_line), before_line=down(gap.before_line)) for gap in run.gaps
    )
    return replace(run, program=file, apis=apis, gaps=gaps, sources=(SourceText(file, 1, source),))


def verdicts(diff: ApiDiff) -> dict[str, str]:
    return {each.api: each.change.verdict for each in diff.apis}


def with_calls(at: int, **changes: object) -> Program:
    calls = list(Program().calls)
    calls[at] = replace(calls[at], **changes)  # type: ignore[arg-type]
    return Program(calls)


TENSOR, SAVE = 3, 5


def test_a_run_does_not_differ_from_itself() -> None:
    diff = compare_api_runs(make_api_run(), make_api_run(), fail_above=0.2)
    assert set(verdicts(diff).values()) == {"noise"}
    assert {each.change.verdict for each in diff.lines} == {"noise"}
    assert diff.ratio is not None
    assert diff.ratio.may_be_one
    assert diff.gate is not None
    assert diff.gate.verdict == "passed"


@pytest.mark.parametrize("seed", range(30))
def test_runs_of_one_program_do_not_differ(seed: int) -> None:
    rng = random.Random(seed)
    a, b = (make_api_run(scale=math.exp(rng.gauss(0, 0.03))) for _ in "ab")
    assert set(verdicts(compare_api_runs(a, b)).values()) == {"noise"}


def test_a_costlier_call_is_found_with_its_reason() -> None:
    program = with_calls(TENSOR, net_j={"gpu0": 30.0, "cpu": 200.0})
    diff = compare_api_runs(make_api_run(program), make_api_run())
    assert {name for name, verdict in verdicts(diff).items() if verdict != "noise"} == {"torch.tensor"}
    first = diff.apis[0]
    assert (first.api, first.change.verdict) == ("torch.tensor", "differs")
    assert first.change.from_calls_j == pytest.approx(0.0)
    assert first.change.from_cost_j == pytest.approx(197.0)
    line = diff.lines[0]
    assert line.a == line.b == LinePlace(FILE, 13)
    assert line.change.verdict == "differs"


def test_more_calls_are_found_with_their_reason() -> None:
    more = {"calls": 64, "seconds": 3.0, "net_j": {"gpu0": 12.0, "cpu": 120.0}}
    diff = compare_api_runs(make_api_run(), make_api_run(with_calls(TENSOR, **more)))
    first = diff.apis[0].change
    assert (first.verdict, first.calls_a, first.calls_b) == ("differs", 16, 64)
    assert first.from_calls_j == pytest.approx(joules_of(first.difference))
    assert first.from_cost_j == pytest.approx(0.0, abs=1e-9)


def test_an_api_of_one_run_alone() -> None:
    diff = compare_api_runs(make_api_run(with_calls(SAVE, api="torch.jit.save", net_j={"cpu": 90.0})), make_api_run())
    assert verdicts(diff)["torch.jit.save"] == "only in A"
    assert verdicts(diff)["torch.save"] == "only in B"
    only = next(each.change for each in diff.apis if each.api == "torch.jit.save")
    assert only.energy_b is None
    assert joules_of(only.difference) == pytest.approx(joules_of(only.energy_a))
    assert only.from_calls_j == pytest.approx(joules_of(only.difference))


@pytest.mark.parametrize("seed", range(20))
def test_differences_sum_to_that_of_the_programs(seed: int) -> None:
    rng = random.Random(seed)

    def program() -> Program:
        names = rng.sample("abcdefgh", 6)
        calls = [
            Calls(f"lib.{name}", at + 1, name, rng.randrange(1, 5), rng.random(), {"gpu0": rng.random() * 50, "cpu": 1})
            for at, name in enumerate(names)
        ]
        between = [Between(at, at + 1, 2, rng.random(), {"cpu": rng.random() * 9}) for at in range(1, 4)]
        children = {"cpu": rng.random()} if rng.random() < 0.5 else {}
        return Program(calls, between, "".join(f"{name}()\n" for name in names), {"gpu0": rng.uniform(-2, 2)}, children)

    diff = compare_api_runs(make_api_run(program()), make_api_run(program()))
    whole_j = joules_of(diff.a.energy) - joules_of(diff.b.energy)
    assert joules_of(diff.difference) == pytest.approx(whole_j)
    apis_j = math.fsum(joules_of(each.change.difference) for each in diff.apis)
    assert apis_j + math.fsum(each.difference_j or 0.0 for each in diff.parts) == pytest.approx(whole_j)
    lines_j = math.fsum(joules_of(each.change.difference) for each in diff.lines)
    others = [each for each in diff.parts if each.name != "code between calls"]
    assert lines_j + math.fsum(each.difference_j or 0.0 for each in others) == pytest.approx(whole_j)
    for change in (each.change for each in (*diff.apis, *diff.lines)):
        assert change.from_calls_j is not None
        assert change.from_cost_j is not None
        assert change.from_calls_j + change.from_cost_j == pytest.approx(joules_of(change.difference))
    order = [abs(joules_of(each.change.difference)) for each in diff.apis]
    assert order == sorted(order, reverse=True)


def test_lines_that_moved_are_the_same_code() -> None:
    a = make_api_run()
    b = moved(a, 2, "# new\n\n" + SOURCE)
    alignment = align(a, b)
    assert alignment.of(LinePlace(FILE, 13)) == LinePlace(FILE, 15)
    assert alignment.of(LinePlace(FILE, 14, 13)) == LinePlace(FILE, 16, 15)
    assert alignment.of(LinePlace(FILE, None, 9)) == LinePlace(FILE, None, 11)
    diff = compare_api_runs(a, b)
    assert {each.change.verdict for each in diff.lines} == {"noise"}
    assert all(each.a is not None and each.b is not None for each in diff.lines)


def test_programs_of_two_names_are_versions_of_each_other() -> None:
    b = moved(make_api_run(), 1, "# new\n" + SOURCE, file="/tmp/new_train.py")
    assert align(make_api_run(), b).of(LinePlace(FILE, 14)) == LinePlace("/tmp/new_train.py", 15)
    relative = replace(make_api_run(), program="train.py"), replace(b, program="new_train.py")
    assert align(*relative).of(LinePlace(FILE, 14)) == LinePlace("/tmp/new_train.py", 15)
    assert align(*relative).files == {FILE: "/tmp/new_train.py", NET: NET}


def calling(names: str) -> Program:
    """Return a program with one call in each line."""
    calls = [Calls(f"lib.{name}", line, name, 1, 1.0, {"cpu": 5}) for line, name in enumerate(names, 1)]
    return Program(calls, (), "".join(f"{name}()\n" for name in names))


def test_a_line_that_moved_away_from_its_neighbours_is_found_by_its_text() -> None:
    a, b = make_api_run(calling("abcd")), make_api_run(calling("dabc"))
    found = {line: align(a, b).of(LinePlace(FILE, line)) for line in range(1, 5)}
    assert found == {1: LinePlace(FILE, 2), 2: LinePlace(FILE, 3), 3: LinePlace(FILE, 4), 4: LinePlace(FILE, 1)}


def test_a_line_that_changed_is_found_by_what_it_calls() -> None:
    b = moved(make_api_run(), 0, SOURCE.replace("loss.backward()", "loss.backward(retain_graph=True)"))
    assert align(make_api_run(), b).of(LinePlace(FILE, 14)) == LinePlace(FILE, 14)


def test_without_sources_lines_are_paired_by_what_they_call() -> None:
    a = replace(make_api_run(), sources=())
    b = replace(moved(make_api_run(), 5, SOURCE), sources=())
    assert align(a, b).of(LinePlace(FILE, 13)) == LinePlace(FILE, 18)
    assert align(a, a).of(LinePlace(FILE, 13)) == LinePlace(FILE, 13)


def test_another_line_with_the_same_number_is_another_line() -> None:
    a, b = make_api_run(calling("a")), make_api_run(calling("b"))
    assert align(a, b).of(LinePlace(FILE, 1)) is None
    places = {(each.a, each.b) for each in compare_api_runs(a, b).lines}
    assert places == {(LinePlace(FILE, 1), None), (None, LinePlace(FILE, 1))}


def test_a_file_that_repeats_one_line_is_compared_in_time() -> None:
    text = "f()\n" * 20_000
    a = make_api_run(Program([Calls("lib.f", 7, "f", 1, 1.0, {"cpu": 5})], (), text))
    assert align(a, a).of(LinePlace(FILE, 7)) == LinePlace(FILE, 7)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"domains": ("cpu",)}, "metered"),
        ({"source": "estimated"}, "source of cpu"),
    ],
)
def test_energies_measured_in_other_ways_are_not_compared(changes: dict[str, object], name: str) -> None:
    other = make_api_run(**changes)  # type: ignore[arg-type]
    diff = compare_api_runs(make_api_run(), other, fail_above=0.05)
    assert not diff.comparable
    assert name in {each.name for each in diff.condition_differences if each.serious}
    assert diff.ratio is None
    assert set(verdicts(diff).values()) == {"unknown"}
    assert diff.gate is not None
    assert (diff.gate.verdict, diff.gate.reason) == ("cannot tell", "conditions")


def test_a_program_that_failed_is_not_compared_with_one_that_did_not() -> None:
    diff = compare_api_runs(make_api_run(), replace(make_api_run(), ending="exception", exit_code=1))
    assert [each.name for each in diff.condition_differences] == ["end of the program"]
    assert not diff.comparable


def test_versions_are_reported() -> None:
    diff = compare_api_runs(make_api_run(), replace(make_api_run(), versions={"torch": "2.12.0"}, arguments=("x",)))
    assert diff.comparable
    assert [(each.name, each.a, each.b) for each in diff.condition_differences] == [("torch", "2.11.0", "2.12.0")]
    assert diff.notes == ("the arguments of the programs differ: model.pt ↔ x",)


@pytest.mark.parametrize(
    ("scale", "limit", "verdict", "reason"),
    [
        (1.0, 0.2, "passed", None),
        (1.0, 0.05, "cannot tell", "recordings"),
        (0.5, 0.05, "passed", None),
        (2.0, 0.05, "failed", None),
    ],
)
def test_the_gate(scale: float, limit: float, verdict: str, reason: str | None) -> None:
    gate = compare_api_runs(make_api_run(), make_api_run(scale=scale), fail_above=limit).gate
    assert gate is not None
    assert (gate.verdict, gate.reason) == (verdict, reason)
    assert gate.ratio is not None
    assert (gate.ratio.value > 1) == (scale > 1)


def test_the_gate_cannot_tell_for_runs_that_were_disturbed_or_not_measured() -> None:
    busy = replace(make_api_run(scale=3), conditions=(Condition("quiet", ok=False, value="busy"),))
    gate = compare_api_runs(make_api_run(), busy, fail_above=0.05).gate
    assert gate is not None
    assert (gate.verdict, gate.reason) == ("cannot tell", "disturbed")
    unknown = replace(make_api_run(), energy=None)
    gate = compare_api_runs(unknown, unknown, fail_above=0.05).gate
    assert gate is not None
    assert (gate.verdict, gate.reason) == ("cannot tell", "not measured")


def test_unknown_energy_has_no_verdict() -> None:
    run = make_api_run()
    first = replace(run.apis[0], self_energy=None)
    diff = compare_api_runs(replace(run, apis=(first, *run.apis[1:])), run)
    found = next(each.change for each in diff.apis if each.api == first.api)
    assert (found.verdict, found.difference, found.from_calls_j) == ("unknown", None, None)
