"""The leaves of a step: their names, what is left out, and that setting one is undone exactly."""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from joulediff.frameworks import state_leaves
from joulediff.frameworks.state_leaves import fitting_leaves, leaves_set, read_leaves, steady_leaves
from joulediff.model.errors import JoulediffError

SCALE = 2.0


class Options:
    fast = True
    depth = 3


@dataclasses.dataclass
class Args:
    batch: int = 8
    name: str = "small"
    sizes: tuple[int, ...] = (1, 2)


@dataclasses.dataclass(frozen=True)
class Fixed:
    batch: int = 8


class Mode(enum.Enum):
    EAGER = 1
    FUSED = 2


class Slotted:
    __slots__ = ("empty", "rate")

    def __init__(self) -> None:
        self.rate = 0.5


class Point(NamedTuple):
    x: int = 1


class Model:
    checkpoint = False
    """An attribute of the class, which an object may have as its own."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(use_cache=True, inner=SimpleNamespace(rank=4))
        self.mode = Mode.EAGER
        self.act: Callable[..., Any] = max
        self.me = self
        self.lock = threading.Lock()
        self.long = list(range(100))

    @property
    def danger(self) -> int:
        raise AssertionError("a property was executed")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")

    def run(self, times: int = 2) -> float:
        return times * SCALE


def build_step() -> Callable[..., Any]:
    model, args, table, need_weights = Model(), Args(), {"k": 1, 3: "no name"}, False
    slotted, layers = Slotted(), [Slotted(), Slotted()]

    def inner() -> bool:
        return need_weights

    def step(count: int = 1, *, last: bool = False) -> Any:
        return inner(), model.run(), args, table, count, last, slotted, layers, Options.fast

    return step


def test_leaves_have_the_names_of_the_program() -> None:
    found = read_leaves(build_step())
    expected = {
        "model.config.use_cache": True,
        "model.config.inner.rank": 4,
        "model.checkpoint": False,
        "model.mode": "Mode.EAGER",
        "model.act": "builtins.max",
        "args.batch": 8,
        "args.name": "small",
        "args.sizes": "(1, 2)",
        "table['k']": 1,
        "need_weights": False,
        "slotted.rate": 0.5,
        "layers[1].rate": 0.5,
        "count": 1,
        "last": False,
        "SCALE": 2.0,
        "Options.fast": True,
        "Options.depth": 3,
        "Model.run.times": 2,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not [name for name in found if "me." in name or "lock" in name or "long[" in name]


class TestSteps:
    """Steps that are not plain functions."""

    def test_a_bound_method(self) -> None:
        assert read_leaves(Model().run)["self.config.use_cache"] is True

    def test_a_callable_object(self) -> None:
        class Step:
            def __init__(self) -> None:
                self.batch = 3

            def __call__(self) -> int:
                return self.batch

        assert read_leaves(Step())["self.batch"] == 3

    def test_a_partial_function(self) -> None:
        found = read_leaves(functools.partial(max, Args(), default=4))
        assert found["default"] == 4
        assert found["args.0.batch"] == 8

    def test_a_wrapped_function(self) -> None:
        use_cache = True

        def step() -> bool:
            return use_cache

        @functools.wraps(step)
        def wrapper() -> bool:
            return step()

        assert read_leaves(wrapper)["use_cache"] is True


def test_what_says_nothing_about_the_program_is_left_out() -> None:
    config = SimpleNamespace(
        _name_or_path="gpt2",
        transformers_version="5.0",
        folder="/home/someone/data",
        api_key="abc",
        run="a1b2c3d4e5f6a7b8c9d0e1f2",
        digest=abs(hash("x")) | 2**60,
        text="line\nline",
        kept="sdpa",
    )
    assert read_leaves(lambda: config) == {"config.kept": "sdpa"}


def test_the_number_of_leaves_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_leaves, "MAX_LEAVES", 50)
    many = [SimpleNamespace(x=i) for i in range(200)]
    assert len(read_leaves(lambda: many)) == 50


def test_a_leaf_that_the_step_changes_is_no_configuration() -> None:
    state, count = SimpleNamespace(calls=0, rate=0.1), itertools.count(1)

    def step() -> None:
        state.calls = next(count)

    before = read_leaves(step)
    step()
    assert steady_leaves(before, read_leaves(step)) == {"state.rate": 0.1}


VALUES: dict[str, Any] = {
    "model.config.use_cache": False,
    "model.checkpoint": True,
    "model.mode": "Mode.FUSED",
    "model.act": "builtins.min",
    "args.sizes": "(3, 4)",
    "table['k']": 2,
    "need_weights": True,
    "slotted.rate": 0.25,
    "layers[1].rate": None,
    "count": 5,
    "last": True,
    "SCALE": 3.0,
    "Options.fast": False,
    "Model.run.times": 4,
}


@pytest.mark.parametrize(("path", "value"), VALUES.items())
def test_a_leaf_is_set_and_put_back(path: str, value: Any) -> None:
    step = build_step()
    before = read_leaves(step)
    with leaves_set(step, {path: value}):
        assert read_leaves(step) == {**before, path: value}
        assert type(read_leaves(step)[path]) is type(value)
    assert read_leaves(step) == before


def test_a_set_leaf_acts_in_the_step() -> None:
    step = build_step()
    with leaves_set(step, VALUES):
        weights, product, args, _, count, last, *_ = step()
    assert (weights, product, args.sizes, count, last) == (True, 12.0, (1, 2), 5, True)
    assert step()[:2] == (False, 4.0)


def test_an_attribute_of_the_class_stays_there() -> None:
    model = Model()
    with leaves_set(model.run, {"self.checkpoint": True}):
        assert vars(model)["checkpoint"] is True
    assert "checkpoint" not in vars(model)


def test_an_exception_puts_leaves_back() -> None:
    step = build_step()
    before = read_leaves(step)
    with pytest.raises(KeyError), leaves_set(step, {"SCALE": 9.0}):
        raise KeyError
    assert read_leaves(step) == before


def test_leaves_that_the_program_resets_are_set_again() -> None:
    state = SimpleNamespace(rate=0.1)
    with leaves_set(lambda: state, {"state.rate": 0.5}) as again:
        state.rate = 0.1
        again()
        assert state.rate == 0.5
    assert state.rate == 0.1


class Follower:
    """Its property sets another object along with itself."""

    def __init__(self) -> None:
        self._impl_internal = "eager"
        self.other = SimpleNamespace(impl="eager")

    @property
    def _impl(self) -> str:
        return self._impl_internal

    @_impl.setter
    def _impl(self, value: str) -> None:
        if value == "bad":
            raise ValueError("no such implementation")
        self._impl_internal = self.other.impl = value


def test_what_a_property_sets_along_is_put_back_too() -> None:
    config = Follower()
    with leaves_set(lambda: config, {"config._impl": "sdpa"}):
        assert (config._impl, config.other.impl) == ("sdpa", "sdpa")
    assert (config._impl, config.other.impl) == ("eager", "eager")


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("fixed.batch", 4, "frozen dataclass"),
        ("point.x", 4, "tuple"),
        ("nothing.there", 4, "cannot reach nothing.there"),
        ("config._impl", "bad", "no such implementation"),
        ("model.mode", "Mode.OTHER", "no member OTHER"),
        ("model.act", "build.<locals>.act", "cannot be found by its name"),
        ("args.sizes", "1, (", "no list of plain values"),
    ],
)
def test_a_leaf_that_cannot_be_set_is_refused(path: str, value: Any, why: str) -> None:
    fixed, point, model, args, config = Fixed(), Point(), Model(), Args(), Follower()

    def step() -> Any:
        return fixed, point, model, args, config

    before = read_leaves(step)
    with pytest.raises(JoulediffError, match=why), leaves_set(step, {"args.batch": 4, path: value}):
        raise AssertionError("it was set")
    assert read_leaves(step) == before


def test_a_recording_takes_the_nearest_leaves_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = {f"m.{n:04}": n for n in range(100)}
    assert fitting_leaves(leaves) == leaves
    monkeypatch.setattr(state_leaves, "MAX_RECORDED_CHARS", 50)
    assert list(fitting_leaves(leaves)) == ["m.0000", "m.0001", "m.0002", "m.0003", "m.0004"]
