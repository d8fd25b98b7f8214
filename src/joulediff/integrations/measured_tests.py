"""Measure the energy of tests while pytest runs them, and judge it by marks and a baseline.

Only the call of a test is measured, without its fixtures. Exceptions, skips and results of tests stay unchanged.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from joulediff.integrations.baseline import (
    Baseline,
    Machine,
    read_baseline,
    refuse_other_machine,
    this_machine,
    write_baseline,
)
from joulediff.integrations.energy_limits import (
    LEAST_BATCHES,
    Limit,
    TestEnergy,
    Verdict,
    baseline_text,
    energy_text,
    from_plain,
    judge_baseline,
    judge_limit,
    limit_text,
    of_batches,
    of_block,
    read_mark,
    to_plain,
)
from joulediff.measuring.blocks.block import Block
from joulediff.measuring.blocks.shared_meters import SharedMeters, shared_meters
from joulediff.model.energy import Energy, add_known
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import BlockMeasurement
from joulediff.model.units import format_time, parse_share

_FOUND = pytest.StashKey[TestEnergy]()
# Whether the test failed for its energy alone.
_FAILED_HERE = pytest.StashKey[bool]()
_TITLE = "energy of tests (joulediff)"
# Tests of one kind that a list names; the others are counted.
_MOST_NAMED = 10


def open_measured_tests(config: pytest.Config) -> MeasuredTests:
    """Return what measures the tests of a run; raises `pytest.UsageError` for options that cannot be met."""
    try:
        return MeasuredTests(config)
    except JoulediffError as error:
        raise pytest.UsageError(f"joulediff: {error}") from error


class MeasuredTests:
    """The tests of one run of pytest, and their energies. A plugin with hooks of its own."""

    def __init__(self, config: pytest.Config) -> None:
        options = config.option
        worker = getattr(config, "workerinput", None)
        self._is_worker = worker is not None
        # The tests of other workers run on the same machine, and meters of the machine see them too.
        self._workers = int(worker.get("workercount", 1)) if worker is not None else 1
        self._open = partial(shared_meters, options.joules_meter, options.joules_cpu_watts)
        self._folder = Path(config.invocation_params.dir)
        self._every = bool(options.joules or options.joules_save or options.joules_baseline)
        self._seconds, self._top = options.joules_seconds, options.joules_top
        self._tolerance = _read_tolerance(options.joules_tolerance)
        self._save_to, self._baseline_file = options.joules_save, options.joules_baseline
        self._machine_name = options.joules_machine
        self._found: dict[str, TestEnergy] = {}
        self._to_save: dict[str, TestEnergy] = {}
        self._saved: str | None = None
        self._baseline: Baseline | None = None
        if self._save_to is not None and not self._is_worker:
            _refuse_unwritable(self._folder / self._save_to)
        if self._every:
            self._meters()
        if self._baseline_file is not None:
            self._baseline = read_baseline(self._folder / self._baseline_file)
            if not self._is_worker:
                refuse_other_machine(self._baseline.machine, self._machine(), self._baseline_file)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure the call of a test, repeat it if that is allowed and needed, and judge its energy."""
        limit = self._limit_of(item)
        if limit is None:
            return (yield)
        if (why := self._why_no_meters()) is not None:
            pytest.fail(f"joulediff: the energy of the test cannot be measured: {why}", pytrace=False)
        block = Block(item.nodeid, self._open)
        block.__enter__()
        try:
            result = yield
        except BaseException as error:
            block.__exit__(type(error), error, error.__traceback__)
            raise
        else:
            block.__exit__(None, None, None)
        finally:
            item.stash[_FOUND] = self._judge(item, of_block(block.result, is_shared=self._is_shared), limit)
        # The first run may load and compile what the others find ready, so a baseline has the repeats too.
        if limit.most_runs > 1 and (self._save_to is not None or item.stash[_FOUND].verdict in ("unsure", "exceeded")):
            self._repeat(item, limit)
        self._fail(item, item.stash[_FOUND], limit)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the energy of a test into the report of its call."""
        report = yield
        if call.when == "call" and (found := item.stash.get(_FOUND, None)) is not None:
            is_done = report.outcome == "passed" or item.stash.get(_FAILED_HERE, False)
            report.joules = {"energy": to_plain(found), "is_done": is_done}  # type: ignore[attr-defined]
        return report

    def keep(self, report: pytest.TestReport) -> None:
        """Keep the energy that a report holds."""
        if report.skipped:  # by itself, or it failed as expected
            return
        joules = report.joules
        self._found[report.nodeid] = found = from_plain(joules["energy"])
        if joules["is_done"]:  # a test that raised did not do its work
            self._to_save[report.nodeid] = found

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the baseline."""
        if self._save_to is None or self._is_worker:
            return
        try:
            count = write_baseline(self._folder / self._save_to, self._machine(), self._to_save)
        except JoulediffError as error:
            self._saved = f"joulediff: {error}"
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
            return
        self._saved = f"{self._save_to} has the energy of {_tests(count)}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the tests with the highest energy, and what could not be told."""
        if not self._found and self._saved is None:
            return
        terminalreporter.write_sep("=", _TITLE)
        for line in self._summary():
            terminalreporter.write_line(line)

    def _meters(self) -> SharedMeters:
        return self._open()

    def _why_no_meters(self) -> str | None:
        try:
            self._meters()
        except JoulediffError as error:
            return str(error)
        return None

    def _machine(self) -> Machine:
        return this_machine(self._meters().domains, self._machine_name)

    @property
    def _is_shared(self) -> bool:
        return self._workers > 1

    def _limit_of(self, item: pytest.Item) -> Limit | None:
        """Return the limit of a test that is to be measured; None for the others."""
        mark = item.get_closest_marker("joules")
        if mark is None:
            return Limit() if self._every else None
        try:
            return read_mark(mark.args, mark.kwargs)
        except JoulediffError as error:
            wrong = f"joulediff: {error}"
        pytest.fail(wrong, pytrace=False)

    def _judge(self, item: pytest.Item, found: TestEnergy, limit: Limit) -> TestEnergy:
        """Return the energy with the verdict of its limit and of the baseline, whichever is worse."""
        verdicts: list[Verdict] = []
        if limit.max_j is not None:
            verdicts.append(judge_limit(found.energy, limit.max_j))
        if (before := self._before(item)) is not None:
            verdicts.append(judge_baseline(found.energy, before, self._tolerance))
        worst = next((each for each in ("exceeded", "unsure", "kept") if each in verdicts), None)
        return replace(found, verdict=worst)

    def _before(self, item: pytest.Item) -> Energy | None:
        return None if self._baseline is None else self._baseline.energy_of(item.nodeid)

    def _repeat(self, item: pytest.Item, limit: Limit) -> None:
        """Run the test again, with the same fixtures, until the verdict is sure or the time is spent."""
        batches: list[tuple[BlockMeasurement, int]] = []
        spent_s, runs = 0.0, 1
        while spent_s < self._seconds and runs < limit.most_runs:
            count = int(min(2 ** len(batches), limit.most_runs - runs))
            block = Block(item.nodeid, self._open)
            with block:
                for _ in range(count):
                    item.runtest()
            batches.append((block.result, count))
            spent_s, runs = spent_s + block.seconds, runs + count
            item.stash[_FOUND] = self._judge(item, of_batches(batches, is_shared=self._is_shared), limit)
            if len(batches) >= LEAST_BATCHES and item.stash[_FOUND].verdict != "unsure":
                return

    def _fail(self, item: pytest.Item, found: TestEnergy, limit: Limit) -> None:
        """Fail the test if it surely exceeds its limit or the baseline, or if its mark is strict and it may do so."""
        if limit.max_j is not None:
            verdict = judge_limit(found.energy, limit.max_j)
            if verdict == "exceeded" or (verdict == "unsure" and limit.strict):
                fix = "make it cheaper, raise max, or let it repeat: repeat=True" if limit.most_runs == 1 else ""
                _fail(item, "\n".join(filter(None, [limit_text(found, limit.max_j), fix])))
        before = self._before(item)
        if before is None or found.energy is None:
            return
        if judge_baseline(found.energy, before, self._tolerance) == "exceeded":
            text = baseline_text(found.energy, before, self._tolerance, self._baseline_file)
            _fail(item, f"{text}\nif that is meant, write the baseline anew: pytest --joules-save FILE")

    def _summary(self) -> Generator[str, None, None]:
        yield from self._table()
        if any(each.energy is not None and each.energy.source == "estimated" for each in self._found.values()):
            yield "the energy of the CPU is estimated from CPU time, not measured"
        if any(each.is_shared for each in self._found.values()):
            yield "tests ran in several processes at once, and the meters saw all of them: an energy is an upper bound"
            yield "  (run without -n to tell the tests apart)"
        for test, found in self._found.items():
            if found.verdict == "unsure":
                shown = "its energy is not known" if found.energy is None else energy_text(found.energy)
                yield f"! {test}: cannot tell whether it keeps its limit: {shown}"
        if self._baseline is not None:
            known = {each.id for each in self._baseline.tests}
            yield from _names("not in the baseline", [each for each in self._found if each not in known])
        if self._saved is not None:
            yield self._saved

    def _table(self) -> Generator[str, None, None]:
        from rich.console import Console

        from joulediff.report.sanitize import plain_text
        from joulediff.report.terminal.table import to_table
        from joulediff.report.views.columns import Column, TextTable
        from joulediff.report.views.short_texts import format_interval

        known = [(test, each) for test, each in self._found.items() if each.energy is not None]
        known.sort(key=lambda row: -row[1].energy.joules if row[1].energy is not None else 0.0)
        shown = known[: max(self._top, 1)]
        if shown:
            columns = (
                Column("energy", [format_interval(each.energy) for _, each in shown if each.energy], is_right=True),
                Column("time", [format_time(each.seconds) for _, each in shown], is_right=True),
                Column("runs", [f"{each.runs:,}" for _, each in shown], is_right=True, spare=0),
                Column("test", [plain_text(test) for test, _ in shown], cut="begin"),
            )
            file = io.StringIO()
            width = shutil.get_terminal_size().columns - 1  # as pytest takes it
            console = Console(file=file, width=width, color_system=None, force_terminal=False, highlight=False)
            console.print(to_table(TextTable(columns), console.width))
            yield from (line.rstrip() for line in file.getvalue().splitlines())
        total = add_known([each.energy for _, each in known])
        text = f"{_tests(len(self._found))}, {'energy unknown' if total is None else total.interval_text}"
        yield f"{text}, {len(known) - len(shown):,} not listed" if len(known) > len(shown) else text


def _fail(item: pytest.Item, why: str) -> None:
    item.stash[_FAILED_HERE] = True
    pytest.fail(why, pytrace=False)


def _names(title: str, tests: list[str]) -> Generator[str, None, None]:
    if tests:
        more = f" and {len(tests) - _MOST_NAMED:,} more" if len(tests) > _MOST_NAMED else ""
        yield f"{title}: {', '.join(tests[:_MOST_NAMED])}{more}"


def _tests(count: int) -> str:
    return f"{count:,} test{'' if count == 1 else 's'}"


def _read_tolerance(text: str) -> float:
    try:
        return 0.0 if text.strip() in ("0", "0%") else parse_share(text)
    except ValueError:
        raise JoulediffError(f"--joules-tolerance {text} is not a share", fix="write 10% or 0.1") from None


def _refuse_unwritable(path: Path) -> None:
    if path.is_dir() or not path.parent.is_dir():
        why = "it is a folder" if path.is_dir() else "its folder does not exist"
        raise JoulediffError(f"cannot write {path} ({why})", fix="choose another file for --joules-save")
