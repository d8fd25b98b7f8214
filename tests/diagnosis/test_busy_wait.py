"""A host that spins while it waits: found by the CPU's energy and the schedule, proven by a change of the schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnosis_builders import LiveProgram, comparison_of, costs, draw, record
from invented import Tensor, tanh
from joulediff.diagnosis.build import build_finding, draft_busy_wait
from joulediff.diagnosis.compare import diagnose
from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.draft import Investigation
from joulediff.diagnosis.evidence.host.busy_wait import BusyWait, busiest_line, find_busy_wait
from joulediff.diagnosis.trials.run_trials import run_trials
from joulediff.model.diff import Diff, Thresholds
from joulediff.model.energy import Energy
from joulediff.model.finding import Finding
from joulediff.model.measurement import Measurement
from joulediff.model.place import Place
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Frame, HostSample, Run, SourceText
from joulediff.report.json.diff import diff_from_json, diff_to_json
from joulediff.report.markdown import diff_to_markdown
from joulediff.report.render import render
from run_builders import domain_energy, energy

SCHEDULE = "device.cuda:0.schedule"
SLEEP = f"{SCHEDULE} = blocking_sync"
X, W = draw(16, 32), draw(32, 32, seed=1)
LIMITS = Thresholds()
GPU_J = 5.0


def step() -> Tensor:
    return tanh(X @ W)


RUN = record(step, costs({"mm": 4.0}))


def measured(cpu_j: float, *, share: float = 0.01, step_s: float | None = None, counted: bool = False) -> Measurement:
    """Return the measurement of a step with 5 J of a GPU and this energy of the CPU."""
    found = RUN.measurement
    assert found is not None
    source: Any = "metered" if counted else "estimated"
    cpu = domain_energy(cpu_j, found.step_s, None, energy=energy(cpu_j, share, source), counted=counted)
    whole_j = GPU_J + counted * cpu_j
    return replace(found, energy=energy(whole_j), domains={**found.domains, "cpu": cpu}, step_s=step_s or found.step_s)


def run_of(schedule: str | None, cpu_j: float | None, **changes: Any) -> Run:
    """Return the same program with a way to wait and an energy of the CPU; None leaves either out."""
    found = RUN.measurement if cpu_j is None else measured(cpu_j, **changes)
    return replace(RUN, settings={} if schedule is None else {SCHEDULE: schedule}, measurement=found)


def found_in(a: Run, b: Run, threshold: float = 0.05) -> BusyWait | None:
    return find_busy_wait(Comparison(a, b, comparison_of(RUN, RUN).regions), threshold)


SPIN, BLOCK = run_of("spin", 3.0), run_of("blocking_sync", 1.0)


def test_a_cpu_that_spins_is_found_on_its_side() -> None:
    found = found_in(SPIN, BLOCK)
    assert found is not None
    assert (found.setting, found.expensive, found.delta_j) == (SCHEDULE, "a", pytest.approx(2.0))
    swapped = found_in(BLOCK, SPIN)
    assert swapped is not None and swapped.expensive == "b"
    assert swapped.delta_j == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (run_of("spin", 3.0), run_of("spin", 1.0)),
        (run_of("spin", 3.0), run_of(None, 1.0)),
        (run_of(None, 3.0), run_of("blocking_sync", 1.0)),
        (run_of("spin", None), run_of("blocking_sync", 1.0)),
        (run_of("spin", 3.0), run_of("blocking_sync", None)),
        (replace(SPIN, measurement=None), BLOCK),
        (run_of("spin", 1.04), run_of("blocking_sync", 1.0, share=0.001)),
        (run_of("spin", 3.0, share=0.4), run_of("blocking_sync", 1.5, share=0.4)),
        (run_of("blocking_sync", 3.0), run_of("spin", 1.0)),
    ],
    ids=[
        "both spin",
        "unknown in B",
        "unknown in A",
        "no CPU in A",
        "no CPU in B",
        "not metered",
        "within the threshold",
        "intervals that meet",
        "the costly side sleeps",
    ],
)
def test_no_spinning_is_claimed(a: Run, b: Run) -> None:
    assert found_in(a, b) is None
    assert diagnose(a, b).findings == ()


def test_the_threshold_is_the_users() -> None:
    a, b = run_of("spin", 1.5), run_of("blocking_sync", 1.0)
    assert found_in(a, b, 0.4) is not None
    assert found_in(a, b, 0.6) is None


def test_a_device_that_one_side_does_not_know_hides_no_other() -> None:
    a = replace(SPIN, settings={"device.cuda:0.schedule": "auto", "device.cuda:1.schedule": "spin"})
    b = replace(BLOCK, settings={"device.cuda:1.schedule": "blocking_sync"})
    found = found_in(a, b)
    assert found is not None and found.setting == "device.cuda:1.schedule"


def test_other_settings_called_schedule_are_none_of_a_device() -> None:
    a, b = replace(SPIN, settings={"config.schedule": "x"}), replace(BLOCK, settings={"config.schedule": "y"})
    assert found_in(a, b) is None


def written(a: Run = SPIN, b: Run = BLOCK, *, live: Any = None, limits: Thresholds = LIMITS) -> Finding:
    sides = Comparison(a, b, comparison_of(RUN, RUN).regions)
    found = find_busy_wait(sides, limits.threshold)
    assert found is not None
    return built(sides, found, live or {}, limits)


def built(sides: Comparison, found: BusyWait, live: Any, limits: Thresholds) -> Finding:
    work = Investigation(sides, (), limits, live, ProgressListener())
    return build_finding(run_trials(draft_busy_wait(work, found)), 1)


def tried(*, after: Measurement | str, limits: Thresholds = LIMITS, other: bool = True) -> Finding:
    """Return the finding of a program whose step was measured with the other side's way to wait."""
    live = {"a": LiveProgram(SPIN, steps={SLEEP: after}), **({"b": LiveProgram(BLOCK)} if other else {})}
    return written(live=live, limits=limits)


def test_the_finding_from_recordings_alone() -> None:
    a = replace(SPIN, set_places={SCHEDULE: "serve.py:7:build"})
    found = written(a)
    assert (found.kind, found.verdict, found.expensive) == ("misconfiguration", "waste", "a")
    assert (found.regions, found.work.ops_a, found.work.kernels_a, found.work.path_a) == ((), (), (), ())
    assert (found.cost.energy_a, found.cost.energy_b) == (
        energy(3.0, 0.01, "estimated"),
        energy(1.0, 0.01, "estimated"),
    )
    assert (found.cost.delta_j, found.cost.ratio) == (pytest.approx(2.0), pytest.approx(3.0))
    assert found.cost.time_a_s == found.cost.time_b_s == RUN.traced_s
    cause = found.cause
    assert (cause.type, cause.key, cause.value_a, cause.value_b) == ("setting", SCHEDULE, "spin", "blocking_sync")
    assert cause.location_a == Place("serve.py", 7, "build") and cause.location_b is None
    assert not found.proof.confirmed and found.proof.confirmation is None
    assert "serve.py:7" in found.suggestion and "BlockingSync" in found.suggestion


def test_power_on_both_sides_is_the_evidence() -> None:
    assert written().cause.evidence[:2] == (
        "A waits by spin: its CPU draws 300 W during the step",
        "B waits by blocking_sync: its CPU draws 100 W during the step",
    )


def test_a_cpu_that_is_in_no_total_is_said_and_added_to_the_step() -> None:
    found = written()
    assert any("in no total" in text for text in found.cause.evidence)
    assert found.cost.share_of_run == pytest.approx(2.0 / (GPU_J + 3.0))


def test_a_cpu_that_is_metered_is_in_the_total_already() -> None:
    found = written(run_of("spin", 3.0, counted=True), run_of("blocking_sync", 1.0, counted=True))
    assert len(found.cause.evidence) == 2
    assert found.cost.share_of_run == pytest.approx(2.0 / (GPU_J + 3.0))


def test_a_cpu_that_rests_on_the_other_side_has_no_ratio() -> None:
    sides = Comparison(SPIN, BLOCK, ())
    nothing = Energy(0.0, 0.0, 0.0, "estimated")
    found = built(sides, BusyWait(SCHEDULE, "a", energy(3.0), nothing), {}, LIMITS)
    assert found.cost.ratio is None and found.cost.delta_j == pytest.approx(3.0)


def test_the_step_that_waits_in_the_other_way_is_the_proof() -> None:
    found = tried(after=measured(1.05))
    assert found.proof.confirmed and found.verdict == "waste" and found.proof.confirmation is not None
    (trial,) = found.proof.confirmation.trials
    assert (trial.change, trial.explains, trial.of_step, trial.note) == (SLEEP, True, True, "energies of the CPU")
    assert [each.joules for each in (trial.before, trial.after, trial.other) if each] == [3.0, 1.05, 1.0]
    assert found.proof.confirmation.saved_j == pytest.approx(1.95)
    assert found.proof.confirmation.saved_share == pytest.approx(1.95 / (GPU_J + 3.0))


def test_each_program_is_measured_as_it_is_and_only_the_costly_one_changed() -> None:
    live: Any = {"a": LiveProgram(SPIN, steps={SLEEP: measured(1.0)}), "b": LiveProgram(BLOCK)}
    written(live=live)
    assert live["a"].asked == ["step: own", f"step: {SLEEP}"]
    assert live["b"].asked == ["step: own"]


def test_a_cheap_side_that_is_a_file_counts_as_recorded() -> None:
    found = tried(after=measured(1.0), other=False)
    assert found.proof.confirmed and found.proof.confirmation is not None
    assert found.proof.confirmation.trials[0].other == energy(1.0, 0.01, "estimated")


def test_a_costly_side_that_is_a_file_is_not_tried() -> None:
    found = written(live={"b": LiveProgram(BLOCK)})
    assert not found.proof.confirmed and found.proof.confirmation is None


@pytest.mark.parametrize(
    ("after", "note"),
    [
        (measured(3.0), "the energy stays as it is"),
        (measured(2.0), "the CPU's energy stays above the other side's"),
        (measured(1.2, share=1.5), "the energy stays as it is"),
        ("the driver does not let it be changed", "the driver does not let it be changed"),
        (replace(measured(1.0), domains={}), "the CPU's energy is not known"),
    ],
    ids=["as before", "half way", "too wide", "fails", "unknown"],
)
def test_a_change_that_proves_nothing(after: Measurement | str, note: str) -> None:
    found = tried(after=after)
    assert not found.proof.confirmed and found.verdict == "waste" and found.proof.confirmation is not None
    (trial,) = found.proof.confirmation.trials
    assert (trial.explains, trial.note) == (False, note)
    assert found.proof.confirmation.saved_j is None and found.proof.confirmation.saved_share is None


def test_a_step_that_gets_slower_by_sleeping_is_a_trade_off() -> None:
    slow_s = 1.02 * (RUN.traced_s or 0.0)
    slow = replace(BLOCK, measurement=measured(1.0, step_s=slow_s))

    def verdict(after: Measurement, limits: Thresholds = LIMITS, b: Run = slow) -> str:
        return written(
            b=b, live={"a": LiveProgram(SPIN, steps={SLEEP: after}), "b": LiveProgram(b)}, limits=limits
        ).verdict

    assert verdict(measured(1.0, step_s=slow_s)) == "tradeoff"
    assert verdict(measured(1.0, step_s=slow_s), Thresholds(slower=0.05)) == "waste"
    assert verdict(measured(3.0, step_s=slow_s)) == "waste", "it did not sleep"
    assert verdict(measured(1.0)) == "waste", "the trial is no slower"
    assert verdict(measured(1.0, step_s=slow_s), b=BLOCK) == "waste", "the other program is no slower"


def whole_diff(*, after: float = 1.0) -> Diff:
    return diagnose(SPIN, BLOCK, live={"a": LiveProgram(SPIN, steps={SLEEP: measured(after)}), "b": LiveProgram(BLOCK)})


def test_a_diff_of_programs_that_differ_in_nothing_else() -> None:
    (found,) = whole_diff().findings
    assert (found.id, found.cause.key, found.proof.confirmed) == ("1", SCHEDULE, True)
    (found,) = diagnose(BLOCK, SPIN, live={"b": LiveProgram(SPIN, steps={SLEEP: measured(1.0)})}).findings
    assert (found.expensive, found.proof.confirmed) == ("b", True)


def test_it_is_a_finding_beside_others_the_costliest_first() -> None:
    dear = replace(record(step, costs({"mm": 5.0}), kernel=lambda op: f"slow_{op.name}"), settings=SPIN.settings)
    assert dear.measurement is not None
    domains = {**dear.measurement.domains, "cpu": measured(3.0).domains["cpu"]}
    diff = diagnose(replace(dear, measurement=replace(dear.measurement, domains=domains)), BLOCK)
    assert [(f.id, f.cause.type) for f in diff.findings] == [("1", "setting"), ("2", "kernel")]
    assert [row.finding for row in diff.rows if row.name == "mm"] == ["2"]


@pytest.mark.parametrize("schedule", ["spin", "blocking_sync"])
def test_a_program_and_itself(schedule: str) -> None:
    run = run_of(schedule, 3.0)
    assert diagnose(run, run, live={"a": LiveProgram(run), "b": LiveProgram(run)}).findings == ()


def test_runs_that_were_not_measured_alike_have_no_finding() -> None:
    settings = {**BLOCK.settings, "device.cuda:0.name": "another card"}
    diff = diagnose(
        replace(SPIN, settings={**SPIN.settings, "device.cuda:0.name": "a card"}), replace(BLOCK, settings=settings)
    )
    assert not diff.comparable and diff.findings == ()


def test_it_survives_json() -> None:
    diff = whole_diff()
    assert diff_from_json(diff_to_json(diff).encode()) == diff


@pytest.mark.parametrize("width", [80, 120])
def test_reports_tell_the_setting_and_both_values(width: int) -> None:
    shown = render(whole_diff(), "terminal", width=width)
    assert all(len(line) <= width for line in shown.splitlines())
    for text in (shown, diff_to_markdown(whole_diff())):
        told = " ".join(text.split())
        assert all(word in told for word in ("spinning", "schedule", "blocking_sync", "confirmed"))


def test_the_line_that_waits_is_the_users_line_with_most_of_the_hosts_time() -> None:
    frames = (
        Frame("step.py", 19, "step", None, None),
        Frame("torch/cuda/__init__.py", 900, "synchronize", "torch", 0),
        Frame("step.py", 12, "step", None, None),
    )
    sources = (SourceText("step.py", 12, "y = y @ weight\n" + "\n" * 6 + "    torch.cuda.synchronize()\n"),)
    samples = (HostSample(1, "line", 6e-3, 6e-3, 6), HostSample(2, "line", 4e-3, 4e-3, 4))
    run = replace(RUN, frames=frames, sources=sources, ops=(), host_samples=samples)
    assert busiest_line(run) == Place("step.py", 19, "step", "torch.cuda.synchronize()")
    even = (replace(samples[0], time_s=4e-3), samples[1], HostSample(None, "line", 4e-3, 4e-3, 4))
    assert busiest_line(replace(run, host_samples=even)) is None
    assert busiest_line(replace(run, host_samples=())) is None
