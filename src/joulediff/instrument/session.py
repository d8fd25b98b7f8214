"""Measures the library calls of a program: from a look at the resting machine to the record of the run.

`ApiSession` is used with `with`; the program runs between `start` and `finish`. The program waits for no meter: calls
are joined with readings in the thread that reads the meters.
"""

from __future__ import annotations

import linecache
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from joulediff.frameworks.sync import wait_for_queued_work
from joulediff.instrument.alone import Isolation
from joulediff.instrument.build import Built, build
from joulediff.instrument.recorder import MEASURING, CallRecorder
from joulediff.instrument.rewriting.libraries import default_libraries, packages_of
from joulediff.instrument.rewriting.sites import Watcher
from joulediff.instrument.tally import CallTally, WorkSampler
from joulediff.measuring.conditions import judge_devices
from joulediff.measuring.host_use import CpuUse, CpuWatch, judge_work
from joulediff.measuring.idle import wait_for_rest
from joulediff.measuring.meters import open_meters
from joulediff.measuring.meters.estimated import cpu_model
from joulediff.measuring.meters.meter import Clock, RealClock
from joulediff.measuring.result import remark_on
from joulediff.measuring.sensor_cache import SensorCache
from joulediff.model.apis.api_run import ApiRun, Ending
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Condition, DeviceState, Quiet
from joulediff.model.options import ApisOptions
from joulediff.model.progress import ProgressListener
from joulediff.model.run import SourceText
from joulediff.pysource.programs import describe
from joulediff.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Self

# The record so far is kept after this time, and then less often, so that it takes little time from the program.
FIRST_KEEP_S = 1.0
KEEP_SHARE = 0.005
# A file of the program with more is left out of the record.
MOST_SOURCE_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the program ended."""

    ending: Ending = "end"
    exit_code: int = 0
    error: str | None = None


def outcome_of(error: BaseException | None) -> Outcome:
    """Return how a program ended that this exception left; None for one that ran to its end."""
    if error is None:
        return Outcome()
    if isinstance(error, SystemExit):
        code = error.code
        return Outcome("exit", code if isinstance(code, int) else 0 if code is None else 1)
    if isinstance(error, KeyboardInterrupt):
        return Outcome("stopped", 130, describe(error))
    return Outcome("exception", 1, describe(error))


@dataclass(slots=True)
class _Begin:
    time_s: float
    cpu: CpuUse
    states: list[DeviceState]
    cpu_s: float


@dataclass(slots=True)
class _Keeping:
    """When the record so far is kept next."""

    keep: Callable[[ApiRun], None]
    due_s: float = float("inf")
    taken_s: float = field(default=0.0)


class ApiSession:
    """One run of a program whose calls of `libraries` are measured. `keep` gets the record so far from time to time.

    A library that is `expected` and was not imported is named in a warning; by default all are expected.
    """

    def __init__(
        self,
        options: ApisOptions,
        *,
        program: str,
        label: str,
        libraries: Sequence[str],
        expected: Sequence[str] | None = None,
        arguments: Sequence[str] = (),
        keep: Callable[[ApiRun], None] | None = None,
        clock: Clock | None = None,
        every: bool = False,
    ) -> None:
        self._options = options
        self._program, self._label, self._arguments = program, label, tuple(arguments)
        self._libraries = tuple(libraries)
        self._expected = self._libraries if expected is None else tuple(expected)
        self._keeping = None if keep is None else _Keeping(keep)
        self._clock = clock or RealClock()
        self._every = every
        self._stack = ExitStack()
        self._pid = os.getpid()
        self._quiet: Quiet | None = None
        self._begin: _Begin | None = None
        self._tally: CallTally | None = None
        self._remarks: tuple[str, ...] = ()
        self.faults: list[str] = []
        """Faults of joulediff itself while the program ran."""

    def __enter__(self) -> Self:
        meters = self._stack.enter_context(
            open_meters(
                self._options.meter,
                clock=self._clock,
                cpu_watts=self._options.cpu_watts,
                clock_offset_s=self._options.clock_offset_s,
                cache=SensorCache(),
            )
        )
        self._remarks = tuple(meters.remarks)
        self._sampler = self._stack.enter_context(WorkSampler(meters.meters, clock=self._clock))
        self._read_cpu_use = CpuWatch(clock=self._clock)
        self._alone = alone = Isolation(
            self._sampler, clock=self._clock, calls=self._options.isolated, wait_s=self._options.wait_s
        )
        self._recorder = CallRecorder(
            wait=wait_for_queued_work if self._options.synchronise else None,
            # Without the clock's own method in between: it is called twice for each call.
            now_s=time.perf_counter if isinstance(self._clock, RealClock) else self._clock.now,
            alone=alone if self._options.isolated else None,
        )
        self.watcher = Watcher(self._libraries, self._recorder, every=self._every)
        return self

    def __exit__(self, *_: object) -> None:
        self.watcher.stop()
        self._stack.__exit__(None, None, None)

    @property
    def is_own_process(self) -> bool:
        """Whether this is the process that was measured, and not a forked copy of it."""
        return os.getpid() == self._pid

    def rest(self, listener: ProgressListener | None = None) -> Quiet:
        """Wait until the machine is quiet, and keep its idle power."""
        if listener is not None:
            listener.stage("looking for a quiet second")
        self._quiet = wait_for_rest(self._sampler, clock=self._clock, wait_s=self._options.wait_s, listener=listener)
        return self._quiet

    def start(self) -> None:
        """Begin: the program runs next, in this thread."""
        self._sampler.check()
        states, cpu = self._sampler.states(), self._read_cpu_use()
        self._sampler.edge()
        start_s = self._recorder.start()
        self._begin = _Begin(start_s, cpu, states, cpu.own_s)
        idle = {} if self._quiet is None else self._quiet.idle
        self._tally = CallTally(self._sampler, self._recorder, idle=idle, start_s=start_s)
        if self._keeping is not None:
            self._keeping.due_s = start_s + FIRST_KEEP_S
        self._sampler.after_beat = self._after_beat

    def finish(self, outcome: Outcome) -> ApiRun:
        """End the measurement and return the record. The program has ended."""
        assert self._tally is not None and self._begin is not None
        self.watcher.stop()
        self._sampler.after_beat = None
        self._recorder.stop()
        end_s = self._clock.now()
        self._sampler.edge()
        cpu, states = self._read_cpu_use(), self._sampler.states()
        self._sampler.check()
        self._sampler.catch_up(end_s)
        self._sampler.edge()
        self._tally.end_s = end_s
        self._tally.join()
        devices = judge_devices(self._begin.states, states, idle=False)
        work = judge_work(self._begin.cpu, cpu, end_s - self._begin.time_s, self._sampler.primary_domains())
        return self._to_run(outcome, end_s, cpu.own_s, (*devices, *work))

    def _after_beat(self) -> None:
        """Join and keep, in the thread that reads the meters. An error here must not end that thread."""
        assert self._tally is not None
        if not self._tally.is_due or not self.is_own_process:
            return
        try:
            self._tally.join()
            self._keep()
        except JoulediffError:
            return  # no meter has readings of the program yet, or the parent is gone
        except Exception as error:  # noqa: BLE001 - a fault must not end the thread that reads the meters
            self.faults.append(f"{type(error).__name__}: {error}")
            self._sampler.after_beat = None

    def _keep(self) -> None:
        keeping, now_s = self._keeping, self._clock.now()
        if keeping is None or now_s < keeping.due_s:
            return
        keeping.keep(self._to_run(Outcome("killed", 1, None), now_s, self._read_cpu_use().own_s, ()))
        took_s = self._clock.now() - now_s
        keeping.due_s = now_s + max(FIRST_KEEP_S, took_s / KEEP_SHARE)

    def _to_run(self, outcome: Outcome, end_s: float, cpu_s: float, conditions: Sequence[Condition]) -> ApiRun:
        assert self._tally is not None and self._begin is not None
        quiet = self._quiet
        seconds = end_s - self._begin.time_s - float(self._tally.self_s[MEASURING : MEASURING + 1].sum())
        built = build(self._recorder, self._tally, net=quiet is not None and quiet.quiet, seconds=seconds)
        problems = [*built.warnings, *self._problems(quiet, conditions)]
        if not built.domains:
            raise JoulediffError(
                "no meter gave a number while the program ran" + "".join(f"; {each}" for each in built.warnings),
                fix="run it for longer; `joulediff doctor` shows which meters work here",
            )
        return ApiRun(
            label=self._label,
            program=self._program,
            arguments=self._arguments,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            tool=__version__,
            python=platform.python_version(),
            machine=f"{platform.system()}, {cpu_model() or platform.machine()}",
            libraries=self._libraries,
            versions=_versions(self._libraries),
            seconds=seconds,
            cpu_s=cpu_s - self._begin.cpu_s,
            energy=built.energy,
            net_energy=built.net_energy,
            domains=built.domains,
            ledger=built.ledger,
            apis=built.apis,
            gaps=built.gaps,
            tree=built.tree,
            sources=self._sources(built) if self._options.source else (),
            ending=outcome.ending,
            exit_code=outcome.exit_code,
            error=outcome.error,
            synchronised=self._options.synchronise,
            isolated=self._options.isolated > 0,
            trustworthy=not problems,
            warnings=tuple(dict.fromkeys([*problems, *self._remarks_on(built), *self._remarks])),
            conditions=(*(() if quiet is None else quiet.conditions), *conditions),
        )

    def _problems(self, quiet: Quiet | None, conditions: Sequence[Condition]) -> list[str]:
        found = [each.advice or each.value for each in conditions if not each.ok]
        if quiet is not None and not quiet.quiet:
            found += [f"before the program, {text}" for text in quiet.advice]
        found += [
            f"a fault in joulediff itself while the program ran: {each}"
            for each in dict.fromkeys([*self.faults, *self._recorder.faults])
        ]
        found += [f"meter {name}: {error.what}" for name, error in self._sampler.failures.items()]
        return found

    def _remarks_on(self, built: Built) -> list[str]:
        found = list(self.watcher.warnings)
        for name, domain in built.domains.items():
            remark = remark_on(name, source=domain.source, counted=domain.counted, note=domain.note)
            if remark is not None:
                found.append(remark)
        found += [
            f"the program did not import {name}: no call of it was measured"
            for name, packages in packages_of(self._expected).items()
            if sys.modules.keys().isdisjoint(packages)
        ]
        if not self._libraries:
            known = ", ".join(default_libraries())
            found.append(f"the program imports none of {known}: name the library to measure with --library")
        if self._alone.restless:
            count = self._alone.restless
            found.append(f"the machine did not come to rest before {count:,} calls that were to be measured alone")
        if self._recorder.out_of_order:
            count = self._recorder.out_of_order
            found.append(f"{count:,} calls ended before calls inside of them: their self energies are not exact")
        return found

    def _sources(self, built: Built) -> tuple[SourceText, ...]:
        files = {site.file for api in built.apis for site in api.sites} | {gap.file for gap in built.gaps}
        found = []
        for file in sorted(files):
            try:
                content = Path(file).read_bytes()
            except OSError:
                content = "".join(linecache.getlines(file)).encode("utf-8", "replace")  # a cell of a notebook
            if 0 < len(content) <= MOST_SOURCE_BYTES:
                found.append(SourceText(file, 1, content.decode("utf-8", "replace")))
        return tuple(found)


def _versions(libraries: Sequence[str]) -> dict[str, str]:
    """Return the versions of the libraries that the program imported."""
    found = {name: _version(name) for name in libraries if name in sys.modules}
    return {name: version for name, version in found.items() if version is not None}


@cache
def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        pass
    # This reads the metadata of all that is installed, while the program runs: once for each library.
    names = metadata.packages_distributions().get(library)
    return metadata.version(names[0]) if names else None
