"""The library of a callee, and its public name."""

from __future__ import annotations

import functools
import gc
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from joulediff.instrument.rewriting.callee import Callees

INNER = """
import functools
class Layer:
    def __init__(self, n=0): pass
    def __call__(self, x=None): return self
    def forward(self, x): return x
    @classmethod
    def make(cls): return cls()
    @staticmethod
    def check(x): return x
    def __iter__(self): return iter(())
class Dense(Layer): pass
class _Hidden(Dense): pass
class Meta(type):
    def __call__(cls, *args): return super().__call__(*args)
class WithMeta(metaclass=Meta): pass
class Plain: pass
def matmul(a): return a
def _private(a): return a
def decorate(f):
    @functools.wraps(f)
    def wrapper(*args): return f(*args)
    return wrapper
def parts():
    yield 1
def outer():
    def inner(): pass
    return inner
"""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A library that defines its classes in a private module and offers them in a public one."""
    names = ("fakelib", "fakelib.layers", "fakelib._src", "fakelib._src.core")
    modules = {name: types.ModuleType(name) for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    core = modules["fakelib._src.core"]
    exec(INNER, vars(core))
    for name in ("Layer", "Dense", "WithMeta", "Plain"):
        setattr(modules["fakelib.layers"], name, getattr(core, name))
    modules["fakelib"].matmul = core.matmul  # type: ignore[attr-defined]
    return core


def name_of(callee: Any, *libraries: str) -> str | None:
    found = Callees({name: (name,) for name in libraries or ("fakelib",)}).api_of(callee)
    return None if found is None else found.name


def test_names_are_the_public_ones(library: Any) -> None:
    layer = library.Dense()
    assert name_of(library.Dense) == "fakelib.layers.Dense"
    assert name_of(layer) == "fakelib.layers.Dense.__call__"
    assert name_of(layer.forward) == "fakelib.layers.Dense.forward"
    assert name_of(library.Dense.make) == "fakelib.layers.Dense.make"
    assert name_of(library.matmul) == "fakelib.matmul"
    assert name_of(library.Layer.forward) == "fakelib.layers.Layer.forward"
    # A private class has the name of the public one that it extends; a private function has its own.
    assert name_of(library._Hidden) == "fakelib.layers.Dense"
    assert name_of(library._private) == "fakelib._src.core._private"
    assert name_of(library.outer()) == "fakelib._src.core.outer.inner"


def test_classes_of_the_program_have_the_name_of_the_library_class_that_runs(library: Any) -> None:
    class Net(library.Layer):
        def forward(self, x: Any) -> Any:
            return x

    class Own(library.Layer):
        def __init__(self) -> None:
            super().__init__()

        def __call__(self, x: Any = None) -> Any:
            return x

    assert name_of(Net) == "fakelib.layers.Layer"
    assert name_of(Net()) == "fakelib.layers.Layer.__call__"
    assert name_of(Net.make) == "fakelib.layers.Layer.make"
    assert name_of(Net().forward) is None
    assert name_of(Own) is None
    assert name_of(Own()) is None
    assert name_of(super(Own, Own()).__init__) == "fakelib.layers.Layer.__init__"


def test_a_metaclass_of_the_library_makes_a_plain_class_the_librarys(library: Any) -> None:
    class Mine(metaclass=library.Meta):
        pass

    assert name_of(library.WithMeta) == "fakelib.layers.WithMeta"
    assert name_of(Mine) == "fakelib._src.core.Meta.__call__"


def test_wrappers_belong_to_who_wrote_them(library: Any) -> None:
    def mine() -> None:
        pass

    def named_like_the_library() -> None:
        pass

    assert name_of(mine) is None
    assert name_of(functools.wraps(library.matmul)(named_like_the_library)) is None
    assert name_of(library.decorate(mine)) == "fakelib._src.core.decorate.wrapper"
    assert name_of(functools.partial(library.matmul, 1)) == "fakelib.matmul"
    assert name_of(functools.partial(mine)) is None
    assert name_of(functools.partial(functools.partial(library.Dense().forward), 2)) == "fakelib.layers.Dense.forward"


def test_a_wrapper_has_the_name_of_the_public_function_that_returned_it(
    library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mine() -> None:
        pass

    maker = """
def {name}(f):
    @decorate
    @functools.wraps(f)
    def inner(*args): return f(*args)
    return functools.wraps(f)(inner)
"""
    core = sys.modules["fakelib._src.core"]
    for name in ("gradient", "batched"):
        exec(compile(maker.format(name=name), f"{name}.py", "exec"), vars(core))
        monkeypatch.setattr(sys.modules["fakelib"], name, getattr(core, name), raising=False)
    callees = Callees({"fakelib": ["fakelib"]})
    found = [callees.api_of(make(f)) for make in (core.gradient, core.batched) for f in (mine, library._private)]
    names = [None if each is None else each.name for each in found]
    assert names == ["fakelib.gradient.__call__"] * 2 + ["fakelib.batched.__call__"] * 2


def test_what_is_no_callable_of_a_library_is_none(library: Any) -> None:
    for callee in (len, [].append, str, 5, None, object(), lambda: 1, type, print, "".join, dict.fromkeys, Exception):
        assert name_of(callee) is None


def test_builtin_and_compiled_callables_of_a_library() -> None:
    array = np.ones(3)
    expected = {
        "numpy.add": np.add,
        "numpy.ones": np.ones,
        "numpy.sum": np.sum,
        "numpy.ndarray": np.ndarray,
        "numpy.ndarray.sum": array.sum,
        "numpy.ndarray.__add__": array.__add__,
        "numpy.add.reduce": np.add.reduce,
        "numpy.linalg.norm": np.linalg.norm,
        "numpy.random.default_rng": np.random.default_rng,
        "numpy.random.Generator.normal": np.random.default_rng(0).normal,
        "numpy.random.seed": np.random.seed,
        "numpy.float32": np.float32,
        "numpy.dot": np.dot,
        "numpy.vectorize": np.vectorize,
    }
    for name, callee in expected.items():
        assert name_of(callee, "numpy") == name
    assert name_of(np.ndarray.sum, "numpy") == "numpy.ndarray.sum"
    assert name_of(np.add, "scipy") is None


def test_no_code_of_the_program_runs(library: Any) -> None:
    def fail(*_args: object) -> Any:
        raise AssertionError("the program's code ran")

    class Meta(type):
        __getattribute__ = __getattr__ = __hash__ = __eq__ = __instancecheck__ = __subclasscheck__ = fail  # type: ignore[assignment]

    class Mean(metaclass=Meta):
        __getattribute__ = __getattr__ = __eq__ = __hash__ = __repr__ = __str__ = fail  # type: ignore[assignment]
        __class__ = property(fail)  # type: ignore[assignment]

        def __call__(self) -> None:
            pass

    callees = Callees({"fakelib": ("fakelib",)})
    mean = object.__new__(Mean)
    for callee in (Mean, mean, types.MethodType(mean, mean), types.MethodType(library.matmul, mean)):
        callees.api_of(callee)
        callees.iteration_of(callee)


def test_no_object_of_the_program_is_kept(library: Any) -> None:
    callees = Callees({"fakelib": ("fakelib",)})

    class Net(library.Layer):
        pass

    net = Net()
    for callee in (Net, net, net.forward, Net.make, net.__init__):
        callees.api_of(callee)
    callees.iteration_of(net)
    references = [weakref.ref(Net), weakref.ref(net)]
    del Net, net, callee
    gc.collect()
    assert [each() for each in references] == [None, None]


def test_packages_of_a_library_count_for_it(library: Any) -> None:
    callees = Callees({"other": ("other", "fakelib")})
    assert callees.api_of(library.matmul).library == "other"
    both = Callees({"other": ("other", "fakelib"), "fakelib": ("fakelib",)})
    assert both.api_of(library.matmul).library == "fakelib"


def test_after_stop_nothing_is_watched(library: Any) -> None:
    callees = Callees({"fakelib": ("fakelib",)})
    assert callees.api_of(library.matmul) is not None
    callees.stop()
    assert callees.api_of(library.matmul) is None
    assert callees.api_of(library.Dense) is None
    assert callees.iteration_of(library.parts()) is None


def test_iteration_of_what_works_while_it_is_iterated(library: Any) -> None:
    callees = Callees({"fakelib": ("fakelib",), "numpy": ("numpy",)})
    assert callees.iteration_of(library.Dense()).step.name == "fakelib.layers.Dense.__next__"
    assert callees.iteration_of(library.parts()).step.name == "fakelib._src.core.parts.__next__"
    for other in ([], np.ones(3), {}, (x for x in ()), range(3), "a", None, np.nditer(np.ones(2)).__class__):
        assert callees.iteration_of(other) is None
