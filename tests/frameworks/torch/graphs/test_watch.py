"""Graphs are watched from the import of their module on."""

import importlib
import sys

import pytest

from joulediff.frameworks.torch.after_import import ImportedFinder
from joulediff.frameworks.torch.graphs import watch

SOURCE = """
class CUDAGraph:
    def capture_begin(self): pass
    def capture_end(self): pass
    def replay(self): return "replayed"
    def reset(self): pass
"""


@pytest.fixture
def module_name(monkeypatch, tmp_path):
    """Name a module that stands for the framework's own, and is not imported yet."""
    name = "invented_graphs"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(watch, "_MODULE", name)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield name
    sys.modules.pop(name, None)


def test_a_module_is_watched_when_it_is_imported(module_name):
    watch.watch_graphs()
    watch.watch_graphs()
    module = importlib.import_module(module_name)
    assert hasattr(module.CUDAGraph.replay, "__wrapped__")
    assert module.CUDAGraph().replay() == "replayed"
    assert not any(isinstance(each, ImportedFinder) for each in sys.meta_path)


def test_a_module_that_was_imported_before_is_watched_at_once(module_name):
    module = importlib.import_module(module_name)
    watch.watch_graphs()
    wrapped = module.CUDAGraph.replay
    watch.watch_graphs()
    assert module.CUDAGraph.replay is wrapped
    assert hasattr(wrapped, "__wrapped__")


def test_a_replay_goes_to_the_recording(module_name, monkeypatch):
    module = importlib.import_module(module_name)
    watch.watch_graphs()
    graph, seen = module.CUDAGraph(), []
    monkeypatch.setattr(watch.WATCH, "replay", lambda found, replay: seen.append((found, replay())))
    graph.replay()
    assert seen == [(graph, "replayed")]
