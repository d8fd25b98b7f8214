"""Runs with replays for the tests of the ledger, by hand and for Hypothesis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from joulediff.model.energy import Energy
from joulediff.model.measurement import DeviceState, DomainEnergy, Measurement
from joulediff.model.run import Replay, Run
from run_builders import RunBuilder, domain_energy, measurement

STEP_S = 10e-3


def replay(op: int, joules: float | None, domain: str = "gpu0", *, share: float = 0.05, **changes: Any) -> Replay:
    if joules is None:
        return Replay(op, domain, **changes)
    half_j = abs(joules) * share
    return Replay(op, domain, joules, joules - half_j, joules + half_j, **changes)


def with_replays(run: Run, *replays: Replay, calls: dict[int, int]) -> Run:
    """Return the run with replays; `calls` gives the replay of each operator."""
    ops = tuple(replace(op, replay=calls.get(op.id)) for op in run.ops)
    return replace(run, ops=ops, replays=replays)


def metered(domains: dict[str, DomainEnergy], **changes: Any) -> Measurement:
    return measurement(STEP_S, domains=domains, **changes)


def gpu_run(*kernels: tuple[str, float, int | None], joules: float = 5.0, rest_w: float | None = 100.0) -> Run:
    """A run of one GPU: kernels one after the other as (name, duration_s, operator), in a step of 10 ms."""
    made = RunBuilder()
    for _ in range(1 + max([op for _, _, op in kernels if op is not None], default=-1)):
        made.op("aten::mm")
    for name, duration_s, op in kernels:
        made.kernel(name, duration_s, op=op)
    return made.build(measurement=metered({"gpu0": domain_energy(joules, STEP_S, rest_w)}))


def cpu_run(*durations_s: float, joules: float = 1.0, rest_w: float | None = 20.0, cpu_s: float | None = 8e-3) -> Run:
    """A run on the CPU alone: an operator for each duration, in a step of 10 ms."""
    made = RunBuilder("cpu")
    for duration_s in durations_s:
        made.kernel("aten::mm", duration_s, op=made.op("aten::mm"))
    return made.build(measurement=metered({"cpu": domain_energy(joules, STEP_S, rest_w)}, cpu_s=cpu_s))


DURATIONS = st.floats(0.0, 3e-3) | st.just(0.0)
LIKELY = st.sampled_from([True, True, True, False])
DOMAINS = ("gpu0", "gpu1", "cpu", "dram0", "psys")


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Any valid run: streams that overlap, several devices, some operators replayed and some not."""
    made = RunBuilder()
    for _ in range(draw(st.integers(0, 6))):
        made.op("aten::mm", device=draw(st.sampled_from(["cuda:0", "cuda:1", "cpu"])))
    for _ in range(draw(st.integers(0, 12))):
        device = draw(st.sampled_from(["cuda:0", "cuda:0", "cuda:1", "cpu"]))
        made.kernel(
            draw(st.sampled_from(["gemm", "add"])),
            draw(DURATIONS),
            op=draw(st.integers(0, len(made.ops) - 1)) if made.ops and draw(LIKELY) else None,
            start_s=draw(st.floats(0.0, 8e-3)),
            device=device,
            kind="cpu" if device == "cpu" else "kernel",
        )
    made.wait("cudaStreamSynchronize", draw(DURATIONS), start_s=0.0)
    run = made.build(traced_s=draw(st.sampled_from([None, 12e-3])), measurement=draw(measurements()))
    return draw(replayed(run)) if draw(LIKELY) else run


@st.composite
def measurements(draw: st.DrawFn) -> Measurement:
    """A measurement of a machine with two GPUs and a CPU."""
    names = draw(st.sets(st.sampled_from(DOMAINS), min_size=1))
    domains = {
        name: domain_energy(
            draw(st.floats(1e-3, 10.0)),
            STEP_S,
            draw(st.floats(0.0, 300.0) if draw(LIKELY) else st.none()),
            counted=draw(st.booleans()) and name != "psys",
        )
        for name in sorted(names)
    }
    watts = st.lists(st.floats(0.0, 700.0), min_size=1, max_size=4).map(tuple)
    return metered(
        domains,
        cpu_s=draw(st.none() | st.floats(1e-4, 40e-3)),
        profiles=draw(st.dictionaries(st.sampled_from(DOMAINS), watts, max_size=2)),
        states=(DeviceState("gpu0", power_limit_w=draw(st.none() | st.floats(200.0, 700.0))),),
    )


@st.composite
def replayed(draw: st.DrawFn, run: Run) -> Run:
    """The same run with some of its operators replayed, in some domains."""
    found: list[Replay] = []
    calls: dict[int, int] = {}
    for op in run.ops:
        if calls and draw(st.booleans()):
            calls[op.id] = draw(st.sampled_from(sorted(set(calls.values()))))
        elif draw(LIKELY):
            calls[op.id] = len(found)
            domains = draw(st.lists(st.sampled_from(DOMAINS[:4]), min_size=1, unique=True))
            found += [draw(replays(op.id, domain)) for domain in domains]
    return with_replays(run, *found, calls=calls)


@st.composite
def replays(draw: st.DrawFn, op: int, domain: str) -> Replay:
    return replay(
        op,
        draw(st.floats(-0.01, 3.0) if draw(LIKELY) else st.none()),
        domain,
        share=draw(st.floats(0.0, 0.3)),
        rest_w=draw(st.none() | st.floats(0.0, 300.0)),
        call_s=draw(st.none() | DURATIONS),
        cpu_s=draw(st.none() | DURATIONS),
    )


ODD = st.floats() | st.sampled_from([0.0, -1.0, 1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf")])


@st.composite
def odd_runs(draw: st.DrawFn) -> Run:
    """A run from a broken or hostile file: any number anywhere."""
    run: Run = draw(runs())
    kernels = tuple(
        replace(kernel, start_s=draw(ODD), duration_s=draw(ODD)) if draw(st.booleans()) else kernel
        for kernel in run.kernels
    )
    found = run.measurement
    assert found is not None
    domains = {name: draw(_odd_domain(domain)) for name, domain in found.domains.items()}
    odd = replace(
        found,
        step_s=draw(st.just(found.step_s) | ODD),
        domains={**domains, "gpu" + "9" * 5000: domains[next(iter(domains))]},
        cpu_s=draw(st.none() | ODD),
        profiles={name: tuple(draw(st.lists(ODD, max_size=3))) for name in domains},
        states=(DeviceState("gpu0", power_limit_w=draw(ODD)),),
    )
    replays = tuple(replace(each, rest_w=draw(ODD), call_s=draw(ODD), cpu_s=draw(ODD)) for each in run.replays)
    waits = tuple(replace(wait, duration_s=draw(ODD)) for wait in run.waits)
    return replace(run, kernels=kernels, measurement=odd, replays=replays, waits=waits, traced_s=draw(st.none() | ODD))


@st.composite
def _odd_domain(draw: st.DrawFn, domain: DomainEnergy) -> DomainEnergy:
    if domain.idle is not None and draw(st.booleans()):
        domain = replace(domain, idle=replace(domain.idle, power_w=draw(ODD), low_w=draw(ODD), high_w=draw(ODD)))
    if draw(st.booleans()):
        low, joules, high = sorted(draw(st.tuples(*[ODD.filter(lambda x: x == x)] * 3)))
        domain = replace(domain, energy=Energy(joules, low, high, "metered"))
    return domain
