"""A loop of a script becomes a step: which loop and iteration, what each repeat finds, and how the script ends."""

from __future__ import annotations

import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from joulediff.frameworks.framework import Framework, register, unregister
from joulediff.model.errors import JoulediffError, ProgramError
from joulediff.model.options import ANY_LOOP
from joulediff.pysource.programs import Step, UserCodeFailed
from joulediff.session.choose_loop import choose_loops, read_script
from joulediff.session.loop_step import use_loop


@pytest.fixture(autouse=True)
def own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start in an empty folder, and restore what a script changes for good."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("sys.argv", list(sys.argv))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@dataclass
class Used:
    """What a step returned when it was called a few times, and the script around it."""

    outputs: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    step: Step | None = None


def use(
    text: str, *, where: str = ANY_LOOP, after: int = 2, calls: int = 3, also: Callable[[Step], None] | None = None
) -> Used:
    """Run a script, and call the step that it gives a few times."""
    Path("train.py").write_text(textwrap.dedent(text), encoding="utf-8")
    found = Used()

    def use_step(step: Step, note: str) -> None:
        found.step, found.notes = step, [*found.notes, note]
        found.names = vars(sys.modules["__main__"])
        found.outputs += [step() for _ in range(calls)]
        if also is not None:
            also(step)

    use_loop("train.py", ("--batch", "8"), where=where, after=after, use=use_step)
    return found


TRAINING = """
    import sys
    class Loss:
        def backward(self): pass
    log, data = [], []
    for i in range(20):
        data.append(str(i))
    def evaluate():
        for batch in data:
            log.append(batch)
    def main():
        total = 0
        for epoch in range(2):
            for batch in data:
                loss = Loss()
                loss.backward()
                total += int(batch)
            evaluate()
    main()
"""


def test_the_loop_that_trains_is_the_step() -> None:
    found = use(TRAINING)
    assert found.outputs[0].keys() == {"loss", "total"}
    assert [each["total"] for each in found.outputs] == [0 + 1 + 2] * 3, "the third iteration, again and again"
    assert found.notes == ["the step is the loop at train.py:14 (for batch in data:), iteration 3"]
    assert found.names["log"] == [], "the script ends after the step was used"
    assert found.names["sys"].argv == ["train.py", "--batch", "8"]


def test_training_in_a_function_that_the_loop_calls() -> None:
    text = """
        class Loss:
            def backward(self): pass
        def train_batch(batch):
            Loss().backward()
        class Trainer:
            def run(self, batches):
                for batch in batches:
                    self.step(batch)
            def step(self, batch):
                result = train_batch(batch)
        for epoch in range(3):
            Trainer().run(range(3))
    """
    assert use(text).notes == ["the step is the loop at train.py:8 (for batch in batches:), iteration 3"]


CHOSEN = {
    "a compiled function that trains": (
        """
        @jit
        def train_step(params, x):
            loss, grads = value_and_grad(loss_fn)(params, x)
            return params, loss
        for i in range(6):
            batches.append(load(i))
        for epoch in range(2):
            for x in batches:
                params, loss = train_step(params, x)
            report(epoch)
        """,
        [9],
    ),
    "a tape": (
        """
        while running():
            for x in data:
                with tf.GradientTape() as tape:
                    loss = model(x)
                optimizer.apply_gradients(tape.gradient(loss))
        """,
        [3],
    ),
    "several that train": ("for a in b:\n    f(a).backward()\nfor a in b:\n    g(a).backward()\n", [1, 3]),
    "the only one that works": ("for i in range(3):\n    x += i\nfor i in data:\n    y = model(i)\n", [3]),
    "one that yields, and one that does not": (
        "def f():\n    for a in b:\n        yield a.backward()\nfor a in b:\n    a.backward()\n",
        [4],
    ),
    "nothing to tell them apart": ("for a in b:\n    f(a)\nfor a in b:\n    g(a)\n", [1, 3]),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_the_source_shows_which_loops_may_be_the_step(name: str) -> None:
    text, lines = CHOSEN[name]
    choice = choose_loops(read_script(textwrap.dedent(text).encode(), "train.py"), ANY_LOOP, "train.py")
    assert [each.line for each in choice.loops] == lines
    assert choice.needs_model == (name == "nothing to tell them apart")


@pytest.mark.parametrize(("where", "line"), [("14", 14), ("16", 14), ("13", 13), ("evaluate", 9), ("main", 14)])
def test_the_user_chooses_by_line_or_function(where: str, line: int) -> None:
    assert f"train.py:{line} " in use(TRAINING, where=where, after=0).notes[0]


def test_a_marked_loop_comes_before_all_others() -> None:
    text = """
        import joulediff as jd
        class Loss:
            def backward(self): pass
        for i in range(9):
            Loss().backward()
        for i, x in enumerate(jd.steps("abcd")):
            y = x * 2
    """
    found = use(text)
    assert found.notes == [
        'the step is the marked loop at train.py:7 (for i, x in enumerate(jd.steps("abcd")):), iteration 3'
    ]
    assert found.outputs == [{"y": "cc"}] * 3


def test_a_marked_block_is_the_step() -> None:
    text = """
        import joulediff as jd
        source = iter(range(100))
        taken = []
        while True:
            x = next(source)
            taken.append(x)
            with jd.step():
                y = x + 1
                if y > 50:
                    break
    """
    found = use(text, calls=200)
    assert found.outputs == [{"y": 3}] * 200
    assert found.names["taken"] == [0, 1, 2]


def test_each_repeat_begins_with_the_variables_of_the_iteration() -> None:
    text = """
        def run():
            x, seen = 1.0, []
            first = None
            for batch in [{"a": i, "b": 2} for i in range(4)]:
                if first is None:
                    first = batch["a"]
                try:
                    fresh
                except NameError:
                    seen.append("unbound")
                label = batch.pop("b")
                x = x * 2 + label
                if "fresh" in batch:
                    fresh = 1
            return x
        run()
    """
    found = use(text)
    assert [each["x"] for each in found.outputs] == [(1.0 * 2 + 2) * 4 + 2 * 2 + 2] * 3
    assert all(each["label"] == 2 and each["first"] == 0 for each in found.outputs)


def test_a_variable_that_the_iteration_binds_first_is_unbound_in_each_repeat() -> None:
    text = """
        for i in range(3):
            if i == 2:
                made = "made" in globals()
            str.upper("a")
    """
    assert use(text).outputs == [{"made": False}] * 3


def test_the_step_refers_to_the_names_of_the_script() -> None:
    from joulediff.frameworks.references import callable_references

    found = use(TRAINING)
    parts = list(callable_references(found.step) or ())
    body = next(each.value for each in parts if not each.name)
    names = {each.name for each in callable_references(body) or ()}
    assert {"total", "batch", "loss", "Loss"} <= names
    hidden = [each.value for each in parts if each.name]
    assert all(not vars(type(each)).get("__slots__") and not public(each) for each in hidden)


def public(thing: object) -> list[str]:
    return [name for name in vars(thing) if not name.startswith("__")]


def test_outputs_are_values_and_no_tools() -> None:
    text = """
        def f(): pass
        for i in range(3):
            import math
            g, kind, nothing, number, texts = f, int, None, math.pi, ["a"]
            f()
    """
    assert use(text).outputs[0] == {"number": pytest.approx(3.14159, rel=1e-5), "texts": ["a"]}
    assert use("for i in range(3):\n    str.upper('a')\n").outputs == [None] * 3


def test_the_script_s_own_handlers_run_at_the_end() -> None:
    text = """
        import contextlib
        log = []
        @contextlib.contextmanager
        def opened():
            log.append("open")
            try:
                yield
            finally:
                log.append("closed")
        try:
            with opened():
                for i in range(5):
                    log.append(i)
        except Exception:
            log.append("caught")
        finally:
            log.append("finally")
    """
    assert use(text, where="13", calls=1).names["log"] == ["open", 0, 1, 2, "closed", "finally"]


def test_a_script_that_catches_everything_still_ends() -> None:
    text = """
        seen = []
        for epoch in range(4):
            try:
                for i in range(4):
                    seen.append((epoch, i))
            except BaseException as error:
                caught = type(error).__name__
    """
    found = use(text, where="5", calls=0)
    assert found.names["seen"] == [(0, 0), (0, 1)]
    assert found.names["caught"] == "StepUsed"


def test_an_exception_of_the_step_passes_through_the_script() -> None:
    text = """
        log = []
        try:
            for i in range(5):
                if i == 2:
                    raise ValueError("mine")
                log.append(i)
        finally:
            log.append("finally")
    """
    with pytest.raises(ValueError, match="mine") as caught:
        use(text)
    assert [each.lineno + 1 for each in caught.traceback if each.path.name == "train.py"] == [4, 6]
    assert sys.modules["__main__"].log == [0, 1, "finally"]


def test_an_exception_that_the_script_swallows_is_raised() -> None:
    text = """
        try:
            for i in range(5):
                [][i - 2]
                str(i)
                if i > 1: raise KeyError(i)
        except LookupError:
            pass
    """
    with pytest.raises(IndexError):
        use(text, after=0)


def test_what_measuring_raises_is_raised() -> None:
    def fail(_: Step) -> None:
        raise JoulediffError("the meter is gone")

    with pytest.raises(JoulediffError, match="the meter is gone"):
        use("for i in range(5):\n    str(i).upper()\n", also=fail)


def test_a_script_that_fails_before() -> None:
    with pytest.raises(UserCodeFailed, match=r"train.py raised ZeroDivisionError: .* \(train.py:2\)") as caught:
        use("for i in range(3):\n    (1 / i).hex()\n")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(UserCodeFailed, match=r"sys\.exit\(2\)") as ended:
        use("import sys\nsys.exit(2)\nfor i in range(3):\n    str(i).upper()\n")
    assert "arguments" in str(ended.value.fix)


UNUSED = {
    "never ran": ("for i in []:\n    i.upper()\n", "the loop at train.py:1 had run", "arguments"),
    "exits before": ("import sys\nsys.exit()\nfor i in [1]:\n    i.upper()\n", "train.py:3 had run", "arguments"),
    "too few": ("for i in 'ab':\n    i.upper()\n", "ran 2 times, and is recorded after 2", "--loop-after 1"),
    "no loop": ("print('a'.upper())\n", "train.py has no loop that could be the step", "joulediff.step()"),
    "no work": (
        "for i in range(3):\n    i + 1\nfor i in range(3):\n    i + 2\n",
        "no loop of train.py calls",
        "joulediff.step()",
    ),
    "syntax": ("for i in range(3)\n    pass\n", "train.py is no valid Python, line 1: expected ':'", "correct it"),
    "yield": (
        "def f():\n    for i in 'ab':\n        yield i.upper()\nlist(f())\n",
        "has a yield (train.py:3)",
        "yield",
    ),
    "two marks": (
        "import joulediff\nfor i in joulediff.steps('a'):\n    pass\nfor i in joulediff.steps('b'):\n    pass\n",
        "2 loops or blocks of train.py are marked",
        "--loop 2  <module>: for i in joulediff.steps('a'):",
    ),
    "no model": (
        "for i in range(3):\n    str(i).upper()\nfor j in range(5):\n    str(j).lower()\n",
        "cannot tell which loop of train.py is the step",
        "--loop 3  <module>: for j in range(5):  (5 iterations",
    ),
    "in a thread": (
        "import threading\ndef f():\n    for i in range(9):\n        str(i).upper()\n"
        "t = threading.Thread(target=f)\nt.start()\nt.join()\n",
        "before the loop at train.py:3 had run",
        "main thread",
    ),
}


@pytest.mark.parametrize("name", UNUSED)
def test_a_script_without_such_an_iteration(name: str) -> None:
    text, what, fix = UNUSED[name]
    with pytest.raises(ProgramError) as caught:
        use(text)
    assert what in caught.value.what
    assert fix in str(caught.value.fix)


@pytest.mark.parametrize(("where", "what"), [("99", "no loop around line 99"), ("nothing", "a function nothing")])
def test_a_place_without_a_loop_is_refused_with_the_places_there_are(where: str, what: str) -> None:
    with pytest.raises(ProgramError, match=what) as caught:
        use(TRAINING, where=where)
    assert "--loop 14  main: for batch in data:" in str(caught.value.fix)


class _Calls:
    """Counts what scripts report to it as calls of a model."""

    calls = 0
    is_inside = False
    opened = 0

    def close(self) -> None:
        type(self).opened -= 1


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Calls]]:
    def open_calls() -> _Calls:
        _Calls.opened += 1
        return _Calls()

    toy = Framework(name="this_is_loaded", count_model_calls=open_calls)
    monkeypatch.setitem(sys.modules, "this_is_loaded", _Calls)
    monkeypatch.setattr(_Calls, "calls", 0)
    register(toy)
    yield _Calls
    unregister(toy)


def test_the_innermost_loop_that_calls_a_model_is_the_step(counted: type[_Calls]) -> None:
    text = """
        import this_is_loaded as models
        texts = []
        for i in range(10):
            texts.append(str(i))
        def model(x):
            models.calls += 1
            models.is_inside = True
            for layer in range(3):
                models.calls += 1
                str(layer).upper()
            models.is_inside = False
            return x
        for epoch in range(5):
            for text in texts:
                out = model(text)
    """
    found = use(text)
    assert found.notes == ["the step is the loop at train.py:15 (for text in texts:), iteration 3"]
    assert found.outputs == [{"out": "2"}] * 3
    assert counted.opened == 0, "its hooks are removed"


def test_loops_of_other_threads_are_left_alone() -> None:
    text = """
        import threading
        seen = []
        def f():
            for i in range(9):
                seen.append(threading.current_thread().name)
        t = threading.Thread(target=f, name="other")
        t.start()
        t.join()
        f()
    """
    found = use(text, calls=0)
    assert found.names["seen"] == ["other"] * 9 + [threading.main_thread().name] * 2
