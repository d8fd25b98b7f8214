"""What recording a loop needs of PyTorch: calls of models are counted, and schedules are held."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from joulediff.frameworks.torch.counters import hold_counters
from joulediff.frameworks.torch.model_calls import ModuleCalls


class Outer(torch.nn.Module):
    def __init__(self, calls: list[bool]) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
        self.calls = calls
        self.counted: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(self.counted.is_inside)
        if x.shape[0] == 3:
            raise ValueError("three")
        return self.inner(self.inner(x))


def test_calls_of_outermost_modules_are_counted_until_it_is_closed() -> None:
    inside: list[bool] = []
    model = Outer(inside)
    counted = model.counted = ModuleCalls()
    for rows in (1, 2):
        model(torch.ones(rows, 2))
    with pytest.raises(ValueError, match="three"):
        model(torch.ones(3, 2))
    assert (counted.calls, counted.is_inside, inside) == (3, False, [True] * 3)
    counted.close()
    model(torch.ones(1, 2))
    assert counted.calls == 3
    from torch.nn.modules import module

    assert not module._global_forward_hooks
    assert not module._global_forward_pre_hooks


def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=5)


def warm_up(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=100)


def in_sequence(optimizer: torch.optim.Optimizer) -> Any:
    parts = [torch.optim.lr_scheduler.ConstantLR(optimizer), torch.optim.lr_scheduler.ExponentialLR(optimizer, 2.0)]
    return torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [1])


@pytest.mark.parametrize("make", [one_cycle, warm_up, in_sequence])
def test_a_schedule_is_where_it_was_after_any_number_of_steps(make: Any) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    scheduler = make(optimizer)
    weight.sum().backward()
    optimizer.step()
    scheduler.step()
    before = scheduler.state_dict(), optimizer.param_groups[0]["lr"]
    put_back = hold_counters()
    for _ in range(20):
        put_back()
        optimizer.step()
        scheduler.step()
    put_back()
    assert (scheduler.state_dict(), optimizer.param_groups[0]["lr"]) == before
    assert optimizer.param_groups[0]["params"][0] is weight
    assert optimizer.state[weight]["momentum_buffer"][0] != 1.0, "its state goes on"
