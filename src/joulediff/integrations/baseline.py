"""The baseline of a test suite (`joulediff.tests/1`): the energy of each test, and the machine that measured it.

Energies of another machine or other meters are not compared.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from joulediff.integrations.energy_limits import TestEnergy
from joulediff.model.energy import Energy
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Domain
from joulediff.report.json import dump
from joulediff.version import __version__

SCHEMA = "joulediff.tests/1"
# A test takes about 300 bytes.
MAX_FILE_BYTES = 256 * 1024 * 1024
_FIX = "write it with: pytest --joules-save FILE"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine and its meters."""

    name: str
    cpu: str
    meters: tuple[str, ...]
    """The domain, the device and the key of each sensor."""


@dataclass(frozen=True, slots=True)
class TestRecord:
    """One test of a baseline."""

    __test__ = False  # pytest collects classes of this name

    id: str
    energy: Energy
    seconds: float
    runs: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """The fields of `joulediff.tests/1`."""

    schema: str
    created: str
    tool: str
    machine: Machine
    tests: tuple[TestRecord, ...]

    def energy_of(self, test: str) -> Energy | None:
        """Return the energy of a test; None if the baseline does not have it."""
        return next((each.energy for each in self.tests if each.id == test), None)


def this_machine(domains: Sequence[Domain], name: str | None = None) -> Machine:
    """Return this machine, under its host name or another one."""
    from joulediff.measuring.meters.estimated import cpu_model

    meters = tuple(sorted(f"{each.name}: {each.device} ({each.key}, {each.kind})" for each in domains))
    return Machine(name or platform_name(), cpu_model(), meters)


def platform_name() -> str:
    """Return the host name."""
    return platform.node()


def refuse_other_machine(before: Machine, now: Machine, file: str) -> None:
    """Raise JoulediffError if a baseline is of another machine or of other meters."""
    for what, old, new in (
        ("machine", before.name, now.name),
        ("CPU", before.cpu, now.cpu),
        ("meters", ", ".join(before.meters), ", ".join(now.meters)),
    ):
        if old != new:
            raise JoulediffError(
                f"the baseline {file} cannot be compared: its {what} was {old or 'unknown'!r}, and here it is "
                f"{new or 'unknown'!r}",
                fix="write a baseline here: pytest --joules-save FILE"
                + ("; equal machines can share the name that --joules-machine gives" if what == "machine" else ""),
            )


def write_baseline(path: Path, machine: Machine, tests: Mapping[str, TestEnergy]) -> int:
    """Write a baseline of the tests whose energy is known, and return their number."""
    records = tuple(
        TestRecord(test, found.energy, found.seconds, found.runs)
        for test, found in sorted(tests.items())
        if found.energy is not None
    )
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    try:
        path.write_text(dump(Baseline(SCHEMA, created, __version__, machine, records)), encoding="utf-8")
    except OSError as error:
        raise JoulediffError(f"cannot write {path} ({error.strerror})", fix="choose another file") from error
    return len(records)


def read_baseline(path: Path) -> Baseline:
    """Return the baseline in a file; raises JoulediffError for a file that is none."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise JoulediffError(f"{path.name} is larger than {MAX_FILE_BYTES} bytes, so it is no baseline", fix=_FIX)
        plain = json.loads(path.read_bytes())
    except OSError as error:
        raise JoulediffError(f"cannot read the baseline {path.name} ({error.strerror})", fix=_FIX) from error
    except (ValueError, RecursionError) as error:
        raise JoulediffError(f"{path.name} is not JSON, so it is no baseline", fix=_FIX) from error
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        raise JoulediffError(f'{path.name} is no baseline of tests: it needs "schema": "{SCHEMA}"', fix=_FIX)
    try:
        machine = Machine(**plain["machine"] | {"meters": tuple(map(str, plain["machine"]["meters"]))})
        tests = tuple(map(_record, plain["tests"]))
        return Baseline(SCHEMA, str(plain["created"]), str(plain["tool"]), machine, tests)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JoulediffError(f"the baseline {path.name} is damaged ({error!r:.80})", fix=_FIX) from error


def _record(plain: Mapping[str, Any]) -> TestRecord:
    energy = plain["energy"]
    numbers = {name: float(energy[name]) for name in ("joules", "low", "high")}
    found = Energy(**numbers, source=energy["source"])
    return TestRecord(str(plain["id"]), found, float(plain["seconds"]), int(plain["runs"]))
