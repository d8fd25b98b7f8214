"""Real programs on the CPU: the events of the profiler join to the operators of the dispatch mode."""

import threading
import warnings
from collections import Counter

import pytest

from joulediff.frameworks.torch.trace.join import join
from joulediff.frameworks.torch.trace.trace import trace_step
from trace_builders import make_op

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402


class Names(TorchDispatchMode):
    """Sees the operators; `module` is the compiled module it is in, if any."""

    def __init__(self):
        super().__init__()
        self.ops, self.threads, self.module, self.entered = [], {threading.get_ident(): 0}, None, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        thread = self.threads.setdefault(threading.get_ident(), len(self.threads))
        name, number = func._schema.name, len(self.ops)
        if not name.startswith("profiler::"):
            flags = {"inference": torch.is_inference_mode_enabled(), "compiled": self.module is not None}
            self.ops.append(make_op(number, name, thread=thread, device="cpu", module=self.module, **flags))
        return func(*args, **(kwargs or {}))


def trace_and_capture(step, mode=None):
    """Return the traced step and its operators, both with the same random numbers."""
    mode = mode or Names()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step()
        traced = trace_step(step, begin=lambda: torch.manual_seed(0))
        torch.manual_seed(0)
        with mode:
            step()
    return traced, mode.ops


def check(step):
    """Assert that everything joins, and return the names of joined operators."""
    traced, ops = trace_and_capture(step)
    joined = join(traced, ops)
    assert joined.notes == ()
    assert joined.agreed
    assert all((kernel.kind, kernel.device, kernel.join) == ("cpu", "cpu", "op") for kernel in joined.kernels)
    found = {kernel.op for kernel in joined.kernels}
    assert {op.name for op in ops if op.id not in found} <= {"aten::detach"}
    return Counter(ops[op].name for op in found)


@pytest.fixture(scope="module")
def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    tokens = {"vocab_size": 100, "bos_token_id": 1, "eos_token_id": 2}
    config = GPT2Config(n_layer=2, n_embd=32, n_head=2, n_positions=64, loss_type="ForCausalLM", **tokens)
    return GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def ids():
    return torch.arange(20).reshape(2, 10)


def test_a_forward_pass_without_gradients(gpt2, ids):
    with torch.no_grad():
        assert check(lambda: gpt2(ids).logits)["aten::addmm"] == 8


def test_a_forward_pass_in_inference_mode(gpt2, ids):
    with torch.inference_mode():
        assert check(lambda: gpt2(ids).logits)["aten::layer_norm"] == 5


def test_generating_tokens(gpt2, ids):
    assert check(lambda: gpt2.generate(ids, max_new_tokens=3, do_sample=True, pad_token_id=0))["aten::multinomial"] == 3


def test_a_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=100, **sizes)).eval()
    with torch.no_grad():
        assert check(lambda: model(torch.arange(10)[None]).logits)["aten::silu"] == 2


@pytest.mark.parametrize("foreach", [True, False])
def test_a_training_step(gpt2, ids, foreach):
    gpt2.train()
    optimizer = torch.optim.AdamW(gpt2.parameters(), lr=1e-5, foreach=foreach)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=foreach):
            loss = gpt2(ids, labels=ids).loss
        loss.backward()
        optimizer.step()

    try:
        assert check(step)["aten::native_layer_norm_backward"] == 5
    finally:
        gpt2.eval()


def test_a_convolution_and_a_recurrent_network():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    recurrent, image = nn.LSTM(4, 8, 2), torch.ones(2, 3, 8, 8)

    def step():
        loss = F.cross_entropy(net(image), torch.tensor([0, 1])) + recurrent(torch.ones(5, 2, 4))[0].sum()
        loss.backward()

    check(step)


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].exp()


def test_a_function_with_its_own_backward():
    weight = torch.ones(4, requires_grad=True)
    assert check(lambda: Exponential.apply(weight * 2).sum().backward())["aten::exp"] == 2


def test_operators_of_the_programs_own():
    library = torch.library.Library("joulediff_test", "DEF")
    library.define("scale(Tensor x) -> Tensor")
    library.impl("scale", lambda x: x.sin() * 2, "CPU")
    found = check(lambda: torch.ops.joulediff_test.scale(torch.ones(3)) + 1)
    assert found == {"aten::ones": 1, "joulediff_test::scale": 1, "aten::add": 1}


def test_operators_that_are_made_of_others_or_move_data():
    numbers = torch.tensor([1, 2, 3])

    def step():
        values = torch.tensor([1.0, 2.0, 3.0]) + torch.as_tensor([3.0]) + numbers.float()
        values[0], values[values > 2] = 1.0, 0.0
        torch.repeat_interleave(numbers, 2)
        torch.where(values > 1, values, 0)
        torch.where(values > 1)
        torch.einsum("i,j->ij", values, values).reshape(-1).t().contiguous()
        values.std(unbiased=False), values.var(), values.norm(), values.tolist(), values.data, values.numpy()
        F.one_hot(numbers, 4), F.pad(numbers, (1, 1)), F.softmax(values, 0), F.interpolate(values[None, None], 5)
        torch.linalg.inv(torch.eye(3)), torch.fft.fft(values), torch.unique(numbers), torch.bincount(numbers)
        return bool(values[0]), int(numbers[0])

    check(step)
    with torch.no_grad():
        check(step)
    with torch.inference_mode():
        check(step)


def test_a_step_partly_in_inference_mode(gpt2, ids):
    def step():
        with torch.inference_mode():
            gpt2(ids)
        with torch.no_grad():
            gpt2(ids)

    assert check(step)["aten::layer_norm"] == 5


def test_a_step_that_changes_between_the_passes_is_reported():
    def step():
        x = torch.ones(4).neg()
        if torch.autograd.profiler._is_profiler_enabled:
            x = x.exp().sin().neg()
        return x.cos()

    traced, ops = trace_and_capture(step)
    joined = join(traced, ops)
    assert not joined.agreed
    assert joined.notes == (
        "the traced step ran 1 operator that the captured one did not, first aten::neg after aten::neg (op 1)",
    )
    loose = [kernel.name for kernel in joined.kernels if kernel.join == "none"]
    assert loose == ["aten::exp", "aten::sin", "aten::neg"]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.linear(x)) + x


class Compiled(nn.Module):
    """Tells a mode when it enters a compiled module."""

    def __init__(self, path, block, mode):
        super().__init__()
        self.path, self.block, self.mode = path, block, mode

    def forward(self, x):
        self.mode.entered.append(self.path)
        self.mode.module = self.path
        try:
            return self.block(x)
        finally:
            self.mode.module = None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_modules(backend):
    torch._dynamo.reset()
    mode, x = Names(), torch.ones(2, 8)
    first, second = (Compiled(path, torch.compile(Block(), backend=backend), mode) for path in ("one", "two"))

    def step():
        mode.entered.clear()
        with torch.no_grad():
            return second(first(x).tanh()).sum()

    traced, ops = trace_and_capture(step, mode)
    joined = join(traced, ops, compiled_modules=mode.entered)
    assert mode.entered == ["one", "two"]
    assert joined.agreed
    assert joined.notes == ()
    by_module = Counter(ops[kernel.op].module for kernel in joined.kernels)
    assert by_module.keys() == {"one", "two", None}
    assert by_module["one"] == by_module["two"] > 2
    found = {ops[op].name for kernel in joined.kernels for op in (kernel.op, *kernel.members)}
    assert {"aten::addmm", "aten::relu", "aten::add"} <= found
    torch._dynamo.reset()
