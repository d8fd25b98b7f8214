"""Do the books of `joulediff apis` close, and is every call site that ran in the report?

    python benchmarks/apis_books.py [--python PATH] [SCRIPT ...]

Each script of benchmarks/scripts runs three times: under `joulediff apis`, the same with no library watched, and under
a profile function that notes the lines from which functions of the watched libraries are called. Printed for each:

- books: calls + code between + idle (+ other processes) as a share of the metered program, by domain;
- watched: the energy and the time of the program with its libraries watched over those with none: what watching costs,
  with the noise of two runs;
- sites: lines with calls that the profile function saw, how many of them the report has, and those it lacks.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
SOURCE = Path(__file__).parents[1] / "src"
PROFILED = Path(__file__).parent / "apis_sites.py"


def call_lines(script: Path) -> set[int]:
    """Return the lines of a script that a call expression covers."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(script.read_bytes())):
        if isinstance(node, ast.Call):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def run_profiled(python: str, script: Path, libraries: list[str]) -> set[int]:
    """Return the lines of the script from which functions of the libraries were called."""
    with tempfile.NamedTemporaryFile(suffix=".json") as found:
        command = [python, str(PROFILED), found.name, ",".join(libraries), str(script)]
        subprocess.run(command, check=True, capture_output=True)
        return set(json.loads(Path(found.name).read_text()))


def run_apis(python: str, script: Path, *options: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run.json"
        environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
        command = [python, "-m", "joulediff", "apis", str(script), "--json", str(place), *options]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
        if not place.exists():
            raise SystemExit(f"{script.name}: {done.stderr[-2000:]}")
        return json.loads(place.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("scripts", nargs="*")
    options = parser.parse_args()
    scripts = [Path(each) for each in options.scripts] or sorted(SCRIPTS.glob("*.py"))
    print(f"{'script':<18}{'seconds':>8}{'calls':>9}{'books':>24}{'watched':>22}  sites")
    for script in scripts:
        run = run_apis(options.python, script)
        bare = run_apis(options.python, script, "--library", "no_library")
        seen = run_profiled(options.python, script, run["libraries"]) & call_lines(script)
        reported = {site["line"] for api in run["apis"] for site in api["sites"]}
        covered = {line for line in seen if line in reported or is_inside(line, script, reported)}
        books = {name: closure(account) for name, account in run["ledger"].items()}
        shown = " ".join(f"{name} {100 * share:.1f}%" for name, share in books.items())
        cost = run["energy"]["joules"] / bare["energy"]["joules"], run["seconds"] / bare["seconds"]
        watched = f"{cost[0]:.2f}x J {cost[1]:.2f}x s"
        calls = sum(api["calls"] for api in run["apis"])
        lacks = f", lacks {sorted(seen - covered)}" if seen - covered else ""
        sites = f"{len(covered)} of {len(seen)}{lacks}"
        print(f"{script.stem:<18}{run['seconds']:>8.1f}{calls:>9,}{shown:>24}{watched:>22}  {sites}", flush=True)


def is_inside(line: int, script: Path, reported: set[int]) -> bool:
    """Return whether a call expression over several lines has the line, and begins at a reported one."""
    for node in ast.walk(ast.parse(script.read_bytes())):
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno):
            inside = {node.lineno, *(each.lineno for each in ast.walk(node) if hasattr(each, "lineno"))}
            if inside & reported:
                return True
    return False


def total(account: dict) -> float:
    parts = ("calls", "between", "idle", "children", "measuring")
    return sum(account[part]["joules"] for part in parts if account[part] is not None)


def closure(account: dict) -> float:
    return total(account) / account["metered"]["joules"]


if __name__ == "__main__":
    main()
