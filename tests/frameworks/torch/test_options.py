"""The leaves of PyTorch's objects, and of models and configurations of Hugging Face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from joulediff.frameworks.state_leaves import leaves_set, read_leaves
from joulediff.frameworks.torch.options import read_constant
from joulediff.model.errors import JoulediffError

Step = Callable[[], Any]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.5
        self.dtype = torch.float32
        self.drop = nn.Dropout(0.3)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.drop(x)) * self.scale


def build_training(**options: Any) -> Step:
    model, x = nn.Sequential(Block(), Block()), torch.ones(2, 8)
    opt = torch.optim.AdamW(model.parameters(), **options)

    def step() -> torch.Tensor:
        opt.zero_grad()
        loss = model(x).sum()
        loss.backward()
        opt.step()
        return loss.detach()

    return step


def test_modules_and_optimizers_have_their_options() -> None:
    found = read_leaves(build_training(foreach=False))
    expected = {
        "model.training": True,
        "model.1.scale": 0.5,
        "model.1.dtype": "float32",
        "model.0.drop.p": 0.3,
        "model.0.drop.hooks": 0,
        "opt.param_groups[0]['foreach']": False,
        "opt.param_groups[0]['betas']": "(0.9, 0.999)",
        "opt.defaults['foreach']": False,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not [name for name in found if "_parameters" in name or "features" in name or "params'" in name]


def test_a_data_loader_has_its_options() -> None:
    loader = torch.utils.data.DataLoader(torch.arange(8), batch_size=4)
    found = read_leaves(lambda: loader)
    assert (found["loader.num_workers"], found["loader.batch_size"], found["loader.pin_memory"]) == (0, 4, False)


def test_an_option_is_a_type_again_when_it_is_set() -> None:
    block = Block()
    with leaves_set(lambda: block, {"block.dtype": "bfloat16", "block.training": False}):
        assert block.dtype is torch.bfloat16
        assert block.training is False
    assert block.dtype is torch.float32
    assert block.training
    with (
        pytest.raises(JoulediffError, match="float17 is no dtype"),
        leaves_set(lambda: block, {"block.dtype": "float17"}),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("float16", torch.float16),
        ("channels_last", torch.channels_last),
        ("strided", torch.strided),
        ("cuda:1", torch.device("cuda", 1)),
        ("nn", None),
        ("__dict__", None),
        ("sdpa", None),
    ],
)
def test_constants_by_their_text(text: str, expected: object) -> None:
    assert read_constant(text) == expected


def test_another_option_of_an_optimizer_acts() -> None:
    step = build_training(foreach=False)
    step()
    with leaves_set(step, {"opt.param_groups[0]['foreach']": True}), torch.profiler.profile() as trace:
        step()
    assert "aten::_foreach_lerp_" in {each.key for each in trace.key_averages()}
    assert read_leaves(step)["opt.param_groups[0]['foreach']"] is False


def test_the_fused_option_acts_and_is_undone() -> None:
    step = build_training()
    step()
    with leaves_set(step, {"opt.param_groups[0]['fused']": True}), torch.profiler.profile() as trace:
        step()
    assert "aten::_fused_adamw_" in {each.key for each in trace.key_averages()}
    step()


def test_hooks_are_counted_and_can_be_removed() -> None:
    block, calls = Block(), []
    block.register_forward_hook(lambda *_: calls.append(1))
    step = lambda: block(torch.ones(2, 8))  # noqa: E731
    assert read_leaves(step)["block.hooks"] == 1
    with leaves_set(step, {"block.hooks": 0}):
        step()
    assert calls == []
    step()
    assert calls == [1]
    with pytest.raises(JoulediffError, match="not added"), leaves_set(step, {"block.hooks": 2}):
        pass


def test_names_of_a_compiled_model_are_its_own() -> None:
    model = torch.compile(Block())
    assert read_leaves(lambda: model)["model.scale"] == 0.5


class TestGpt2:
    """A small GPT-2 of Hugging Face."""

    @staticmethod
    def build(layers: int = 2, *, attention: str = "sdpa", checkpoint: bool = False) -> Step:
        from transformers import GPT2Config, GPT2LMHeadModel

        sizes = {"n_layer": layers, "n_embd": 32, "n_head": 2, "vocab_size": 64}
        config = GPT2Config(**sizes, attn_implementation=attention, bos_token_id=1, eos_token_id=1)
        model, ids = GPT2LMHeadModel(config).train(), torch.ones(1, 8, dtype=torch.long)
        if checkpoint:
            model.gradient_checkpointing_enable()
        return lambda: model(ids).logits

    def differing(self, **options: Any) -> set[str]:
        a, b = read_leaves(self.build()), read_leaves(self.build(**options))
        return {path for path in a.keys() & b.keys() if a[path] != b[path]}

    def test_configurations_are_read(self) -> None:
        found = read_leaves(self.build())
        assert found["model.config.use_cache"] is True
        assert found["model.generation_config.use_cache"] is True
        assert found["model.config.activation_function"] == "gelu_new"

    def test_what_differs(self) -> None:
        assert self.differing() == set()
        assert "model.config._attn_implementation" in self.differing(attention="eager")
        found = self.differing(checkpoint=True)
        assert {"model.transformer.gradient_checkpointing", "model.transformer.h.1.gradient_checkpointing"} <= found

    def test_the_choice_of_attention_acts(self) -> None:
        step = self.build(attention="eager")
        with leaves_set(step, {"model.config._attn_implementation": "sdpa"}), torch.profiler.profile() as trace:
            step()
        assert "aten::scaled_dot_product_attention" in {each.key for each in trace.key_averages()}
        with torch.profiler.profile() as trace:
            step()
        assert "aten::scaled_dot_product_attention" not in {each.key for each in trace.key_averages()}

    def test_a_model_of_twelve_layers_has_hundreds_of_leaves(self) -> None:
        found = read_leaves(self.build(layers=12))
        assert 500 < len(found) < 2000
