"""Measure how far the sketches of equal tensors are apart, and those of all others.

    python benchmarks/systems/margins.py llama:hf A.jd llama:vllm B.jd
    python benchmarks/systems/margins.py            records small models on the CPU, in bfloat16

Equal tensors are known by construction: `labels.py` names them by module and operator in both recordings. Every named
tensor of A is compared with all tensors of B that have as many elements. Left out: tensors of B that hold the same
values as the equal one (views, copies, casts and products with ones). The distance is that of the sketches, each times
the norm of its tensor, over the larger norm: it estimates how far the tensors are apart. The distance of the sketches
alone is shown, too; it does not tell a tensor from its multiples. The small models run on one machine, so B's kernels
round otherwise (`FaithfulRounding` of tests/rewrites/drift.py).
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from labels import label_values

from joulediff.archive.reader import load
from joulediff.matching.disjoint_sets import DisjointSets
from joulediff.model.signature import SKETCH_STEP
from rewrites.moves import MOVES

# Pairs of small models that are recorded on the CPU: file, and the systems with the functions that build them.
PAIRS = (
    ("llama", ("llama:hf", "hf8"), ("llama:plain", "plain8")),
    ("gpt2", ("gpt2:hf", "hf"), ("gpt2:nano", "nano")),
    ("bert", ("bert:hf", "hf"), ("bert:encoder", "encoder")),
)
EDGES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
SHOWN = 4


def sketch_of(run, value):
    signature = run.values[value].signature
    found = None if signature is None else run.signatures[signature].sketch
    return None if found is None else np.array(found) * SKETCH_STEP


def norm_of(run, value):
    return math.sqrt(run.signatures[run.values[value].signature].sum_x2)


def count_of(run, value):
    return run.signatures[run.values[value].signature].count


def find_same(run):
    """Return for each value a number that all views, copies and casts of it have, in any order of elements."""
    sets = DisjointSets(len(run.values))
    signed = [value.signature is not None for value in run.values]
    for op in run.ops:
        sources = [value for value in op.inputs if signed[value]]
        made = [value for value in (*op.outputs, *op.writes) if signed[value]]
        if op.name == "aten::mul" and len(sources) == 2:
            sources = [value for value in sources if not is_ones(run, value)]
            is_moved = len(sources) == 1
        else:
            is_moved = op.name in MOVES
        for value in made:
            if is_moved and sources and count_of(run, value) == count_of(run, sources[-1]):
                sets.merge(value, sources[-1])
    return [sets.find(value) for value in range(len(run.values))]


def is_ones(run, value):
    """Return whether all elements are 1, as the gains of an untrained model."""
    signature = run.signatures[run.values[value].signature]
    return signature.constant and signature.low == 1.0


def measure(a, b, system_a, system_b):
    """Return the distances of equal tensors and of all others, each with a text that names the two tensors."""
    named_a, named_b = label_values(a, system_a), label_values(b, system_b)
    same, makers = find_same(b), {value: op for op in b.ops for value in (*op.outputs, *op.writes)}
    by_count = {}
    for value in b.values:
        if sketch_of(b, value.id) is not None:
            by_count.setdefault(count_of(b, value.id), []).append(value.id)
    tables = {count: np.array([sketch_of(b, each) for each in values]) for count, values in by_count.items()}
    equal, others = [], []
    for name, value in named_a.items():
        sketch, count = sketch_of(a, value), count_of(a, value)
        if name not in named_b or sketch is None or count not in tables:
            continue
        right = named_b[name]
        if count_of(b, right) != count:
            raise ValueError(f"{name} has {count} elements in {system_a} and {count_of(b, right)} in {system_b}")
        norm, norms = norm_of(a, value), np.array([norm_of(b, each) for each in by_count[count]])
        gaps = np.linalg.norm(tables[count] * norms[:, None] - sketch * norm, axis=1) / np.maximum(norms, norm)
        alone = np.linalg.norm(tables[count] - sketch, axis=1)
        for gap, angle, each in zip(gaps.tolist(), alone.tolist(), by_count[count], strict=True):
            maker = makers.get(each)
            text = f"{maker.name} in {maker.module}" if maker else b.values[each].name
            if each == right:
                equal.append((gap, angle, name))
            elif same[each] != same[right]:
                others.append((gap, angle, f"{name} and the output of {text}"))
    return sorted(equal), sorted(others)


def judge(a, b, system_a, system_b):
    """Print and return the figures of one pair."""
    equal, others = measure(a, b, system_a, system_b)
    if not equal or not others:
        raise ValueError(f"{system_a} and {system_b} have no named tensors with sketches in common")
    largest, smallest = equal[-1][0], others[0][0]
    figures = {"pair": f"{system_a} ↔ {system_b}", "equal": len(equal), "largest": largest}
    figures |= {"others": len(others), "smallest": smallest, "median": others[len(others) // 2][0]}
    figures["equal above the smallest"] = sum(each[0] > smallest for each in equal)
    figures["others below the largest"] = sum(each[0] < largest for each in others)
    figures["sketches alone"] = {"largest": max(each[1] for each in equal), "smallest": min(each[1] for each in others)}
    edges = (0.0, *EDGES, math.inf)
    figures["histogram"] = [
        {"from": low, "to": high, "equal": count_between(equal, low, high), "others": count_between(others, low, high)}
        for low, high in itertools.pairwise(edges)
    ]
    print(f"  {figures['pair']}: {len(equal)} equal tensors at most {largest:.4f} apart, ", end="")
    print(f"{len(others):,} others at least {smallest:.4f}, half of them {figures['median']:.2f}")
    alone = figures["sketches alone"]
    print(f"    sketches alone: equal at most {alone['largest']:.4f}, others at least {alone['smallest']:.4f}")
    for each in figures["histogram"]:
        print(f"    {each['from']:5.2f} to {each['to']:4.2f}: {each['equal']:6,} equal, {each['others']:9,} others")
    for what, pairs in (("farthest equal", equal[: -SHOWN - 1 : -1]), ("nearest others", others[:SHOWN])):
        for gap, _, text in pairs:
            print(f"    {what}: {gap:.4f}, {text}")
    return figures


def count_between(pairs, low, high):
    return sum(low <= each[0] < high for each in pairs)


def judge_small():
    """Record small models on the CPU and return the figures of all pairs."""
    os.environ |= {"SYSTEMS_SIZE": "small", "SYSTEMS_DTYPE": "bfloat16"}
    os.environ.setdefault("SYSTEMS_FOLDER", tempfile.mkdtemp())
    import torch

    from joulediff.pysource.programs import load_step
    from rewrites.drift import FaithfulRounding
    from rewrites.programs import record_step

    torch.set_num_threads(1)
    found = []
    for file, *sides in PAIRS:
        path = Path(__file__).with_name(f"{file}.py")
        (system_a, function_a), (system_b, function_b) = sides
        a, step = record_step(load_step(f"{path}:{function_a}")), load_step(f"{path}:{function_b}")
        with FaithfulRounding():
            b = record_step(step)
        found.append(judge(a, b, system_a, system_b))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("given", nargs="*", metavar="SYSTEM A.jd SYSTEM B.jd")
    given = parser.parse_args().given
    if not given:
        judge_small()
        return
    if len(given) != 4:
        parser.error("give two systems of labels.py, each with a recording")
    judge(load(given[1]), load(given[3]), given[0], given[2])


if __name__ == "__main__":
    main()
