"""The spread of the gate's ratio between pairs of processes, for programs compared with themselves.

    python benchmarks/gate_spread.py --rounds 8

Each round starts both processes anew and measures them in short turns in alternation. The spread of the means of the
rounds has two parts: that between turns, which more turns reduce, and that between processes.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path

from joulediff.diagnosis.gate.judge import round_ratio, turns_half
from joulediff.diagnosis.gate.settle import Rounds
from joulediff.diagnosis.interleaved_recording import Program
from joulediff.model.options import RecordOptions
from joulediff.model.progress import ProgressListener
from joulediff.model.stats import CONFIDENCE_SIGMAS
from joulediff.process.interpreter import find_interpreter
from joulediff.process.request import Request

PROGRAMS = Path(__file__).with_name("gate_programs.py")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("programs", nargs="*", default=[f"{PROGRAMS}:operators_0", f"{PROGRAMS}:host_0"])
    arguments.add_argument("--rounds", type=int, default=8)
    chosen = arguments.parse_args()
    for target in chosen.programs:
        program = Program(Request(target, RecordOptions()), find_interpreter(None), lambda _: None)
        rounds = Rounds(limit=0.05, settle_s=math.inf, listener=ProgressListener())
        for _ in range(chosen.rounds):
            rounds.measure_anew({"a": program, "b": program}, {})
            last = rounds.done[-1]
            value, half = statistics.mean(last.log_ratios), turns_half(last.log_ratios)
            spread = statistics.stdev(last.log_ratios)
            print(
                f"{target.rpartition(':')[2]:12} {100 * value:+6.2f} % ± {100 * half:.2f} %, {len(last.log_ratios):2} "
                f"times four turns with a spread of {100 * spread:.2f} %, {last.spent_s:.1f} s",
                flush=True,
            )
        means = [statistics.mean(each.log_ratios) for each in rounds.done]
        within = statistics.mean((turns_half(each.log_ratios) / CONFIDENCE_SIGMAS) ** 2 for each in rounds.done)
        between = math.sqrt(max(0.0, statistics.variance(means) - within))
        print(f"  spread of the rounds {100 * statistics.stdev(means):.2f} %, between processes {100 * between:.2f} %")
        print(f"  B over A in all rounds: {round_ratio(rounds.done)}")


if __name__ == "__main__":
    main()
