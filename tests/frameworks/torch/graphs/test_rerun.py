"""The operators of a captured graph run again in place of its replay; the graph is an invented one of the CPU."""

from types import SimpleNamespace

import pytest

from joulediff.frameworks.torch.graphs import watch
from joulediff.frameworks.torch.graphs.nodes import Nodes
from joulediff.frameworks.torch.graphs.watch import WATCH

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Counter:
    """Counts one node for each operator; it is asked before and after each, and at the end."""

    def __init__(self, *, extra=0):
        self.asked = self.total = 0
        self.extra = extra

    def __call__(self):
        self.asked += 1
        self.total += self.asked % 2 == 0
        return Nodes(self.total + self.extra * (self.asked > 2), self.total, "stream")


class Graph:
    """A graph that runs a function again: a captured one reads and writes the same memory each time."""

    def capture_begin(self):
        self.replayed = 0

    def capture_end(self):
        pass

    def replay(self):
        self.replayed += 1
        self.again()

    def reset(self):
        pass


@pytest.fixture
def capture(monkeypatch):
    """Return a function that captures the operators of another one into a graph."""

    def make(work, *, counter=None):
        kind = type("CapturedGraph", (Graph,), {})
        watch._wrap(SimpleNamespace(CUDAGraph=kind))
        monkeypatch.setattr(WATCH, "open_counter", lambda: counter or Counter())
        graph = kind()
        graph.capture_begin()
        with torch.no_grad():
            made = work()
        graph.capture_end()
        graph.again = lambda: [old.copy_(new) for old, new in zip(made, work(), strict=True)]
        return graph, made

    return make


def captured(step):
    from joulediff.frameworks.torch.capture.capture import capture_step

    return capture_step(step)


def names(found):
    return [op.name.removeprefix("aten::") for op in found.ops]


def test_a_replay_shows_the_captured_operators_on_present_values(capture):
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    graph, (y,) = capture(lambda: (torch.relu(x @ w),))

    def step():
        graph.replay()
        return y + 1

    x.copy_(torch.randn(4, 8))
    found = captured(step)
    assert names(found) == ["mm", "relu", "add"]
    assert torch.equal(y, torch.relu(x @ w))
    assert graph.replayed == 0
    mm, relu, add = found.ops
    assert relu.inputs == mm.outputs
    assert add.inputs == relu.outputs
    assert found.graph_replays[0].ops == (0, 1)
    assert found.graph_replays[0].nodes == (1, 1)
    assert found.changed == ()


def test_tensors_that_a_graph_changes_are_changed_once(capture):
    count, x = torch.zeros(3), torch.ones(3)

    def work():
        count.add_(x)
        return (count * 2,)

    graph, (y,) = capture(work)
    before = count.clone()
    found = captured(lambda: (graph.replay(), y)[1])
    assert torch.equal(count, before + 1)
    assert torch.equal(y, count * 2)
    assert names(found) == ["add_", "mul"]
    assert len(found.changed) == 1


def test_a_graph_of_other_work_is_replayed_and_is_one_operator(capture):
    x = torch.randn(5)
    graph, (y,) = capture(lambda: (x.exp().log(),), counter=Counter(extra=1))

    def step():
        graph.replay()
        return y * 2

    found = captured(step)
    assert graph.replayed == 1
    assert [op.name for op in found.ops] == ["cuda_graph::replay", "aten::mul"]
    assert not found.graph_replays[0].is_known
    replay, mul = found.ops
    assert mul.inputs == replay.writes
    assert len(replay.inputs) == 1


def test_a_graph_captured_unseen_is_one_operator():
    kind = type("UnseenGraph", (Graph,), {})
    graph, y = kind(), torch.zeros(2)
    graph.capture_begin()
    graph.again = lambda: None
    watch._wrap(SimpleNamespace(CUDAGraph=kind))
    found = captured(lambda: (graph.replay(), y)[1])
    assert [op.name for op in found.ops] == ["cuda_graph::replay"]
    assert found.graph_replays[0].nodes is None


def test_a_graph_whose_operators_fail_alone_is_replayed(capture):
    x = torch.randn(4)
    graph, (y,) = capture(lambda: (x.exp().sin(),))
    call = WATCH.recording_of(graph).calls[1]
    call.args = (*call.args, "no argument of this operator")
    found = captured(lambda: (graph.replay(), y)[1])
    assert graph.replayed == 1
    assert [op.name for op in found.ops] == ["aten::exp", "cuda_graph::replay"]
    assert found.graph_replays[0].ops == (1, 0)
    assert torch.allclose(y, x.exp().sin())


def test_one_graph_reads_what_another_one_made(capture):
    x = torch.randn(4)
    first, (y,) = capture(lambda: (x * 3,))
    second, (z,) = capture(lambda: (y.sum(),))

    def step():
        first.replay()
        second.replay()
        return z

    found = captured(step)
    assert names(found) == ["mul", "sum"]
    assert found.ops[1].inputs == found.ops[0].outputs
    assert torch.allclose(z, (x * 3).sum())


def test_captured_operators_have_the_module_they_were_captured_in(capture):
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), torch.randn(2, 4)
    graph, (y,) = capture(lambda: (model(x),))

    def step():
        graph.replay()
        return y + model[1](x)

    found = captured(step)
    assert [(op.name.removeprefix("aten::"), op.module, op.module_type) for op in found.ops] == [
        ("t", "0", "Linear"),
        ("addmm", "0", "Linear"),
        ("tanh", "1", "Tanh"),
        ("tanh", "1", "Tanh"),
        ("add", None, None),
    ]


def test_without_recording_a_graph_is_replayed(capture):
    graph, _ = capture(lambda: (torch.ones(2) * 2,))
    graph.replay()
    assert graph.replayed == 1
