"""The record, written to a file and read again, holds the whole program: run again, it gives the same values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from interpreter import SEED, copy, inputs_of, interpret, record, replay, save_and_load, seed_all
from joulediff.model.run import Run

Step = Callable[[], Any]
VOCABULARY = 99


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep small vocabularies from being warned of."""
    monkeypatch.setattr(logging.getLogger("transformers"), "level", logging.ERROR)


def run_again(step: Step, state: Mapping[str, torch.Tensor], *, folder: Path | None = None) -> Run:
    """Record a step, run the record again in both ways, and hold what comes out and what is left against the step's.

    `state` is everything the step starts from, by name. It is put back before each run of the step.
    """
    before = {name: copy(tensor) for name, tensor in state.items()}
    seed_all(SEED)
    expected = named_outputs(step())
    after = {name: copy(tensor) for name, tensor in state.items()}
    restore(state, before)
    run, constants, captured = record(step)
    assert {name: tuple(tensor.shape) for name, tensor in named_outputs_of(captured, run).items()} == {
        name: tuple(tensor.shape) for name, tensor in expected.items()
    }
    for name, tensor in state.items():
        assert torch.equal(tensor, after[name]), f"recording changed {name}"
    if folder is not None:
        run = save_and_load(run, folder)
    for again in (interpret, replay):
        found = again(run, inputs_of(run, before, constants))
        for name, value in captured.outputs:
            assert torch.equal(found[value], expected[name]), f"{again.__name__} gives another {name}"
        for value in last_values(run):
            assert torch.equal(found[value.id], after[value.name.split(", ")[0]]), (again.__name__, value)
    return run


def last_values(run: Run):
    """Return what tensors that the step started from were in the end, where it changed them."""
    named = {}
    for value in run.values:
        if value.previous is not None and value.name and not value.name.startswith("output"):
            named[value.name] = value
    return named.values()


def named_outputs(output: Any) -> dict[str, torch.Tensor]:
    from joulediff.frameworks.torch.tensor_tree import named_tensors

    return {name: copy(tensor) for name, tensor in named_tensors(output)}


def named_outputs_of(captured: Any, run: Run) -> dict[str, Any]:
    return {name: run.values[value] for name, value in captured.outputs}


def restore(state: Mapping[str, torch.Tensor], before: Mapping[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(before[name])


def state_of(model: nn.Module, **others: torch.Tensor) -> dict[str, torch.Tensor]:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {**parameters, **dict(model.named_buffers(remove_duplicate=False)), **others}


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, shape)


def gpt2(**options: Any) -> nn.Module:
    config = {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": 64, **options}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**config, bos_token_id=1, eos_token_id=2)).eval()


def llama(**options: Any) -> nn.Module:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**{**sizes, "num_key_value_heads": 2, "vocab_size": VOCABULARY, **options})
    return transformers.LlamaForCausalLM(config).eval()


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def test_gpt2_with_12_layers(tmp_path: Path) -> None:
    model, tokens = gpt2(n_layer=12), ids(2, 8)

    def step() -> Any:
        with torch.no_grad():
            return model(tokens).logits

    run = run_again(step, state_of(model, tokens=tokens), folder=tmp_path)
    assert {op.module for op in run.ops} >= {f"transformer.h.{i}.mlp.act" for i in range(12)}
    assert {value.name for value in run.values if value.kind == "parameter"} >= {"transformer.wte.weight"}


def test_llama_with_32_layers(tmp_path: Path) -> None:
    model, tokens = llama(num_hidden_layers=32), ids(2, 8)

    def step() -> Any:
        with torch.inference_mode():
            return model(tokens, use_cache=False).logits

    run = run_again(step, state_of(model, tokens=tokens), folder=tmp_path)
    assert {op.module for op in run.ops} >= {f"model.layers.{i}.self_attn.q_proj" for i in range(32)}


def test_bert() -> None:
    model = transformers.BertModel(transformers.BertConfig(**SMALL, vocab_size=VOCABULARY)).eval()
    tokens, mask = ids(2, 8), torch.ones(2, 8, dtype=torch.int64)
    mask[1, 5:] = 0

    def step() -> Any:
        with torch.no_grad():
            return model(tokens, attention_mask=mask)

    run_again(step, state_of(model, tokens=tokens, mask=mask))


def test_vit() -> None:
    model = transformers.ViTModel(transformers.ViTConfig(**SMALL, image_size=16, patch_size=8)).eval()
    pixels = torch.randn(2, 3, 16, 16)

    def step() -> Any:
        with torch.no_grad():
            return model(pixels).last_hidden_state

    run_again(step, state_of(model, pixels=pixels))


def test_t5() -> None:
    config = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=VOCABULARY, decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    tokens, labels = ids(2, 8), ids(2, 5)

    def step() -> Any:
        with torch.no_grad():
            found = model(input_ids=tokens, labels=labels)
            return found.loss, found.logits

    run_again(step, state_of(model, tokens=tokens, labels=labels))


def test_mixtral() -> None:
    config = transformers.MixtralConfig(**SMALL, num_key_value_heads=2, vocab_size=VOCABULARY, num_local_experts=4)
    model, tokens = transformers.MixtralForCausalLM(config).eval(), ids(2, 6)

    def step() -> Any:
        with torch.no_grad():
            return model(tokens, use_cache=False).logits

    run_again(step, state_of(model, tokens=tokens))


def test_a_convolutional_net_with_batch_norm_in_training_mode() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout2d(0.5),
        nn.Conv2d(8, 8, 3, groups=2), nn.BatchNorm2d(8, track_running_stats=False), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    images, labels = torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))

    def step() -> Any:
        loss = nn.functional.cross_entropy(model(images), labels)
        return loss, torch.autograd.grad(loss, list(model.parameters()))

    run = run_again(step, state_of(model, images=images, labels=labels))
    changed = {value.name for value in run.values if value.previous is not None and value.name}
    assert {"1.running_mean", "1.running_var", "1.num_batches_tracked"} <= changed


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "AdamW foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "AdamW fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "AdamW in a loop": lambda parameters: torch.optim.AdamW(parameters, foreach=False, fused=False),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "Adafactor": lambda parameters: torch.optim.Adafactor(parameters),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("first", [True, False], ids=["first step", "later step"])
def test_a_training_step(name: str, first: bool) -> None:
    model, tokens = gpt2(n_layer=1).train(), ids(2, 8)
    optimizer = OPTIMIZERS[name](model.parameters())

    def step() -> Any:
        optimizer.zero_grad(set_to_none=False)
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    if first:
        # A first step leaves state behind: only its own record can be run again, not the step itself.
        before = {name: copy(tensor) for name, tensor in state_of(model, tokens=tokens).items()}
        run, constants, _ = record(step)
        found = replay(run, inputs_of(run, before, constants))
        assert last_values(run)
        for value in last_values(run):
            assert torch.equal(found[value.id], state_of(model)[value.name])
        return
    step()
    kind = type(optimizer).__name__
    parameters = dict(model.named_parameters())
    state = {
        f"{kind}.{key}.{name}": tensor
        for name, parameter in parameters.items()
        for key, tensor in optimizer.state[parameter].items()
        if isinstance(tensor, torch.Tensor)
    }
    grads = {f"{name}.grad": parameter.grad for name, parameter in parameters.items()}
    run = run_again(step, {**state_of(model, tokens=tokens), **state, **grads})
    assert {op.phase for op in run.ops} == {"forward", "backward", "optimizer"}


@pytest.mark.parametrize("sampling", [False, True], ids=["greedy", "sampling"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation(sampling: bool, cache: str) -> None:
    model, tokens = llama(), ids(2, 5)
    model.generation_config.pad_token_id = 0
    mask = torch.ones_like(tokens)

    def step() -> Any:
        return model.generate(
            tokens, attention_mask=mask, max_new_tokens=4, min_new_tokens=4, do_sample=sampling,
            cache_implementation=None if cache == "dynamic" else "static", disable_compile=True,
        )  # fmt: skip

    run = run_again(step, state_of(model, tokens=tokens, mask=mask))
    names = {op.name for op in run.ops}
    assert ("aten::multinomial" in names) == sampling
    if cache == "static":
        assert any(op.name.endswith("_") and run.values[op.outputs[0]].previous is not None for op in run.ops)


def test_a_cache_that_is_kept_between_steps() -> None:
    model, tokens = llama(), ids(1, 4)
    cache = transformers.StaticCache(model.config, max_cache_len=16)
    with torch.no_grad():
        model(ids(1, 3), past_key_values=cache)
    held = {
        f"cache.layers.{i}.{name}": getattr(layer, name)
        for i, layer in enumerate(cache.layers)
        for name in ("keys", "values")
    }

    def step() -> Any:
        with torch.no_grad():
            return model(tokens, past_key_values=cache, position_ids=torch.arange(3, 7)[None]).logits

    run = run_again(step, {**state_of(model, tokens=tokens), **held, **lengths(cache)})
    assert {value.name for value in run.values} >= set(held)


def lengths(cache: Any) -> dict[str, torch.Tensor]:
    """Return the counters of a cache, where they are tensors."""
    return {
        f"cache.layers.{i}.{name}": tensor
        for i, layer in enumerate(cache.layers)
        for name, tensor in vars(layer).items()
        if isinstance(tensor, torch.Tensor) and name not in ("keys", "values")
    }


def test_recurrent_nets() -> None:
    model = nn.ModuleDict({"lstm": nn.LSTM(4, 5, 2, dropout=0.5, bidirectional=True), "gru": nn.GRU(10, 3)})
    x = torch.randn(6, 2, 4)

    def step() -> Any:
        out, _ = model["lstm"](x)
        y, last = model["gru"](out)
        return y, torch.autograd.grad(last.sum(), list(model.parameters()))

    run_again(step, state_of(model, x=x))


def test_autocast_checkpointing_and_functions_of_the_users_own() -> None:
    """Without dropout: checkpointing sets random numbers back, which no operator does."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return gradient * 2 + x * 0

    model, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), torch.randn(3, 4)

    def step() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
            loss = Twice.apply(y).float().square().mean()
        return loss, torch.autograd.grad(loss, list(model.parameters()))

    run_again(step, state_of(model, x=x))


def test_a_program_that_writes_in_place_everywhere() -> None:
    x, table = torch.randn(4, 6), torch.zeros(10, 6)

    def step() -> Any:
        q, k, v = x.clone().split(2, dim=1)
        q.mul_(2)
        k[1:].copy_(q[:-1])
        torch.add(q, k, out=v)
        v.t()[0].fill_(3.0)
        table.index_add_(0, torch.tensor([1, 3, 3, 7]), torch.cat([q, k, v], dim=1))
        table[2:5] = torch.arange(6.0)
        table.masked_fill_(table > 4, -1.0)
        rows = table.unbind(0)
        rows[0].add_(rows[7])
        flat = table.view(-1)
        flat[::7] += 1
        bits = flat.view(torch.int32)
        bits &= 0x7FFFFFFF
        table.resize_(10, 6)
        return table.clone(), flat[:5], q._base.cumsum(0)

    run_again(step, {"x": x, "table": table})


def test_complex_and_low_precision_programs() -> None:
    z, w = torch.randn(4, dtype=torch.complex64), torch.randn(4, 4)

    def step() -> Any:
        spectrum = torch.fft.fft(z) * z.conj()
        small = w.to(torch.float8_e4m3fn).to(torch.bfloat16)
        quantised = torch.clamp((w / 0.1).round(), -128, 127).to(torch.int8)
        return spectrum.abs(), spectrum.real.contiguous(), small @ small, quantised.to(torch.int32).sum(), w > 0

    run_again(step, {"z": z, "w": w})


def test_empty_scalar_and_constant_tensors() -> None:
    x = torch.randn(3)

    def step() -> Any:
        scale = torch.tensor(2.5)
        table = torch.tensor([[1.0, 2.0, 4.0], [1.0, 3.0, 9.0]])
        return (
            x[:0].sum(),
            x.sum() * scale,
            table @ x,
            torch.zeros(0, 3) @ x,
            x.expand(2, 3).mean(0),
            x[torch.tensor([2, 0])],
        )

    run_again(step, {"x": x})
