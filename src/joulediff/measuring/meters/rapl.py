"""CPU and memory energy from RAPL, the counters that Linux provides under powercap.

AMD's counters carry the name `intel-rapl` too. The entries `core` and `uncore` are parts of the
package, and `intel-rapl-mmio` shows the package a second time: counting them would count twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from joulediff.measuring.meters.meter import Clock, Meter, RealClock
from joulediff.model.errors import MeterFailed, MeterUnavailable
from joulediff.model.measurement import Domain, Reading

POLL_S = 0.05
# Nominal, from Intel's manual: a counter is updated about every millisecond, in units of 15.3 to 61 µJ.
PERIOD_S = 0.001
RESOLUTION_J = 6.1e-5
# Assumed, like the two below: no machine with RAPL was available.
REPEAT_SHARE = 0.01
WINDOW_S = 0.1
SETTLE_S = 0.05

T = TypeVar("T")
_ENTRY = re.compile(r"intel-rapl:(\d+)(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class _Zone:
    """One entry of powercap: `place` is its socket and, for a part of it, the part."""

    path: Path
    place: tuple[int, ...]
    name: str

    @property
    def energy_path(self) -> Path:
        return self.path / "energy_uj"


class RaplMeter(Meter):
    """The packages (`cpu`), their memory (`dram`) and, on some laptops, the whole machine (`psys`)."""

    name = "rapl"
    poll_s = POLL_S

    def __init__(self, domains: Sequence[Domain], energy_paths: Sequence[Path], *, clock: Clock) -> None:
        self.domains = tuple(domains)
        self._paths = {d.name: path for d, path in zip(domains, energy_paths, strict=True)}
        self._clock = clock

    def poll(self) -> list[Reading]:
        return [self._read(name, path) for name, path in self._paths.items()]

    def _read(self, name: str, path: Path) -> Reading:
        start_s = self._clock.now()
        try:
            energy_uj = _read_number(path)
        except (OSError, ValueError) as error:
            raise MeterFailed(
                f"{name}: {path} cannot be read any more ({_reason(error)})", fix="look at the kernel log: `dmesg`"
            ) from error
        now_s = self._clock.now()
        return Reading(name, "counter", now_s, energy_uj * 1e-6, now_s - start_s)


def open_rapl(*, root: Path = Path("/sys/class/powercap"), clock: Clock | None = None) -> RaplMeter:
    """Return a meter of this machine's RAPL counters."""
    named = _name_zones(_find_zones(root))
    if not named:
        raise MeterUnavailable(
            f"{root} shows no RAPL counter: virtual machines and containers have none",
            fix="run on the bare machine, or load the module: sudo modprobe intel_rapl_msr",
        )
    domains = [_open_domain(root, name, zone) for name, zone in named]
    return RaplMeter(domains, [zone.energy_path for _, zone in named], clock=clock or RealClock())


def _find_zones(root: Path) -> list[_Zone]:
    try:
        entries = [(path, found) for path in root.iterdir() if (found := _ENTRY.fullmatch(path.name))]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise MeterUnavailable(f"{root} cannot be listed ({_reason(error)})") from error
    zones = [
        _Zone(path, tuple(int(n) for n in found.groups() if n is not None), _ask(root, _read_text, path / "name"))
        for path, found in entries
    ]
    return sorted(zones, key=lambda zone: zone.place)


def _name_zones(zones: Sequence[_Zone]) -> list[tuple[str, _Zone]]:
    """Return the zones to read with their domain names, numbered if there are several sockets."""
    packages = [z for z in zones if len(z.place) == 1 and z.name.startswith("package-")]
    platforms = [z for z in zones if z.name == "psys"]
    number = {z.place[0]: str(i) if len(packages) > 1 else "" for i, z in enumerate(packages)}
    named = [(f"cpu{number[z.place[0]]}", z) for z in packages]
    named += [(f"dram{number[z.place[0]]}", z) for z in zones if z.name == "dram" and z.place[0] in number]
    named += [(f"psys{i if len(platforms) > 1 else ''}", z) for i, z in enumerate(platforms)]
    return named


def _open_domain(root: Path, name: str, zone: _Zone) -> Domain:
    range_uj = _ask(root, _read_number, zone.path / "max_energy_range_uj")
    _ask(root, _read_number, zone.energy_path)
    socket = "" if zone.name == "psys" or len(zone.place) == 1 else f" of socket {zone.place[0]}"
    return Domain(
        name=name,
        kind="counter",
        device=f"RAPL {zone.name}{socket}",
        key=f"rapl/{zone.path}",
        period_s=PERIOD_S,
        resolution_j=RESOLUTION_J,
        repeat_share=REPEAT_SHARE,
        window_s=WINDOW_S,
        settle_s=SETTLE_S,
        whole=zone.name == "psys",
        wrap_j=range_uj * 1e-6,
    )


def _ask(root: Path, read: Callable[[Path], T], path: Path) -> T:
    try:
        return read(path)
    except PermissionError as error:
        raise MeterUnavailable(
            f"{path} may be read by root only",
            fix=f"until the next start of the machine: sudo chmod a+r {root}/intel-rapl*/energy_uj",
        ) from error
    except (OSError, ValueError) as error:
        raise MeterUnavailable(f"{path} cannot be read ({_reason(error)})") from error


def _read_text(path: Path) -> str:
    return path.read_bytes().decode("ascii").strip()


def _read_number(path: Path) -> int:
    text = _read_text(path)
    if not text.isdigit():
        raise ValueError(f"{text[:40]!r} is not a number" if text else "it is empty")
    return int(text)


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
