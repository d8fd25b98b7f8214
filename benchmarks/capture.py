"""What the captured pass costs a program: GPT-2 small, plain and watched, side by side in one run.

    python benchmarks/capture.py [--rounds 7] [--json FILE]

Each round runs every variant once; a ratio is that of a round, so that a busy machine slows both sides. On the CPU
one thread works: 1 x 128 tokens in single precision, a forward pass and a step of training. With CUDA also 8 x 512
tokens in half precision, under `no_grad` and in inference mode, beside a naive signature of six reductions a tensor.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GPT2LMHeadModel

from joulediff.frameworks.torch.capture.capture import capture_step
from joulediff.frameworks.torch.capture.signature import Signers

Step = Callable[[], object]
Row = dict[str, Any]

CPU_GOAL = 2.0
CUDA_GOAL_S = 0.060
MEMORY_GOAL = 1.2


class Counting(TorchDispatchMode):
    """The least that a dispatch mode can do."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        self.count += 1
        return func(*args, **(kwargs or {}))


class Reducing(TorchDispatchMode):
    """A signature as one would write it first: six reductions of every tensor, in double precision."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        output = func(*args, **(kwargs or {}))
        for tensor in output if isinstance(output, tuple | list) else [output]:
            if isinstance(tensor, torch.Tensor) and tensor.numel() and tensor.is_floating_point():
                x = tensor.double()
                self.results += [x.sum(), x.abs().sum(), (x * x).sum(), (x**3).sum(), x.amin(), x.amax()]
        return output


def timed(step: Step) -> float:
    wait()
    start_s = time.perf_counter()
    step()
    wait()
    return time.perf_counter() - start_s


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def inside(mode: Callable[[], TorchDispatchMode], step: Step) -> float:
    with mode():
        return timed(step)


def captured(step: Step) -> tuple[float, float]:
    """Return the time of the step under capture, and of what comes before and after it."""
    start_s = time.perf_counter()
    found = capture_step(step)
    return found.step_s, time.perf_counter() - start_s - found.step_s


@contextmanager
def without_signatures() -> Iterator[None]:
    sign = Signers.sign
    Signers.sign = lambda *_: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Signers.sign = sign  # type: ignore[method-assign]


def unsigned(step: Step) -> float:
    with without_signatures():
        return captured(step)[0]


def compare(title: str, step: Step, *, rounds: int, naive: bool) -> list[Row]:
    """Return a row for each variant; the first is the plain step."""
    rest: list[float] = []

    def full(step: Step) -> float:
        step_s, rest_s = captured(step)
        rest.append(rest_s)
        return step_s

    variants: dict[str, Callable[[Step], float]] = {
        "plain": timed,
        "counting mode": lambda step: inside(Counting, step),
        "captured, unsigned": unsigned,
        "captured": full,
    }
    if naive:
        variants["six reductions"] = lambda step: inside(Reducing, step)
    for run in (*variants.values(), timed):
        run(step)
    rest.clear()
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            times[name].append(run(step))
    plain = times["plain"]
    return [
        {
            "program": title,
            "variant": name,
            "median_s": statistics.median(took),
            "minimum_s": min(took),
            "median_ratio": statistics.median(a / b for a, b in zip(took, plain, strict=True)),
            "minimum_ratio": min(a / b for a, b in zip(took, plain, strict=True)),
            "rest_s": statistics.median(rest) if name == "captured" else None,
            "memory_ratio": memory_ratio(step, variants[name]) if naive else None,
        }
        for name, took in times.items()
    ]


def memory_ratio(step: Step, run: Callable[[Step], float]) -> float:
    """Return how much device memory a variant takes at most, by what the plain step takes."""
    return peak_bytes(lambda: run(step)) / peak_bytes(step)


def peak_bytes(step: Step) -> int:
    wait()
    torch.cuda.reset_peak_memory_stats()
    step()
    wait()
    return torch.cuda.max_memory_allocated()


def make_step(mode: Callable[[], Any], *, device: str, batch: int, tokens: int, dtype: torch.dtype) -> Step:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).to(device, dtype).eval()
    ids = torch.randint(0, model.config.vocab_size, (batch, tokens), device=device)

    def step() -> object:
        with mode():
            return model(ids).logits

    return step


def make_training_step(*, tokens: int) -> Step:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    ids = torch.randint(0, model.config.vocab_size, (1, tokens))

    def step() -> object:
        optimizer.zero_grad()
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss

    return step


def show(rows: list[Row]) -> None:
    for row in rows:
        memory = "" if row["memory_ratio"] is None else f"   memory {row['memory_ratio']:5.2f}x"
        rest = "" if row["rest_s"] is None else f"   before and after the step {row['rest_s'] * 1e3:.0f} ms"
        print(
            f"{row['program']:30}{row['variant']:20}{row['median_s'] * 1e3:9.1f} ms{row['minimum_s'] * 1e3:9.1f} ms"
            f"{row['median_ratio']:8.2f}x{row['minimum_ratio']:8.2f}x{memory}{rest}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    arguments = parser.parse_args()
    threads = torch.get_num_threads()
    print(f"{'GPT-2 small':50}{'median':>12}{'minimum':>12}{'ratio':>9}{'least':>9}")
    torch.set_num_threads(1)
    step = make_step(torch.no_grad, device="cpu", batch=1, tokens=128, dtype=torch.float32)
    rows = compare("CPU, 1 x 128, no_grad", step, rounds=arguments.rounds, naive=False)
    show(rows)
    step = make_training_step(tokens=128)
    found = compare("CPU, 1 x 128, training", step, rounds=arguments.rounds // 2, naive=False)
    show(found)
    rows += found
    goals = [f"goal on the CPU: a captured forward pass takes at most {CPU_GOAL:.0f}x the plain one"]
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        for name, mode in (("no_grad", torch.no_grad), ("inference_mode", torch.inference_mode)):
            step = make_step(mode, device="cuda", batch=8, tokens=512, dtype=torch.float16)
            found = compare(f"CUDA, 8 x 512, {name}", step, rounds=3 * arguments.rounds, naive=True)
            show(found)
            rows += found
        goals.append(f"on CUDA: at most {CUDA_GOAL_S * 1e3:.0f} ms, with at most {MEMORY_GOAL}x the memory")
    print("; ".join(goals))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
