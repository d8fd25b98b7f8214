"""Random programs of nodes, written in two variants, and scores of the matches of their recordings.

Every operator is recorded under the name of its node, so the true correspondence is known: operators of the two runs
belong together if and only if they have the same node. A product of a node with several is named after its part, and a
merged product after all of them. Operators that only move data have no node; they are known by name, because matching
must not decide what it is judged by.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from joulediff.frameworks.named_regions import region
from joulediff.frameworks.torch.capture.capture import capture_step
from joulediff.model.finding import Region
from joulediff.model.run import Run
from rewrites.moves import MOVES
from rewrites.nodes import KINDS, NO_OPS, Kind, Tensor, Variant

TOKENS, WIDTH = 24, 32
NO_OP = "no-op"


@dataclass(frozen=True)
class Node:
    """One node. `reads` are the numbers of results of other nodes; -1 is the input."""

    kind: str
    reads: tuple[int, ...]
    results: int = 1


def make_nodes(chance: random.Random, depth: int) -> list[Node]:
    """Return a program of about `depth` nodes: residual layers, as models have, ending in a loss."""
    nodes: list[Node] = []
    results = 0

    def add(kind: str, *reads: int, count: int = 1) -> int:
        nonlocal results
        nodes.append(Node(kind, reads, count))
        results += count
        return results - count

    x = add("linear", -1)
    while len(nodes) < depth - 1:
        normed = add(chance.choice(["layer_norm", "rms_norm"]), x)
        layer = chance.choice(["mlp", "attention", "swiglu", "branches", "softmax", "scale"])
        if layer == "mlp":
            y = add("linear", add(chance.choice(["gelu", "silu"]), add("linear", normed)))
        elif layer == "attention":
            q = add("qkv", normed, count=3)
            y = add("linear", add("attention", q, q + 1, q + 2))
        elif layer == "swiglu":
            y = add("linear", add("swiglu", normed))
        elif layer == "branches":
            y = add("add", add("linear", normed), add("gelu", add("linear", normed)))
        else:
            y = add(layer, add("linear", normed))
        x = add("add", x, y)
    add("loss", x)
    return nodes


@dataclass(frozen=True)
class Program:
    """Nodes and their weights."""

    nodes: Sequence[Node]
    weights: Sequence[Sequence[Tensor]]
    x: Tensor
    targets: Tensor


def make_program(
    chance: random.Random,
    depth: int,
    *,
    nodes: Sequence[Node] | None = None,
    tokens: int = TOKENS,
    width: int = WIDTH,
) -> Program:
    """Return a random program of about `depth` nodes, or one of the given nodes with random weights."""
    generator = torch.Generator().manual_seed(chance.randrange(2**32))

    def draw(*shape: int) -> Tensor:
        scale = shape[-1] ** -0.5 if len(shape) > 1 else 0.3
        return torch.randn(shape, generator=generator, dtype=torch.float64) * scale + (len(shape) == 1)

    nodes = make_nodes(chance, depth) if nodes is None else nodes
    weights = [[draw(*shape) for shape in KINDS[node.kind].shapes(width)] for node in nodes]
    targets = torch.randint(0, 4 * width, (tokens,), generator=generator)
    return Program(nodes, weights, draw(tokens, width), targets)


def write_step(
    program: Program,
    chance: random.Random,
    *,
    dtype: torch.dtype = torch.float32,
    no_ops: float = 0.0,
    kinds: Mapping[str, Kind] = KINDS,
    changes: Mapping[int, Callable[[Variant], Variant]] | None = None,
) -> Callable[[], Any]:
    """Return a step that computes a program: a random variant of each node, independent nodes in a random order.

    `changes` are the nodes that this step computes otherwise: a function of the variant that was chosen.
    """
    variants = [chance.choice(list(kinds[node.kind].variants.values())) for node in program.nodes]
    for number, change in (changes or {}).items():
        variants[number] = change(variants[number])
    weights = [[each.to(dtype) for each in row] for row in program.weights]
    x = program.x.to(dtype)
    firsts, results = [], 0
    for node in program.nodes:
        firsts.append(results)
        results += node.results
    order = _shuffle(program.nodes, firsts, chance)
    extras = [chance.choice(NO_OPS) if chance.random() < no_ops else None for _ in program.nodes]

    def step() -> Any:
        found: dict[int, Tensor] = {-1: x}
        with torch.no_grad():
            for number in order:
                node, inputs = program.nodes[number], [found[read] for read in program.nodes[number].reads]
                no_op = extras[number]
                if no_op is not None and node.kind not in ("attention", "rotary"):
                    with region(NO_OP):
                        inputs[0] = no_op(inputs[0])
                with region(str(number)):
                    targets = (program.targets,) if node.kind == "loss" else ()
                    made = variants[number](*weights[number], *targets, *inputs)
                for at, each in enumerate(made if node.results > 1 else [made]):
                    found[firsts[number] + at] = each
        return made

    return step


def _shuffle(nodes: Sequence[Node], firsts: Sequence[int], chance: random.Random) -> list[int]:
    """Return a random order of nodes in which each node follows those it reads from."""
    maker = {first + at: number for number, first in enumerate(firsts) for at in range(nodes[number].results)}
    waiting = {number: {maker[read] for read in node.reads if read >= 0} for number, node in enumerate(nodes)}
    order: list[int] = []
    while waiting:
        ready = sorted(number for number, needs in waiting.items() if not needs)
        order.append(chance.choice(ready))
        del waiting[order[-1]]
        for needs in waiting.values():
            needs.discard(order[-1])
    return order


def record_step(step: Callable[[], Any]) -> Run:
    """Return a run with the operators and values of a step, and nothing measured."""
    found = capture_step(step)
    return Run(
        "program",
        None,
        "2026-11-20T10:31:22+00:00",
        "0.2.0",
        ops=found.ops,
        values=found.values,
        signatures=found.signatures,
        frames=found.frames,
    )


@dataclass(frozen=True)
class Score:
    """The counts that the quality of a match is computed from."""

    pairs: int
    """Regions of the kind `equal`."""
    wrong: int
    """Pairs whose sides belong to different nodes, or to different parts of a node."""
    nodes: int
    """Nodes; for a node with parts, its parts, where those that a run merges count as one."""
    found: int
    """Nodes whose operators are all in regions of their own."""

    @property
    def precision(self) -> float:
        return 1.0 - self.wrong / self.pairs if self.pairs else 1.0

    @property
    def recall(self) -> float:
        return self.found / self.nodes if self.nodes else 1.0

    @property
    def f1(self) -> float:
        return 2 * self.precision * self.recall / (self.precision + self.recall or 1.0)


Label = Callable[[Run, int], "str | None"]


def judge(a: Run, b: Run, regions: Sequence[Region], label: Label) -> Score:
    """Return the score of a match. `label` returns the node of an operator; None for an operator without one.

    Operators that move data are left out: they read and make the same value, so they fit any node.
    """
    parts = [[_parts_of(run, op, label) for op in range(len(run.ops))] for run in (a, b)]
    whole = _merge(each for side in parts for each in side)
    pairs = wrong = 0
    around: dict[tuple[int, int], set[str]] = {}
    for each in regions:
        sides = [set().union(*(side[op] for op in ops)) for side, ops in zip(parts, (each.a, each.b), strict=True)]
        if each.kind == "equal":
            pairs += 1
            wrong += sides[0] != sides[1]
        together = set() if each.kind == "movement" else {whole[part] for part in sides[0] | sides[1]}
        for side, ops in enumerate((each.a, each.b)):
            around |= {(side, op): together for op in ops}
    spoiled = {
        whole[part]
        for side, labels in enumerate(parts)
        for op, found in enumerate(labels)
        for part in found
        if around.get((side, op)) not in ({whole[part]}, set())
    }
    nodes = set(whole.values())
    return Score(pairs, wrong, len(nodes), len(nodes - spoiled))


def _parts_of(run: Run, op: int, label: Label) -> frozenset[str]:
    """Return the node of an operator, or the parts of one: `4/gate+up` names two."""
    name = None if run.ops[op].name in MOVES else label(run, op)
    if name is None:
        return frozenset()
    node, slash, part = name.rpartition("/")
    return frozenset(f"{node}{slash}{each}" for each in part.split("+"))


def _merge(labels: Iterable[frozenset[str]]) -> dict[str, str]:
    """Return for each part the name of all that are merged with it in one of the runs."""
    groups: dict[str, set[str]] = {}
    for each in labels:
        group = set(each).union(*(groups.get(part, set()) for part in each))
        groups |= dict.fromkeys(group, group)
    return {part: "+".join(sorted(group)) for part, group in groups.items()}


def node_of(run: Run, op: int) -> str | None:
    """Return the node of an operator of a random program; None for an operator that changes no value."""
    name = run.ops[op].region
    return None if name == NO_OP else name
