"""Print how much of the energy of compiled and graphed programs belongs to operators, and so to rows.

    python benchmarks/compiled.py [--device cpu|cuda] [--only NAME,NAME] [--seconds S] [--loose N] [--keep FOLDER]

Records compiled GPT-2, a compiled function outside of modules, GPT-2 with `mode="reduce-overhead"`, an MLP in a CUDA
graph and one made by `make_graphed_callables`, and compares eager with compiled GPT-2 by rows. For each it prints the
share of joules in rows, the kernels by their join, the first kernels without an operator, the notes, and how much of
the metered energy the ledger leaves unexplained. About three minutes on an H200.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from joulediff.archive.writer import save
from joulediff.diagnosis.comparison import ops_of
from joulediff.energy.ledger import Costs
from joulediff.matching.match_runs import match_runs
from joulediff.matching.rows import group_regions
from joulediff.model.errors import JoulediffError
from joulediff.model.options import RecordOptions
from joulediff.process.interpreter import find_interpreter
from joulediff.process.process import record_in_process
from joulediff.process.request import Request

# A program reads its device from the environment: it runs in a process of its own.
DEVICE = "JOULEDIFF_BENCHMARK_DEVICE"
GOAL = 0.95

PROGRAMS = """
import os
import torch
from torch import nn

device = os.environ["JOULEDIFF_BENCHMARK_DEVICE"]
gpu = device == "cuda"


def _gpt2(wrap):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    small = {} if gpu else {"n_layer": 2, "n_embd": 128, "n_head": 4}
    model = GPT2LMHeadModel(GPT2Config(use_cache=False, **small)).to(device).eval()
    model = model.half() if gpu else model
    ids = torch.randint(0, 50000, (8, 512) if gpu else (2, 64), device=device)
    run = wrap(model)

    def step():
        with torch.no_grad():
            torch.compiler.cudagraph_mark_step_begin()
            return run(ids).logits.clone()

    for _ in range(4):
        step()
    return step


def eager():
    return _gpt2(lambda model: model)


def compiled():
    return _gpt2(torch.compile)


def overhead():
    return _gpt2(lambda model: torch.compile(model, mode="reduce-overhead"))


def function():
    size = 2048 if gpu else 256
    w, x = (torch.randn(size, size, device=device) for _ in range(2))

    @torch.compile
    def work(x):
        y = torch.nn.functional.gelu(x @ w) * 2
        return torch.softmax(y + x, -1).sum(0)

    def step():
        with torch.no_grad():
            return work(x)

    for _ in range(3):
        step()
    return step


def train():
    torch.manual_seed(0)
    size = 2048 if gpu else 128
    layers = nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size), nn.LayerNorm(size)
    model = nn.Sequential(*layers).to(device)
    run, x = torch.compile(model), torch.randn(512, size, device=device)

    def step():
        model.zero_grad()
        loss = run(x).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(3):
        step()
    return step


def _mlp():
    torch.manual_seed(0)
    sizes = (2048, 8192, 2048)
    return nn.Sequential(
        nn.Linear(*sizes[:2]), nn.GELU(), nn.Linear(*sizes[1:]), nn.LayerNorm(sizes[-1])
    ).to(device).half(), torch.randn(1024, sizes[0], device=device, dtype=torch.half)


def graphed():
    model, x = _mlp()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = model(x).softmax(-1)

    def step():
        graph.replay()
        return y

    step.kept = model, x  # a graph does not keep the tensors that it reads

    step()
    return step


def callables():
    model, x = _mlp()
    run = torch.cuda.make_graphed_callables(model.float(), (x.float(),))
    x = x.float()

    def step():
        model.zero_grad()
        loss = run(x).pow(2).mean()
        loss.backward()
        return loss

    step()
    return step
"""
ON_CPU = ("eager", "compiled", "function", "train")
ON_GPU = (*ON_CPU, "overhead", "graphed", "callables")


def record(path, name, seconds):
    """Return the run of one program, recorded in a process of its own."""
    options = RecordOptions(
        label=name, seconds=seconds, replay=name in ("eager", "compiled", "graphed"), replay_seconds=15.0
    )
    request = Request(f"{path}:{name}", options)
    return record_in_process(request, interpreter=find_interpreter(sys.executable), keep=lambda _: None)


def summarise(run, loose):
    """Print what is known of the kernels of a run, and return the share of its joules that operators have."""
    costs = Costs(run)
    every = costs.books.total(range(len(run.kernels)))
    owned = costs.books.total(at for at, kernel in enumerate(run.kernels) if kernel.op is not None)
    share = None if every is None or every.joules <= 0 else (0.0 if owned is None else owned.joules) / every.joules
    total_s = sum(kernel.duration_s for kernel in run.kernels)
    owned_s = sum(kernel.duration_s for kernel in run.kernels if kernel.op is not None)
    time_share = percent(owned_s / (total_s or 1))
    print(f"{run.label}: {percent(share)} of the kernels' joules in rows, {time_share} of their time")
    joins = Counter(kernel.join for kernel in run.kernels)
    print(f"  {len(run.ops)} operators, {len(run.kernels)} kernels: {dict(joins)}")
    print(f"  unexplained by the ledger: {percent(costs.books.unexplained_share)}; split: {costs.books.split}")
    for each in run.passes:
        if each.status != "done":
            print(f"  the {each.name} pass: {each.status} ({each.note})")
    alone = [kernel for kernel in run.kernels if kernel.op is None]
    for kernel in alone[:loose]:
        where = f"{kernel.join}, {kernel.module}"
        print(f"  without an operator: {kernel.duration_s * 1e6:.0f} us {kernel.name[:70]} ({where})")
    fused = sorted((k for k in run.kernels if k.join == "fused"), key=lambda kernel: -kernel.duration_s)
    for kernel in fused[:loose]:
        names = [run.ops[op].name.partition("::")[2] for op in (kernel.op, *kernel.members)]
        print(f"  {kernel.duration_s * 1e6:.0f} us {kernel.name[:60]}: {', '.join(names[:10])}")
    for note in run.notes:
        print(f"  note: {note}")
    return share


def compare(a, b, loose):
    """Print the rows of two runs, and return the smaller share of joules in them."""
    found = match_runs(a, b)
    by_id = {region.id: region for region in found.regions}
    costs = {"a": Costs(a), "b": Costs(b)}
    shares = []
    for side, run in (("a", a), ("b", b)):
        inside = [op for region in found.regions for op in ops_of(region, side)]
        every = costs[side].books.total(range(len(run.kernels)))
        rows = costs[side].of(inside)
        shares.append(0.0 if every is None or rows is None else rows.joules / every.joules)
    print(f"{a.label} against {b.label}: {percent(shares[0])} and {percent(shares[1])} of the joules in rows")
    rows = []
    for group in group_regions(a, b, found.regions):
        each = [costs[side].of(op for at in group.regions for op in ops_of(by_id[at], side)) for side in "ab"]
        rows.append((max(energy.joules if energy else 0.0 for energy in each), group, each))
    for _, group, each in sorted(rows, key=lambda row: -row[0])[: 3 * loose]:
        joules = ["      -" if energy is None else f"{energy.joules:7.4f}" for energy in each]
        print(f"  {joules[0]} J {joules[1]} J  {len(group.regions):3d} x {group.name[:80]} ({group.where})")
    return min(shares)


def percent(share):
    return "unknown" if share is None else f"{share:.1%}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--only", help="names, with commas")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--loose", type=int, default=4, help="kernels to show of each kind")
    parser.add_argument("--keep", help="a folder for the recordings")
    options = parser.parse_args()
    os.environ[DEVICE] = options.device
    names = options.only.split(",") if options.only else ON_GPU if options.device == "cuda" else ON_CPU
    runs, shares, begin_s = {}, {}, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "programs.py"
        path.write_text(PROGRAMS)
        for name in names:
            try:
                runs[name] = record(path, name, options.seconds)
            except JoulediffError as error:
                print(f"{name}: not recorded: {error}")
                continue
            shares[name] = summarise(runs[name], options.loose)
            print(f"  {time.monotonic() - begin_s:.0f} s since the begin", flush=True)
            if options.keep:
                Path(options.keep).mkdir(parents=True, exist_ok=True)
                save(runs[name], str(Path(options.keep) / f"{name}.jd"))
    for name in ("compiled", "overhead"):
        if "eager" in runs and name in runs:
            try:
                shares[f"eager against {name}"] = compare(runs["eager"], runs[name], options.loose)
            except JoulediffError as error:
                print(f"eager against {name}: {error}")
    short = {name: share for name, share in shares.items() if share is None or share < GOAL}
    missing = [name for name in names if name not in runs]
    print(
        "below the goal:", {name: percent(share) for name, share in short.items()} or "none", "not recorded:", missing
    )
    sys.exit(1 if short or missing else 0)


if __name__ == "__main__":
    main()
