"""Judge the match of two recorded systems.

    python benchmarks/systems/judge.py A.jd B.jd [--json FILE]

Prints for each side the share of its joules (of its operators, without joules) in matched regions: those with operators
on both sides, and movement and constants; and how those matches were established. Then what a good match must not have:

- large regions: more than 15 operators a side that compute. Movement is known by the names of operators.
- layers that are matched otherwise than most of their stack: other regions that compute, or another number of them. A
  layer is the first number in the name of a module.
- regions whose outputs have different numbers of elements, and those whose products have: one product for gate and up
  is then paired with that for up alone.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from joulediff.archive.reader import load
from joulediff.energy.ledger import Costs
from joulediff.matching.match_runs import match_runs
from joulediff.matching.rows import is_view, name_ops
from joulediff.model.units import format_si
from rewrites.moves import MOVES

MOST = 15
ONE_SIDED = ("movement", "constant")
PRODUCTS = re.compile(r"mm|matmul|linear|conv|gemm")
ATTENTION = re.compile(r"attention|softmax|flash")
LAYER = re.compile(r"(.*?)(?<![^.])(\d+)(?![^.])")
SHOWN = 12


def computing(run, ops):
    """Return the operators that do not only move data."""
    return [op for op in ops if run.ops[op].name not in MOVES and not is_view(run, op)]


def measure_share(run, ops):
    """Return the share of joules of operators; of the number of operators for a run without joules."""
    costs = Costs(run)
    total, part = costs.of(range(len(run.ops))), costs.of(ops)
    if total is None or not total.joules:
        return len(ops) / len(run.ops)
    return (0.0 if part is None else part.joules) / total.joules


def judge_shares(runs, regions, large):
    """Return for each side the shares of matched regions and of others; `large` are the regions that are too large."""
    found = []
    for side, run in enumerate(runs):
        groups = defaultdict(list)
        for each in regions:
            ops = (each.a, each.b)[side]
            is_matched = bool(each.a and each.b) or each.kind in ONE_SIDED
            groups["matched" if is_matched else f"only {each.kind}"].extend(ops)
            groups["matched, in large regions"].extend(ops if is_matched and each.id in large else ())
            groups[f"by {each.basis}"].extend(ops if each.a and each.b else ())
        known = {op for each in regions for op in (each.a, each.b)[side]}
        groups["in no region"] = [op.id for op in run.ops if op.id not in known]
        total = Costs(run).of(range(len(run.ops)))
        shares = {name: measure_share(run, ops) for name, ops in sorted(groups.items()) if ops}
        found.append({"label": run.label, "ops": len(run.ops), "joules": None if total is None else total.joules})
        found[-1]["shares"] = {"matched": 0.0, **shares}
    return found


def describe(runs, region):
    """Return the operators and the module of a region."""
    names = [name_ops(run, ops) for run, ops in zip(runs, (region.a, region.b), strict=True)]
    where = star(runs[0], region.a) or star(runs[1], region.b)
    return f"{names[0] or 'nothing'} ↔ {names[1] or 'nothing'}{where and f' in {where}'}"


def star(run, ops):
    """Return the module of most operators that compute, with stars for numbers."""
    modules = Counter(module for op in computing(run, ops) or ops if (module := run.ops[op].module))
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", modules.most_common(1)[0][0]) if modules else ""


def judge_sizes(runs, regions):
    """Return the largest number of operators that compute, for each side, and the regions with too many."""
    largest, large = [0, 0], []
    for each in regions:
        if each.kind in ONE_SIDED:
            continue
        sizes = [len(computing(run, ops)) for run, ops in zip(runs, (each.a, each.b), strict=True)]
        largest = [max(pair) for pair in zip(largest, sizes, strict=True)]
        if max(sizes) > MOST:
            names = {runs[side].ops[op].name for side, ops in enumerate((each.a, each.b)) for op in ops}
            attention = any(ATTENTION.search(name) for name in names)
            large.append({"region": each.id, "ops": sizes, "basis": each.basis, "attention": attention})
            large[-1]["name"] = describe(runs, each)
    large.sort(key=lambda each: -max(each["ops"]))
    return largest, large


def layers_of(run, ops):
    """Return the layers of operators, each once for every operator: `model.layers.` and 3."""
    found = [LAYER.match(run.ops[op].module or "") for op in ops]
    return [(each[1], int(each[2])) for each in found if each]


def judge_layers(runs, regions):
    """Return the layers of each stack by how they are matched: their regions, the most frequent kind of layer first."""
    named = next((run for run in runs if layers_of(run, range(len(run.ops)))), None)
    if named is None:
        return []
    layers = {each: Counter() for each in layers_of(named, range(len(named.ops)))}
    for each in regions:
        ops = each.a if named is runs[0] else each.b
        found = Counter(layers_of(named, computing(named, ops)))
        if found and each.kind not in ONE_SIDED:
            layers[found.most_common(1)[0][0]][f"{each.kind}: {describe(runs, each)}"] += 1
    stacks = defaultdict(lambda: defaultdict(list))
    for (stack, layer), shapes in sorted(layers.items()):
        stacks[stack][frozenset(shapes.items())].append(layer)
    found = []
    for stack, kinds in stacks.items():
        ordered = sorted(kinds.items(), key=lambda item: -len(item[1]))
        kinds = [{"layers": numbers, "regions": dict(sorted(shapes))} for shapes, numbers in ordered]
        found.append({"stack": stack, "kinds": kinds})
    return found


def count_elements(run, values):
    """Return the number of elements of values, each once; elements that an expanded one repeats count once."""
    return sum(math.prod(run.values[each].shape) // max(1, run.values[each].repeats) for each in set(values))


def judge_outputs(runs, regions):
    """Return the regions whose outputs, or whose products, have different numbers of elements on the two sides."""
    found = []
    for each in regions:
        if not (each.a and each.b) or each.kind != "equal":
            continue
        outputs = [[pair[side] for pair in each.outputs] for side in range(2)]
        products = [
            [value for op in ops if PRODUCTS.search(run.ops[op].name) for value in run.ops[op].outputs]
            for run, ops in zip(runs, (each.a, each.b), strict=True)
        ]
        for what, sides in (("outputs", outputs), ("products", products)):
            counts = [count_elements(run, values) for run, values in zip(runs, sides, strict=True)]
            if all(counts) and counts[0] != counts[1]:
                found.append({"region": each.id, "what": what, "elements": counts, "name": describe(runs, each)})
    return found


def judge(a, b):
    """Return the judgement of the match of two runs."""
    runs, match = (a, b), match_runs(a, b)
    largest, large = judge_sizes(runs, match.regions)
    return {
        "sides": judge_shares(runs, match.regions, {each["region"] for each in large}),
        "regions": len(match.regions),
        "divergences": len(match.divergences),
        "notes": list(match.notes),
        "largest": largest,
        "large": large,
        "layers": judge_layers(runs, match.regions),
        "unequal": judge_outputs(runs, match.regions),
    }


def show(result):
    for letter, side in zip("AB", result["sides"], strict=True):
        energy = "" if side["joules"] is None else f", {format_si(side['joules'], 'J')}"
        shares = ", ".join(f"{name} {share:.2%}" for name, share in side["shares"].items())
        print(f"{letter} {side['label']}: {side['ops']:,} operators{energy}; {shares}")
    for note in result["notes"]:
        print(f"note: {note}")
    print(f"{result['regions']:,} regions, {result['divergences']} divergences")
    largest = result["largest"]
    print(f"largest computing region: {largest[0]} and {largest[1]} operators; {len(result['large'])} over {MOST}")
    for each in result["large"][:SHOWN]:
        kind = " (attention)" if each["attention"] else ""
        print(f"  {each['ops'][0]} and {each['ops'][1]}, {each['basis']}{kind}: {each['name']}")
    show_layers(result["layers"])
    print(f"{len(result['unequal'])} regions with different numbers of elements")
    for each in result["unequal"][:SHOWN]:
        print(f"  {each['what']}, {each['elements'][0]:,} and {each['elements'][1]:,}: {each['name']}")


def show_layers(stacks):
    for stack in stacks:
        kinds = stack["kinds"]
        count = sum(len(each["layers"]) for each in kinds)
        print(f"{stack['stack']}*: {len(kinds[0]['layers'])} of {count} layers are matched alike")
        usual = Counter(kinds[0]["regions"])
        for each in kinds[1:]:
            print(f"  otherwise: {', '.join(map(str, each['layers']))}")
            regions = Counter(each["regions"])
            for sign, rest in (("+", regions - usual), ("-", usual - regions)):
                for name, times in list(rest.items())[:SHOWN]:
                    print(f"    {sign} {times} x {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("a", metavar="A.jd")
    parser.add_argument("b", metavar="B.jd")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    result = judge(load(options.a), load(options.b))
    show(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
