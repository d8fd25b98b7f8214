"""One call of a function, traced line by line."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from joulediff.archive.codec import from_plain, to_plain
from joulediff.frameworks.framework import source_hints
from joulediff.pysource.framework_hints import NO_HINTS
from joulediff.pysource.line_trace import LineTrace, Target, TraceStep
from joulediff.pysource.tracing.line_tracer import watch_lines

HERE = Path(__file__)
LINES = HERE.read_text(encoding="utf-8").splitlines()
LIMIT = 3


def trace_call(step: Callable[[], object], function: str, line: int | None = None, **options: Any) -> LineTrace:
    found = watch_lines(step, Target(HERE.name, function, line), root=HERE.parent, hints=source_hints(), **options)
    assert found is not None
    return found


def line_with(mark: str) -> int:
    """Return the number of the only line that ends with a mark."""
    (found,) = [number for number, line in enumerate(LINES, 1) if line.endswith("# mark: " + mark)]
    return found


def texts(trace: LineTrace) -> list[str]:
    return [line.text for line in trace.lines]


def read(trace: LineTrace, name: str) -> TraceStep:
    """Return the first step of a name among what the statements read."""
    return next(trace.steps[at] for line in trace.lines for at in line.atoms if trace.steps[at].name == name)


def origin(trace: LineTrace, name: str) -> list[TraceStep]:
    """Return the steps from a name back to its first source, and so on."""
    found = [read(trace, name)]
    while found[-1].sources:
        found.append(trace.steps[found[-1].sources[0]])
    return found


def kinds(trace: LineTrace, name: str) -> list[str]:
    return [step.kind for step in origin(trace, name)]


def pick(x: int, mode: str = "slow") -> int:
    if mode == "fast":
        return x + 1
    y = x * 2
    return y + 1


def middle(x: int, way: str) -> int:
    chosen = way
    return pick(x, mode=chosen)


def outer(x: int, **options: str) -> int:
    return middle(x, **options)


def test_lines_are_traced_in_order_with_the_values_they_read() -> None:
    trace = trace_call(lambda: pick(3), "pick")
    assert texts(trace) == ["if mode == 'fast':", "y = x * 2", "return y + 1"]
    assert [line.branch for line in trace.lines] == [True, False, False]
    assert trace.lines[0].line == trace.first + 1
    assert trace.source[0] == 'def pick(x: int, mode: str = "slow") -> int:'
    assert read(trace, "x").value == 3
    assert read(trace, "y").value == 6
    assert trace.complete


def test_a_record_survives_json() -> None:
    trace = trace_call(lambda: outer(3, way="fast"), "pick")
    assert from_plain(LineTrace, json.loads(json.dumps(to_plain(trace))), "trace") == trace


def test_the_result_and_the_state_of_the_step_are_unchanged() -> None:
    found: list[int] = []
    trace_call(lambda: found.append(outer(3, way="fast")), "pick")
    assert found == [4]


def test_a_parameter_is_followed_through_callers_to_the_literal() -> None:
    trace = trace_call(lambda: outer(3, way="fast"), "pick")  # mark: literal
    steps = origin(trace, "mode")
    assert [step.kind for step in steps] == ["argument", "assignment", "argument", "constant"]
    assert [step.name for step in steps[:3]] == ["mode", "chosen", "way"]
    assert {step.value for step in steps} == {"fast"}
    place = steps[-1].place
    assert place is not None
    assert (place.file, place.line) == (HERE.name, line_with("literal"))
    assert place.text is not None and place.text.startswith("trace = trace_call(")


def test_a_default_is_an_origin() -> None:
    steps = origin(trace_call(lambda: pick(3), "pick"), "mode")
    assert [step.kind for step in steps] == ["argument", "constant"]
    assert steps[-1].place is not None and steps[-1].place.function == "pick"


def test_a_variable_around_the_step_is_followed() -> None:
    way = "fast"  # mark: closure
    steps = origin(trace_call(lambda: pick(3, way), "pick"), "mode")
    assert [step.kind for step in steps] == ["argument", "assignment", "constant"]
    assert steps[-1].place is not None and steps[-1].place.line == line_with("closure")


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Layer:
    def __init__(self, config: Any, flag: bool, name: str = "plain") -> None:
        size = config.size
        self.flag = flag
        self.width = size * 2
        if config.fancy:
            self.act = fancy
        else:
            self.act = plain

    @wrapped
    def forward(self, x: int, scale: int = 1) -> int:
        if self.flag:
            x = x + self.width
        x = self.act(x * scale)
        return x + 0


class Model:
    def __init__(self, config: Any, flag: bool) -> None:
        self.config = config
        self.layer = Layer(config, flag)

    def __call__(self, x: int) -> int:
        return self.layer.forward(x, 2)


def fancy(x: int) -> int:
    return -x


def plain(x: int) -> int:
    return x


def config(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"size": 2, "fancy": False, **fields})


def test_an_attribute_is_followed_to_where_it_is_set() -> None:
    model = Model(config(), True)
    step = read(trace_call(lambda: model(1), "Layer.forward"), "self.flag")
    assert (step.kind, step.key, step.value, step.text) == ("attribute", "Layer.flag", True, "flag")
    assert step.place is not None and step.place.text == "self.flag = flag"
    assert step.place.function == "Layer.__init__"


def test_a_configuration_that_only_a_caller_kept_is_found_through_a_local_name() -> None:
    model = Model(config(size=7), True)
    steps = origin(trace_call(lambda: model(1), "Layer.forward"), "self.width")
    assert [(step.kind, step.key, step.value) for step in steps] == [
        ("attribute", "Layer.width", 14),
        ("config", "config.size", 7),
    ]


def test_the_test_around_an_assignment_is_a_source_of_it() -> None:
    model = Model(config(), True)
    trace = trace_call(lambda: model(1), "Layer.forward")
    act = read(trace, "self.act")
    assert act.value == f"{__name__}.plain"
    assert "config.fancy" in {trace.steps[at].key for at in act.sources}


def test_arguments_are_followed_past_wrappers_and_the_receiver_counts_as_none() -> None:
    model = Model(config(), True)
    trace = trace_call(lambda: model(1), "Layer.forward")
    assert kinds(trace, "scale") == ["argument", "constant"]
    assert origin(trace, "scale")[-1].value == 2
    assert kinds(trace, "x") == ["argument", "argument", "constant"]


def test_the_first_call_that_runs_the_line_is_taken() -> None:
    trace = trace_call(lambda: [pick(1, "fast"), pick(2), pick(3)], "pick", line_in(pick, "y = x * 2"))
    assert read(trace, "x").value == 2
    assert trace.led == 1
    second = trace_call(lambda: [pick(1, "fast"), pick(2), pick(3)], "pick", line_in(pick, "y = x * 2"), calls=2)
    assert read(second, "x").value == 3


def line_in(function: Any, text: str) -> int:
    first = function.__code__.co_firstlineno
    return next(number for number in range(first, first + 50) if LINES[number - 1].strip() == text)


def test_no_call_is_none() -> None:
    assert watch_lines(lambda: None, Target(HERE.name, "pick"), root=HERE.parent, hints=NO_HINTS) is None
    assert watch_lines(lambda: pick(1), Target("other.py", "pick"), root=HERE.parent, hints=NO_HINTS) is None
    target = Target(HERE.name, "pick", line_in(pick, "y = x * 2"))
    assert watch_lines(lambda: pick(1, "fast"), target, hints=NO_HINTS) is None


def environment() -> str:
    mode = os.environ.get("JD_MODE", "none")
    if "JD_OTHER" in os.environ and os.getenv("JD_THIRD") == os.environ["JD_MODE"]:
        return "other"
    return mode


def test_environment_variables_are_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JD_MODE", "a")
    monkeypatch.delenv("JD_OTHER", raising=False)
    trace = trace_call(environment, "environment")
    assert kinds(trace, "mode") == ["assignment", "environment"]
    assert (read(trace, "JD_MODE").value, read(trace, "JD_OTHER").value) == ("a", None)
    assert read(trace, "JD_THIRD").kind == "environment"


def walrus(values: list[int]) -> int:
    if (count := len(values)) > LIMIT:
        return count
    return 0


def test_a_walrus_is_read_after_its_line() -> None:
    trace = trace_call(lambda: walrus([1, 2, 3, 4]), "walrus")
    assert read(trace, "count").value == 4
    limit = read(trace, "LIMIT")
    assert (limit.kind, limit.value) == ("global", 3)
    assert limit.place is not None and limit.place.text == "LIMIT = 3"


def unpack(pair: tuple[int, int]) -> int:
    first, _ = pair
    a, b = first, 9
    for each in range(b):
        first += each
    with Path(os.devnull).open() as stream:
        name = stream.name
    return first + len(name) + a


def test_every_way_to_set_a_name_is_an_assignment() -> None:
    trace = trace_call(lambda: unpack((1, 2)), "unpack")
    assert kinds(trace, "a")[:3] == ["assignment", "assignment", "argument"]
    assert kinds(trace, "b") == ["assignment", "constant"]
    assert kinds(trace, "each")[0] == kinds(trace, "name")[0] == "assignment"
    stream = origin(trace, "stream.name")[1]
    assert (stream.kind, stream.value, stream.text) == ("assignment", "<TextIOWrapper>", "Path(os.devnull).open()")


def broken(x: int) -> float:
    y = 1 / x
    return y + 1


def test_an_exception_passes_unchanged_and_the_tracer_goes() -> None:
    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError) as caught:
        trace_call(lambda: broken(0), "broken")
    assert sys.gettrace() is before
    assert caught.traceback[-1].name == "broken"


class Nasty:
    @property
    def value(self) -> int:
        raise SystemError("not now")

    @property
    def truth(self) -> bool:
        return True

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __eq__ = __hash__ = None  # type: ignore[assignment]


def careful(thing: Any) -> int:
    if thing.truth or thing.value:
        return 1
    return 0


def test_values_that_cannot_be_read_are_left_out() -> None:
    trace = trace_call(lambda: careful(Nasty()), "careful")
    values = {step.name: step.value for step in trace.steps}
    assert values["thing.truth"] is True
    assert values["thing"] == "<Nasty>"
    assert "thing.value" not in values


def test_a_tracer_from_before_comes_back_and_sees_nothing_of_it() -> None:
    seen: list[str] = []

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        seen.append(frame.f_code.co_name)
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        trace = watch_lines(lambda: pick(1), Target(HERE.name, "pick"), root=HERE.parent, hints=NO_HINTS)
        after = sys.gettrace()
        pick(2)
    finally:
        sys.settrace(before)
    assert after is tracer
    assert trace is not None
    assert seen.count("pick") == len(["call", "line", "line", "line", "return"])


def countdown(n: int) -> int:
    if n == 0:
        return 0
    return countdown(n - 1) + 1


def test_recursion_is_not_mixed_up() -> None:
    trace = trace_call(lambda: countdown(3), "countdown")
    assert texts(trace) == ["if n == 0:", "return countdown(n - 1) + 1"]
    assert read(trace, "n").value == 3
    inner = trace_call(lambda: countdown(3), "countdown", line_in(countdown, "return 0"))
    assert texts(inner) == ["if n == 0:", "return 0"]
    assert read(inner, "n").value == 0
    assert kinds(inner, "n")[:3] == ["argument", "argument", "argument"]


def numbers(limit: int) -> Iterator[int]:
    at = 0
    while at < limit:
        yield at
        at += 1


def test_a_generator_is_followed_over_its_pauses() -> None:
    trace = trace_call(lambda: list(numbers(2)), "numbers")
    assert [text for text in texts(trace) if text == "yield at"] == ["yield at"] * 2
    assert texts(trace)[-1] == "while at < limit:"


def test_a_generator_that_outlives_the_step_is_left_alone() -> None:
    kept: list[Iterator[int]] = []

    def step() -> int:
        kept.append(numbers(3))
        return next(kept[0])

    trace = trace_call(step, "numbers")
    assert texts(trace)[-1] == "yield at"
    assert list(kept[0]) == [1, 2]
    assert len(trace.lines) == 3


def test_other_threads_are_not_traced() -> None:
    seen: list[object] = []

    def step() -> None:
        thread = threading.Thread(target=lambda: (seen.append(sys.gettrace()), pick(1)))
        thread.start()
        thread.join()

    assert watch_lines(step, Target(HERE.name, "pick"), root=HERE.parent, hints=NO_HINTS) is None
    assert seen == [threading.gettrace()]


def long_loop(n: int) -> int:
    total = 0
    for each in range(n):
        total += each
    return total


def test_a_long_loop_is_cut_and_the_step_is_not() -> None:
    results: list[int] = []
    trace = trace_call(lambda: results.append(long_loop(5000)), "long_loop")
    assert results == [sum(range(5000))]
    assert not trace.complete
    assert len(trace.lines) == 2000


def test_values_are_not_kept_alive() -> None:
    class Big:
        gone = 0

        def __del__(self) -> None:
            Big.gone += 1

    def step() -> int:
        careful_of(Big())
        return Big.gone

    found: list[int] = []
    trace_call(lambda: found.append(step()), "careful_of")
    assert found == [1]


def careful_of(thing: Any) -> bool:
    kept = thing
    return kept is thing


def test_begin_runs_before_and_untraced() -> None:
    order: list[str] = []

    def begin() -> None:
        pick(7)
        order.append("begin")

    trace = trace_call(lambda: (order.append("step"), pick(1)), "pick", begin=begin)
    assert order == ["begin", "step"]
    assert read(trace, "x").value == 1


def test_tensors_and_modules_are_described() -> None:
    torch = pytest.importorskip("torch")
    layer, x = torch.nn.Linear(4, 2), torch.zeros(3, 4, dtype=torch.float16)

    trace = trace_call(lambda: describe_me(layer, x, x.dtype, x.device, x.shape), "describe_me")
    values = {name: read(trace, name).value for name in ("layer", "x", "dtype", "device", "shape")}
    assert values == {
        "layer": "torch.nn.modules.linear.Linear",
        "x": "tensor(3x4, float16, cpu)",
        "dtype": "float16",
        "device": "cpu",
        "shape": "(3, 4)",
    }


def describe_me(layer: Any, x: Any, dtype: Any, device: Any, shape: Any) -> object:
    return (layer, x, dtype, device, shape)
