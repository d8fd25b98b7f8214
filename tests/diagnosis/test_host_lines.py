"""Lines of the host: which of them take more time on one side, and the finding that follows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from diagnosis_builders import LiveProgram, comparison_of
from host_builders import host_run
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.evidence.host.host_lines import HostLine, find_host_lines
from joulediff.energy.host_time import GARBAGE_COLLECTION
from joulediff.frameworks.jobs import Variant, VariantCost
from joulediff.model.energy import Energy
from joulediff.model.pair import SideName
from joulediff.model.run import Run, SourceText
from joulediff.pysource.source_files import ProgramSource, SourceFile
from run_builders import energy

LEAN = """\
import gc


def build():
    def step():
        y = forward(x)
        return y
    return step
"""
# One line more, and a loop.
COSTLY = LEAN.replace("        y = forward(x)\n", "        gc.collect()\n        y = forward(x)\n")
LOOPING = LEAN.replace(
    "        return y\n",
    "        for word in words:\n            count(word)\n            seen.add(word)\n        return y\n",
)


FORWARD = "y = forward(x)"


def found(a: Run, b: Run, side: SideName = "a") -> list[HostLine]:
    return list(find_host_lines(comparison_of(a, b), side))


def test_a_line_that_the_other_side_lacks() -> None:
    a = host_run(COSTLY, {(FORWARD,): 4.0, ("gc.collect()",): 2.0}, gc=["gc.collect()"])
    (line,) = found(a, host_run(LEAN, {(FORWARD,): 4.1}))
    assert (line.key, line.place.file, line.place.line) == ("gc.collect", "prog.py", 6)
    assert (line.seconds_a, line.seconds_b) == (2e-3, 0.0)
    assert line.share == pytest.approx(0.2)
    assert not line.is_wait and not line.runs_operators and line.other is None


ENCODING = """\
def build():
    def step():
        return model(tensor(encode(texts)))
    return step


def encode(texts):
    return [number(word) for word in texts]


def number(word):
    return words.index(word)
"""


def test_a_line_with_operators_that_the_other_side_lacks_is_searched_for_work_of_the_host() -> None:
    mixed, inside = "return model(tensor(encode(texts)))", "return [number(word) for word in texts]"
    a = host_run(ENCODING, {(mixed,): 1.0, (mixed, inside): 0.5, (mixed, inside, "return words.index(word)"): 5.0})
    at = next(at for at, frame in enumerate(a.frames) if frame.file == "prog.py" and frame.line == 3)
    a = replace(a, ops=tuple(replace(op, frame=at) for op in a.ops))
    (line,) = found(a, host_run(LEAN, {(FORWARD,): 1.0}))
    assert (line.key, line.place.line, line.runs_operators) == ("number", 8, False)


def test_the_line_of_a_loop_that_takes_most_of_its_time() -> None:
    a = host_run(LOOPING, {(FORWARD,): 4.0, ("count(word)",): 3.0, ("seen.add(word)",): 0.5})
    (line,) = found(a, host_run(LEAN, {(FORWARD,): 4.0}))
    assert (line.key, line.place.text) == ("count", "count(word)")
    both = host_run(LOOPING, {(FORWARD,): 4.0, ("count(word)",): 2.0, ("seen.add(word)",): 1.9})
    (line,) = found(both, host_run(LEAN, {(FORWARD,): 4.0}))
    assert line.place.text == "for word in words:"


def test_a_line_of_a_loop_that_calls_nothing_is_named_by_the_loop() -> None:
    text = LOOPING.replace("count(word)", "word * word").replace("            seen.add(word)\n", "")
    (line,) = found(host_run(text, {(FORWARD,): 4.0, ("word * word",): 3.0}), host_run(LEAN, {(FORWARD,): 4.0}))
    assert (line.key, line.place.text) == ("for word in words", "for word in words:")


def test_a_loop_whose_time_is_that_of_its_operators_is_left_to_them() -> None:
    """Only the line of the loop that runs none is work of the host alone."""

    def with_operators(times_ms: dict[tuple[str, ...], float]) -> Run:
        run = host_run(LOOPING, times_ms)
        at = next(at for at, frame in enumerate(run.frames) if frame.file == "prog.py" and frame.line == 8)
        return replace(run, ops=tuple(replace(op, frame=at) for op in run.ops))

    lean = host_run(LEAN, {(FORWARD,): 4.0})
    counting, adding = ("count(word)",), ("seen.add(word)",)
    assert [line.runs_operators for line in found(with_operators({counting: 3.0, (FORWARD,): 4.0}), lean)] == [True]
    loop = found(with_operators({counting: 3.0, adding: 1.5, (FORWARD,): 4.0}), lean)
    assert [line.runs_operators for line in loop] == [True]
    mostly_host = found(with_operators({counting: 1.0, adding: 3.0, (FORWARD,): 4.0}), lean)
    assert [(line.place.text, line.runs_operators) for line in mostly_host] == [("seen.add(word)", False)]
    as_much = found(with_operators({counting: 2.0, adding: 2.0, (FORWARD,): 4.0}), lean)
    assert [(line.place.text, line.runs_operators) for line in as_much] == [("for word in words:", False)]


def test_the_cheap_side_has_no_lines() -> None:
    a = host_run(COSTLY, {(FORWARD,): 4.0, ("gc.collect()",): 2.0})
    b = host_run(LEAN, {(FORWARD,): 4.1})
    assert [line.place for line in found(b, a, "b")] == [line.place for line in found(a, b, "a")] != []
    assert found(a, b, "b") == []


@pytest.mark.parametrize("factor", [1.0, 1.1, 1.3])
def test_a_process_that_is_slower_in_every_line_has_none(factor: float) -> None:
    times = {(FORWARD,): 4.0, ("return y",): 1.0}
    slow = {path: factor * time_ms for path, time_ms in times.items()}
    assert found(host_run(LEAN, slow), host_run(LEAN, times)) == []


def test_a_line_within_the_noise_of_its_samples() -> None:
    few = {(FORWARD,): 4.0, ("gc.collect()",): 0.3}
    assert found(host_run(COSTLY, few, steps=20), host_run(LEAN, {(FORWARD,): 4.0}, steps=20)) == []
    assert len(found(host_run(COSTLY, few, steps=200), host_run(LEAN, {(FORWARD,): 4.0}, steps=200))) == 1


def test_less_than_two_percent_of_a_step_is_nothing() -> None:
    little = {(FORWARD,): 4.0, ("gc.collect()",): 0.15}
    assert found(host_run(COSTLY, little, steps=10_000), host_run(LEAN, {(FORWARD,): 4.0}, steps=10_000)) == []


def test_the_lines_of_a_loop_are_one() -> None:
    a = host_run(
        LOOPING, {(FORWARD,): 4.0, ("for word in words:",): 0.5, ("count(word)",): 1.0, ("seen.add(word)",): 1}
    )
    (line,) = found(a, host_run(LEAN, {(FORWARD,): 4.0}))
    assert (line.key, line.place.line) == ("for word in words", 7)
    assert line.excess_s == pytest.approx(2.5e-3)


def test_the_line_of_a_loop_need_not_be_sampled() -> None:
    a = host_run(LOOPING, {(FORWARD,): 4.0, ("count(word)",): 1.0, ("seen.add(word)",): 1})
    (line,) = found(a, host_run(LEAN, {(FORWARD,): 4.0}))
    assert (line.key, line.place.line) == ("for word in words", 7)


def test_a_line_in_a_loop_of_both_programs_is_reported_itself() -> None:
    less = LOOPING.replace("            count(word)\n", "")
    a = host_run(LOOPING, {(FORWARD,): 4.0, ("count(word)",): 1.0, ("seen.add(word)",): 1})
    (line,) = found(a, host_run(less, {(FORWARD,): 4.0, ("seen.add(word)",): 1}))
    assert (line.key, line.place.line) == ("count", 8)


INNER = "def forward(x):\n    clean(x)\n    return model(x)\n\n" + LEAN


def test_the_narrowest_line_that_both_do_not_share() -> None:
    a = host_run(INNER, {(FORWARD, "clean(x)"): 2.0, (FORWARD, "return model(x)"): 3.0})
    b = host_run(INNER.replace("    clean(x)\n", ""), {(FORWARD, "return model(x)"): 3.0})
    (line,) = found(a, b)
    assert (line.place.text, line.place.function) == ("clean(x)", "forward")


def test_more_time_in_a_line_that_both_have() -> None:
    other = {("return y",): 4.0}
    a = host_run(LEAN, {(FORWARD, ("json.py", "loads")): 5.0, **other})
    (line,) = found(a, host_run(LEAN, {(FORWARD, ("json.py", "loads")): 2.0, **other}))
    assert (line.key, line.what, line.other is not None) == ("forward", "lib.json.loads", True)


def test_lines_that_replace_each_other_say_nothing() -> None:
    a = host_run(COSTLY, {(FORWARD,): 4.0, ("gc.collect()",): 2.0})
    b = host_run(LEAN.replace("import gc", "words = 1"), {(FORWARD,): 4.0, ("return y",): 0.1})
    rewritten = replace(b, sources=(SourceText("prog.py", 1, LEAN.replace("return y", "tidy_up_everything()")),))
    assert len(found(a, rewritten)) == 1
    b = host_run(LEAN, {(FORWARD,): 4.0, ("return y",): 1.9})
    rewritten = replace(b, sources=(SourceText("prog.py", 1, LEAN.replace("return y", "tidy_up_everything()")),))
    assert found(a, rewritten) == []


def test_a_line_that_waits() -> None:
    a = host_run(COSTLY, {(FORWARD,): 4.0, ("gc.collect()",): 2.0}, wait={"gc.collect()": 0.9})
    (line,) = found(a, host_run(LEAN, {(FORWARD,): 4.0}))
    assert line.is_wait


def test_on_a_shared_core_only_cpu_time_counts() -> None:
    waits = {FORWARD: 0.5, "gc.collect()": 0.5}
    a = host_run(COSTLY, {(FORWARD,): 8.0, ("gc.collect()",): 2.0}, wait=waits)
    (line,) = found(a, host_run(LEAN, {(FORWARD,): 4.0}))
    assert line.seconds_a == pytest.approx(1e-3)


def test_a_collection_that_a_line_triggers() -> None:
    a = host_run(LEAN, {(FORWARD,): 4.0}, gc=[FORWARD])
    b = host_run(LEAN, {(FORWARD,): 1.0})
    (line,) = found(a, b)
    assert line.key == GARBAGE_COLLECTION


def test_without_the_pass_there_is_nothing() -> None:
    a = host_run(COSTLY, {(FORWARD,): 4.0, ("gc.collect()",): 2.0})
    b = host_run(LEAN, {(FORWARD,): 4.0})
    assert found(a, replace(b, host_samples=(), sampling=None)) == []


def collecting_pair() -> tuple[Run, Run]:
    a = host_run(COSTLY, {(FORWARD,): 8.0, ("gc.collect()",): 5.0}, step_s=15e-3)
    return a, host_run(LEAN, {(FORWARD,): 8.0})


@dataclass
class Rebuilt(LiveProgram):
    """A program that can be built again without a line."""

    after: Energy | None = None
    text: str = COSTLY
    built: list[str] = field(default_factory=list)

    def read_source(self) -> ProgramSource:
        return ProgramSource("build", (SourceFile("", "prog.py", self.text),))

    def try_variant(self, variant: Variant, *, seconds: float) -> tuple[VariantCost, Run]:
        self.built.append(variant.files[0].text)
        assert self.run.measurement is not None
        cost = VariantCost(self.run.measurement.energy, self.after, difference=self.difference, is_measured=True)
        return cost, self.run


def finding_of(a: Run, b: Run, mine: LiveProgram | None = None) -> Any:
    (only,) = diagnose(a, b, live={} if mine is None else {"a": mine, "b": LiveProgram(b)}).findings
    return only


def test_a_line_of_the_host_is_a_finding() -> None:
    a, b = collecting_pair()
    only = finding_of(a, b)
    assert (only.kind, only.cause.type, only.cause.key) == ("redundant", "code", "gc.collect")
    assert (only.expensive, only.region) == ("a", "host: gc.collect")
    assert only.cause.location_a.line == 6
    assert only.proof.word == "observed"
    assert "Leave out gc.collect" in only.suggestion


def test_without_the_line_the_step_costs_as_little() -> None:
    a, b = collecting_pair()
    assert b.measurement is not None
    mine = Rebuilt(a, after=b.measurement.energy)
    only = finding_of(a, b, mine)
    assert only.proof.word == "cause confirmed"
    assert mine.built == [COSTLY.replace("gc.collect()", "pass")]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"difference": None}, "the outputs could not be compared"),
        ({"difference": 0.5}, "the outputs change with it"),
        ({"after": energy(2.4)}, "the energy stays as it is"),
    ],
)
def test_a_trial_that_confirms_nothing(changes: dict[str, Any], note: str) -> None:
    a, b = collecting_pair()
    assert b.measurement is not None
    only = finding_of(a, b, Rebuilt(a, **{"after": b.measurement.energy, **changes}))
    assert only.proof.word == "observed"
    assert only.proof.confirmation.trials[0].note == note


def test_a_line_whose_result_is_used_is_not_tried() -> None:
    a, b = collecting_pair()
    only = finding_of(a, b, Rebuilt(a, text=COSTLY.replace("gc.collect()", "x = gc.collect()")))
    assert only.cause.not_tried == "not tried: the result of prog.py:6 is used, so it cannot be left out"
    assert only.kind == "host" and only.suggestion.startswith("Do the work of gc.collect (prog.py:6")


def test_the_same_program_twice_has_no_finding() -> None:
    a, _ = collecting_pair()
    assert diagnose(a, a).findings == ()
