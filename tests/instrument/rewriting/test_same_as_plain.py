"""A rewritten program does what the plain one does: values, order, exceptions, and the places in tracebacks."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instrument_builders import MODES, observe

PROGRAMS = {
    "statements": """
        t(1); x = t(2); x, y = t((3, 4)); x = y = t(5); x += t(6); z: int = t(7)
        t(x, y, z)
    """,
    "nested and chained": """
        class A:
            def __init__(self, n): self.n = n
            def add(self, k=1, *more, **named): t(("add", self.n)); return A(self.n + k)
            def __getitem__(self, k): return self.add(k)
        a = (A(t(1))
             .add(t(2))
             .add(k=t(3))
             [t(4)]
             .add(*t([5]), **t({"b": 6})))
        t(a.n)
    """,
    "comprehensions": """
        t([t(x) for x in t([1, 2]) if t(x)])
        t({t(x): t(-x) for x in t((1, 2))})
        t(sorted({t(x) for x in t([3]) for y in t([4])}))
        t(list(t(x) for x in t([1])))
        def f(): return [locals().keys() and t(x) for x in t([5])]
        f()
    """,
    "lambdas and defaults": """
        f = lambda x=t(1), *y, z=t(2): t(x + z)
        def g(a, b=t(3), /, c=t(4), *, d=t(5)) -> t(6): return f(a, z=d)
        t(g(1)); t(f.__defaults__); t(g.__annotations__)
    """,
    "decorators": """
        def outer(k):
            t(k)
            def inner(f): t(f.__name__); return f
            return inner
        def plain(f): t(("plain", f.__name__)); return f
        @outer(t(1))
        @plain
        @(t(outer)(2))
        def f(): return 3
        @plain
        class C:
            @staticmethod
            @plain
            def s(): return t(4)
            @classmethod
            def c(cls): return cls.s()
            @property
            def p(self): return self.c()
        t(C().p); t(f()); t(f.__code__.co_firstlineno)
    """,
    "with and for and while and if": """
        class M:
            def __init__(self, n): self.n = n
            def __enter__(self): t(("enter", self.n)); return self
            def __exit__(self, *error): t(("exit", self.n, error[0])); return True
        with M(t(1)) as a, M(t(2)): t(3)
        with M(3): raise ValueError(t(4))
        for i, x in enumerate(t("ab")): t((i, x))
        else: t("else")
        while t(len(t([])) ): pass
        if t(0): pass
        elif t(1): t(2)
        assert t(1), t(2)
        t(1) if t(0) else t(2)
        t(t(0) or t(1) and t(2)); t(1 < t(2) < t(0) < t(5)); t(not t(0))
    """,
    "f-strings": """
        x = 3
        t(f"{t(x)!r:>{t(10)}} {t('a')} {t(1)=} {x:{t('03')}}")
    """,
    "a tuple of a tuple": """
        x = t((1, 2))
        t(tuple(x) is x); t(list(x)); t(tuple(iter(x)) is x)
    """,
    "an iterator whose class changes": """
        class I:
            def __iter__(self): return self
            def __next__(self): I.__next__ = lambda self: t(2); return t(1)
        class L(I):
            def __next__(self): del L.__next__, I.__next__; return t(3)
        for x, y in zip(I(), range(2)): t(x)
        try:
            for x in L(): t(x)
        except TypeError as e: t(str(e))
    """,
    "class bodies": """
        class Meta(type):
            @classmethod
            def __prepare__(cls, name, bases, **k): t(("prepare", name, k)); return {}
            def __new__(cls, name, bases, names, **k): t(sorted(names)); return super().__new__(cls, name, bases, names)
            def __init__(cls, *a, **k): t(("init",)); super().__init__(*a)
        class A(*t([object]), metaclass=t(Meta), k=t(1)):
            x = t(1)
            y: t("int") = t(2)
            def __set_name__(self, owner, name): t(("set_name", name))
            def f(self): return __class__, t(3)
            locals()["made"] = t(4)
        class B(A):
            a = A()
            def f(self): return super().f(), super(B, self).f(), t(5)
        t(B().f()); t(A.made); t(sorted(A.__annotations__))
    """,
    "match": """
        class P:
            __match_args__ = ("a", "b")
            def __init__(self, a, b): self.a, self.b = a, b
        match t(P(1, [2, 3])).b:
            case [x, *rest] if t(x): t((x, rest))
        match t({"a": 1, "b": 2}):
            case {"a": t_, **rest}: t((t_, rest))
        match P(1, 2):
            case P(a=1, b=y) if not t(y): t(0)
            case P(q, w) as e: t((q, w))
    """,
    "walrus and starred and subscripts": """
        t((x := t(1)) + t(2)); t([*t([1]), *t((2,))]); t({**t({"a": 1})})
        d = {}
        d[t(1)] = t(2); d[t(1)] += t(3); t(d)
        t([1, 2, 3][t(0):t(2):t(1)]); del d[t(1)]
        class O: pass
        o = O(); t(o).x = t(5); t(o).x += t(6); t(o.x)
        a, *b = t([1, 2, 3]); (a, b) = t((b, a)); t((a, b))
    """,
    "generators": """
        def g():
            try:
                got = t((yield t(1)))
                yield from t([got])
                return t(4)
            finally: t("closed")
        def h():
            x = t((yield from g()))
            yield t((yield x))
        it = h(); t(next(it)); t(it.send(9)); t(next(it)); it.close()
        t(list(g()))
        t(next(iter(t([5])), t(6)))
    """,
    "async": """
        import asyncio
        class It:
            def __init__(self): self.n = 0
            def __aiter__(self): return self
            async def __anext__(self):
                self.n += 1
                if self.n > 2: raise StopAsyncIteration
                return t(self.n)
        class M:
            async def __aenter__(self): return t("in")
            async def __aexit__(self, *e): t("out")
        async def f(x): await asyncio.sleep(0); return t(x)
        async def g():
            async with M() as m: t(m)
            async for x in It(): t(x)
            t([await f(x) async for x in It() if await f(x)])
            t(await f(await f(t(3))), k=await f(4))
            async def ag():
                yield await f(5)
            async for x in ag(): t(x)
            return await asyncio.gather(f(7), f(8))
        t(asyncio.run(g()))
    """,
    "scopes": """
        from functools import *
        import os.path as p
        def f():
            global made
            made = t(1)
            x = 1
            def g():
                nonlocal x
                x = t(x + 1)
                return sorted(locals())
            t(g()); t(x); t(sorted(vars()))
            exec("y = t(11)"); t(eval("t(x)"))
            t(sorted(k for k in globals() if not k.startswith("__")))
        f(); t(reduce(lambda a, b: t(a + b), [1, 2, 3])); t(p.basename("a/b")); t(sorted(dir()))
    """,
    "frames": """
        import sys, inspect
        def f(a, *b, **c):
            frames = []
            frame = sys._getframe()
            while frame and frame.f_globals.get("__name__") == "program":
                frames.append((frame.f_code.co_name, frame.f_lineno)); frame = frame.f_back
            return frames
        class A:
            def __init__(self): self.x = f(self)
            def __call__(self): return f(1)
            def __iter__(self): t(f(2)); return iter([1])
            def __enter__(self): return f(3)
            def __exit__(self, *a): pass
            def __add__(self, o): return f(4)
        t(f(f(1),
            f(2)))
        t(A().x); t(A()())
        for _ in A(): t(f(5))
        t([f(6) for _ in A()])
        t(list(A())); t(list(enumerate(A())))
        with A() as x: t(x)
        t(sorted([3, 1], key=lambda x: t(len(f(x)))))
        @f
        def g(): pass
        t(g)
        t(list(map(f, [1])))
    """,
    "iterators": """
        class It:
            def __init__(self, n): self.n = n
            def __iter__(self): t("iter"); return self
            def __next__(self):
                t("next"); self.n -= 1
                if self.n < 0: raise StopIteration("end")
                return self.n
            def __len__(self): return t(2)
            def __length_hint__(self): return t(2)
        for x in It(2): t(x)
        t([x for x in It(2)]); t(tuple(It(1))); t(list(zip(It(2), It(2))))
        t(list(enumerate(It(1), t(5)))); t({x: y for x, y in zip("ab", It(2))})
        it = iter(It(2)); t(type(it)); t(next(it)); t(next(it)); t(next(it, t(9)))
        g = (t(x) for x in It(2)); t("made"); t(next(g)); g.close()
        t(iter(t([1])).__length_hint__()); t(list(iter(lambda: t(1), 1)))
        class Old:
            def __getitem__(self, i): t(i); return [7, 8][i]
        for x in Old(): t(x)
        class Unusual:
            __iter__ = None
        try:
            for x in Unusual(): pass
        except TypeError as e: t(str(e))
        try: [x for x in 5]
        except TypeError as e: t(str(e))
        try: list(5)
        except TypeError as e: t(str(e))
        def rebound(enumerate): t(type(enumerate(It(1))))
        rebound(lambda x: x)
    """,
    "lifetimes": """
        import weakref, gc
        gc.disable()
        class A:
            def m(self): return t("m")
        def note(_): t("freed")
        def f(x): t("in f")
        f(A()); a = A(); r = weakref.ref(a, note); del a; t("after")
        r = weakref.ref(A(), note); t("gone")
        A().m()
        def g():
            a = A(); r = weakref.ref(a, note); f(a); a = None; t("end of g")
        g()
    """,
    "errors of arguments": """
        def f(a, *, b): pass
        for wrong in (lambda: f(), lambda: f(1, 2, b=3), lambda: f(*5), lambda: f(**5), lambda: f(1, b=1, **{"b": 2}),
                      lambda: len(*5), lambda: len(**{"x": 1}), lambda: (5)(3), lambda: t.nothing(), lambda: None(),
                      lambda: int(1, 2, 3, 4), lambda: "".join(*5), lambda: "".join(**5), lambda: f(**{5: 1})):
            try: wrong()
            except TypeError as e: t(str(e))
            except AttributeError as e: t(str(e))
    """,
    "copies and pickles": """
        import copy, functools, pickle
        def f(x): return t(x)
        t(copy.deepcopy(f) is f); t(functools.partial(f, t(1))()); t(f.__code__ == f.__code__); hash(f.__code__)
        t(list(pickle.loads(pickle.dumps(zip(iter([1, 2]), map(abs, [3]))))))
        t(list(copy.copy(enumerate(iter([5])))))
    """,
    "recursion": """
        def f(n): return f(n + 1)
        try: f(0)
        except RecursionError as e:
            trace = e.__traceback__
            names = set()
            while trace: names.add(trace.tb_frame.f_code.co_name); trace = trace.tb_next
            t(sorted(names))
    """,
}

FAILING = {
    "in an argument": "t(1,\n  t(2),\n  1 / 0)",
    "in a callee": "missing(\n  t(1))",
    "in a chain": "(t('a')\n .upper()\n .lower(\n   )\n .missing(t(1))\n .strip())",
    "in a method on a later line": "(t('a')\n .upper()\n .index(\n  'b')\n .strip())",
    "with keywords": "(t('a')\n .encode(\n  encoding=t('none'))\n .strip())",
    "with starred arguments": "(t('a')\n .index(\n  *t(['b']))\n .strip())",
    "with many arguments": "('{}'\n .format(" + ", ".join(["t(1)"] * 31) + ")\n .index(\n 'b'))",
    "in a decorator": "@t\n@(t(1)\n  .real)\ndef f(): pass",
    "in a decorator that is called": "@(t\n  (2))\n@t\nclass A: pass",
    "in a decorator of a class": "class A:\n  @t\n  @staticmethod(1)\n  def f(): pass",
    "in a with statement": "class A:\n  def a(self): return 5\nwith (A()\n  .a()): pass",
    "in the begin of a with statement": "class A:\n  def m(self): return self\n  def __enter__(self): 1/0\n"
    "  def __exit__(self, *a): pass\nwith (A()\n  .m()\n  .m()) as x: pass",
    "in a loop": "for x in (t('a')\n  .upper\n  .__init__\n  .missing()): pass",
    "in an iterator": "def g():\n  yield 1\n  1 / 0\nfor x in (t(g)\n  ()): t(x)",
    "in an iterator of enumerate": "def g():\n  yield 1\n  1 / 0\nfor i, x in enumerate(g()): t(x)",
    "in a comprehension": "[t(x)\n for x in (t(5)\n  .real)]",
    "in the iterator of a comprehension": "def g():\n  yield 1\n  1 / 0\n[t(x)\n for x in (t(g)\n  ())]",
    "in a condition": "class A:\n  def m(self): return self\n  def __bool__(self): 1/0\nif (A()\n  .m()): pass",
    "in an assert": "class A:\n  def m(self): return self\n  def __bool__(self): 1/0\nassert (A()\n  .m()), 5",
    "in a boolean": "class A:\n  def m(self): return self\n  def __bool__(self): 1/0\nx = (A()\n  .m()) and 5",
    "in a not": "class A:\n  def m(self): return self\n  def __bool__(self): 1/0\nx = not (A()\n  .m())",
    "in an f-string": "f'''{t(1)} {\n t(2).missing(\n)}'''",
    "in a raise": "raise (t('a')\n  .upper())",
    "in a cause": "try:\n  t(1 / 0)\nexcept Exception as e:\n  raise t(ValueError)(\n   'x') from e",
    "in a context": "try:\n  1 / 0\nexcept Exception:\n  t.missing(\n   )",
    "in a generator": "def g():\n  x = yield t(1)\n  t(x\n   ).missing()\ni = g(); next(i); i.send('a')",
    "in a coroutine": "import asyncio\nasync def f(x):\n  await asyncio.sleep(0)\n  return (x\n    .missing(\n   ))\n"
    "async def g():\n  return await f(\n    await f(1))\nasyncio.run(g())",
    "in a lambda": "f = (lambda x:\n  x\n  .missing())\nt(f(1))",
    "in a class body": "class A:\n  x = (t('a')\n   .missing())",
    "in an unpacking": "a, b = (t([1])\n  .copy())",
    "in a default": "def f(a=t(1), b=(t(2)\n  .missing())): pass",
    "in a sort key": "sorted([1, 2], key=lambda x: (t(x)\n  .missing()))",
    "in a subscript": "t({})[\n t(1)]",
    "in an operator": "x = (t(1)\n + t('a'))",
    "in an assignment": "t(1).x = (t(2)\n  .real)",
    "a duplicate keyword": "t(1, a=1, **{'a': 2})",
    "an exit": "import sys\nsys.exit(t(3))",
    "an interrupt": "raise KeyboardInterrupt(t(1))",
    "a group": "raise ExceptionGroup('g', [t(ValueError)(1)])",
    "a stop iteration": "next(iter(t([])))",
    "next of what is no iterator": "next(t([1]))",
    "a stop in a generator": "def g():\n  yield next(iter(()))\nlist(g())",
    "a syntax error": "def f(:\n  pass",
    "a syntax error of the compiler": "t(1)\nreturn t(2)",
    "a syntax error in a call": "t(1)\nt(a=1, a=2)",
    "a syntax error in a class": "class A:\n  x = t(1)\n  nonlocal x",
    "a null byte": "t(1)\0",
    "an indentation": "if 1:\nt(1)",
    "a future": "t(1)\nfrom __future__ import annotations",
    "a warning": "x = 5\nt(x is 5)\nt('\\d')\nassert (1, t(2))\n[1, 2](3)",
}


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_the_same(name: str, mode: str) -> None:
    source = textwrap.dedent(PROGRAMS[name])
    plain = observe(source, "plain")
    assert plain.error is None and plain.values
    assert observe(source, mode) == plain


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("name", FAILING)
def test_a_failing_program_fails_at_the_same_place(name: str, mode: str) -> None:
    plain = observe(FAILING[name], "plain")
    assert plain.error is not None
    assert observe(FAILING[name], mode) == plain


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("name", ["return_null_without_error", "return_result_with_error"])
def test_an_error_of_a_broken_extension_names_its_function(name: str, mode: str) -> None:
    pytest.importorskip("_testcapi", reason="this Python is installed without its test extensions")
    source = f"import _testcapi\n_testcapi.{name}()"
    assert observe(source, mode) == observe(source, "plain")


LEAVES = st.sampled_from(["t(1)", "t('a')", "t([])", "t(None)", "o", "(1 / t(0))", "t.missing", "5", "fail()", "o.x"])


def _expressions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("t({}, {})".format, inner, inner),
        st.builds("t({}, k={})".format, inner, inner),
        st.builds("t(*[{}], **dict(k={}))".format, inner, inner),
        st.builds("(o.m({})\n.m({}))".format, inner, inner),
        st.builds("(o\n  .m(a={}\n  ))".format, inner),
        st.builds("({})({})".format, inner, inner),
        st.builds("[{} for x in t([1, 2]) if {}]".format, inner, inner),
        st.builds("[x for x in {}]".format, inner),
        st.builds("{{{}: {}}}".format, inner, inner),
        st.builds("list({} for y in zip([1], {}))".format, inner, inner),
        st.builds("(lambda a={}: {})()".format, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({} and {} or t(3))".format, inner, inner),
        st.builds("(z := {})".format, inner),
        st.builds("f'{{{}}} {{t(2)!r}}'".format, inner.filter(lambda text: "'" not in text and "\n" not in text)),
        st.builds("({} + {})".format, inner, inner),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("(yield {})".format, inner),
    )


STATEMENTS = [
    "    {}",
    "    v = {}\n    t(v)",
    "    return {}",
    "    with o.m({}) as w:\n        t({})",
    "    for v in {}:\n        t({})",
    "    if {}:\n        {}\n    else:\n        {}",
    "    try:\n        {}\n    except Exception as e:\n        t(str(e))\n        {}\n    finally:\n        {}",
    "    class K:\n        y = {}\n        def f(self, d={}): return super().__init__()\n    K().f()",
    "    @t\n    def d(a={}): return locals()\n    t(d({}))",
    "    assert {}, {}",
    "    o.y = {}",
    "    while {}:\n        {}\n        break",
    "    a, b = {}, {}",
    "    raise t(ValueError)({})",
]


@st.composite
def _programs(draw: st.DrawFn) -> str:
    expression = st.recursive(LEAVES, _expressions, max_leaves=6)
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        template = draw(st.sampled_from(STATEMENTS))
        count = template.count("{}")
        lines.append(template.format(*(f"({draw(expression)})" for _ in range(count))))
    body = "\n".join(lines)
    return f"def f():\n{body}\n    yield t('end')\nfor each in f():\n    t(each)\n"


def _names(values: list[Any]) -> dict[str, Any]:
    class O:  # noqa: E742
        x = 7

        def m(self, *a: Any, **k: Any) -> Any:
            values.append(("m", len(a), sorted(k)))
            return self

        def __enter__(self) -> Any:
            values.append("enter")
            return self

        def __exit__(self, *error: Any) -> None:
            values.append(("exit", error[0]))

        def __repr__(self) -> str:
            return "O"

    def fail() -> None:
        raise LookupError("fails")

    return {"o": O(), "fail": fail}


@settings(max_examples=150, deadline=None)
@given(_programs())
def test_generated_programs_do_the_same(source: str) -> None:
    plain = observe(source, "plain", _names)
    for mode in MODES[1:]:
        assert observe(source, mode, _names) == plain
