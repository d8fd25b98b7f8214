"""The pytest plugin: its options and its mark.

pytest loads this file in every project that has joulediff installed, so it imports nothing else of joulediff. The work
is in `measured_tests`, which is loaded if a test has the mark or an option asks for energy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from joulediff.integrations.measured_tests import MeasuredTests

_SESSION = "joulediff-session"
_MARK = "joules(max=None, strict=False, repeat=False): measure the energy of the test; fail it if it surely exceeds max"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("joules", "energy of tests (joulediff)")
    add = group.addoption
    add("--joules", action="store_true", help="measure the energy of every test, and list the highest")
    add("--no-joules", action="store_true", help="measure nothing, also no test with the mark joules")
    add("--joules-save", metavar="FILE", help="measure every test, and write their energies as a baseline (JSON)")
    add("--joules-baseline", metavar="FILE", help="measure every test, and fail those that got more expensive")
    add("--joules-tolerance", metavar="SHARE", default="10%", help="how much more than the baseline is allowed (10%%)")
    add("--joules-seconds", metavar="S", type=float, default=0.5, help="time to repeat a test that allows it (0.5)")
    add("--joules-meter", metavar="M", default="auto", help="meters, as for `joulediff measure --meter` (auto)")
    add("--joules-cpu-watts", metavar="W", type=float, help="watts of a busy core, where CPU energy is estimated")
    add("--joules-machine", metavar="NAME", help="name of this machine in baselines (its host name)")
    add("--joules-top", metavar="N", type=int, default=10, help="how many tests to list (10)")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark; start measuring if an option asks for it."""
    config.addinivalue_line("markers", _MARK)
    config.pluginmanager.register(_Reports(config))
    options = config.option
    if options.joules or options.joules_save is not None or options.joules_baseline is not None:
        _start(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start measuring if a test has the mark."""
    if any(item.get_closest_marker("joules") is not None for item in items):
        _start(config)


class _Reports:
    """Keeps the energies that reports hold, also those of other processes (pytest-xdist)."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the energy of one test."""
        if getattr(report, "joules", None) is not None and (session := _start(self._config)) is not None:
            session.keep(report)


def _start(config: pytest.Config) -> MeasuredTests | None:
    """Return what measures the tests of this run, registered at the first call; None with `--no-joules`."""
    if config.option.no_joules:
        return None
    found: MeasuredTests | None = config.pluginmanager.get_plugin(_SESSION)
    if found is None:
        from joulediff.integrations.measured_tests import open_measured_tests

        found = open_measured_tests(config)
        config.pluginmanager.register(found, _SESSION)
    return found
