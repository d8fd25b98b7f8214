"""The names of tensors in recordings of the systems of this folder: equal names, equal tensors.

A rule has a pattern of modules and, for each output, a name. With names of operators, these are the outputs of such
operators called by the module itself, in order; otherwise it is the output of the module, that of its last operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from joulediff.model.run import Op, Run

SPLITS = ("aten::split", "aten::split_with_sizes")


@dataclass(frozen=True)
class Rule:
    """Which tensors of a module have which names; `\\1` stands for a group of the pattern."""

    module: str
    names: tuple[str, ...]
    ops: tuple[str, ...] | None = None


def _modules(prefix: str, names: Mapping[str, str]) -> list[Rule]:
    return [Rule(prefix + re.escape(module), (name,)) for module, name in names.items()]


def _ops(module: str, ops: str | Sequence[str], *names: str) -> Rule:
    return Rule(module, names, (ops,) if isinstance(ops, str) else tuple(ops))


_LLAMA_HF, _LLAMA_PLAIN = r"model\.layers\.(\d+)", r"layers\.(\d+)"
_LLAMA_VLLM = r"LlamaForCausalLM\.model\.layers\.(\d+)"
_GPT2_HF, _GPT2_NANO = r"transformer\.h\.(\d+)", r"h\.(\d+)"
_BERT_HF, _BERT_TORCH = r"encoder\.layer\.(\d+)", r"layers\.layers\.(\d+)"

RULES: Mapping[str, Sequence[Rule]] = {
    "llama:hf": [
        *_modules("", {"model.embed_tokens": "embed"}),
        *_modules(
            _LLAMA_HF,
            {
                ".input_layernorm": r"\1.norm1",
                ".self_attn.q_proj": r"\1.q",
                ".self_attn.k_proj": r"\1.k",
                ".self_attn.v_proj": r"\1.v",
                ".self_attn.o_proj": r"\1.attention",
                ".post_attention_layernorm": r"\1.norm2",
                ".mlp.gate_proj": r"\1.gate",
                ".mlp.up_proj": r"\1.up",
                ".mlp.down_proj": r"\1.mlp",
            },
        ),
        _ops(_LLAMA_HF + r"\.mlp", "aten::mul", r"\1.gated"),
        _ops(_LLAMA_HF, "aten::add", r"\1.middle", r"\1.out"),
    ],
    "llama:plain": [
        *_modules("", {"embed": "embed"}),
        *_modules(
            _LLAMA_PLAIN,
            {
                ".norm1": r"\1.norm1",
                ".attention.out": r"\1.attention",
                ".norm2": r"\1.norm2",
                ".mlp.down": r"\1.mlp",
            },
        ),
        _ops(_LLAMA_PLAIN + r"\.attention", SPLITS, r"\1.q", r"\1.k", r"\1.v"),
        _ops(_LLAMA_PLAIN + r"\.mlp", SPLITS, r"\1.gate", r"\1.up"),
        _ops(_LLAMA_PLAIN + r"\.mlp", "aten::mul", r"\1.gated"),
        _ops(_LLAMA_PLAIN, "aten::add", r"\1.middle", r"\1.out"),
    ],
    "llama:vllm": [
        *_modules(
            _LLAMA_VLLM,
            {
                ".self_attn.o_proj": r"\1.attention",
                ".mlp.act_fn": r"\1.gated",
                ".mlp.down_proj": r"\1.mlp",
            },
        ),
        _ops(_LLAMA_VLLM + r"\.self_attn", SPLITS, r"\1.q", r"\1.k", r"\1.v"),
        _ops(_LLAMA_VLLM + r"\.input_layernorm", "_C::fused_add_rms_norm", r"\1.norm1"),
        _ops(_LLAMA_VLLM + r"\.post_attention_layernorm", "_C::fused_add_rms_norm", r"\1.norm2", r"\1.middle"),
    ],
    "gpt2:hf": [
        *_modules("", {"transformer.ln_f": "norm", "lm_head": "logits"}),
        *_modules(
            _GPT2_HF,
            {
                ".ln_1": r"\1.norm1",
                ".attn.c_proj": r"\1.attention",
                ".ln_2": r"\1.norm2",
                ".mlp.c_fc": r"\1.inner",
                ".mlp.act": r"\1.active",
                ".mlp.c_proj": r"\1.mlp",
            },
        ),
        _ops(_GPT2_HF + r"\.attn", SPLITS, r"\1.q", r"\1.k", r"\1.v"),
        _ops(_GPT2_HF, "aten::add", r"\1.middle", r"\1.out"),
    ],
    "gpt2:nano": [
        *_modules("", {"ln_f": "norm"}),
        _ops("", "aten::_unsafe_view", "logits"),
        *_modules(
            _GPT2_NANO,
            {
                ".ln_1": r"\1.norm1",
                ".attn.c_proj": r"\1.attention",
                ".ln_2": r"\1.norm2",
                ".mlp.c_fc": r"\1.inner",
                ".mlp.c_proj": r"\1.mlp",
            },
        ),
        _ops(_GPT2_NANO + r"\.mlp", "aten::gelu", r"\1.active"),
        _ops(_GPT2_NANO + r"\.attn", SPLITS, r"\1.q", r"\1.k", r"\1.v"),
        _ops(_GPT2_NANO, "aten::add", r"\1.middle", r"\1.out"),
    ],
    "bert:hf": [
        *_modules("", {"embeddings": "embed"}),
        *_modules(
            _BERT_HF,
            {
                ".attention.output.LayerNorm": r"\1.norm1",
                ".intermediate.dense": r"\1.inner",
                ".intermediate.intermediate_act_fn": r"\1.active",
                ".output.dense": r"\1.mlp",
                ".output.LayerNorm": r"\1.norm2",
            },
        ),
    ],
    "bert:encoder": [
        *_modules("", {"norm": "embed"}),
        *_modules(
            _BERT_TORCH,
            {".norm1": r"\1.norm1", ".linear1": r"\1.inner", ".linear2": r"\1.mlp", ".norm2": r"\1.norm2"},
        ),
        _ops(_BERT_TORCH, "aten::gelu", r"\1.active"),
    ],
}


def label_values(run: Run, system: str) -> dict[str, int]:
    """Return the values of a recording that have a name."""
    found: dict[str, int] = {}
    for rule in RULES[system]:
        for name, value in _apply(run, rule):
            found.setdefault(name, value)
    return found


def _apply(run: Run, rule: Rule) -> Iterator[tuple[str, int]]:
    ops: dict[str, list[Op]] = {}
    pattern = re.compile(rule.module)
    for op in run.ops:
        # The output of a module may be that of an operator of one of its parts.
        match = None if op.module is None else pattern.fullmatch(op.module) if rule.ops else pattern.match(op.module)
        if match and (rule.ops or op.module[match.end() :][:1] in ("", ".")):
            ops.setdefault(match[0], []).append(op)
    for module, called in ops.items():
        match = pattern.fullmatch(module)
        assert match is not None
        if rule.ops is None:
            values = made_by(called[-1])[:1]
        else:
            values = [value for op in called if op.name in rule.ops for value in made_by(op)]
        for name, value in zip(rule.names, values, strict=False):
            yield match.expand(name), value


def made_by(op: Op) -> list[int]:
    """Return the tensors that an operator returns or writes."""
    return [*op.outputs, *(value for value in op.writes if value not in op.outputs)]
