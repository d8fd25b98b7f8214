"""Compare programs with a known waste: is the first finding the expected one, and is it confirmed?

    python benchmarks/pairs.py                        # all pairs that this machine's device has
    python benchmarks/pairs.py tf32 gelu --confirm    # some, and the whole program with each fix

Each pair is `tests/pairs/NAME.py` with two builders, `wasteful` and `lean`, and the expected finding.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="*")
    arguments.add_argument("--confirm", action="store_true")
    arguments.add_argument("--out", type=Path, default=Path(".pairs"))
    arguments.add_argument("--seconds", default="4")
    arguments.add_argument("--replay-seconds", default="30")
    arguments.add_argument("--wait", default="10")
    arguments.add_argument("--budget", type=float, default=float("inf"), help="Seconds after which no pair is begun.")
    chosen = arguments.parse_args()
    sys.path.insert(0, str(TESTS))
    common = import_module("pairs.common")
    every = sorted(path.stem for path in (TESTS / "pairs").glob("*.py") if path.stem not in ("__init__", "common"))
    chosen.out.mkdir(parents=True, exist_ok=True)
    begin_s, rows = time.monotonic(), []
    for name in chosen.names or every:
        expected = import_module(f"pairs.{name}").EXPECTED
        if common.DEVICE not in expected.devices or time.monotonic() - begin_s > chosen.budget:
            continue
        rows.append(judge(name, expected, common, chosen))
        show(rows[-1])
    (chosen.out / "pairs.json").write_text(json.dumps(rows, indent=1))
    return 0 if all(row["right"] for row in rows) else 1


def judge(name: str, expected: object, common: object, chosen: argparse.Namespace) -> dict[str, object]:
    """Run one diff and compare its first finding with the expected one."""
    file = Path(os.path.relpath(TESTS / "pairs" / f"{name}.py"))  # as a user would write it
    place = chosen.out / f"{name}.json"
    command = [
        sys.executable,
        "-m",
        "joulediff",
        "-vv",
        "diff",
        f"{file}:wasteful",
        f"{file}:lean",
        "--json",
        str(place),
    ]
    command += ["--seconds", chosen.seconds, "--replay-seconds", chosen.replay_seconds, "--wait", chosen.wait]
    command += ["--keep", str(chosen.out / "kept" / name), *(["--confirm"] if chosen.confirm else [])]
    paths = os.pathsep.join(filter(None, [str(TESTS), str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    place.unlink(missing_ok=True)
    begin_s = time.monotonic()
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begin_s
    (chosen.out / f"{name}.txt").write_text(done.stdout + done.stderr)
    found = json.loads(place.read_text()) if place.exists() else {"findings": []}
    first = found["findings"][0] if found["findings"] else None
    row: dict[str, object] = {"name": name, "seconds": round(seconds, 1), "findings": len(found["findings"])}
    if first is None:
        return row | {"right": False, "ratio": (found.get("ratio") or {}).get("value"), "error": done.stderr[-300:]}
    here = first["cause"]["location_a" if first["expensive"] == "a" else "location_b"] or {}
    line = None if "line" not in here else (Path(here["file"]).name, here["line"])
    wanted = (file.name, common.marked_line(str(file)))
    confirmation = first["confirmation"] or {}
    whole = confirmation.get("whole") or {}
    row |= {
        "ratio": found["ratio"] and found["ratio"]["value"],
        "expensive": first["expensive"],
        "kind": first["kind"] == expected.kind,
        "key": str(first["cause"]["key"]).removeprefix("config.") == expected.key,
        "line": line == wanted,
        "confirmed": first["confirmed"],
        "told": [first["kind"], first["cause"]["type"], first["cause"]["key"], line],
        "saved": confirmation.get("saved_share"),
        "saved_whole": whole.get("saved_share"),
        "whole_note": whole.get("note"),
    }
    row["right"] = all(row[each] for each in ("kind", "key", "line", "confirmed")) and first["expensive"] == "a"
    return row


def show(row: dict[str, object]) -> None:
    marks = {each: "ok" if row.get(each) else "NO" for each in ("kind", "key", "line", "confirmed")}
    saved = [row.get("saved"), row.get("saved_whole")]
    texts = ["-" if each is None else f"{100 * each:.1f}%" for each in saved]
    ratio = row.get("ratio")
    print(
        f"{row['name']:18} {row['seconds']:6} s  {'?' if ratio is None else f'{ratio:.2f}x':>7}  "
        + "  ".join(f"{name} {mark}" for name, mark in marks.items())
        + f"  saves {texts[0]}, whole {texts[1]}  ({row['findings']} findings)"
        + ("" if row["right"] else f"  {row.get('told') or row.get('error')}"),
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
