"""Measure how accurate and how fast matching is: on programs with a known answer, on models, and on very long runs.

    OMP_NUM_THREADS=1 python benchmarks/matching.py [truth] [models] [long] [--programs N] [--first SEED] [--json FILE]

truth: random programs of up to 200 nodes, each written in two ways (tests/rewrites), in four float types, at tolerances
from 1e-5 to 1e-2. A region is wrong if its sides belong to different nodes; a node is found if all its operators are in
regions of its own. models: GPT-2 small and a 32-layer Llama with random weights, eager against fused attention.
long: synthetic runs of 1,000 to 100,000 operators. Needs PyTorch and, for the models, transformers; no GPU.
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

from joulediff.matching.match_runs import match_regions

TOLERANCES = (1e-5, 1e-4, 1e-3, 1e-2)
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
        runs = make_runs(length // OPS)
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
    parser.add_argument("parts", nargs="*", metavar="PART", default=["truth", "models", "long"])
    parser.add_argument("--programs", type=int, default=50, metavar="N")
    parser.add_argument("--first", type=int, default=1000, metavar="SEED", help="of the first program")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    results = {}
    for part in options.parts:
        print(part)
        work = {
            "truth": lambda: judge_truth(options.programs, options.first),
            "models": judge_models,
            "long": judge_long,
        }[part]
        results[part] = work()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
