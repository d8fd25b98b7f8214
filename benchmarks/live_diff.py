"""Time a live diff of two programs, from the command to its report, and show where the time goes.

    python benchmarks/live_diff.py [--only four|gpt2] [--seconds 4] [--limits]

Two pairs: four operators in float32 with and without TF32 (on a CPU: with and without a copy), and GPT-2 with both
forms of its activation. Each is compared by `joulediff diff A B --timings` with the default options, in a process of
its own. The intervals of both steps are printed too, since a shorter measurement is no gain if they grow. With
`--limits` it exits with 1 if a diff takes longer than its limit on an H200: 30 s for four operators, 60 s for GPT-2.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMITS_S = {"four": 30.0, "gpt2": 60.0}

FOUR = """\
import torch

ON_GPU = torch.cuda.is_available()


def _build(allow_tf32, copies):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = allow_tf32
    device, rows, width = ("cuda", 4096, 4096) if ON_GPU else ("cpu", 512, 512)
    x, up = torch.randn(rows, width, device=device), torch.randn(width, width, device=device) / width**0.5

    @torch.no_grad()
    def step():
        hidden = torch.nn.functional.gelu(x @ up)
        if copies:
            hidden = hidden.t().contiguous().t()
        return torch.softmax(hidden @ up, dim=-1)

    return step


def wasteful():
    return _build(allow_tf32=False, copies=not ON_GPU)


def lean():
    return _build(allow_tf32=True, copies=False)
"""


@dataclass(frozen=True)
class Timed:
    """One diff: its wall time, the half widths of both steps' intervals, and its first finding."""

    name: str
    wall_s: float
    half_widths: tuple[float | None, float | None]
    ratio: float | None
    first: str
    stages: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(LIMITS_S))
    parser.add_argument("--seconds", type=float, help="time to measure each program for  [the default of diff]")
    parser.add_argument("--limits", action="store_true", help="exit with 1 if a diff takes longer than its limit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "four.py").write_text(FOUR)
        pairs = {
            "four": ("four.py:wasteful", "four.py:lean"),
            "gpt2": tuple(f"{ROOT / 'examples' / 'gpt2.py'}:{which}" for which in ("plain", "fused")),
        }
        wanted = [options.only] if options.only else list(pairs)
        found = [run(each, folder, pairs[each], options.seconds) for each in wanted]
    for each in found:
        print(f"\n{each.name}: where the time goes\n{each.stages}")
    print(f"\n{'pair':8}{'wall':>8}{'limit':>8}{'ratio':>8}{'± A':>8}{'± B':>8}  first finding")
    for each in found:
        widths = "".join(f"{'?' if share is None else f'{share:.1%}':>8}" for share in each.half_widths)
        ratio = "?" if each.ratio is None else f"{each.ratio:.2f}x"
        limit_s = LIMITS_S[each.name]
        print(f"{each.name:8}{each.wall_s:>6.1f} s{limit_s:>6.0f} s{ratio:>8}{widths}  {each.first}")
    if options.limits and any(each.wall_s > LIMITS_S[each.name] for each in found):
        sys.exit(1)


def run(name: str, folder: Path, programs: tuple[str, ...], seconds: float | None) -> Timed:
    """Return the time of one diff."""
    report = folder / f"{name}.json"
    words = ["diff", *programs, "--timings", "-o", str(report)]
    words += [] if seconds is None else ["--seconds", f"{seconds:g}"]
    begin_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "joulediff", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    wall_s = time.perf_counter() - begin_s
    if done.returncode not in (0, 2):  # 2: measured on a machine that is not quiet
        raise SystemExit(f"joulediff {' '.join(words)}: {done.stderr}")
    diff: dict[str, Any] = json.loads(report.read_text())
    first = diff["findings"][0] if diff["findings"] else None
    told = "none" if first is None else f"{first['kind']}: {first['cause']['key']} ({first['proof']})"
    return Timed(
        name,
        wall_s,
        (_half_width(diff["a"]), _half_width(diff["b"])),
        (diff["ratio"] or {}).get("value"),
        told,
        done.stderr,
    )


def _half_width(side: dict[str, Any]) -> float | None:
    energy = (side.get("step") or {}).get("energy")
    return None if not energy else (energy["high"] - energy["low"]) / 2 / energy["joules"]


if __name__ == "__main__":
    main()
