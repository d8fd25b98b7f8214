"""A script whose loops are rewritten gives the results of the plain script, name by name and error by error."""

from __future__ import annotations

import ast
import textwrap
import traceback
from types import CodeType
from typing import Any

import pytest

from joulediff.pysource.loops.find_loops import FoundLoop, find_loops
from joulediff.pysource.loops.rewrite_loop import HOOK, rewrite_loops

SNIPPETS = {
    "accumulates": """
        total = 0
        for i in range(5):
            total += i
            square = i * i
        """,
    "break and else": """
        seen = []
        for i in range(5):
            if i == 3:
                break
            seen.append(i)
        else:
            seen.append("else")
        for i in range(2):
            seen.append(i)
        else:
            seen.append("else")
        """,
    "continue": """
        seen = []
        for i in range(6):
            if i % 2:
                continue
            seen.append(i)
        """,
    "while": """
        n, steps = 27, 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
            if steps > 1000:
                break
        else:
            ended = True
        """,
    "nested with their own breaks": """
        seen = []
        for i in range(4):
            for j in range(4):
                if j > i:
                    break
                if j == 1:
                    continue
                seen.append((i, j))
            else:
                seen.append("inner else")
                if i == 3:
                    break
                continue
            seen.append("after")
        """,
    "break in the else of an inner loop": """
        seen = []
        while True:
            for j in range(2):
                seen.append(j)
            else:
                break
        """,
    "return": """
        def find(wanted):
            for i in range(10):
                for j in range(10):
                    if i * j == wanted:
                        return i, j
                if i == 9:
                    return
            return "never"
        seen = [find(42), find(97), find(0)]
        """,
    "return through finally": """
        seen = []
        def run():
            for i in range(3):
                try:
                    if i == 1:
                        return i
                    continue
                finally:
                    seen.append(i)
        seen.append(run())
        """,
    "closures see rebinding": """
        def run():
            last = None
            show = lambda: last
            seen = []
            makers = []
            for i in range(3):
                last = i * 10
                seen.append(show())
                makers.append(lambda: (i, last))
            return seen, [each() for each in makers]
        seen = run()
        """,
    "names bound in the body alone": """
        def run(items):
            for item in items:
                found = item
                more, *rest = item, 1, 2
                del more
            try:
                return found, rest, more
            except UnboundLocalError as error:
                return type(error).__name__
        seen = [run([1, 2]), run([])]
        """,
    "unbound without an iteration": """
        def run():
            for _ in []:
                value = 1
            try:
                return value
            except UnboundLocalError:
                return "unbound"
        seen = run()
        """,
    "deleted names": """
        def run():
            x = 1
            for _ in range(1):
                del x
            try:
                x
            except UnboundLocalError:
                return "gone"
        seen = run()
        """,
    "global and nonlocal": """
        count = 0
        def outer():
            inside = 0
            def step():
                nonlocal inside
                for _ in range(3):
                    global count
                    count += 1
                    inside += 2
            step()
            return inside
        seen = outer(), count
        """,
    "global in the function": """
        count = 0
        def step():
            global count
            for _ in range(3):
                count += 1
        step()
        """,
    "annotated names": """
        def run():
            for i in range(2):
                x: int = i
                y: "no such name"
            return x
        z: int = 0
        for i in range(2):
            z: int = z + i
        seen = run()
        """,
    "every way to bind": """
        import contextlib
        def run():
            for i in range(2):
                import os.path as p, math
                from os import sep as separator
                with contextlib.nullcontext(i) as opened:
                    pass
                try:
                    1 / 0
                except ZeroDivisionError as error:
                    kind = type(error).__name__
                def inner(n=(walrus := i)):
                    return n + opened
                class Thing:
                    value = i
                [last := each for each in range(3)]
                match [i, {"a": 1, "b": 2}]:
                    case [first, {"a": a, **rest}] as whole:
                        pass
                for inner_i in range(2):
                    pass
            return (p.__name__, math.pi, separator, opened, kind, inner(), Thing.value, walrus, last, first, a, rest,
                    whole, inner_i, inner.__qualname__, Thing.__qualname__, Thing.__module__, i)
        seen = run()
        """,
    "comprehensions keep their names": """
        x = "outer"
        for i in range(2):
            made = [x for x in range(3)]
            pairs = {x: y for x, y in zip("ab", range(2))}
        """,
    "names of functions in a module": """
        names = []
        for i in range(2):
            def f():
                def g(): pass
                return g
            class C:
                def m(self): pass
            names += [f.__qualname__, f().__qualname__, C.__qualname__, C.m.__qualname__, (lambda: 0).__qualname__]
        """,
    "super and private names": """
        class Base:
            def step(self): return 1
        class Derived(Base):
            def step(self):
                total = 0
                for _ in range(3):
                    total += super().step()
                    self.__hidden = total
                    __local = total
                return total, __local
        derived = Derived()
        seen = derived.step(), sorted(vars(derived))
        del derived, Base, Derived
        """,
    "generators around": """
        def run():
            yield 0
            for i in range(3):
                found = i
            yield found
        seen = list(run())
        """,
    "async functions around": """
        import asyncio
        async def run():
            for i in range(3):
                found = i
            await asyncio.sleep(0)
            return found
        seen = asyncio.run(run())
        """,
    "try around": """
        seen = []
        try:
            for i in range(3):
                try:
                    if i == 2:
                        raise KeyError(i)
                except ValueError:
                    pass
                else:
                    seen.append(i)
        except KeyError as error:
            seen.append(error.args)
        """,
    "in a handler and a match": """
        seen = []
        try:
            1 / 0
        except ZeroDivisionError:
            for i in range(2):
                seen.append(i)
        finally:
            for i in range(2):
                seen.append(i)
        match 1:
            case 1:
                for i in range(2):
                    seen.append(i)
        if not seen:
            pass
        else:
            for i in range(2):
                seen.append(i)
        """,
    "recursion": """
        def depth(n):
            found = []
            for i in range(n):
                found.append(depth(i))
                mine = n
            return (mine, found) if n else 0
        seen = depth(3)
        """,
    "marked": """
        import joulediff as jd
        from joulediff import step
        seen = []
        def run():
            for batch in jd.steps(range(4)):
                seen.append(batch)
            for i, batch in enumerate(jd.steps([1, 2])):
                with jd.step() as nothing:
                    if i == 1:
                        break
                    last = batch
            for i in range(4):
                with open(__file__) as file, step(), memoryview(b"a") as view:
                    if i == 0:
                        continue
                    if i == 2:
                        return nothing, last, i, len(view)
                seen.append(i)
        seen.append(run())
        """,
}


def plain(text: str) -> CodeType:
    return compile(text, __file__, "exec", dont_inherit=True)


def rewritten(text: str) -> tuple[CodeType, list[FoundLoop]]:
    source = text.encode()
    script = find_loops(ast.parse(source), source)
    chosen = [each for each in script.loops if each.refusal is None]
    return rewrite_loops(script, chosen, __file__), chosen


def run(code: CodeType) -> tuple[dict[str, Any], list[int], list[str]]:
    """Return the names of a script after it ran, the loops that called the hook, and its error as lines."""
    calls: list[int] = []
    names: dict[str, Any] = {"__name__": "script", "__file__": __file__, HOOK: lambda number, *_: calls.append(number)}
    error: list[str] = []
    try:
        exec(code, names)
    except (ArithmeticError, LookupError, NameError) as found:
        lines = traceback.extract_tb(found.__traceback__)[1:]
        places = [(each.name, each.lineno) for each in lines]
        error = [repr(found), *map(repr, dict.fromkeys(places))]
    kept = {name: each for name, each in names.items() if not name.startswith(("_joulediff", "__"))}
    return kept, calls, error


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_rewritten_script_gives_the_same(name: str) -> None:
    text = textwrap.dedent(SNIPPETS[name])
    code, chosen = rewritten(text)
    assert chosen
    expected, found = run(plain(text)), run(code)
    assert expected[2] == found[2] == []
    assert list(expected[0]) == list(found[0])
    for each, value in expected[0].items():
        if isinstance(value, int | str | list | tuple | dict | float):
            assert found[0][each] == value or each == "makers"
    assert found[1] or name == "unbound without an iteration"


def test_each_iteration_calls_the_hook_once() -> None:
    text = "for i in range(3):\n    for j in range(2):\n        pass\nwhile i < 4:\n    i += 1\n"
    assert run(rewritten(text)[0])[1] == [0, 1, 1, 0, 1, 1, 0, 1, 1, 2, 2]


def test_an_exception_has_the_lines_and_functions_of_the_plain_script() -> None:
    text = textwrap.dedent(
        """
        def helper(x):
            return 1 / x

        def main():
            for i in (1, 0):
                found = [
                    helper(each)
                    for each in (i,)
                ]

        main()
        """
    )
    expected, found = run(plain(text))[2], run(rewritten(text)[0])[2]
    head = "('main', 6)"  # the head of the loop calls the body
    assert [each for each in found if each != head] == expected
    assert head in found


REFUSED = {
    "yield": ("def f():\n    for i in x:\n        yield i\n", 3),
    "await": ("async def f():\n    for i in x:\n        await i\n", 3),
    "async for": ("async def f():\n    async for i in x:\n        pass\n", 2),
    "asynchronous comprehension": ("async def f():\n    for i in x:\n        [j async for j in i]\n", 3),
    "import of all": ("for i in x:\n    from os import *\n", 2),
    "locals": ("def f():\n    for i in x:\n        a = 1\n        print(locals())\n", 4),
    "exec": ("for i in x:\n    exec('a = 1')\n", 2),
    "class": ("class A:\n    for i in range(3):\n        a = i\n", 2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_cannot_be_a_function_is_refused(name: str) -> None:
    text, line = REFUSED[name]
    refusals = [each.refusal for each in find_loops(ast.parse(text), text.encode()).loops]
    assert [each.line for each in refusals if each is not None] == [line]


@pytest.mark.parametrize(
    "text", ["exec('a = 1', {})", "eval('1', names)", "def g(): yield 1", "vars(x)", "(yield_ for a in b)"]
)
def test_a_body_that_only_looks_so_is_not_refused(text: str) -> None:
    source = f"for i in x:\n    {text}\n"
    assert [each.refusal for each in find_loops(ast.parse(source), source.encode()).loops] == [None]
