"""Measure how accurate and how fast matching is: on programs with a known answer, on models, and on very long runs.

    OMP_NUM_THREADS=1 python benchmarks/matching.py [PART ...] [--programs N] [--first SEED] [--json FILE]

The parts, all by default:

- truth: random programs of up to 200 nodes, each written in two ways (tests/rewrites), in four float types, at
  tolerances from 1e-5 to 1e-2. A region is wrong if its sides belong to different nodes, or to different parts of
  one: a merged product and one of its parts. A node is found if all its operators are in regions of its own.
- drift: the same where B computes each operator through other kernels and float types, and programs of 32 layers in
  bfloat16. Goals: nothing wrong, F1 of at least 0.98.
- sensitivity: two programs of 16 layers in float32 and bfloat16 that differ in one layer: another epsilon, another
  activation, a dropped residual, another scale of attention (tests/rewrites/changes.py has the rule for the size of a
  change). Found if the first divergence begins in that layer. Goals: 19 of 20 of each kind, no divergence in 20 equal
  pairs.
- itself: programs of 20,000 and 100,000 operators whose values converge, repeat, are constant or NaN (tests/rewrites/
  repetitive.py), against themselves and another recording. Goals: every operator in a region with itself; 2 x 100,000
  operators in 15 s.
- margins: the distances of sketches between equal tensors and all others, in small models of benchmarks/systems.
- models: GPT-2 small and a 32-layer Llama with random weights, eager against fused attention.
- long: synthetic runs of 1,000 to 100,000 operators.

Needs PyTorch and, for the models, transformers; no GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from joulediff.matching import match_runs as matching
from joulediff.matching.match_runs import match_regions
from joulediff.model.errors import JoulediffError

TOLERANCES = (1e-5, 1e-4, 1e-3, 1e-2)
PARTS = ("truth", "drift", "sensitivity", "itself", "margins", "models", "long")
LOOPS = (20_000, 100_000)
LENGTHS = (1_000, 3_000, 10_000, 30_000, 100_000)


def best_of(times, work):
    """Return the shortest time of several calls, and the last result."""
    seconds = []
    for _ in range(times):
        begin_s = time.perf_counter()
        found = work()
        seconds.append(time.perf_counter() - begin_s)
    return min(seconds), found


def judge_truth(programs, first):
    import torch

    from rewrites.programs import judge, make_program, node_of, record_step, write_step

    torch.set_num_threads(1)
    results = []
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        counts = Counter()
        for seed in range(first, first + programs):
            chance = random.Random(seed)
            program = make_program(chance, chance.randrange(2, 200))
            a = record_step(write_step(program, chance, no_ops=0.2))
            b = record_step(write_step(program, chance, dtype=getattr(torch, dtype), no_ops=0.2))
            for tolerance in TOLERANCES:
                score = judge(a, b, match_regions(a, b, tolerance=tolerance), node_of)
                for name in ("pairs", "wrong", "nodes", "found"):
                    counts[tolerance, name] += getattr(score, name)
        for tolerance in TOLERANCES:
            pairs, wrong, nodes, found = (counts[tolerance, name] for name in ("pairs", "wrong", "nodes", "found"))
            precision, recall = 1 - wrong / max(1, pairs), found / max(1, nodes)
            f1 = 2 * precision * recall / (precision + recall)
            results.append({"b": dtype, "tolerance": tolerance, "pairs": pairs, "wrong": wrong, "nodes": nodes})
            results[-1] |= {"precision": precision, "recall": recall, "f1": f1}
            print(f"  float32 ↔ {dtype:8} tolerance {tolerance:.0e}: {pairs:,} pairs, {wrong} wrong, ", end="")
            print(f"{found:,} of {nodes:,} nodes; precision {precision:.4f}, F1 {f1:.4f}", flush=True)
    return results


# Pairs of styles that deep programs are written in, and whether the kernels of B round otherwise, too.
DEEP = (
    ("fused", "eager", False),
    ("fused", "narrow", False),
    ("fused", "float32", True),
    ("eager", "wide stream", True),
    ("narrow", "wide stream", False),
    ("any", "any", True),
)


def judge_drift(programs, first, layers):
    import torch

    torch.set_num_threads(1)
    return {
        "random": [judge_random_drift(programs, first, a, b) for a, b in (("float32", "bfloat16"), ("bfloat16",) * 2)],
        "deep": [judge_deep_drift(layers, *pair) for pair in DEEP],
    }


def judge_random_drift(programs, first, dtype_a, dtype_b):
    import torch

    from rewrites.drift import DRIFTING, FaithfulRounding
    from rewrites.layers import TOKENS, WIDTH
    from rewrites.programs import make_program, record_step, write_step

    scores = []
    for seed in range(first, first + programs):
        chance = random.Random(seed)
        program = make_program(chance, chance.randrange(2, 200), tokens=TOKENS, width=WIDTH)
        a = record_step(write_step(program, chance, dtype=getattr(torch, dtype_a), no_ops=0.2))
        step = write_step(program, chance, dtype=getattr(torch, dtype_b), no_ops=0.2, kinds=DRIFTING)
        with FaithfulRounding(seed):
            b = record_step(step)
        scores.append(score_match(a, b))
    return add_scores(f"{programs} random programs, {dtype_a} ↔ {dtype_b}", scores)


def judge_deep_drift(layers, style_a, style_b, other_kernels):
    import torch

    from rewrites.layers import make_layers, record_layers

    scores = []
    for seed, family in enumerate(("llama", "gpt")):
        program = make_layers(family, layers, seed=seed)
        a = record_layers(program, style_a, dtype=torch.bfloat16, seed=1)
        b = record_layers(program, style_b, dtype=torch.bfloat16, seed=2, other_kernels=7 if other_kernels else None)
        scores.append(score_match(a, b))
    kernels = ", other kernels" if other_kernels else ""
    return add_scores(f"{layers} layers, bfloat16, {style_a} ↔ {style_b}{kernels}", scores)


def score_match(a, b):
    from rewrites.programs import judge, node_of

    return judge(a, b, match_regions(a, b), node_of)


def add_scores(name, scores):
    """Print and return the sum of scores. F1 is that of the sum; `least` is that of the worst program."""
    from rewrites.programs import Score

    total = Score(*(sum(getattr(each, name) for each in scores) for name in ("pairs", "wrong", "nodes", "found")))
    least = min(each.f1 for each in scores)
    print(f"  {name}: {total.pairs:,} pairs, {total.wrong} wrong, {total.found:,} of {total.nodes:,} nodes, ", end="")
    print(f"F1 {total.f1:.4f}, least {least:.4f}", flush=True)
    counts = {"pairs": total.pairs, "wrong": total.wrong, "nodes": total.nodes, "found": total.found}
    return {"name": name, **counts, "f1": total.f1, "least": least}


def judge_sensitivity():
    import torch

    from rewrites.changes import CASES, CHANGES, make_case

    torch.set_num_threads(1)
    results = []
    for kind in (*CHANGES, None):
        found, missed = 0, []
        for number in range(CASES):
            case = make_case(kind, number)
            divergences = find_divergences(case.a, case.b)
            if divergences is not None and case.is_found(divergences):
                found += 1
                continue
            first = "refused" if divergences is None else case.where(divergences)
            missed.append(f"{case.name}: {first}")
        name = kind or "equal"
        results.append({"kind": name, "cases": CASES, "right": found, "missed": missed})
        print(f"  {name}: {found} of {CASES} right", flush=True)
        for each in missed:
            print(f"    {each}")
    return results


def find_divergences(a, b):
    """Return the divergences of two runs; None if they are refused."""
    match = getattr(matching, "match_runs", None)
    if match is None:
        return ()
    try:
        return match(a, b).divergences
    except JoulediffError:
        return None


def judge_itself():
    from rewrites.repetitive import PROGRAMS, make_repetitive, record_again, share_with_itself

    results = []
    for program, length in ((each, length) for each in PROGRAMS for length in LOOPS):
        run = make_repetitive(program, length)
        for name, other in (("itself", run), ("again", record_again(run))):
            begin_s = time.perf_counter()
            try:
                regions = match_regions(run, other)
            except JoulediffError as error:
                regions = []
                print(f"  {error}")
            seconds = time.perf_counter() - begin_s
            share, largest = share_with_itself(run, regions), max((len(each.a) for each in regions), default=0)
            results.append({"program": program, "ops": length, "against": name, "share": share})
            results[-1] |= {"largest": largest, "seconds": seconds}
            print(f"  {program}, 2 x {length:,} operators, {name}: {share:.1%} with themselves, ", end="")
            print(f"largest region {largest:,}, {seconds:.1f} s", flush=True)
    return results


def judge_margins():
    sys.path.insert(0, str(Path(__file__).with_name("systems")))
    from margins import judge_small

    return judge_small()


def build_gpt2(attention):
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(attn_implementation=attention)), 50257


def build_llama(attention):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 32, "num_attention_heads": 8}
    return LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation=attention)), 32000


def judge_models():
    import torch

    from rewrites.programs import record_step

    results = []
    for name, build in (("GPT-2 small", build_gpt2), ("Llama, 32 layers", build_llama)):
        runs = []
        for attention in ("eager", "sdpa"):
            torch.manual_seed(0)
            model, words = build(attention)
            model.eval()
            ids = torch.randint(0, words, (1, 64), generator=torch.Generator().manual_seed(1))

            def step(model=model, ids=ids):
                with torch.no_grad():
                    return model(ids).logits

            runs.append(record_step(step))
        seconds, regions = best_of(5, lambda runs=runs: match_regions(*runs))
        sizes = [max(len(each.a), len(each.b)) for each in regions]
        covered = [
            sum(len(side) for side in sides) for sides in zip(*((each.a, each.b) for each in regions), strict=True)
        ]
        shares = [count / len(run.ops) for count, run in zip(covered, runs, strict=True)]
        kinds = Counter(each.kind for each in regions)
        results.append(
            {
                "model": name,
                "ops": [len(run.ops) for run in runs],
                "seconds": seconds,
                "regions": len(regions),
                "kinds": dict(kinds),
                "covered": shares,
                "median": statistics.median(sizes),
                "largest": max(sizes),
            }
        )
        print(
            f"  {name}: {len(runs[0].ops):,} and {len(runs[1].ops):,} operators in {seconds:.3f} s: {len(regions):,}",
            end="",
        )
        print(f" regions {dict(kinds)}, {shares[0]:.1%} and {shares[1]:.1%} covered, ", end="")
        print(f"median {statistics.median(sizes)}, largest {max(sizes)}", flush=True)
    return results


def judge_long():
    from rewrites.synthetic import OPS, make_runs

    results = []
    for length in LENGTHS:
        runs = make_runs(length // OPS, sketches=True)
        seconds, regions = best_of(3 if length <= 10_000 else 1, lambda runs=runs: match_regions(*runs))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        results.append({"ops": length, "seconds": seconds, "regions": len(regions), "peak_mb": peak})
        print(f"  2 x {length:,} operators: {seconds:.3f} s, {len(regions):,} regions, {peak:.0f} MB", flush=True)
    sizes, times = (np.log([each[name] for each in results]) for name in ("ops", "seconds"))
    exponent = float(np.polyfit(sizes, times, 1)[0])
    print(f"  growth: exponent {exponent:.2f}")
    return {"runs": results, "exponent": exponent}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", default=PARTS)
    parser.add_argument("--programs", type=int, default=50, metavar="N")
    parser.add_argument("--first", type=int, default=1000, metavar="SEED", help="of the first program")
    parser.add_argument("--layers", type=int, default=32, metavar="N", help="of the deep programs of drift")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    results = {}
    for part in options.parts:
        print(part)
        work = {
            "truth": lambda: judge_truth(options.programs, options.first),
            "drift": lambda: judge_drift(options.programs, options.first, options.layers),
            "sensitivity": judge_sensitivity,
            "itself": judge_itself,
            "margins": judge_margins,
            "models": judge_models,
            "long": judge_long,
        }[part]
        results[part] = work()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
