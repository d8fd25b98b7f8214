"""AMD GPUs through the vendor's library `amdsmi`: an energy counter, or polled power without one.

The cards are put in HIP's order, so that the first is the program's device 0: the library lists them by
bus, and on some machines the two differ. A counter that reads 0 has never counted (the second die
of an MI250, some cards until a restart of the driver), so 0 means "not known".
"""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from joulediff.measuring.meters.meter import Clock, Meter, RealClock
from joulediff.measuring.meters.visible import HIP, ROCR, visible_places
from joulediff.model.errors import MeterFailed, MeterUnavailable
from joulediff.model.measurement import DeviceState, Domain, Kind, Reading

POLL_S = 0.02
# Nominal, from the library's documentation: the accumulator has units of 15.3 µJ.
COUNTER_PERIOD_S = 0.001
COUNTER_RESOLUTION_J = 15.3e-6
# Power comes in whole watts from a firmware table; its update period is not documented.
POWER_PERIOD_S = 0.1
POWER_STEP_W = 1.0
WINDOW_S = 0.5
SETTLE_S = 0.25
REPEAT_SHARE = 0.01
NO_COUNTER = "no energy counter: power is polled, short work is blurred"
# The library returns all ones for a value that a card does not have.
_ABSENT = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
# The power cap is in µW on the bare machine and in W in some others; no card's cap is below 10 mW.
_CAP_IS_UW_FROM = 10_000


@dataclass(frozen=True, slots=True)
class _Card:
    """A card of the library's list, and the domain it is read as."""

    handle: Any
    uuids: tuple[str, ...]
    model: str
    domain: Domain | None = None


class AmdSmiMeter(Meter):
    """All visible cards."""

    name = "amdsmi"
    poll_s = POLL_S

    def __init__(self, driver: Any, cards: Mapping[str, _Card], *, clock: Clock) -> None:
        self.domains = tuple(card.domain for card in cards.values() if card.domain is not None)
        self._driver = driver
        self._handles = {name: card.handle for name, card in cards.items()}
        self._clock = clock

    def poll(self) -> list[Reading]:
        return [self._read(domain) for domain in self.domains]

    def _read(self, domain: Domain) -> Reading:
        start_s = self._clock.now()
        try:
            value = _READ[domain.kind](self._driver, self._handles[domain.name])
        except self._driver.AmdSmiException as error:
            raise MeterFailed(
                f"{domain.name}: the AMD driver stopped answering ({_one_line(error)})",
                fix="check `amd-smi` and the kernel log",
            ) from error
        if value is None:
            raise MeterFailed(f"{domain.name}: {domain.device} shows no {_WORD[domain.kind]} any more")
        now_s = self._clock.now()
        return Reading(domain.name, domain.kind, now_s, value, now_s - start_s)

    def states(self) -> list[DeviceState]:
        return [_state(self._driver, domain.name, self._handles[domain.name]) for domain in self.domains]

    def clocks(self) -> dict[str, float]:
        seen = {d.name: _number(_clock_info(self._driver, self._handles[d.name]).get("clk")) for d in self.domains}
        return {name: clock_mhz for name, clock_mhz in seen.items() if clock_mhz is not None}

    def close(self) -> None:
        _shut_down(self._driver)


def open_amdsmi(
    *,
    driver: Any = None,
    clock: Clock | None = None,
    env: Mapping[str, str] | None = None,
    first_gpu: int = 0,
) -> AmdSmiMeter:
    """Return a meter of the cards that a ROCm program with this environment sees.

    `first_gpu` is the number of the first of them, where other cards come before.
    """
    driver = driver or _load_driver()
    try:
        driver.amdsmi_init()
    except driver.AmdSmiException as error:
        raise MeterUnavailable(
            f"no AMD driver answers ({_one_line(error)})", fix="needs an AMD GPU and amdgpu; `amd-smi` must work"
        ) from error
    try:
        cards = _open_cards(driver, os.environ if env is None else env, first_gpu)
    except MeterUnavailable:
        _shut_down(driver)
        raise
    return AmdSmiMeter(driver, cards, clock=clock or RealClock())


def _shut_down(driver: Any) -> None:
    # A driver that has failed cannot be shut down either.
    with contextlib.suppress(driver.AmdSmiException):
        driver.amdsmi_shut_down()


def _load_driver() -> Any:
    try:
        # Without ROCm the library says so on standard output before it fails.
        with contextlib.redirect_stdout(io.StringIO()):
            import amdsmi
    except ImportError as error:
        raise MeterUnavailable(
            f"the library amdsmi cannot be imported ({error})", fix="pip install 'joulediff[amd]'"
        ) from error
    except (OSError, AttributeError, KeyError) as error:
        raise MeterUnavailable(
            f"the library amdsmi does not find a libamd_smi.so that fits it ({error})",
            fix="install amd-smi-lib, and the version of amdsmi that belongs to this ROCm",
        ) from error
    return amdsmi


def _open_cards(driver: Any, env: Mapping[str, str], first_gpu: int) -> dict[str, _Card]:
    try:
        handles = driver.amdsmi_get_processor_handles()
    except driver.AmdSmiException as error:
        raise MeterUnavailable(f"the AMD driver does not list its cards ({_one_line(error)})") from error
    if not handles:
        raise MeterUnavailable("the AMD driver runs, but there is no card")
    cards = _in_hip_order(driver, handles)
    places = visible_places([card.uuids for card in cards], env)
    if not places:
        hidden_by = " ".join(f"{name}={env[name]}" for name in (ROCR, *HIP) if name in env)
        raise MeterUnavailable(f"{hidden_by} hides all of {len(cards)} AMD cards", fix="unset it, or name a card")
    opened = {
        place: replace(cards[place], domain=_find_domain(driver, f"gpu{first_gpu + i}", cards[place]))
        for i, place in enumerate(places)
    }
    _note_shared(opened)
    return {card.domain.name: card for card in opened.values() if card.domain is not None}


def _in_hip_order(driver: Any, handles: Sequence[Any]) -> list[_Card]:
    found: list[tuple[float, _Card]] = []
    for handle in handles:
        listed = _ask(driver, "amdsmi_get_gpu_enumeration_info", handle) or {}
        asic = _ask(driver, "amdsmi_get_gpu_asic_info", handle) or {}
        uuid = _ask(driver, "amdsmi_get_gpu_device_uuid", handle)
        # ROCR names a card by the 16 digits of its serial; the library's own UUID looks different.
        serial = str(asic.get("asic_serial", "N/A")).removeprefix("0x")
        names = (listed.get("hip_uuid"), f"GPU-{serial}" if serial != "N/A" else None, f"GPU-{uuid}" if uuid else None)
        model = str(asic.get("market_name", "N/A"))
        card = _Card(handle, tuple(n for n in names if n), model if model != "N/A" else "AMD GPU")
        place = _number(listed.get("hip_id"))
        found.append((math.inf if place is None else place, card))
    return [card for _, card in sorted(found, key=lambda pair: pair[0])]


def _find_domain(driver: Any, name: str, card: _Card) -> Domain | None:
    for kind in ("counter", "power"):
        try:
            if _READ[kind](driver, card.handle) is not None:
                return _domain(name, kind, card)
        except driver.AmdSmiException:
            continue
    return None


def _note_shared(opened: dict[int, _Card]) -> None:
    """Note why a card has no sensor, or raise: it must not seem to use no energy."""
    for place, card in opened.items():
        if card.domain is not None:
            continue
        # The two dies of an MI250 are two cards in a row with one sensor, on the first.
        board = opened.get(place - 1) if "MI250" in card.model and place % 2 else None
        if board is None or board.domain is None:
            raise MeterUnavailable(
                f"{card.model} ({', '.join(card.uuids) or 'no UUID'}) reports neither energy nor power",
                fix=f"leave it out with {HIP[0]}, or choose another meter with --meter",
            )
        note = "; ".join(filter(None, [board.domain.note, "both dies of its board"]))
        opened[place - 1] = replace(board, domain=replace(board.domain, note=note))


def _domain(name: str, kind: Kind, card: _Card) -> Domain:
    is_counter = kind == "counter"
    return Domain(
        name=name,
        kind=kind,
        device=card.model,
        key=f"amdsmi/{card.uuids[0] if card.uuids else name}/{kind}",
        period_s=COUNTER_PERIOD_S if is_counter else POWER_PERIOD_S,
        resolution_j=COUNTER_RESOLUTION_J if is_counter else POWER_STEP_W * POWER_PERIOD_S,
        repeat_share=REPEAT_SHARE,
        window_s=WINDOW_S if is_counter else 10 * POWER_PERIOD_S,
        settle_s=SETTLE_S,
        note=None if is_counter else NO_COUNTER,
    )


def _energy_j(driver: Any, handle: Any) -> float | None:
    count = driver.amdsmi_get_energy_count(handle)
    # Before 6.2.1 the accumulator was called "power".
    ticks = _number(count.get("energy_accumulator", count.get("power")), absent=_ABSENT[-1:])
    unit_uj = _number(count.get("counter_resolution"))
    return ticks * unit_uj * 1e-6 if ticks and unit_uj else None


def _power_w(driver: Any, handle: Any) -> float | None:
    power = driver.amdsmi_get_power_info(handle)
    values_w = (_number(power.get(key)) for key in ("socket_power", "current_socket_power", "average_socket_power"))
    # A card that answers draws power: 0 W means that this field is not filled.
    return next((value_w for value_w in values_w if value_w), None)


_READ = {"counter": _energy_j, "power": _power_w}
_WORD = {"counter": "energy", "power": "power"}


def _state(driver: Any, name: str, handle: Any) -> DeviceState:
    clock = _clock_info(driver, handle)
    cap = _number((_ask(driver, "amdsmi_get_power_cap_info", handle) or {}).get("power_cap"))
    pids = [p.get("pid") for p in _ask(driver, "amdsmi_get_gpu_process_list", handle) or [] if isinstance(p, dict)]
    return DeviceState(
        name,
        clock_mhz=_number(clock.get("clk")),
        clock_max_mhz=_number(clock.get("max_clk")),
        temperature_c=_temperature(driver, handle),
        power_limit_w=(cap * 1e-6 if cap >= _CAP_IS_UW_FROM else cap) if cap else None,
        other_pids=tuple(pid for pid in pids if isinstance(pid, int) and pid != os.getpid()),
    )


def _clock_info(driver: Any, handle: Any) -> dict[str, Any]:
    return _ask(driver, "amdsmi_get_clock_info", handle, driver.AmdSmiClkType.GFX) or {}


def _temperature(driver: Any, handle: Any) -> float | None:
    for sensor in (driver.AmdSmiTemperatureType.HOTSPOT, driver.AmdSmiTemperatureType.EDGE):
        found = _number(_ask(driver, "amdsmi_get_temp_metric", handle, sensor, driver.AmdSmiTemperatureMetric.CURRENT))
        if found:
            return found
    return None


def _ask(driver: Any, call: str, *args: Any) -> Any:
    """Return the driver's answer; None if it, or this version of the library, has none."""
    try:
        return getattr(driver, call)(*args) if hasattr(driver, call) else None
    except driver.AmdSmiException:
        return None


def _number(value: Any, absent: tuple[int, ...] = _ABSENT) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value in absent:
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
