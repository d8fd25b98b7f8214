"""Deep programs: layers of a transformer, written in one of the styles of `drift`, with one node changed on request."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from joulediff.model.run import Run
from rewrites.drift import FaithfulRounding, kinds_of
from rewrites.moves import MOVES
from rewrites.nodes import Variant
from rewrites.programs import Node, Program, make_program, record_step, write_step

Family = Literal["llama", "gpt"]
TOKENS, WIDTH = 64, 128
# The spread of biases, as a share of the spread of gains.
BIAS = 0.2
# The nodes of a layer by the place in it, and what each reads: places in the layer, x for its input, c and s for the
# cosines and sines of the positions.
_LAYERS: Mapping[Family, tuple[tuple[str, str, int], ...]] = {
    "llama": (
        ("rms_norm", "x", 1),
        ("qkv", "0", 3),
        ("rotary", "1 c s", 1),
        ("rotary", "2 c s", 1),
        ("attention", "4 5 3", 1),
        ("linear", "6", 1),
        ("add", "x 7", 1),
        ("rms_norm", "8", 1),
        ("swiglu", "9", 1),
        ("linear", "10", 1),
        ("add", "8 11", 1),
    ),
    "gpt": (
        ("layer_norm", "x", 1),
        ("qkv", "0", 3),
        ("attention", "1 2 3", 1),
        ("linear", "4", 1),
        ("add", "x 5", 1),
        ("layer_norm", "6", 1),
        ("linear", "7", 1),
        ("gelu", "8", 1),
        ("linear", "9", 1),
        ("add", "6 10", 1),
    ),
}
_FIRST: Mapping[Family, int] = {"llama": 2, "gpt": 1}


def make_layers(
    family: Family,
    layers: int,
    *,
    seed: int = 0,
    tokens: int = TOKENS,
    width: int = WIDTH,
    activation: str = "gelu",
    stream: float = 1.0,
) -> Program:
    """Return a program of this number of layers, with random weights.

    `activation` is the kind of node between the products of the family `gpt`. `stream` scales the input of the first
    layer and what each layer adds to it: trained models begin with a stream far below 1.
    """
    nodes = [Node("linear", (-1,))]
    if family == "llama":
        nodes.append(Node("angles", (-1,), 2))
    names = {"c": 1, "s": 2}
    x, results = 0, sum(node.results for node in nodes)
    for _ in range(layers):
        places = {"x": x, **names}
        first = results
        for kind, reads, count in _LAYERS[family]:
            found = tuple(places[each] if each in places else first + int(each) for each in reads.split())
            nodes.append(Node(activation if kind == "gelu" else kind, found, count))
            results += count
        x = results - 1
    nodes += [Node(_LAYERS[family][0][0], (x,)), Node("loss", (results,))]
    program = make_program(random.Random(seed), 0, nodes=nodes, tokens=tokens, width=width)
    for number, node in enumerate(nodes):
        weights = program.weights[number]
        if node.kind in ("linear", "layer_norm"):
            # Biases around 0: with those around 1 all tokens become alike after a few layers.
            weights[1].sub_(1.0).mul_(BIAS)
        if node.kind == "linear" and (number == 0 or nodes[number + 1].kind == "add"):
            for each in weights:
                each.mul_(stream)
    return program


def place_of(family: Family, layers: int, node: int) -> tuple[int, int] | None:
    """Return the layer of a node and its place there; None for a node outside of the layers."""
    size = len(_LAYERS[family])
    layer, place = divmod(node - _FIRST[family], size)
    return (layer, place) if 0 <= layer < layers else None


def find_nodes(program: Program, family: Family, layers: int, layer: int, kind: str) -> list[int]:
    """Return the nodes of a kind in one layer."""
    return [
        number
        for number, node in enumerate(program.nodes)
        if node.kind == kind and (at := place_of(family, layers, number)) is not None and at[0] == layer
    ]


def write_layers(
    program: Program,
    style: str,
    *,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    changes: Mapping[int, Callable[[Variant], Variant]] | None = None,
) -> Callable[[], Any]:
    """Return a step in a style; the style `any` draws the variant of each node."""
    chance = random.Random(seed)
    return write_step(program, chance, dtype=dtype, kinds=kinds_of(style), changes=changes)


def record_layers(program: Program, style: str, *, other_kernels: int | None = None, **options: Any) -> Run:
    """Return the recording of a program in a style. `other_kernels` is the seed of `FaithfulRounding`."""
    step = write_layers(program, style, **options)
    if other_kernels is None:
        return record_step(step)
    with FaithfulRounding(other_kernels):
        return record_step(step)


def layers_of(run: Run, ops: tuple[int, ...], family: Family, layers: int) -> list[int]:
    """Return the layers of operators that compute, in their order; -1 before the layers, their number after them."""
    found = []
    for op in ops:
        name = run.ops[op].region
        if run.ops[op].name not in MOVES and name is not None:
            node = int(name.partition("/")[0])
            at = place_of(family, layers, node)
            found.append(at[0] if at is not None else -1 if node < _FIRST[family] else layers)
    return found
