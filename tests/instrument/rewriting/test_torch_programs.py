"""Programs that use PyTorch: data loaders, compiled functions, the bytes of tensors."""

from __future__ import annotations

import pytest

from instrument_builders import run_rewritten

pytestmark = pytest.mark.torch

START = (
    "import torch\n"
    "from torch import nn\n"
    "from torch.utils.data import DataLoader, TensorDataset\n"
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.inner = nn.Linear(4, 2)\n"
    "    def forward(self, x): return torch.relu(self.inner(x))\n"
    "net = Net(); x = torch.ones(8, 4)\n"
)


def names_of(source: str) -> list[str]:
    _, recorder = run_rewritten(START + source, ["torch"])
    return [each.api for each in recorder.calls if each.line > START.count("\n")]


def test_layers_loaders_and_optimisers() -> None:
    assert names_of(
        "data = DataLoader(TensorDataset(x, x), batch_size=8)\n"
        "opt = torch.optim.SGD(net.parameters())\n"
        "for i, (a, b) in enumerate(data):\n"
        "    net(a).sum().backward(); opt.step()\n"
    ) == [
        "torch.utils.data.TensorDataset",
        "torch.utils.data.DataLoader",
        "torch.nn.Module.parameters",
        "torch.optim.SGD",
        "torch.utils.data.DataLoader.__iter__",
        "torch.utils.data.DataLoader.__next__",
        "torch.nn.Module.__call__",
        "torch.Tensor.sum",
        "torch.Tensor.backward",
        "torch.optim.SGD.step",
        "torch.utils.data.DataLoader.__next__",
    ]


def test_calls_inside_of_a_module_are_inside() -> None:
    _, recorder = run_rewritten(f"{START}net(x)\n", ["torch"])
    assert [(each.api, each.depth, each.input_bytes) for each in recorder.calls[-3:]] == [
        ("torch.nn.Module.__call__", 0, 128),
        ("torch.nn.Linear.__call__", 1, 128),
        ("torch.relu", 1, 64),
    ]


def test_a_function_of_the_program_in_a_context_is_no_call_of_the_library() -> None:
    source = "@torch.no_grad()\ndef f(x): return net(x)\n@torch.no_grad()\ndef g(x): yield x\nf(x), list(g(x))\n"
    assert names_of(source) == [
        *["torch.no_grad", "torch.no_grad.__call__"] * 2,
        "torch.nn.Module.__call__",
    ]


def test_what_a_transform_returned_has_its_name() -> None:
    assert (
        names_of("torch.vmap(torch.sum)(x); torch.vmap(lambda t: t)(x)\n") == ["torch.vmap", "torch.vmap.__call__"] * 2
    )


def test_a_data_set_counts_its_tensors() -> None:
    _, recorder = run_rewritten(f"{START}DataLoader(TensorDataset(x, x[:, :1]))\n", ["torch"])
    assert [each.input_bytes for each in recorder.calls[-2:]] == [160, 160]


def test_compiled_functions_read_the_plain_code() -> None:
    source = (
        "def f(x): return net(x).sum()\n"
        "compiled = torch.compile(f, backend='eager', fullgraph=True)\n"
        "same = bool(compiled(x) == f(x))\n"
        "model = torch.compile(net, backend='eager')\n"
        "again = bool((model(x) == net(x)).all())\n"
    )
    names, recorder = run_rewritten(START + source, ["torch"])
    assert names["same"] and names["again"]
    assert "torch.compile.__call__" in recorder.names
