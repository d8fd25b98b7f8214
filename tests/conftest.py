from __future__ import annotations

import gc
import signal
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import settings

import markers

LEAST_EXAMPLES = 10


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep what a test learns out of the user's own cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("JOULEDIFF_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make reports look the same wherever the tests run."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def short_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the idle power for 0.3 s instead of a second, for tests of other things that record in this process."""
    from joulediff.measuring import idle

    monkeypatch.setattr(idle, "WINDOW_S", 0.3)
    monkeypatch.setattr(idle, "WINDOW_PERIODS", 3)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write the golden reports in tests/golden anew")
    parser.addoption("--gpu-passed", metavar="FILE", help="write down the commit if all tests of a GPU pass")
    parser.addoption("--commit", metavar="HASH", help="the commit for --gpu-passed, where git is not at hand")


def pytest_configure() -> None:
    """Take Ctrl-C as Python does: a shell that starts the tests in the background has it ignored."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Write the file of `--gpu-passed` if every selected test ran and passed."""
    place = config.getoption("--gpu-passed")
    if place is None:
        return
    counts = {outcome: len(terminalreporter.getreports(outcome)) for outcome in ("passed", "skipped")}
    if exitstatus != 0 or counts["skipped"] or not counts["passed"]:
        terminalreporter.write_line(f"{place} is not written: not all tests ran and passed")
        return
    import gpu_runs

    gpu_runs.write(Path(place), config.getoption("--commit"), counts["passed"])


def is_unit_run(config: pytest.Config) -> bool:
    return config.option.markexpr == "unit"


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Forbid frameworks and processes where only unit tests run, but not in a process that starts test workers."""
    config = session.config
    starts_workers = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if is_unit_run(config) and not starts_workers:
        sys.addaudithook(markers.forbid)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that import a framework where only unit tests run."""
    if is_unit_run(config) and collection_path.suffix == ".py" and markers.loads_a_framework(collection_path):
        return True
    return None


def pytest_collection_finish() -> None:
    """Keep the objects of all test modules out of garbage collections, each of which would look at millions of them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Mark each test by what it needs, unless it has such a marker already."""
    if is_unit_run(config):
        try_fewer_examples(items)
    for item in items:
        if any(item.get_closest_marker(name) for name in markers.NEEDS):
            continue
        name = item.nodeid.split("::")[1].partition("[")[0]
        for marker in markers.needs_of_test(item.path, name):
            item.add_marker(marker)


def try_fewer_examples(items: list[pytest.Item]) -> None:
    """Give each property test a tenth of its examples, but ten at least; a run of all tests tries every one."""
    for function in {getattr(item, "function", None) for item in items}:
        # The name is hypothesis' own: a profile does not reach tests that state their number of examples.
        own = getattr(function, "_hypothesis_internal_use_settings", None)
        if own is not None:
            count = max(LEAST_EXAMPLES, own.max_examples // 10)
            function._hypothesis_internal_use_settings = settings(own, max_examples=min(count, own.max_examples))
