"""A patched program does what the plain one does, and its calls are named as those of the plain one."""

from __future__ import annotations

import pickle
import sys
import traceback

import pytest

import joulediff.patched
from joulediff.instrument.patch.frame_sites import read_patched
from joulediff.instrument.rewriting.calls import SourceSite
from joulediff.instrument.rewriting.rewrite import compile_rewritten
from patch_builders import Noted, patch, run

ORDER = """
log = []
def note(x):
    log.append(x)
    return x
class Box:
    def __init__(self, value): self.value = value
    def __getattr__(self, name):
        log.append("read " + name)
        return lambda *a, **k: note((name, a, sorted(k.items())))
box = Box(1)
boxes = iter([box, box])
next(boxes).first(note(1), *[note(2)], k=note(3))
(note, box)[1].second((lambda: note(4))())
text = f"{box.third(note(5))!r:>{note(30)}}"
made = [box.each(i) for i in range(2) if box.test(i)]
def gen():
    got = yield box.gen(1)
    yield box.gen(got)
g = gen(); sent = [next(g), g.send(7)]
class Base:
    def __init__(self, x): self.x = note(x)
class Sub(Base):
    def __init__(self, x):
        super().__init__(x)
        self.local = sorted(locals())
sub = Sub(box.arg(8))
try:
    box.fails(1, note(1 // 0))
except ZeroDivisionError as error:
    log.append(type(error).__name__)
chained = (box
    .one(1)
    .__class__
    .__name__.upper())
"""


def test_the_order_of_evaluation_and_the_results_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(ORDER, "plain.py", None, monkeypatch)
    noted = Noted()
    patched = run(patch(ORDER), "train.py", noted, monkeypatch)
    assert noted.started == ("train.py", "numpy")
    for name in ("log", "text", "made", "sent", "chained"):
        assert patched[name] == plain[name]
    assert patched["sub"].local == plain["sub"].local
    assert len(noted.calls) > 30


def test_each_begin_has_its_end_innermost_first(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted()
    run(patch("def f(x): return x\ng = f\ng(g(1))\n"), "train.py", noted, monkeypatch)
    assert [(kind, site.column) for kind, site in noted.calls] == [("begin", 2), ("end", 2), ("begin", 0), ("end", 0)]


def test_a_failed_argument_leaves_no_open_call(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted()
    with pytest.raises(ZeroDivisionError):
        run(patch("f = [].append\nf(1 // 0)\n"), "train.py", noted, monkeypatch)
    assert noted.calls == []


def test_an_exception_names_the_lines_below_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def fail():\n    raise KeyError(1)\ng = fail\n(g\n )()\n"
    with pytest.raises(KeyError) as raised:
        run(patch(text), "train.py", Noted(), monkeypatch)
    frames = [each for each in traceback.extract_tb(raised.value.__traceback__) if each.filename == "train.py"]
    assert [(each.lineno, each.name) for each in frames] == [(8, "<module>"), (6, "fail")]


SITES = '''"""Doc: é."""
from __future__ import annotations
import numpy as np


class Model:
    def fit(self, x):
        é = np.asarray(x); return np.add(np.ones(2), é)  # é


def train(model, é):
    return (np.array(é)
            # comment
            .reshape(2)
            .sum())
print(f"{np.ones(1)} {train(Model(), [1, 2])}"); both = [np.ones(1) for _ in (1, 2)] if np.any([1]) else np.zeros(1)
model = Model(); model.fit([1, 2]); value = (lambda v: np.abs(v))(-1)
'''


def sites_in_memory(text: str) -> list[SourceSite]:
    noted = Noted(every=False, libraries=("numpy",))
    exec(compile_rewritten(text, "train.py", noted.watcher), {"__name__": "__main__"})
    return [site for kind, site in noted.calls if kind == "begin"]


def test_calls_are_named_as_in_the_plain_file(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted(every=False, libraries=("numpy",))
    run(patch(SITES), "train.py", noted, monkeypatch)
    found = [site for kind, site in noted.calls if kind == "begin"]
    if sys.version_info >= (3, 11):
        assert found == sites_in_memory(SITES)
    assert [site.line for site in found] == [site.line for site in sites_in_memory(SITES)]
    assert {site.function for site in found} == {"<module>", "train", "Model.fit"}


def test_without_columns_a_call_is_the_first_of_its_line() -> None:
    text = patch("import numpy as np\nx = np.add(np.ones(2), 1)\n")
    found = read_patched(text, "train.py", "measured")
    assert {line: (site.line, site.text) for line, site in found.by_line.items()} == {6: (2, "np.add")}


def test_a_text_that_is_broken_since_still_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_patched("f(\n", "train.py", "measured")
    site = found.site_at(sys._getframe())
    assert found.original is None
    assert (site.file, site.text) == ("train.py", "")
    assert site.line > 0


def test_without_a_start_nothing_is_measured() -> None:
    fresh = joulediff.patched._Measured()
    assert fresh(len) is len
    fresh.stop()


def test_a_worker_of_the_program_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        @staticmethod
        def parent_process() -> object:
            return object()

    monkeypatch.setitem(sys.modules, "multiprocessing.process", Process)
    fresh = joulediff.patched._Measured()
    fresh.start("train.py", "numpy")
    assert fresh(len) is len


def test_measured_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(joulediff.patched.measured)) is joulediff.patched.measured
