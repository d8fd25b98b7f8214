"""Do the books of `joulediff apis` close, and is every call site that ran in the report?

    python benchmarks/apis_books.py [--python PATH] [SCRIPT ...]

Each script of benchmarks/scripts runs three times: plainly, under a profile function that notes the lines from which
functions of the watched libraries are called, and under `joulediff apis`. Printed for each:

- books: calls + code between + idle (+ other processes) as a share of the metered program, by domain;
- outside: the CPU seconds that the system counted for the plain process tree x watts, as a share of the same; only
  where the CPU's energy is estimated. The plain run has no profile and no rewriting: above 100 % is what they cost;
- sites: lines with calls that the profile function saw, how many of them the report has, and those it lacks.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
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


def run_plain(python: str, script: Path) -> tuple[float, float]:
    """Return the wall seconds and the CPU seconds of a plain run with all its processes."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([python, str(script)], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began_s, cpu_s


def run_profiled(python: str, script: Path, libraries: list[str]) -> set[int]:
    """Return the lines of the script from which functions of the libraries were called."""
    with tempfile.NamedTemporaryFile(suffix=".json") as found:
        command = [python, str(PROFILED), found.name, ",".join(libraries), str(script)]
        subprocess.run(command, check=True, capture_output=True)
        return set(json.loads(Path(found.name).read_text()))


def run_apis(python: str, script: Path) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run.json"
        environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
        command = [python, "-m", "joulediff", "apis", str(script), "--json", str(place)]
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
    print(f"{'script':<18}{'seconds':>8}{'plain':>8}{'calls':>9}{'books':>18}{'outside':>9}  sites")
    for script in scripts:
        plain_s, plain_cpu_s = run_plain(options.python, script)
        run = run_apis(options.python, script)
        seen = run_profiled(options.python, script, run["libraries"]) & call_lines(script)
        reported = {site["line"] for api in run["apis"] for site in api["sites"]}
        covered = {line for line in seen if line in reported or is_inside(line, script, reported)}
        books = {name: closure(account) for name, account in run["ledger"].items()}
        shown = " ".join(f"{name} {100 * share:.1f}%" for name, share in books.items())
        cpu = run["ledger"].get("cpu")
        outside = "-"
        if cpu is not None and run["domains"]["cpu"]["source"] == "estimated":
            watts = float(run["domains"]["cpu"]["device"].split(",")[-1].split("W")[0])
            outside = f"{100 * plain_cpu_s * watts / total(cpu):.0f}%"
        calls = sum(api["calls"] for api in run["apis"])
        lacks = f", lacks {sorted(seen - covered)}" if seen - covered else ""
        sites = f"{len(covered)} of {len(seen)}{lacks}"
        row = f"{script.stem:<18}{run['seconds']:>8.1f}{plain_s:>8.1f}{calls:>9,}{shown:>18}{outside:>9}  {sites}"
        print(row, flush=True)


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
