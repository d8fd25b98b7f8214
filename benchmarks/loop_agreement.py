"""Compare the energy of the body of a loop, recorded with --loop, with the same work as a step of `build()`.

    python benchmarks/loop_agreement.py --seconds 4 --repeats 3

Both programs run at the same time and are measured in alternation, as in a diff. The interval is that of the ratio.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

from joulediff.archive.snapshot import Snapshot
from joulediff.diagnosis.interleaved_recording import Program, recorded
from joulediff.model.energy import ratio
from joulediff.model.options import ANY_LOOP, RecordOptions
from joulediff.model.progress import ProgressListener
from joulediff.process.interpreter import Interpreter
from joulediff.process.request import Request


class Work(NamedTuple):
    """The set-up of a program, the body that is repeated, and the name of its result."""

    setup: str
    body: str
    result: str


TORCH = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
"""
WORKS = {
    "training, 512 wide": Work(
        f"""{TORCH}
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
batches = [(torch.randn(64, 512), torch.randn(64, 512)) for _ in range(8)]
""",
        """x, y = batch
optimizer.zero_grad()
loss = torch.nn.functional.mse_loss(model(x), y)
loss.backward()
optimizer.step()
""",
        "loss",
    ),
    "inference, 64 wide": Work(
        f"""{TORCH}
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]).requires_grad_(False)
batches = [torch.randn(8, 64) for _ in range(8)]
""",
        "y = model(batch)\nscore = y.sum()\n",
        "score",
    ),
    "Python, 20 µs": Work("batches = [range(1000)] * 8\n", "total = sum(batch)\n", "total"),
}


def write(folder: Path, work: Work) -> tuple[Path, Path]:
    """Write both programs: a script with a loop, and a builder of a step."""
    script, builder = folder / "script.py", folder / "builder.py"
    script.write_text(f"{work.setup}\nfor batch in batches:\n{indent(work.body, '    ')}")
    lines = [
        "def build():",
        indent(work.setup, "    "),
        "    batch = batches[2]",
        "    def step():",
        indent(work.body, "        "),
        f"        return {work.result}",
        "    step()",
        "    step()",
        "    return step",
    ]
    builder.write_text("\n".join(lines))
    return script, builder


def program(path: Path, options: RecordOptions) -> Program:
    """Return a program of this environment, whose recording is not kept."""
    return Program(Request(str(path), options), Interpreter(sys.executable), keep_nothing)


def keep_nothing(_: Snapshot) -> None:
    """Drop a recording."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=RecordOptions.seconds)
    arguments.add_argument("--repeats", type=int, default=3)
    chosen = arguments.parse_args()
    options = RecordOptions(seconds=chosen.seconds, replay=False, wait_s=5.0)
    for name, work in WORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            script, builder = write(Path(folder), work)
            for _ in range(chosen.repeats):
                loop = RecordOptions(seconds=chosen.seconds, replay=False, wait_s=5.0, loop=ANY_LOOP)
                programs = {"a": program(script, loop), "b": program(builder, options)}
                with recorded(programs, {}, listener=ProgressListener()) as found:
                    a, b = (found.runs[side].measurement for side in ("a", "b"))
                assert a is not None
                assert b is not None
                assert a.energy is not None
                assert b.energy is not None
                both = ratio(a.energy, b.energy)
                assert both is not None
                agrees = "agrees" if both.may_be_one else "differs"
                energies = f"loop {a.energy.interval_text}, build {b.energy.interval_text}"
                interval = f"{both.value:.3f} ({both.low:.3f} .. {both.high:.3f}) {agrees}"
                print(f"{name:20} {energies}: ratio {interval}, {1e6 * (a.step_s - b.step_s):+.2f} µs a step")


if __name__ == "__main__":
    main()
