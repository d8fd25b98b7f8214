"""Compare the energy of replayed operators + idle with the metered energy, for programs on a GPU.

    python benchmarks/closure.py [PROGRAM ...] [--again] [--full-load S] [--keep FOLDER] [--json FILE]

Programs: gpt2 (small, fp16 8x512), llama (12 layers, bf16 4x1024), resnet50 (fp16 channels_last 64x3x224x224), train
(GPT-2 small, fp16 autocast, AdamW, 8x512); and three that were not used to develop the method: bert (base, fp16
16x256), vit (base, bf16 64x3x224x224), mlp (bf16, at the power limit). All have random weights. Each is recorded in
a process of its own. A second recording (--again) shows how well the ten largest operators repeat, a second replay
without rests (--full-load) the effect of the power limit. Power x time is printed for comparison. Needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from joulediff.archive.reader import load
from joulediff.archive.writer import save
from joulediff.energy.ledger import open_books
from joulediff.energy.load_energy import BurstMeter
from joulediff.energy.replay import Replaying
from joulediff.frameworks.torch.capture.capture import capture_step
from joulediff.frameworks.torch.replay.replayer import TorchReplayer
from joulediff.measuring.meters import open_meters
from joulediff.measuring.meters.meter import RealClock
from joulediff.model.progress import ProgressListener
from joulediff.session.record import record

LARGEST = 10
# Enough for every operator of these programs.
REPLAY_S = 120.0


def build_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).eval().half().cuda()
    return forward(model, torch.randint(0, 50257, (8, 512), device="cuda"))


def build_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=12,
        num_attention_heads=16,
        num_key_value_heads=4,
    )
    model = LlamaForCausalLM(config).eval().bfloat16().cuda()
    return forward(model, torch.randint(0, 32000, (4, 1024), device="cuda"))


def forward(model, ids):
    def step():
        with torch.no_grad():
            return model(ids).logits

    return step


def build_resnet50():
    from torchvision.models import resnet50

    model = resnet50().eval().half().cuda().to(memory_format=torch.channels_last)
    images = torch.randn(64, 3, 224, 224, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)

    def step():
        with torch.no_grad():
            return model(images)

    return step


def build_train():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).train().cuda()
    ids = torch.randint(0, 50257, (8, 512), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def build_bert():
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig()).eval().half().cuda()
    ids = torch.randint(0, 30522, (16, 256), device="cuda")

    def step():
        with torch.no_grad():
            return model(ids).last_hidden_state

    return step


def build_vit():
    from transformers import ViTConfig, ViTModel

    model = ViTModel(ViTConfig()).eval().bfloat16().cuda()
    images = torch.randn(64, 3, 224, 224, device="cuda", dtype=torch.bfloat16)

    def step():
        with torch.no_grad():
            return model(images).last_hidden_state

    return step


def build_mlp():
    nn = torch.nn
    blocks = (
        nn.Sequential(nn.Linear(4096, 16384), nn.GELU(), nn.Linear(16384, 4096), nn.LayerNorm(4096)) for _ in range(3)
    )
    model = nn.Sequential(*blocks).bfloat16().cuda().eval()
    x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)

    def step():
        with torch.no_grad():
            return model(x)

    return step


PROGRAMS = {
    "gpt2": build_gpt2,
    "llama": build_llama,
    "resnet50": build_resnet50,
    "train": build_train,
    "bert": build_bert,
    "vit": build_vit,
    "mlp": build_mlp,
}


@dataclass
class Row:
    """The energy of one of the largest operators in a step, by each method."""

    name: str
    calls: int
    ours_j: float
    low_j: float
    high_j: float
    again_j: float | None
    overlaps: bool | None
    full_load_j: float | None
    naive_j: float
    clock_mhz: float | None
    full_load_mhz: float | None


@dataclass
class Result:
    """The results of one program. Shares are of the metered energy."""

    program: str
    metered_j: float
    metered_half_share: float
    step_s: float
    power_w: float
    program_mhz: float
    operators_share: float
    idle_share: float
    closure: float
    again_closure: float | None
    full_load_closure: float | None
    naive_closure: float
    replayed_share: float
    worst_clock_share: float
    kinds: int
    seconds_a_kind: float
    worst_repeat: float | None
    all_overlap: bool | None
    rows: list[Row]


def gpu_account(books):
    return next(account for account in books.accounts if account.domain == "gpu0")


def closure_of(run):
    account = gpu_account(open_books(run))
    return (account.operators.joules + account.idle.joules) / account.metered.joules


def energies(run):
    """Return the joules a step of each distinct operator: key -> (Energy, Replay, calls, device seconds)."""
    books, groups = open_books(run), {}
    for number, kernel in enumerate(run.kernels):
        if kernel.op is not None and run.ops[kernel.op].replay is not None:
            groups.setdefault(run.ops[kernel.op].replay, []).append(number)
    found = {}
    for place, kernels in groups.items():
        replay = run.replays[place]
        op = run.ops[replay.op]
        shapes = str([run.values[value].shape for value in op.inputs])
        strides = str([run.values[value].strides for value in op.inputs])
        calls = len({run.kernels[number].op for number in kernels})
        device_s = sum(run.kernels[number].duration_s for number in kernels)
        key = (op.name, op.overload, op.arguments, shapes, strides, calls)
        if replay.energy_j is not None and replay.domain == "gpu0":
            found[key] = (books.total(kernels), replay, calls, device_s)
    return found


def replay_at_full_load(step, run, seconds):
    with open_meters("auto", clock=RealClock()) as meters:
        burst_meter = BurstMeter(meters.meters, clock=RealClock())
        addresses = capture_step(step).addresses
        replayer = TorchReplayer(step, run, begin=lambda: torch.manual_seed(0), addresses=addresses)
        replaying = Replaying(run, replayer, burst_meter, RealClock(), ProgressListener(), seconds, rest_share=0.0)
        replaying.go()
    return replaying.result()


def record_program(name, *, seconds=3.0, full_load_s=0.0):
    """Return the run of one program, and the same run replayed without rests, or None."""
    torch.manual_seed(0)
    step = PROGRAMS[name]()
    run = record(step, label=name, seconds=seconds, wait_s=10.0, replay_seconds=REPLAY_S, source=True)
    if not full_load_s:
        return run, None
    bare = replace(run, replays=(), ops=tuple(replace(op, replay=None) for op in run.ops))
    return run, replay_at_full_load(step, bare, full_load_s)


def record_in_a_process(name, folder, tag, *, full_load_s=0.0):
    """Return the same as `record_program`, from a new process."""
    place = folder / f"h200_{name}{tag}.jd"
    command = [sys.executable, __file__, name, "--full-load", str(full_load_s), "--record-to", str(place)]
    subprocess.run(command, check=True)
    full = place.with_suffix(".full.jd")
    return load(place), load(full) if full.exists() else None


def examine(name, folder, *, again=False, full_load_s=0.0):
    """Record one program and return its results."""
    run, full = record_in_a_process(name, folder, "", full_load_s=full_load_s)
    second = record_in_a_process(name, folder, "_again")[0] if again else None
    return judge(name, run, second, full)


def judge(name, run, second, full):
    books = open_books(run)
    account, found = gpu_account(books), run.measurement
    metered_j = account.metered.joules
    mine = energies(run)
    others = energies(second) if second is not None else {}
    loaded = energies(full) if full is not None else {}
    watts = found.domains["gpu0"].power_w
    largest = sorted(mine, key=lambda key: -mine[key][0].joules)[:LARGEST]
    rows = [row(key, mine[key], others.get(key), loaded.get(key), watts) for key in largest]
    program_mhz = found.clocks_mhz["gpu0"]
    clocks = [replay.clock_mhz for _, replay, _, _ in mine.values() if replay.clock_mhz]
    repeats = [abs(r.again_j / r.ours_j - 1) for r in rows if r.again_j is not None]
    seconds = next(each.seconds for each in run.passes if each.name == "replayed")
    busy_s = sum(kernel.duration_s for kernel in run.kernels if kernel.device.startswith("cuda"))
    return Result(
        program=name,
        metered_j=metered_j,
        metered_half_share=account.metered.half_width_share,
        step_s=found.step_s,
        power_w=watts,
        program_mhz=program_mhz,
        operators_share=account.operators.joules / metered_j,
        idle_share=account.idle.joules / metered_j,
        closure=closure_of(run),
        again_closure=None if second is None else closure_of(second),
        full_load_closure=None if full is None else closure_of(full),
        naive_closure=(watts * busy_s + account.idle.joules) / metered_j,
        replayed_share=books.replayed_share(range(len(run.kernels))),
        worst_clock_share=max(abs(clock / program_mhz - 1) for clock in clocks),
        kinds=len(mine),
        seconds_a_kind=seconds / len(mine),
        worst_repeat=max(repeats) if repeats else None,
        all_overlap=all(r.overlaps for r in rows if r.overlaps is not None) if repeats else None,
        rows=rows,
    )


def row(key, mine, other, loaded, watts):
    energy, replay, calls, device_s = mine
    overlaps = None if other is None else energy.low <= other[0].high and other[0].low <= energy.high
    return Row(
        name=key[0],
        calls=calls,
        ours_j=energy.joules,
        low_j=energy.low,
        high_j=energy.high,
        again_j=None if other is None else other[0].joules,
        overlaps=overlaps,
        full_load_j=None if loaded is None else loaded[0].joules,
        naive_j=watts * device_s,
        clock_mhz=replay.clock_mhz,
        full_load_mhz=None if loaded is None else loaded[1].clock_mhz,
    )


def share(value):
    return "-" if value is None else f"{100 * value:.1f}%"


def show(result):
    print(
        f"\n{result.program}: {result.metered_j:.3f} J ±{share(result.metered_half_share)} a step of "
        f"{1e3 * result.step_s:.2f} ms, {result.power_w:.0f} W, {result.program_mhz:.0f} MHz"
    )
    print(
        f"  operators {share(result.operators_share)} + idle {share(result.idle_share)} = {share(result.closure)}"
        f" of metered (again {share(result.again_closure)}; at full load {share(result.full_load_closure)};"
        f" power x time {share(result.naive_closure)})"
    )
    print(
        f"  {result.kinds} distinct operators, {result.seconds_a_kind:.2f} s each, {share(result.replayed_share)} of"
        f" the joules replayed; clock off by {share(result.worst_clock_share)} at most; the ten largest repeat within"
        f" {share(result.worst_repeat)}, intervals overlap: {result.all_overlap}"
    )
    print(f"  {'mJ a step':>10} {'±':>6} {'again':>8} {'full load':>16} {'power x time':>13}  operator")
    for r in result.rows:
        half = (r.high_j - r.low_j) / 2 / r.ours_j
        again = "-" if r.again_j is None else f"{100 * (r.again_j / r.ours_j - 1):+.1f}%"
        full = (
            "-" if r.full_load_j is None else f"{100 * (r.full_load_j / r.ours_j - 1):+.1f}% {r.full_load_mhz:.0f} MHz"
        )
        naive = f"{100 * (r.naive_j / r.ours_j - 1):+.1f}%"
        print(f"  {1e3 * r.ours_j:10.1f} {share(half):>6} {again:>8} {full:>16} {naive:>13}  {r.name} x{r.calls}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", default=list(PROGRAMS), help=" ".join(PROGRAMS))
    parser.add_argument("--again", action="store_true", help="record a second time")
    parser.add_argument("--full-load", type=float, default=0.0, metavar="S", help="seconds of replay without pauses")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to save the recordings")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--record-to", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record_to:
        run, full = record_program(options.programs[0], full_load_s=options.full_load)
        save(run, options.record_to)
        if full is not None:
            save(full, options.record_to.with_suffix(".full.jd"))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        results = []
        for name in options.programs:
            results.append(examine(name, folder, again=options.again, full_load_s=options.full_load))
            show(results[-1])
            if options.json:
                options.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
