"""Pairs of deep programs that differ in one node of one layer, and equal pairs: is the difference found, and where.

The rule for a change that must be found: it changes the output of its node by at least `CLEARLY` times the rounding
error of the float type, as a share of the norm (`size_of_change`, computed in float64 on the inputs that the node has
in the program). A smaller one cannot be told from another kernel. The epsilon of a norm is chosen by this rule: the
smallest of `EPSILONS` that is above it; the scale of attention likewise. The activations GELU and GELU by tanh are too
similar for bfloat16, so only programs in float32 have them. `make_case` raises if a change is below the rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.nn import functional

from joulediff.model.finding import Divergence
from joulediff.model.run import Run
from rewrites.layers import Family, find_nodes, layers_of, make_layers, record_layers, write_layers
from rewrites.nodes import EPSILON, HEADS, KINDS, Tensor, Variant
from rewrites.programs import Program

ChangeKind = Literal["epsilon", "activation", "residual", "scale"]
CHANGES: tuple[ChangeKind, ...] = ("epsilon", "activation", "residual", "scale")
LAYERS = 16
CASES = 20
CLEARLY = 4.0
# Relative rounding error of a result: of one rounding in bfloat16, of a product of some hundred elements in float32.
ROUNDING = {torch.float32: 1e-6, torch.bfloat16: 2**-8}
EPSILONS = tuple(EPSILON * 10**power for power in range(1, 8))
# The styles of the two sides, and whether the kernels of b round otherwise, too.
_STYLES = (
    ("fused", "fused", False),
    ("fused", "eager", False),
    ("eager", "wide stream", False),
    ("float32", "float32", True),
    ("any", "any", True),
)
# What each layer adds to the residual stream; trained models begin with a stream far below 1.
_STREAMS = (1.0, 0.1)


@dataclass(frozen=True)
class Case:
    """Two recordings; `layer` differs between them, None if they are equal."""

    name: str
    a: Run
    b: Run
    family: Family
    layers: int
    layer: int | None

    def is_found(self, divergences: Sequence[Divergence]) -> bool:
        """Return whether the first divergence begins in the layer that differs; for equal programs, there is none."""
        if self.layer is None or not divergences:
            return self.layer is None and not divergences
        begins = [found[0] for found in self._layers_of(divergences[0]) if found]
        # A dropped sum is an operator of one side alone: the other side goes on with the next layer, or after the last.
        return self.layer in begins and min(begins) == self.layer

    def where(self, divergences: Sequence[Divergence]) -> str:
        """Return the layers of the first divergence as text."""
        if not divergences:
            return "no divergence"
        sides = [sorted(set(map(str, found))) for found in self._layers_of(divergences[0])]
        return f"first in the layers {sides[0]} of a and {sides[1]} of b, {len(divergences)} in all"

    def _layers_of(self, divergence: Divergence) -> list[list[int]]:
        sides = ((self.a, divergence.a), (self.b, divergence.b))
        return [layers_of(run, ops, self.family, self.layers) for run, ops in sides]


def make_case(kind: ChangeKind | None, number: int, *, layers: int = LAYERS, **sizes: Any) -> Case:
    """Return one of the `CASES` cases of a kind of change; without a kind, equal programs.

    Both families, both float types and all pairs of styles take turns; layer and side are drawn.
    """
    chance = random.Random(f"{kind} {number}")
    family: Family = ("llama", "gpt")[number % 2]
    dtype = (torch.float32, torch.bfloat16)[number // 2 % 2]
    style_a, style_b, other_kernels = _STYLES[number // 4 % len(_STYLES)]
    layer, side = chance.randrange(layers), chance.randrange(2)
    is_exact = kind == "activation" and family == "gpt" and dtype == torch.float32
    program = make_layers(
        family,
        layers,
        seed=number,
        activation="gelu_exact" if is_exact else "gelu",
        stream=chance.choice(_STREAMS),
        **sizes,
    )
    changes: list[dict[int, Callable[[Variant], Variant]]] = [{}, {}]
    text = "equal"
    if kind is not None:
        text, node, change = _CHANGES[kind](program, family, layers, layer, dtype, chance)
        size = size_of_change(program, node, change)
        if size < CLEARLY * ROUNDING[dtype]:
            raise ValueError(f"{text} changes its output by {size:.1e} only")
        changes[side][node] = change
        text = f"{text} in layer {layer} of {'ab'[side]}, by {size:.1e}"
    name = f"{number}: {family}, {str(dtype).rpartition('.')[2]}, {style_a} ↔ {style_b}, {text}"
    # The seed draws the order of independent nodes, and the variants of the style `any`.
    seed_b = 1 if style_a == style_b != "any" else 2
    a = record_layers(program, style_a, dtype=dtype, seed=1, changes=changes[0])
    kernels = number if other_kernels else None
    b = record_layers(program, style_b, dtype=dtype, seed=seed_b, changes=changes[1], other_kernels=kernels)
    return Case(name, a, b, family, layers, None if kind is None else layer)


def size_of_change(program: Program, node: int, change: Callable[[Variant], Variant]) -> float:
    """Return by how much a change moves the output of its node, as a share of the norm."""
    found: list[float] = []

    def watch(variant: Variant) -> Variant:
        def run(*tensors: Tensor) -> Tensor:
            before, after = variant(*tensors), change(variant)(*tensors)
            found.append(float((before - after).norm() / before.norm()))
            return before  # type: ignore[no-any-return]

        return run

    write_layers(program, "fused", dtype=torch.float64, changes={node: watch})()
    return found[0]


Made = tuple[str, int, Callable[[Variant], Variant]]


def _with(variant: Variant, **options: Any) -> Variant:
    return partial(variant, **options)


def _change_epsilon(
    program: Program, family: Family, layers: int, layer: int, dtype: torch.dtype, chance: random.Random
) -> Made:
    norm = "rms_norm" if family == "llama" else "layer_norm"
    node = chance.choice(find_nodes(program, family, layers, layer, norm))
    eps = _choose(program, node, dtype, "eps", EPSILONS)
    return f"epsilon {EPSILON:.0e} → {eps:.0e}", node, partial(_with, eps=eps)


def _change_activation(
    program: Program, family: Family, layers: int, layer: int, dtype: torch.dtype, chance: random.Random
) -> Made:
    if family == "llama":
        (node,) = find_nodes(program, family, layers, layer, "swiglu")
        return "silu → gelu", node, partial(_with, activation=functional.gelu)
    if dtype == torch.float32:
        (node,) = find_nodes(program, family, layers, layer, "gelu_exact")
        return "gelu → gelu by tanh", node, lambda variant: KINDS["gelu"].variants["fused"]
    (node,) = find_nodes(program, family, layers, layer, "gelu")
    return "gelu → silu", node, lambda variant: functional.silu


def _drop_residual(
    program: Program, family: Family, layers: int, layer: int, dtype: torch.dtype, chance: random.Random
) -> Made:
    node = chance.choice(find_nodes(program, family, layers, layer, "add"))
    return "a dropped residual", node, lambda variant: lambda x, y: y


def _change_scale(
    program: Program, family: Family, layers: int, layer: int, dtype: torch.dtype, chance: random.Random
) -> Made:
    """By the width of the model, by the whole width of a head instead of its root, or none."""
    (node,) = find_nodes(program, family, layers, layer, "attention")
    width = program.x.shape[1]
    scale = _choose(program, node, dtype, "scale", (width**-0.5, HEADS / width, 1.0))
    return f"scale {(width / HEADS) ** -0.5:.3g} → {scale:.3g}", node, partial(_with, scale=scale)


def _choose(program: Program, node: int, dtype: torch.dtype, option: str, numbers: Sequence[float]) -> float:
    """Return the first number that changes the output by enough; the last one if none does."""
    for number in numbers:
        if size_of_change(program, node, partial(_with, **{option: number})) >= CLEARLY * ROUNDING[dtype]:
            break
    return number


_CHANGES: dict[ChangeKind, Callable[..., Made]] = {
    "epsilon": _change_epsilon,
    "activation": _change_activation,
    "residual": _drop_residual,
    "scale": _change_scale,
}
