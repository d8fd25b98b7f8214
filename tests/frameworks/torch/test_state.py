"""Every recorded pass starts from the same state; afterwards the program has the state that its own calls left."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from joulediff.frameworks.recorder import Recorder, open_recorder
from joulediff.frameworks.torch import state as states
from joulediff.frameworks.torch.state import State, keep_state
from joulediff.matching.match_runs import match_regions
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Run
from joulediff.model.signature import compare
from joulediff.session.record import record

Step = Callable[[], torch.Tensor]
Build = Callable[[], tuple[nn.Module, Step]]

QUICK: dict[str, Any] = {"wait_s": 0.0, "meter": "estimated", "replay": False, "source": False}
pytestmark = pytest.mark.usefixtures("short_idle")
X = torch.linspace(-1, 1, 32).reshape(8, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.register_buffer("ema", torch.zeros(8))
        self.register_buffer("seen", torch.zeros(8))
        self.total = torch.zeros(1)
        self.lazy: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.lazy is None:
            self.lazy = torch.ones(8)
        h = self.norm(self.first(x)).relu() * self.lazy
        if self.training:
            self.ema = 0.9 * self.ema + 0.1 * h.detach().mean(0)
            self.seen.add_(h.detach().sum(0))
            self.total += 1
        return self.last(h + self.ema)


def trained(make: Callable[[Any], torch.optim.Optimizer], *, schedule: bool = False, every: int = 1) -> Build:
    """A program that trains: an optimizer that steps each so many calls, and the rate that a schedule gives."""

    def build() -> tuple[nn.Module, Step]:
        torch.manual_seed(1)
        net = Net()
        optimizer = make(net.parameters())
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9) if schedule else None
        calls = torch.zeros(1)

        def step() -> torch.Tensor:
            loss = net(X).square().sum()
            loss.backward()
            calls.add_(1)
            if calls.item() % every == 0:
                optimizer.step()
                optimizer.zero_grad()
                if scheduler is not None:
                    scheduler.step()
            return loss.detach()

        return net, step

    return build


PROGRAMS: dict[str, Build] = {
    "AdamW": trained(lambda p: torch.optim.AdamW(p, lr=0.01)),
    "AdamW in a loop": trained(lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False)),
    "AdamW with tensors as options": trained(
        lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), capturable=False, foreach=False), schedule=True
    ),
    "SGD with momentum": trained(lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)),
    "a schedule": trained(lambda p: torch.optim.SGD(p, lr=0.01), schedule=True),
    "gradients that add up": trained(lambda p: torch.optim.SGD(p, lr=0.01), every=3),
    "Adagrad": trained(lambda p: torch.optim.Adagrad(p, lr=0.01)),
}


def recorded(step: Step, seconds: float = 0.02, **options: Any) -> tuple[Run, int]:
    """Return the run of a step, and how many calls its metered pass made."""
    calls, metered = [0], []

    def count() -> torch.Tensor:
        calls[0] += 1
        return step()

    run = record(count, seconds=seconds, checkpoint=lambda _: metered.append(calls[0]), **{**QUICK, **options})
    return run, metered[0]


def everything(net: nn.Module, step: Step) -> list[Any]:
    """All that a program has, in one list: tensors as numbers, so that equal means equal."""
    cells = [cell.cell_contents for cell in step.__closure__ or ()]
    optimizers = [each for each in cells if isinstance(each, torch.optim.Optimizer)]
    others = [each.state_dict() for each in (*optimizers, *cells) if hasattr(each, "state_dict")]
    grads = [p.grad for p in net.parameters()]
    return plain([net.state_dict(), net.__dict__.get("total"), grads, others, [x for x in cells if torch.is_tensor(x)]])


def plain(thing: Any) -> Any:
    if isinstance(thing, torch.Tensor):
        return thing.tolist()
    if isinstance(thing, dict):
        return {key: plain(each) for key, each in thing.items()}
    return [plain(each) for each in thing] if isinstance(thing, list | tuple) else thing


@pytest.mark.parametrize("name", PROGRAMS)
def test_recordings_of_one_training_program_are_equal_however_long_they_measure(name: str) -> None:
    (_, step_a), (_, step_b) = PROGRAMS[name](), PROGRAMS[name]()
    (a, calls_a), (b, calls_b) = recorded(step_a), recorded(step_b, 0.06)
    assert calls_a != calls_b
    assert a.ops and (a.ops, a.values, a.signatures) == (b.ops, b.values, b.signatures)
    regions = match_regions(a, b)
    assert sum(len(region.a) for region in regions) == len(a.ops)
    assert sum(len(region.b) for region in regions) == len(b.ops)
    (note,) = a.notes
    assert note.startswith("the step changes its initial state (")
    assert "it is restored before each instrumented pass" in note


@pytest.mark.parametrize("name", PROGRAMS)
def test_afterwards_the_program_has_the_state_that_its_own_calls_left(name: str) -> None:
    (net, step), (expected_net, expected_step) = PROGRAMS[name](), PROGRAMS[name]()
    parameters, total = list(net.parameters()), net.total
    _, calls = recorded(step)
    for _ in range(calls):
        expected_step()
    assert everything(net, step) == everything(expected_net, expected_step)
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    assert net.total is total
    step()
    expected_step()
    assert everything(net, step) == everything(expected_net, expected_step), "and goes on from there"


@pytest.mark.parametrize("ran", [0, 2])
def test_each_pass_and_each_collection_for_replay_begins_with_the_first_state(ran: int) -> None:
    net, step = PROGRAMS["AdamW"]()
    for _ in range(ran):
        step()
    seen: list[Any] = []

    def look() -> torch.Tensor:
        seen.append((net.first.weight.tolist(), net.first.weight.grad, net.ema.tolist(), net.total.item()))
        return step()

    done: list[int] = []
    record(
        look, seconds=0.02, **{**QUICK, "replay": True}, replay_seconds=0.1, checkpoint=lambda _: done.append(len(seen))
    )
    assert len(done) == 5
    assert done[4] == done[3] + 1, "the call for the inputs of replay"
    first = 0 if ran else 1  # a fresh optimizer makes its state in a call before
    assert all(each == seen[first] for each in seen[done[1] :])
    assert seen[first + 1] != seen[first]


def test_an_optimizer_that_has_a_state_starts_from_that() -> None:
    def build() -> tuple[nn.Module, Step]:
        net, step = PROGRAMS["AdamW"]()
        step()
        step()
        return net, step

    (a, _), (b, _) = recorded(build()[1]), recorded(build()[1], 0.06)
    assert (a.ops, a.values, a.signatures) == (b.ops, b.values, b.signatures)
    assert "aten::zeros_like" not in {op.name for op in a.ops if op.phase == "optimizer"}
    assert "first step of" not in a.notes[0]


def test_a_fresh_optimizer_is_recorded_in_its_second_step() -> None:
    (_, step), (_, expected) = PROGRAMS["AdamW"](), PROGRAMS["AdamW"]()
    expected()
    (fresh, _), (later, _) = recorded(step), recorded(expected)
    assert (fresh.ops, fresh.values, fresh.signatures) == (later.ops, later.values, later.signatures)
    assert "first step of" not in fresh.notes[0]


def test_an_optimizer_of_the_program_starts_from_the_same_weights_as_that_of_pytorch() -> None:
    def by_hand() -> Step:
        torch.manual_seed(0)
        net = nn.Linear(4, 4)
        momentum = [torch.zeros_like(weight) for weight in net.parameters()]
        x = torch.randn(8, 4)

        def step() -> torch.Tensor:
            loss = net(x).square().mean()
            net.zero_grad()
            loss.backward()
            with torch.no_grad():
                for weight, moved in zip(net.parameters(), momentum, strict=True):
                    moved.mul_(0.9).add_(weight.grad)
                    weight.sub_(moved, alpha=0.1)
            return loss.detach()

        return step

    def by_pytorch() -> Step:
        torch.manual_seed(0)
        net = nn.Linear(4, 4)
        x = torch.randn(8, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step() -> torch.Tensor:
            loss = net(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    signatures = []
    for build in (by_hand, by_pytorch):
        run, _ = recorded(build())
        weights = [at for at, value in enumerate(run.values) if value.kind == "parameter" and value.name == "weight"]
        signatures.append(run.signature_of(weights[0]))
    a, b = signatures
    assert a is not None and b is not None
    assert compare(a, b, tolerance=1e-6)


def test_an_optimizer_class_of_the_program_may_make_its_state_before_the_first_step() -> None:
    class Averaging(torch.optim.Optimizer):
        def __init__(self, weights: Any) -> None:
            super().__init__(weights, {"lr": 0.1})
            for weight in self.param_groups[0]["params"]:
                self.state[weight]["mean"] = torch.zeros_like(weight)

        @torch.no_grad()
        def step(self) -> None:  # type: ignore[override]
            for weight in self.param_groups[0]["params"]:
                weight.sub_(self.state[weight]["mean"].lerp_(weight.grad, 0.1), alpha=0.1)

    for make, is_first in ((Averaging, True), (torch.optim.AdamW, False)):
        _, step = trained(make)()
        step()
        assert states.may_be_first_step(step) == is_first, make


def test_tensors_in_slots_are_restored() -> None:
    @dataclass(slots=True)
    class Moments:
        mean: torch.Tensor

    moments = [Moments(torch.zeros(3))]

    def step() -> torch.Tensor:
        return moments[0].mean.add_(1).clone()

    with keep_state(step) as state:
        step()
        state.put_back()
        assert moments[0].mean.tolist() == [0.0] * 3


@pytest.mark.parametrize(("every", "is_told"), [(2, True), (3, False)])
def test_a_first_optimizer_step_is_reported_only_if_it_is_recorded(every: int, is_told: bool) -> None:
    run, _ = recorded(trained(lambda p: torch.optim.AdamW(p, lr=0.01), every=every)()[1])
    assert ("each pass is a first step of AdamW, which creates its state" in run.notes[0]) == is_told
    assert any(op.phase == "optimizer" for op in run.ops) == is_told


def test_gradients_that_are_there_before_are_the_same_tensors_again() -> None:
    net, step = trained(lambda p: torch.optim.SGD(p, lr=0.01), every=10**9)()
    step()
    grad = net.first.weight.grad
    assert grad is not None
    before = grad.clone()
    with keep_state(step) as state:
        step()
        after = grad.clone()
        state.put_back()
        assert net.first.weight.grad is grad
        assert torch.equal(grad, before)
        step()
    assert net.first.weight.grad is grad
    assert torch.equal(grad, after)


def test_gradients_that_the_program_drops_are_not_held_and_come_back() -> None:
    layer = nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    before = layer.weight.grad.clone()

    def step() -> None:
        layer.zero_grad()

    with keep_state(step) as state:
        step()
        state.put_back()
        assert torch.equal(layer.weight.grad, before)
    assert layer.weight.grad is None


def test_nested_state_of_an_optimizer_is_restored() -> None:
    net = Net()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(X).square().sum()
        loss.backward()
        return loss

    def step() -> torch.Tensor:
        return optimizer.step(closure)

    step()
    before = plain(optimizer.state_dict())
    with keep_state(step) as state:
        step()
        step()
        after = plain(optimizer.state_dict())
        state.put_back()
        assert plain(optimizer.state_dict()) == before
        step()
    assert plain(optimizer.state_dict()) == after != before


def test_a_scaler_is_restored() -> None:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", growth_interval=1)

    def step() -> None:
        optimizer.zero_grad()
        scaler.scale(net(X).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    with keep_state(step) as state:
        step()
        grown = scaler.get_scale()
        state.put_back()
        assert scaler._scale is None
        step()
        assert scaler.get_scale() == grown
        step()
    assert scaler.get_scale() == grown


def test_a_write_that_the_framework_does_not_count_is_restored() -> None:
    weight = torch.ones(3)

    def step() -> None:
        weight.data.add_(1)

    with keep_state(step) as state:
        step()
        state.put_back()
        assert weight.tolist() == [1, 1, 1]
    assert weight.tolist() == [2, 2, 2]


def test_a_tensor_of_inference_mode_is_restored() -> None:
    with torch.inference_mode():
        cache = torch.zeros(3)

    @torch.inference_mode()
    def step() -> torch.Tensor:
        return cache.add_(1).clone()

    run, calls = recorded(step)
    assert cache.tolist() == [calls] * 3
    assert "restored before each instrumented pass" in run.notes[0]


def test_a_flag_that_toggles_is_restored_for_any_number_of_calls() -> None:
    flag = torch.zeros(1)

    def step() -> None:
        flag.copy_(1 - flag)

    with keep_state(step) as state:
        step()
        step()
        state.put_back()
        step()
        state.put_back()
        assert flag.item() == 0


def test_a_generator_of_the_step_itself_is_restored() -> None:
    generator = torch.Generator().manual_seed(3)

    def draw() -> torch.Tensor:
        return torch.rand(4, generator=generator)

    def step() -> torch.Tensor:
        return draw() + 1

    run, calls = recorded(step)
    assert run.notes == ()
    other = torch.Generator().manual_seed(3)
    for _ in range(calls):
        torch.rand(4, generator=other)
    assert torch.equal(generator.get_state(), other.get_state())


@pytest.mark.parametrize(
    "make", [lambda: random.Random(3), lambda: np.random.default_rng(3), lambda: np.random.RandomState(3)]
)
def test_a_generator_of_python_or_numpy_is_restored(make: Callable[[], Any]) -> None:
    class Sampler:
        def __init__(self) -> None:
            self.random = make()

        def draw(self) -> torch.Tensor:
            return torch.tensor([self.random.random() for _ in range(4)])

    sampler = Sampler()
    run, calls = recorded(lambda: sampler.draw() + 1)
    assert run.notes == ()
    first, other = Sampler(), Sampler()
    (given,) = (value for value in run.values if value.kind == "input")
    signature = run.signature_of(given.id)
    assert signature is not None and signature.sum_x == pytest.approx(first.draw().double().sum().item())
    for _ in range(calls):
        other.draw()
    assert sampler.draw().tolist() == other.draw().tolist(), "the program continues where its own calls ended"


def test_a_tensor_that_a_model_creates_once_is_not_restored() -> None:
    net, step = PROGRAMS["AdamW"]()
    with keep_state(step) as state:
        step()
        lazy = net.lazy
        state.put_back()
        assert net.lazy is lazy is not None
    assert net.lazy is lazy


def test_weights_of_a_model_that_does_not_train_are_not_copied() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).eval()
    x = torch.ones(2, 64)

    def step() -> torch.Tensor:
        return model(x)

    state = State(step)
    assert state.size_bytes == x.nbytes + sum(buffer.nbytes for buffer in model.buffers())
    step()
    state.put_back()
    assert state.size_bytes == 0
    assert recorded(step)[0].notes == ()


def test_copies_of_unchanged_tensors_are_dropped_after_the_metered_pass() -> None:
    model = nn.Sequential(nn.Linear(64, 64).requires_grad_(False), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)

    def step() -> None:
        model(torch.ones(1, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    state, trained_bytes = State(step), sum(p.nbytes for p in model[1].parameters())
    assert state.size_bytes == sum(p.nbytes for p in model.parameters())
    step()
    state.put_back()
    assert state.size_bytes == 2 * trained_bytes, "the first state and the last"


def test_weights_that_two_layers_share_are_copied_once() -> None:
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    model[1].weight = model[0].weight
    assert State(lambda: model).size_bytes == model[0].weight.nbytes


def test_a_scripted_model_is_restored() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x * self.count

    model = torch.jit.script(Counts())
    with keep_state(lambda: model(X)) as state:
        model(X)
        state.put_back()
        assert model.count.item() == 0
    assert model.count.item() == 1


def test_gradients_of_tensors_without_a_model_are_restored() -> None:
    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.zeros(3)

    def step() -> torch.Tensor:
        (weight * 2).sum().backward()
        return weight.grad.clone()

    run, calls = recorded(step)
    (note,) = run.notes
    assert note == "the step changes its initial state (1 tensor): it is restored before each instrumented pass"
    assert weight.grad.tolist() == [2 * calls] * 3


def test_without_room_the_passes_go_on_and_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_host_room", lambda: 100)
    (net, step), (expected_net, expected_step) = PROGRAMS["AdamW"](), PROGRAMS["AdamW"]()
    total = [0]

    def count() -> torch.Tensor:
        total[0] += 1
        return step()

    (note,) = record(count, seconds=0.02, **QUICK).notes
    assert "which is not restored (host memory has no room for a copy of it)" in note
    assert "outputs of the passes are not compared" in note
    for _ in range(total[0]):
        expected_step()
    assert everything(net, step) == everything(expected_net, expected_step)


def test_without_room_for_the_second_state_nothing_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    net, step = PROGRAMS["AdamW"]()
    with keep_state(step) as state:
        monkeypatch.setattr(states, "_host_room", lambda: 100)
        step()
        left = everything(net, step)
        state.put_back()
        assert (state.size_bytes, state.refusal) == (0, "host memory has no room for a copy of it")
        assert everything(net, step) == left


def test_state_out_of_reach_is_reported() -> None:
    class Cache:
        def __init__(self) -> None:
            self.layers = {("a", 1): torch.zeros(4)}

    cache = Cache()
    (note,) = recorded(lambda: cache.layers["a", 1].add_(1).sum())[0].notes
    assert note.startswith("the step changes its initial state (1 tensor), which is not restored: each call continues")


def test_a_step_that_has_run_before_has_no_first_state(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def open_late(*args: Any, **options: Any) -> Recorder | None:
        opened.append(1)
        return open_recorder(*args, **options) if len(opened) > 1 else None

    monkeypatch.setattr("joulediff.session.record.open_recorder", open_late)
    (note,) = recorded(PROGRAMS["AdamW"]()[1])[0].notes
    assert "which is not restored: each call continues from the last one" in note


def test_outputs_that_differ_although_the_state_is_restored_are_reported() -> None:
    weight, calls = torch.zeros(2), [0]

    def step() -> torch.Tensor:
        calls[0] += 1
        weight.add_(1)
        return weight * (1 + calls[0] % 2)

    notes = recorded(step)[0].notes
    assert "it is restored before each instrumented pass" in notes[0]
    assert "output changed from call to call although random numbers were seeded alike" in notes[1]


@pytest.mark.parametrize("when", [1, 3, "profiled", "captured"])
def test_an_exception_of_the_step_passes_through_and_the_state_is_its_own(when: int | str) -> None:
    (net, step), (expected_net, expected_step) = PROGRAMS["AdamW"](), PROGRAMS["AdamW"]()
    error, calls, metered = ValueError("no"), [0], []

    def fail() -> torch.Tensor:
        watched = "profiled" if torch.autograd.profiler._is_profiler_enabled else None
        if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
            watched = "captured"
        if when in (calls[0], watched):
            raise error
        calls[0] += 1
        return step()

    with pytest.raises(ValueError, match="no") as raised:
        record(fail, seconds=0.02, checkpoint=lambda _: metered.append(calls[0]), **QUICK)
    assert raised.value is error
    for _ in range(when if isinstance(when, int) else metered[0]):
        expected_step()
    assert everything(net, step) == everything(expected_net, expected_step)


def test_a_tensor_that_cannot_be_written_is_an_error_of_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.zeros(2)

    def step() -> torch.Tensor:
        return weight.add_(1).clone()

    def refuse(_: object) -> None:
        raise RuntimeError("device lost")

    monkeypatch.setattr(states._Kept, "put_back", refuse)
    run = recorded(step)[0]
    assert [each.status for each in run.passes] == ["done", "failed", "failed", "failed"]
    assert "the initial state of the step cannot be restored: device lost" in (run.passes[1].note or "")
    with pytest.raises(JoulediffError), keep_state(step) as state:
        step()
        state.put_back()


def test_restoring_the_state_is_not_captured() -> None:
    from joulediff.frameworks.torch.capture.capture import capture_step

    weight = torch.zeros(2)

    def step() -> torch.Tensor:
        return weight.add_(1)

    with keep_state(step) as state:
        step()
        found = capture_step(step, begin=state.put_back)
    assert [op.name for op in found.ops] == ["aten::add_"]


def test_a_language_model_that_trains() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=64, n_positions=32)
    torch.manual_seed(0)
    first, ids = GPT2LMHeadModel(config).train(), torch.arange(24).reshape(2, 12)

    def build() -> tuple[nn.Module, Step]:
        model = copy.deepcopy(first)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss.detach()

        return model, step

    (a, calls_a), (b, calls_b) = recorded(build()[1], 0.1), recorded(build()[1], 0.4)
    assert calls_a != calls_b
    assert replace(a, frames=()).ops == b.ops
    assert (a.values, a.signatures) == (b.values, b.signatures)
    assert sum(len(region.a) for region in match_regions(a, b)) == len(a.ops)
    (note,) = a.notes
    assert "it is restored before each instrumented pass" in note
