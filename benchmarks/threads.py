"""Print the share of joules in rows for a step that gives four products to a pool, and for the same without threads.

    python benchmarks/threads.py [--device cpu|cuda] [--size N] [--seconds S] [--replay-seconds S] [--json FILE]

Programs: a pool made before the step (build), one made in the step (step), a thread for each product (thread), one
after the other (serial), and a thread from before the step that waits for work (queue), whose operators cannot be
recorded. For each: the energy of operators in rows and that of kernels without an operator, as shares of the metered
energy without its idle part, and the median of the recordings (--times). On a CPU each product runs in one thread.
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from joulediff.energy.ledger import open_books
from joulediff.energy.unseen import find_unseen
from joulediff.model.run import Run
from joulediff.session.record import record

PRODUCTS = 4
# Enough for all operators of the largest program.
REPLAY_S = 20.0


def make_steps(device: str, size: int) -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    inputs = [torch.randn(size, size, device=device) for _ in range(PRODUCTS)]
    pool = ThreadPoolExecutor(PRODUCTS)
    asked: queue.SimpleQueue[torch.Tensor] = queue.SimpleQueue()
    made: queue.SimpleQueue[torch.Tensor] = queue.SimpleQueue()

    def product(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    def serve() -> None:
        while True:
            made.put(product(asked.get()))

    def in_step() -> list[torch.Tensor]:
        with ThreadPoolExecutor(PRODUCTS) as own:
            return list(own.map(product, inputs))

    def by_thread() -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        threads = [threading.Thread(target=lambda x=x: found.append(product(x))) for x in inputs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def by_queue() -> list[torch.Tensor]:
        for x in inputs:
            asked.put(x)
        return [made.get() for _ in inputs]

    threading.Thread(target=serve, daemon=True).start()
    return {
        "serial": lambda: [product(x) for x in inputs],
        "build": lambda: list(pool.map(product, inputs)),
        "step": in_step,
        "thread": by_thread,
        "queue": by_queue,
    }


def shares(run: Run) -> dict[str, float | int | None]:
    """Return how much of the energy above the idle part is in operators, and in kernels without one."""
    books = open_books(run)
    joined = books.total(i for i, kernel in enumerate(run.kernels) if kernel.op is not None)
    counted = [account for account in books.accounts if account.counted]
    work_j = sum(a.metered.joules - (0.0 if a.idle is None else a.idle.joules) for a in counted)
    unseen = find_unseen(run, books)
    return {
        "operators": len(run.ops),
        "in rows": None if joined is None else joined.joules / work_j,
        "unseen": 0.0 if unseen is None else unseen.share,
        "unexplained": books.unexplained_share,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--size", type=int, help="of the products; 512 on a CPU, 4096 on a GPU")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--replay-seconds", type=float, default=REPLAY_S)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    size = options.size or (512 if options.device == "cpu" else 4096)
    found = {}
    for name, step in make_steps(options.device, size).items():
        rows = []
        for _ in range(options.times):
            run = record(
                step, label=name, seconds=options.seconds, replay_seconds=options.replay_seconds, root=Path.cwd()
            )
            rows.append(shares(run))
        found[name] = rows
        middle = [statistics.median(row["in rows"] or 0.0 for row in rows), rows[-1]["unseen"] or 0.0]
        print(
            f"{name:8} {rows[-1]['operators']} operators, {middle[0]:.1%} in rows, {middle[1]:.1%} unseen", flush=True
        )
        for note in run.notes:
            print(f"         {note}")
    if options.json is not None:
        about = {"device": options.device, "torch": torch.__version__, "size": size}
        options.json.write_text(json.dumps({**about, "programs": found}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
