"""What `make demo` shows: the machine's meters, then two ways to compute GELU, and the ratio of their energy."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / ".demo"


def joulediff(*arguments):
    command = ["joulediff", *arguments]
    print("$", " ".join(command), flush=True)  # noqa: T201
    code = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode
    print(flush=True)  # noqa: T201
    return code


def main():
    OUT.mkdir(exist_ok=True)
    joulediff("doctor")
    found = {}
    for name in ("gelu_eager", "gelu_fused"):
        place = OUT / f"{name}.json"
        # Exit code 2 is a number to be taken with care, which a busy laptop may well give.
        if joulediff("measure", f"examples/{name}.py", "--wait", "5", "--json", f".demo/{name}.json") == 1:
            sys.exit(1)
        found[name] = json.loads(place.read_text())
    eager, fused = found["gelu_eager"]["energy"], found["gelu_fused"]["energy"]
    low, high = eager["low"] / fused["high"], eager["high"] / max(fused["low"], 1e-30)
    ratio = eager["joules"] / fused["joules"]
    print(  # noqa: T201
        f"GELU written out uses {ratio:.1f}x the energy of the fused one ({low:.1f} to {high:.1f}, {eager['source']})."
    )


if __name__ == "__main__":
    main()
