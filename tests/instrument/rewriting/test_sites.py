"""The calls of rewritten programs that a listener receives."""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import pickle
import signal
import sys
import threading
import traceback
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from instrument_builders import FILE, Recorder, run_rewritten, watching
from joulediff.instrument.rewriting import array_bytes, rewrite
from joulediff.instrument.rewriting.callee import Callees
from joulediff.instrument.rewriting.calls import Call
from joulediff.instrument.rewriting.plain_code import plain_code
from joulediff.instrument.rewriting.rewrite import compile_rewritten
from joulediff.instrument.rewriting.sites import Watcher

NUMPY = ("numpy",)


def test_each_call_is_told_with_its_place() -> None:
    source = (
        "import numpy as np\n"
        "def f(x):\n"
        "    return (np.add(np.zeros(3), x)\n"
        "      .sum())\n"
        "class A:\n"
        "    def g(self): return np.sqrt(f(1))\n"
        "A().g()\n"
    )
    _, recorder = run_rewritten(source, NUMPY)
    assert [(each.api, each.text, each.line, each.function) for each in recorder.calls] == [
        ("numpy.zeros", "np.zeros", 3, "f"),
        ("numpy.add", "np.add", 3, "f"),
        ("numpy.ndarray.sum", "np.add(np.zeros(3), x).sum", 4, "f"),
        ("numpy.sqrt", "np.sqrt", 6, "A.g"),
    ]


@pytest.mark.parametrize("source", ["x = 1\n", "x =\n"])
@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_compilation_leaves_the_collector_as_it_was(source: str, is_enabled: bool) -> None:
    (gc.enable if is_enabled else gc.disable)()
    try:
        with watching(NUMPY) as (watcher, _), suppress(SyntaxError):
            compile_rewritten(source, FILE, watcher)
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()


def test_columns_count_characters() -> None:
    source = "import numpy as np\nx = 'ä€'; np.ones(1)\n"
    with watching(NUMPY) as (watcher, _):
        code = compile_rewritten(source, FILE, watcher)
        columns = [each.__self__.place.column for each in code.co_consts if hasattr(each, "__self__")]
    assert columns == [10]


def test_calls_inside_of_calls_are_told_inside() -> None:
    source = (
        "import numpy as np\n"
        "class A:\n"
        "    def __array__(self, *a, **k): return np.ones(2)\n"
        "np.asarray(A())\n"
        "np.add(np.ones(1), 1)\n"
    )
    _, recorder = run_rewritten(source, NUMPY)
    assert [(each.api, each.depth) for each in recorder.calls] == [
        ("numpy.asarray", 0),
        ("numpy.ones", 1),
        ("numpy.ones", 0),
        ("numpy.add", 0),
    ]


def test_a_call_ends_when_it_raises_and_is_not_told_when_an_argument_raises() -> None:
    source = (
        "import numpy as np\n"
        "for wrong in (lambda: np.zeros(-1), lambda: np.zeros(1 / 0), lambda: np.zeros(np.ones(1 / 0))):\n"
        "    try: wrong()\n"
        "    except (ValueError, ZeroDivisionError): pass\n"
    )
    _, recorder = run_rewritten(source, NUMPY)
    assert recorder.names == ["numpy.zeros"]


def test_aliases_methods_and_star_imports_are_found() -> None:
    source = (
        "from numpy import *\nfrom numpy import add as plus, linalg\nimport numpy\n"
        "f = plus\ndef g(h, *a): return h(*a)\ng(f, 1, 2); g(ones(2).mean); g(linalg.norm, ones(2)); [ones][0](1)\n"
        "{'a': numpy.cos}['a'](1); getattr(numpy, 'sin')(1); (lambda q: q)(sqrt)(4)\n"
    )
    _, recorder = run_rewritten(source, NUMPY)
    assert [name.removeprefix("numpy.") for name in recorder.names] == [
        "add", "ones", "ndarray.mean", "ones", "linalg.norm", "ones", "cos", "sin", "sqrt",
    ]  # fmt: skip


def test_decorators_are_calls() -> None:
    source = "import numpy as np\n@np.vectorize\ndef f(x): return x + 1\nf([1, 2])\n"
    _, recorder = run_rewritten(source, NUMPY)
    assert recorder.names == ["numpy.vectorize", "numpy.vectorize.__call__"]


def sizes(source: str) -> list[tuple[str, int | None]]:
    _, recorder = run_rewritten("import numpy as np\na = np.zeros(10)\n" + source, NUMPY)
    return [(each.api.removeprefix("numpy."), each.input_bytes) for each in recorder.calls[1:]]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("np.add(a, a)", [("add", 160)]),
        ("np.add(a, 1)", [("add", 80)]),
        ("np.sum(a=a)", [("sum", 80)]),
        ("a.sum()", [("ndarray.sum", 80)]),
        ("a.dot(a)", [("ndarray.dot", 160)]),
        ("np.stack([a, a])", [("stack", 160)]),
        ("np.add(*[a, a])", [("add", 160)]),
        ("np.sum(**{'a': a})", [("sum", 80)]),
        ("np.zeros(3)", [("zeros", None)]),
        ("np.add(a, np.add(a, a[:1]))", [("add", 88), ("add", 160)]),
        ("def f(n): return np.add(a[:1], f(n - 1) if n else 5)\nf(2)", [("add", 8), ("add", 16), ("add", 16)]),
        ("np.add(a if True else 0, (b := a))", [("add", 160)]),
        ("def g():\n    np.add(a, (yield))\ni = g(); next(i)\nnp.add(a, 1)\ntry: i.send(a)\nexcept StopIteration: pass",
         [("add", 80), ("add", 160)]),
        ("def g(x):\n    yield np.add(x, (yield))\n"
         "i, j = g(a), g(a[:1]); next(i); next(j); i.send(a); j.send(a[:1])", [("add", 160), ("add", 16)]),
        ("try: np.add(a, 1 / 0)\nexcept ZeroDivisionError: pass\nnp.add(a, 1)", [("add", 80)]),
    ],
)  # fmt: skip
def test_the_bytes_of_arguments_are_counted(source: str, expected: list[tuple[str, int | None]]) -> None:
    assert sizes(source) == expected


def test_the_bytes_of_interleaved_coroutines_are_kept_apart() -> None:
    source = (
        "import asyncio\n"
        "async def later(x): await asyncio.sleep(0); return x\n"
        "async def f(x): return np.add(x, await later(x))\n"
        "async def main(): await asyncio.gather(f(a), f(a[:1]), f(a[:2]))\n"
        "asyncio.run(main())\n"
    )
    assert sorted(size for _, size in sizes(source)) == [16, 32, 160]


def test_nothing_is_left_of_calls_that_never_begin() -> None:
    with watching(NUMPY) as (watcher, _):
        source = "import numpy as np\ntry: np.add(np.ones(1), missing)\nexcept NameError: pass\n"
        exec(compile_rewritten(source, FILE, watcher), {"__name__": "__main__"})
        assert watcher.gate.preparing == {}


def test_iteration_of_a_library_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType("fakelib")
    monkeypatch.setitem(sys.modules, "fakelib", library)
    exec(
        "class Loader:\n"
        "    def __init__(self, n): self.n = n\n"
        "    def __iter__(self): return Iterator(self.n)\n"
        "class Iterator:\n"
        "    def __init__(self, n): self.n = n\n"
        "    def __iter__(self): return self\n"
        "    def __next__(self):\n"
        "        if not self.n: raise StopIteration\n"
        "        self.n -= 1; return self.n\n",
        vars(library),
    )
    source = "import fakelib\nloader = fakelib.Loader(1)\n"
    for loop in (
        "for x in loader: pass",
        "[x for x in loader]",
        "for i, x in enumerate(loader): pass",
        "list(zip(loader, 'ab'))",
        "list(x for x in loader)",
        "list(loader)",
    ):
        _, recorder = run_rewritten(source + loop, ["fakelib"])
        assert recorder.names[1:] == ["fakelib.Loader.__iter__", *["fakelib.Loader.__next__"] * 2], loop
    names, recorder = run_rewritten(f"{source}it = iter(loader); x = next(it); y = next(it, 5)", ["fakelib"])
    assert recorder.names[1:] == ["fakelib.Loader.__iter__", *["fakelib.Iterator.__next__"] * 2]
    assert (type(names["it"]), names["x"], names["y"]) == (library.Iterator, 0, 5)
    # A function of the program that has the name of a builtin gets what it was passed.
    names, _ = run_rewritten(f"{source}def enumerate(x): return x\nx = enumerate(loader)", ["fakelib"])
    assert type(names["x"]) is library.Loader
    names, _ = run_rewritten(f"{source}globals()['list'] = lambda x: x\nx = list(loader)", ["fakelib"])
    assert type(names["x"]) is library.Loader


class Interrupted(Exception):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals of POSIX")
@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, Interrupted)])
def test_a_signal_during_a_watched_call_reaches_the_program(number: int, kind: type[BaseException]) -> None:
    """Its handler runs at the end of the call, where Python would report its exception instead of raising it."""
    source = (
        "import numpy as np\n"
        "try:\n"
        "    np.add.reduce([1, 2])\n"
        "    after = True\n"
        "except BaseException as raised:\n"
        "    error = raised\n"
    )

    class Interrupting(Recorder):
        def end(self, call: Call) -> None:
            super().end(call)
            signal.raise_signal(number)

    def handler(_number: int, _frame: object) -> None:
        raise Interrupted("here")

    names: dict[str, Any] = {"__name__": "__main__"}
    watcher = Watcher(NUMPY, Interrupting())
    previous = signal.signal(signal.SIGALRM, handler)
    try:
        exec(compile_rewritten(source, FILE, watcher), names)
    finally:
        watcher.stop()
        signal.signal(signal.SIGALRM, previous)
    assert type(names["error"]) is kind and "after" not in names
    lines = [each.lineno for each in traceback.extract_tb(names["error"].__traceback__) if each.filename == FILE]
    assert lines == [3]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals of POSIX")
@pytest.mark.parametrize(
    ("patched", "program"),
    [
        ("_find", "np.ones(1)"),
        ("_find_iteration", "for each in np.ones(1): pass"),
        (None, "np.sqrt(abs(-4))"),
    ],
)
@pytest.mark.parametrize("is_signal", [True, False])
def test_the_error_of_a_signal_handler_is_not_taken_for_one_of_a_site(
    patched: str | None,
    program: str,
    is_signal: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def handler(*_arguments: object) -> None:
        raise Interrupted("here")

    def interrupted(*_arguments: object) -> None:
        if is_signal:
            signal.raise_signal(signal.SIGALRM)
        else:
            handler(signal.SIGALRM, None)

    previous = signal.signal(signal.SIGALRM, handler)
    source = f"import numpy as np\ntry:\n    {program}\nexcept BaseException as raised:\n    error = raised\n"
    if patched is None:
        monkeypatch.setattr(array_bytes, "_measure_of", lambda _kind: interrupted)
    else:
        monkeypatch.setattr(Callees, patched, interrupted)
    try:
        names, _ = run_rewritten(source, NUMPY)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert isinstance(names.get("error"), Interrupted) == is_signal


def test_after_stop_the_rewritten_code_runs_unwatched() -> None:
    with watching(NUMPY) as (watcher, recorder):
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile_rewritten("import numpy as np\ndef f(): return np.ones(2).sum()\n", FILE, watcher), names)
        names["f"]()
        assert len(recorder.calls) == 2
        watcher.stop()
        assert names["f"]() == 2.0
        assert len(recorder.calls) == 2


def test_threads_are_told_in_their_own_order() -> None:
    source = (
        "import numpy as np, threading\n"
        "def work(n):\n"
        "    for _ in range(50): np.add(np.ones(n), np.ones(n)).sum()\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()\n"
    )

    class ByThread:
        def __init__(self) -> None:
            self.begun: list[tuple[int, int | None]] = []
            self.open: dict[int, list[int]] = {}
            self.wrong = 0

        def begin(self, call: Call) -> None:
            thread = threading.get_ident()
            call.mark = len(self.begun)
            self.begun.append((thread, call.input_bytes if call.api.name == "numpy.add" else None))
            self.open.setdefault(thread, []).append(call.mark)

        def end(self, call: Call) -> None:
            self.wrong += self.open[threading.get_ident()].pop() != call.mark

    listener = ByThread()
    watcher = Watcher(NUMPY, listener)
    exec(compile_rewritten(source, FILE, watcher), {"__name__": "__main__"})
    watcher.stop()
    assert listener.wrong == 0
    assert not any(listener.open.values())
    assert sorted(size for _, size in listener.begun if size is not None) == [16] * 50 + [32] * 50 + [48] * 50


def test_functions_can_be_pickled_by_value() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    names, recorder = run_rewritten("import numpy as np\ndef f(x): return [np.sqrt(y) for y in x]\nf([1])\n", NUMPY)
    copied = pickle.loads(cloudpickle.dumps(names["f"]))
    assert copied([4]) == [2.0]
    assert len(recorder.calls) == 1


def test_a_file_that_is_nested_too_deeply_is_not_rewritten() -> None:
    source = "x = 0\ny = " + "f(" * 85 + "x" + ")" * 85
    with watching(every=True) as (watcher, recorder):
        names: dict[str, Any] = {"f": lambda x: x + 1}
        limit = sys.getrecursionlimit()
        exec(compile_rewritten(source, FILE, watcher), names)
        assert names["y"] == 85 and sys.getrecursionlimit() == limit
        assert len(recorder.calls) == 85 or watcher.warnings


def test_only_what_the_rewriting_breaks_is_left_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "_try_compile", lambda *_args, **_more: (None, "RecursionError"))
    with watching(every=True) as (watcher, recorder):
        names: dict[str, Any] = {}
        exec(compile_rewritten("x = len('abc')", FILE, watcher), names)
        assert names["x"] == 3 and recorder.calls == []
        assert len(watcher.warnings) == 1 and FILE in watcher.warnings[0]


def test_long_chains_are_rewritten_without_recursion() -> None:
    source = "x = s" + ".upper()" * 90
    names, recorder = run_rewritten(source, every=True, names={"s": "a"})
    assert names["x"] == "A" and len(recorder.calls) == 90


def test_annotations_that_are_text_stay_as_they_are() -> None:
    source = "from __future__ import annotations\ndef f(x: g(1)) -> h(2): pass\ny: k(3) = 1\n"
    names, _ = run_rewritten(source, every=True)
    assert names["f"].__annotations__ == {"x": "g(1)", "return": "h(2)"}
    assert names["__annotations__"] == {"y": "k(3)"}


def test_flags_of_the_compiler_are_kept() -> None:
    source = "import asyncio\nx = await asyncio.sleep(0, 5)\n"
    with watching(every=True) as (watcher, _):
        code = compile_rewritten(source, FILE, watcher, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        names: dict[str, Any] = {}
        asyncio.run(eval(code, names))
    assert names["x"] == 5


def test_bytes_with_an_encoding_are_read() -> None:
    source = "# -*- coding: latin-1 -*-\nx = len('ä')\n".encode("latin-1")
    with watching(every=True) as (watcher, recorder):
        names: dict[str, Any] = {}
        exec(compile_rewritten(source, FILE, watcher), names)
    assert names["x"] == 1 and recorder.calls[0].text == "len"


def test_the_plain_code_of_a_function_is_found() -> None:
    source = "def f(x):\n    def g(): return len(x)\n    return g\nh = lambda: (f(1), [len(y) for y in ()])\ni = 5\n"
    names, _ = run_rewritten(source, every=True)
    plain: dict[str, Any] = {}
    exec(compile(source, FILE, "exec", dont_inherit=True), plain)
    for name in ("f", "h"):
        assert plain_code(names[name].__code__) == plain[name].__code__
    assert plain_code(names["f"](1).__code__) == plain["f"](1).__code__
    ours = run_rewritten.__code__
    assert plain_code(ours) is ours


def test_a_program_in_another_folder(tmp_path: Path) -> None:
    """Inspecting its own source, a program sees the file as it is."""
    path = tmp_path / "script.py"
    path.write_text("def f():\n    return len('a')\n", encoding="utf-8")
    with watching(every=True) as (watcher, _):
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile_rewritten(path.read_bytes(), str(path), watcher), names)
        assert inspect.getsource(names["f"]) == "def f():\n    return len('a')\n"
