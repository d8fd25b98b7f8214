"""A step without the waits of one line reads earlier numbers there; nothing else is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import paths
from joulediff.frameworks.torch.trials.skip_sync import _READS, without_sync
from joulediff.model.errors import JoulediffError

Step = Callable[[], Any]
Read = Callable[[torch.Tensor], Any]
ROOT = f"{paths.ROOT}/"
FILE = "tests/frameworks/torch/trials/test_skip_sync.py"


def methods() -> list[Any]:
    return [vars(torch.Tensor).get(name) for name in _READS]


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = methods()
    yield
    assert methods() == before


@contextmanager
def without(step: Step, *, where: Callable[..., Any], line: int = 1, begin: Step = lambda: None) -> Iterator[Step]:
    """Give a step without the waits in a line of a function, counted from its `def`."""
    number = where.__code__.co_firstlineno + line
    with without_sync(step, file=FILE, line=number, root=ROOT, begin=begin) as found:
        yield found


READS: dict[str, Read] = {
    "item": lambda t: t.item(),
    "float": lambda t: float(t),
    "int": lambda t: int(t),
    "bool": lambda t: "yes" if t > 1.5 else "no",
    "tolist": lambda t: t.tolist(),
    "index": lambda t: [7, 8, 9][t.long()],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_line_reads_the_numbers_of_the_earlier_run(read: Read) -> None:
    x = torch.tensor(1.0)

    def step() -> Any:
        return read(x)

    expected = step()
    with without(step, where=read, line=0) as found:
        x.fill_(2.0)
        assert found() == expected
        assert type(found()) is type(expected)
        assert step() != found(), "only the step that is given remembers from the start"
    assert step() != expected


def test_other_lines_read_as_ever() -> None:
    x = torch.tensor(1.0)

    def step() -> tuple[float, float]:
        here = x.item()
        there = x.item()
        return here, there

    with without(step, where=step) as found:
        x.fill_(2.0)
        assert found() == (1.0, 2.0)


def test_a_loop_reads_its_numbers_in_order() -> None:
    x = torch.arange(4.0)

    def step() -> list[float]:
        return [each.item() for each in x]

    with without(step, where=step) as found:
        x.zero_()
        assert found() == [0.0, 1.0, 2.0, 3.0]
        assert found() == [0.0, 1.0, 2.0, 3.0]


def test_more_reads_than_before_are_real() -> None:
    x, count = torch.tensor(1.0), [1]

    def step() -> list[float]:
        return [x.item() for _ in range(count[0])]

    with without(step, where=step) as found:
        x.fill_(2.0)
        count[0] = 3
        assert found() == [1.0, 2.0, 2.0]


def test_a_list_is_the_programs_to_change() -> None:
    x = torch.arange(3)

    def step() -> list[int]:
        found = x.tolist()
        found.append(9)
        return found

    with without(step, where=step) as found:
        assert found() == found() == [0, 1, 2, 9]


def test_it_begins_like_a_recorded_pass() -> None:
    x = torch.zeros(())

    def step() -> float:
        return x.add_(1).item()

    def begin() -> None:
        x.zero_()

    step()
    with without(step, where=step, begin=begin) as found:
        assert found() == 1.0


def test_a_line_that_reads_nothing_is_refused() -> None:
    x = torch.tensor(1.0)

    def step() -> float:
        y = x * 2
        return y.item()

    with (
        pytest.raises(JoulediffError, match=rf"{FILE}:\d+ reads no number"),
        without(step, where=step),
    ):
        pass


def test_the_same_line_of_another_file_is_another_line() -> None:
    x = torch.tensor(1.0)

    def step() -> float:
        return x.item()

    number = step.__code__.co_firstlineno + 1
    with (
        pytest.raises(JoulediffError, match="reads no number"),
        without_sync(step, file="tests/other.py", line=number, root=ROOT, begin=lambda: None),
    ):
        pass


@pytest.mark.parametrize("when", [1, 2])
def test_an_exception_of_the_step_passes_through(when: int) -> None:
    x, calls, error = torch.tensor(1.0), [0], ValueError("no")

    def step() -> float:
        calls[0] += 1
        if calls[0] == when:
            raise error
        return x.item()

    with pytest.raises(ValueError, match="no") as raised, without(step, where=step, line=4) as found:
        found()
    assert raised.value is error
