"""What `make demo` shows: this machine's meters, two ways to compute GELU, their energy, and what is the same work."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / ".demo"
NAMES = ("gelu_eager", "gelu_fused")


def joulediff(*arguments):
    command = ["joulediff", *arguments]
    print("$", " ".join(command), flush=True)  # noqa: T201
    code = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode
    print(flush=True)  # noqa: T201
    return code


def main():
    OUT.mkdir(exist_ok=True)
    joulediff("doctor")
    for name in NAMES:
        # Exit code 2 is a number to be taken with care, which a busy laptop may well give.
        if joulediff("record", f"examples/{name}.py", "-o", f".demo/{name}.jd", "--wait", "5") == 1:
            sys.exit(1)
    for name in NAMES:
        if joulediff("show", f".demo/{name}.jd", "--json", f".demo/{name}.json") != 0:
            sys.exit(1)
    if joulediff("match", *(f".demo/{name}.jd" for name in NAMES)) != 0:
        sys.exit(1)
    eager, fused = (json.loads((OUT / f"{name}.json").read_text()) for name in NAMES)
    a, b = eager["step"]["energy"], fused["step"]["energy"]
    low, high = a["low"] / b["high"], a["high"] / max(b["low"], 1e-30)
    operators = [sum(op["calls"] for op in run["ops"]) for run in (eager, fused)]
    print(  # noqa: T201
        f"GELU written out ({operators[0]} operators) uses {a['joules'] / b['joules']:.1f}x the energy "
        f"of the fused one ({operators[1]}): {low:.1f} to {high:.1f}, {a['source']}."
    )


if __name__ == "__main__":
    main()
