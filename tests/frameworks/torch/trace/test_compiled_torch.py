"""Code that this PyTorch compiles for the processor, from its trace to rows with the eager program."""

import pytest

from joulediff.frameworks.torch.trace.generated_code import read_graphs
from joulediff.matching.match_runs import match_runs
from joulediff.session.record import record

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(32), torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x)), approximate="tanh") * 2)


def recorded(step, label):
    for _ in range(2):
        step()
    return record(step, label=label, seconds=0.2, wait_s=0.0, source=False, replay=False)


def names(run, kernel):
    return [run.ops[op].name.removeprefix("aten::") for op in (kernel.op, *kernel.members)]


@pytest.fixture(scope="module")
def runs():
    """Return the runs of a model, a function outside of modules, and eager ones of the same."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x, w = Block().eval(), torch.randn(4, 8, 32), torch.randn(32, 16)

    def work(x):
        return torch.softmax((x @ w).sin() * 3, -1)

    def step_of(run_model, run_work):
        def step():
            with torch.no_grad():
                return run_work(run_model(x)) + 1

        return step

    compiled = recorded(step_of(torch.compile(model), torch.compile(work)), "compiled")
    assert read_graphs()
    eager = recorded(step_of(model, work), "eager")
    yield eager, compiled
    torch._dynamo.reset()


def test_every_kernel_of_compiled_code_has_its_operators(runs):
    _, run = runs
    assert run.notes == ()
    assert {kernel.join for kernel in run.kernels} == {"op", "fused"}
    calls = [names(run, kernel) for kernel in run.kernels if kernel.join == "op"]
    assert [each for each in calls if each[0] in ("addmm", "mm")] == [["addmm"], ["addmm"], ["mm"]]
    fused = [names(run, kernel) for kernel in run.kernels if kernel.join == "fused"]
    assert fused == [["native_layer_norm"], ["gelu", "mul"], ["add"], ["sin", "mul", "_softmax"]]
    assert {run.ops[kernel.op].compiled for kernel in run.kernels if kernel.join == "fused"} == {True}


def test_eager_and_compiled_code_have_rows_with_all_kernels(runs):
    a, b = runs
    found = match_runs(a, b)
    for run, side in ((a, "a"), (b, "b")):
        inside = {op for region in found.regions for op in getattr(region, side)}
        total_s = sum(kernel.duration_s for kernel in run.kernels)
        assert sum(k.duration_s for k in run.kernels if k.op in inside) >= 0.95 * total_s
    both = [region for region in found.regions if region.kind == "equal"]
    assert any(
        [b.ops[op].name for op in each.b] == ["aten::gelu", "aten::mul"] == [a.ops[op].name for op in each.a]
        for each in both
    )
