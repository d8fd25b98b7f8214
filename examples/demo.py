"""Run `make demo`: show this machine's meters, compare two programs, and compare two recordings from an H200."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED = 1  # the other exit codes are results: a busy laptop may give numbers that are not trustworthy


def commands(root):
    """Return the commands in order. A command is omitted if its recordings are missing."""
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
        print("There are no H200 recordings in examples/h200: their diff is omitted.")  # noqa: T201
    print("The first diff is saved as .demo/report.md with its recordings: joulediff show .demo/a-wasteful.jd")  # noqa: T201


if __name__ == "__main__":
    main()
