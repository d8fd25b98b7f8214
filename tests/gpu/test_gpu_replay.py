"""Joules of single operators on a real NVIDIA GPU: `pytest -m gpu`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paths
from joulediff.archive.reader import load
from joulediff.energy.ledger import open_books
from joulediff.frameworks.torch.replay.replayer import TorchReplayer
from joulediff.model.measurement import Account
from joulediff.model.run import PASSES, Replay, Run
from joulediff.session.record import record

pytestmark = pytest.mark.gpu
BENCHMARKS = paths.ROOT / "benchmarks"


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    torch.cuda.init()
    return torch


def replayed(step: Callable[[], object], folder: Path, **options: Any) -> Run:
    changes = {"seconds": 0.3, "wait_s": 0.0, "source": False, "replay_seconds": 4.0, **options}
    run = record(step, path=folder / "run.jd", **changes)
    assert load(folder / "run.jd") == run
    assert [(each.name, each.status, each.note) for each in run.passes] == [(name, "done", None) for name in PASSES]
    return run


def rows_of(run: Run) -> dict[str, Replay]:
    """Return the replay of each operator by name; the longest of a name."""
    return {run.ops[row.op].name.removeprefix("aten::"): row for row in reversed(run.replays)}


def device_works(torch: Any) -> None:
    torch.cuda.synchronize()
    assert (torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")).sum().item() == 64**3


def make_model(torch: Any) -> Any:
    """Return two layers like GPT-2's, in half precision."""
    nn = torch.nn
    width, heads = 768, 12

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = (
                part.view(batch, length, heads, -1).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1)
            )
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.between(x)), approximate="tanh"))

    torch.manual_seed(0)
    layers = [nn.Embedding(1000, width), Block(), Block(), nn.LayerNorm(width), nn.Linear(width, 1000, bias=False)]
    return nn.Sequential(*layers).half().cuda().eval()


def account_of(run: Run) -> Account:
    return next(account for account in open_books(run).accounts if account.domain == "gpu0")


def test_a_small_model_is_explained_and_left_as_it_was(torch: Any, tmp_path: Path) -> None:
    model, ids = make_model(torch), torch.randint(0, 1000, (16, 512), device="cuda")
    before = [tensor.clone() for tensor in (*model.state_dict().values(), ids)]

    def step() -> Any:
        with torch.no_grad():
            return model(ids)

    # In its first second a program at the power limit still swings: its clock was 5.8 % below that of a replay.
    run = replayed(step, tmp_path, seconds=2.5, wait_s=2.0, replay_seconds=15.0)
    assert run.measurement is not None
    measured = [row for row in run.replays if row.energy_j is not None]
    assert len(measured) >= 8
    assert {row.how for row in measured} == {"graph"}
    assert {row.inputs for row in measured} == {"real"}
    program_mhz = run.measurement.clocks_mhz["gpu0"]
    # An operator that alone draws less than the power limit cannot be slowed down to the clock of a program at that
    # limit: addmm ran at 1974 MHz and the program at 1831. Its energy is corrected, and its note has both clocks.
    highest_mhz = max(state.clock_max_mhz or 0.0 for state in run.measurement.states)
    is_limited = program_mhz < 0.99 * highest_mhz
    for row in measured:
        name = run.ops[row.op].name
        assert row.clock_mhz is not None
        assert 0.95 * program_mhz <= row.clock_mhz <= 1.001 * highest_mhz, name
        if abs(row.clock_mhz / program_mhz - 1) > 0.01:
            assert is_limited, name
            assert f"replayed at {row.clock_mhz:.0f} MHz" in (row.note or ""), name
        assert row.energy_j is not None and row.low_j is not None and row.high_j is not None
        assert row.low_j <= row.energy_j <= row.high_j
    account = account_of(run)
    assert account.operators is not None and account.idle is not None
    assert 0.9 <= (account.operators.joules + account.idle.joules) / account.metered.joules <= 1.1
    after = [*model.state_dict().values(), ids]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    device_works(torch)


def test_operators_that_no_graph_can_hold_do_not_end_the_recording(torch: Any, tmp_path: Path) -> None:
    """They wait for the device, or copy from memory that is not pinned."""
    x, plain = torch.randn(1024, 1024, device="cuda"), torch.randn(1 << 16)

    def step() -> Any:
        y = (x @ x).relu()
        rows = y.nonzero()
        moved = plain.to("cuda", non_blocking=True)
        return moved.cpu() if y.sum().item() > 0 else rows

    run = replayed(step, tmp_path, replay_seconds=6.0)
    rows = rows_of(run)
    assert rows["mm"].how == "graph"
    assert rows["nonzero"].how in ("launches", None)
    for row in run.replays:
        assert (row.energy_j is None) == (row.how is None)
        assert row.how is not None or row.note
    device_works(torch)


def test_random_numbers_and_in_place_operators_change_nothing(torch: Any, tmp_path: Path) -> None:
    x = torch.randn(2048, 2048, device="cuda")
    dropout = torch.nn.Dropout(0.2)
    before = x.clone()

    def step() -> Any:
        y = x.clone()
        y.add_(1.0)
        torch.relu_(y)
        return dropout(y)

    torch.manual_seed(11)
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    states = torch.cuda.get_rng_state(), torch.get_rng_state()
    run = replayed(step, tmp_path)
    assert torch.equal(torch.cuda.get_rng_state(), states[0])
    assert torch.equal(torch.get_rng_state(), states[1])
    assert torch.equal(x, before)
    assert torch.cuda.memory_allocated() <= held + (1 << 20), "memory is given back"
    rows = rows_of(run)
    for name in ("clone", "add_", "relu_", "native_dropout"):
        assert rows[name].how == "graph"
        assert (rows[name].energy_j or 0.0) > 0.0
    first = torch.rand(4, device="cuda")
    torch.cuda.set_rng_state(states[0])
    assert torch.equal(torch.rand(4, device="cuda"), first)


def test_training_goes_on_as_if_nothing_had_been_replayed(torch: Any, tmp_path: Path) -> None:
    """Parameters are those after the metered steps, to the last bit: the steps of watched passes leave no trace."""

    def build() -> tuple[Callable[[], Any], Any]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.BatchNorm1d(512), torch.nn.ReLU(inplace=True))
        model, x = model.cuda(), torch.randn(256, 512, device="cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

        def step() -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, model

    step, model = build()
    run = replayed(step, tmp_path, replay_seconds=2.0)
    assert any(row.energy_j is not None for row in run.replays)
    steps = int(model[1].num_batches_tracked)
    assert steps > 0
    again, other = build()
    for _ in range(steps):
        again()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_what_does_not_fit_into_memory_is_noted_and_the_rest_is_measured(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, small = (torch.randn(shape, device="cuda") for shape in ((8192, 16), (16, 8192), (256, 256)))
    monkeypatch.setattr(TorchReplayer, "budget_bytes", lambda *_: 4 << 20)

    def step() -> Any:
        return torch.outer(a[:, 0], b[0]).sum() + (small @ small).sum()

    run = replayed(step, tmp_path)
    large = [row for row in run.replays if 8192 in sum((run.values[v].shape for v in run.ops[row.op].outputs), ())]
    assert {row.note for row in large} == {"its inputs and outputs do not fit into memory a second time"}
    assert (rows_of(run)["mm"].energy_j or 0.0) > 0.0
    device_works(torch)


def test_the_books_of_gpt2_close(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    place = importlib.util.spec_from_file_location("closure", BENCHMARKS / "closure.py")
    assert place is not None and place.loader is not None
    closure = importlib.util.module_from_spec(place)
    monkeypatch.setitem(sys.modules, "closure", closure)
    place.loader.exec_module(closure)
    run, _ = closure.record_program("gpt2", seconds=2.0)
    result = closure.judge("gpt2", run, None, None)
    assert 0.97 <= result.closure <= 1.03
    assert result.worst_clock_share <= 0.01
    assert result.seconds_a_kind <= 0.8
