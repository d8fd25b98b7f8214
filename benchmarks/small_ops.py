"""Does the energy of replayed operators on a CPU fit into the metered step, also where operators are small?

    python benchmarks/small_ops.py [PROGRAM ...] [--seconds S] [--json FILE]

Each program is recorded in a process of its own, and its operators are replayed twice: as `joulediff record` does, and
with every call made from Python and nothing subtracted (`from Python`). Sums are shares of the metered step; `room` is
how far the sum may exceed the meter by the intervals of both. The last two programs have large operators.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from joulediff.energy.ledger import open_books
from joulediff.energy.load_energy import BurstMeter
from joulediff.energy.replay import Replaying
from joulediff.frameworks.torch.replay import bursts
from joulediff.frameworks.torch.replay.replayer import TorchReplayer
from joulediff.measuring.freed_memory import keep_freed_memory
from joulediff.measuring.meters import open_meters
from joulediff.measuring.meters.meter import RealClock
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Run
from joulediff.session.record import record

Step = Callable[[], Any]
REPLAY_S = 60.0


def build_mlp() -> Step:
    """Three layers of 32 units at batch 8."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)).eval()
    x = torch.randn(8, 32)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(x)

    return step


def build_gpt2() -> Step:
    """Two layers of width 64, one sequence of 16."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=512, n_positions=64)).eval()
    ids = torch.randint(0, 512, (1, 16))

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(ids).logits

    return step


def build_lstm() -> Step:
    """Sixteen steps of a cell with 32 units."""
    cell = torch.nn.LSTMCell(32, 32)
    inputs = torch.randn(16, 4, 32)

    def step() -> torch.Tensor:
        state = None
        with torch.no_grad():
            for x in inputs:
                state = cell(x, state)
        return state[0]

    return step


def build_optimizer() -> Step:
    """Adam over 40 tensors of 64 elements, one operator for each tensor."""
    return _optimizer(foreach=False)


def build_foreach() -> Step:
    """Adam over 40 tensors of 64 elements, in operators on lists."""
    return _optimizer(foreach=True)


def _optimizer(*, foreach: bool) -> Step:
    weights = [torch.randn(64, requires_grad=True) for _ in range(40)]
    optimizer = torch.optim.Adam(weights, lr=1e-4, foreach=foreach)
    for weight in weights:
        weight.grad = torch.randn(64)

    def step() -> torch.Tensor:
        optimizer.step()
        return weights[0].detach()

    return step


def build_training() -> Step:
    """Forward, backward and SGD of a network of 32 units."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.LayerNorm(32), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    x, y = torch.randn(8, 32), torch.randint(0, 4, (8,))

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def build_bookkeeping() -> Step:
    """Views, concatenations, masks and indices of a few hundred elements, as in beam search."""
    scores, ids = torch.randn(4, 100), torch.randint(0, 100, (4, 20))

    def step() -> torch.Tensor:
        with torch.no_grad():
            total = scores.view(1, -1).log_softmax(-1)
            best, at = total.topk(4)
            rows = torch.div(at[0], 100, rounding_mode="floor")
            longer = torch.cat([ids[rows], (at[0] % 100)[:, None]], dim=1)
            mask = longer.eq(3).any(dim=1)
            return best.masked_fill(mask[None], 0.0).unsqueeze(-1) + longer[:, -1:].to(torch.float32)

    return step


def build_middle() -> Step:
    """Pointwise operators and a softmax on 10,000 to 100,000 elements."""
    x, y = torch.randn(100, 100), torch.randn(10, 100, 100)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return ((x * y + x).softmax(-1).transpose(1, 2).contiguous() - y).clamp(min=0.0)

    return step


def build_products() -> Step:
    """Products of 512 by 512."""
    a, b = torch.randn(512, 512), torch.randn(512, 512)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return torch.tanh(a @ b) @ b

    return step


def build_conv() -> Step:
    """Two convolutions on images of 64 by 64."""
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU()).eval()
    images = torch.randn(8, 3, 64, 64)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(images)

    return step


PROGRAMS: dict[str, Callable[[], Step]] = {
    "mlp": build_mlp,
    "gpt2": build_gpt2,
    "lstm": build_lstm,
    "optimizer": build_optimizer,
    "foreach": build_foreach,
    "training": build_training,
    "bookkeeping": build_bookkeeping,
    "middle": build_middle,
    "products": build_products,
    "conv": build_conv,
}


@dataclass(frozen=True)
class Result:
    """The sums of one program's operators, as shares of the metered step."""

    program: str
    step_j: float
    step_share: float
    step_s: float
    operators: int
    distinct: int
    looped: int
    from_python: float
    replayed: float
    room: float
    exceeds: bool


def measure(name: str, seconds: float) -> Result:
    """Record one program in this process, and replay its operators a second time from Python."""
    keep_freed_memory()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    step = PROGRAMS[name]()
    run = record(step, label=name, seconds=seconds, wait_s=5.0, replay_seconds=REPLAY_S)
    books = open_books(run)
    account = next(each for each in books.accounts if each.counted)
    metered, parts, rest = account.metered, account.operators, account.unexplained
    assert parts is not None and rest is not None
    before = next(each for each in open_books(replayed_from_python(step, run)).accounts if each.counted).operators
    assert before is not None
    measured = [row for row in run.replays if row.is_measured]
    return Result(
        name,
        metered.joules,
        metered.half_width_share,
        0.0 if run.measurement is None else run.measurement.step_s,
        len(run.ops),
        len(measured),
        sum(row.how == "loop" for row in measured),
        before.joules / metered.joules,
        parts.joules / metered.joules,
        rest.above_j / metered.joules,
        rest.high < 0.0,
    )


def replayed_from_python(step: Step, run: Run) -> Run:
    """Return the run with its operators replayed by calls from Python, with nothing subtracted."""
    bare = replace(run, replays=(), ops=tuple(replace(op, replay=None) for op in run.ops))
    bursts.LOOP_BELOW_S = 0.0
    with open_meters("auto", clock=RealClock()) as meters:
        replayer = TorchReplayer(step, bare, begin=lambda: torch.manual_seed(0))
        burst_meter = BurstMeter(meters.meters, clock=RealClock())
        replaying = Replaying(bare, replayer, burst_meter, RealClock(), ProgressListener(), REPLAY_S)
        replaying.go()
    return replaying.result()


def main() -> None:
    """Print a row for each program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=" ".join(PROGRAMS))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--only", choices=PROGRAMS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(asdict(measure(chosen.only, chosen.seconds))))
        return
    print(f"{'program':12}{'step':>22}{'ops':>6}{'loops':>9}{'from Python':>13}{'replayed':>10}{'room':>8}")
    found = []
    for name in chosen.programs or PROGRAMS:
        command = [sys.executable, __file__, "--only", name, "--seconds", str(chosen.seconds)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        result = Result(**json.loads(done.stdout.splitlines()[-1]))
        found.append(result)
        step = f"{1e3 * result.step_j:.3g} mJ ±{100 * result.step_share:.1f}% {1e6 * result.step_s:.0f} us"
        loops = f"{result.looped}/{result.distinct}"
        sums = f"{100 * result.from_python:12.0f}%{100 * result.replayed:9.0f}%{100 * result.room:7.0f}%"
        print(
            f"{name:12}{step:>22}{result.operators:6}{loops:>9}{sums}{'  exceeds' if result.exceeds else ''}",
            flush=True,
        )
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
