"""What `make demo` shows: this machine's meters, a diff of two programs, and one of two recordings of an H200."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED = 1  # other codes are results too: a busy laptop may well give numbers that are to be taken with care


def commands(root):
    """Return what to run, in order. Recordings that are not there are left out."""
    diff = ["diff", "examples/wasteful.py", "examples/lean.py", "--keep", ".demo", "-o", ".demo/report.md"]
    found = [["doctor"], [*diff, "--seconds", "2", "--replay-seconds", "15", "--wait", "5"]]
    recordings = [f"examples/h200/{name}.jd" for name in ("wasteful", "lean")]
    if all((root / each).exists() for each in recordings):
        found.append(["diff", *recordings])
    return found


def joulediff(*arguments):
    command = ["joulediff", *arguments]
    print("$", " ".join(command), flush=True)  # noqa: T201
    code = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode
    print(flush=True)  # noqa: T201
    return code


def main():
    (ROOT / ".demo").mkdir(exist_ok=True)
    todo = commands(ROOT)
    for command in todo:
        if joulediff(*command) == FAILED and command[0] != "doctor":
            sys.exit(FAILED)
    if len(todo) == 2:
        print("Recordings of an H200 are not in examples/h200: their diff is left out.")  # noqa: T201
    print("The first diff is also in .demo/report.md, its recordings are beside it: joulediff show .demo/a-wasteful.jd")  # noqa: T201


if __name__ == "__main__":
    main()
