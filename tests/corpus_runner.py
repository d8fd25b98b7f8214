"""Run other people's tests, plain or rewritten, and write the outcome of each: one process for each run.

    python tests/corpus_runner.py stdlib test_generators every out.json
    python tests/corpus_runner.py pytest networkx/utils every out.json

The modes are `plain`, `unwatched` (rewritten, no library is watched) and `every` (rewritten, all callables are watched,
those of the tests too).
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import random
import sys
import tempfile
import unittest
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

MODES = ("plain", "unwatched", "every")


class CountingListener:
    """Counts calls, and those that have not ended."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0

    def begin(self, call: Any) -> None:
        call.mark = True
        self.begun += 1

    def end(self, call: Any) -> None:
        self.ended += 1

    def open_calls(self) -> list[str]:
        """Return the places of the calls that have not ended: those of threads that are still running."""
        if self.begun == self.ended:
            return []
        from joulediff.instrument.rewriting.calls import Call

        calls = (each for each in gc.get_objects() if type(each) is Call and each.has_begun)
        return sorted(f"{each.site.file}:{each.site.line} {each.site.text}" for each in calls)


class _Outcomes(unittest.TestResult):
    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, list[str]] = {}

    def _note(self, test: Any, outcome: str, error: Any = None) -> None:
        if error is not None and error[0] is not None:
            outcome = f"{outcome} {error[0].__name__}"
        self.outcomes.setdefault(test.id(), []).append(outcome)

    def addSuccess(self, test: Any) -> None:
        self._note(test, "passed")

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self._note(test, "failed", err)

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self._note(test, "error", err)

    def addSkip(self, test: Any, reason: str) -> None:
        self._note(test, f"skipped {reason}")

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._note(test, "expected failure", err)

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._note(test, "unexpected success")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._note(test, "subtest failed", err)


class _Plugin:
    def __init__(self) -> None:
        self.outcomes: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            kind = report.outcome
            if report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                kind += f" {crash.message.splitlines()[0] if crash and crash.message else ''}"
            self.outcomes.setdefault(report.nodeid, []).append(f"{report.when} {kind}")

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.outcomes.setdefault(f"collect {report.nodeid}", []).append("failed")


def run_stdlib(name: str) -> tuple[dict[str, list[str]], list[str]]:
    """Run one module of the standard library's `test` package."""
    from test import support

    support.verbose = 0
    suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{name}")
    result = _Outcomes()
    suite.run(result)
    errors = [f"{test.id()}\n{text}" for test, text in (*result.failures, *result.errors)]
    return result.outcomes, errors


def run_pytest(place: str) -> tuple[dict[str, list[str]], list[str]]:
    """Run the tests in a folder or a file of an installed package."""
    import importlib.util

    import pytest

    package = place.partition("/")[0]
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parents[1]
    plugin = _Plugin()
    options = [
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "--assert=plain",
        "-c",
        os.devnull,
    ]
    pytest.main([*options, "--rootdir", str(root), str(root / place)], plugins=[plugin])
    return plugin.outcomes, []


def rewritten_package(place: str) -> str:
    """Return what is rewritten: the whole package for a folder, the part of it that the file tests for a file."""
    parts = place.split("/")
    if not place.endswith(".py"):
        return parts[0]
    return ".".join(part for part in parts[:-1] if part != "tests")


def open_mode(mode: str, patterns: list[str], listener: CountingListener) -> AbstractContextManager[Any]:
    """Rewrite modules that match patterns when they are imported."""
    if mode == "plain":
        return nullcontext()
    from joulediff.instrument.rewriting.include import included
    from joulediff.instrument.rewriting.sites import Watcher

    watcher = Watcher([], listener, every=mode == "every")
    return included(watcher, patterns, Path.cwd())


def main() -> None:
    kind, name, mode, out = sys.argv[1:5]
    limit_s = float(sys.argv[5]) if len(sys.argv) > 5 else 600
    # It cannot be stopped from outside where a test ignores signals, so it ends itself.
    faulthandler.dump_traceback_later(limit_s, exit=True)
    random.seed(0)
    destination = Path(out).resolve()
    listener = CountingListener()
    patterns = [f"test.{name}"] if kind == "stdlib" else [rewritten_package(name)]
    run = {"stdlib": run_stdlib, "pytest": run_pytest}[kind]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        with open_mode(mode, patterns, listener):
            outcomes, errors = run(name)
        os.chdir("/")
    result = {"outcomes": outcomes, "errors": errors, "begun": listener.begun, "open": listener.open_calls()}
    destination.write_text(json.dumps(result), encoding="utf-8")
    os._exit(0)  # threads and exit handlers of the tests are not waited for


if __name__ == "__main__":
    main()
