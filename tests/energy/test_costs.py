"""The costs of groups of operators."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from energy_builders import gpu_run, replay, runs, with_replays
from joulediff.energy.ledger import Costs
from joulediff.model.run import Run


@settings(max_examples=30)
@given(runs())
def test_costs_of_operators_sum_to_those_of_all(run: Run) -> None:
    costs, ops = Costs(run), range(len(run.ops))
    whole, parts = costs.of(ops), [costs.of([op]) for op in ops]
    known = [part.joules for part in parts if part is not None]
    assert (whole is None) == (not known)
    assert whole is None or sum(known) == pytest.approx(whole.joules, abs=1e-12)
    times = [costs.time_s([op]) for op in ops]
    assert costs.time_s(ops) == (None if None in times else pytest.approx(sum(t or 0.0 for t in times))) or not times
    launched = [run.kernels[kernel].name for op in ops for kernel in run.index.kernels[op]]
    assert costs.names(ops) == tuple(dict.fromkeys(launched)), "each once, in order"


def test_costs_of_replayed_operators() -> None:
    run = gpu_run(("gemm", 2e-3, 0), ("add", 1e-3, 1), ("gemm", 2e-3, 0), rest_w=0.0)
    run = with_replays(run, replay(0, 1.0, call_s=4e-3), replay(1, 0.5, call_s=1e-3), calls={0: 0, 1: 1})
    costs = Costs(run)
    found = costs.of([0])
    assert found is not None and found.joules == pytest.approx(1.0)
    assert costs.names([0, 1]) == ("gemm", "add")
    assert costs.time_s([0]) == pytest.approx(4e-3)
    assert run.measurement is not None and costs.total == run.measurement.energy


def test_nothing_known_is_none() -> None:
    run = replace(gpu_run(), measurement=None)
    costs = Costs(run)
    assert (costs.of(range(len(run.ops))), costs.total, costs.time_s([0])) == (None, None, None)
    assert Costs(gpu_run()).of([]) is None
