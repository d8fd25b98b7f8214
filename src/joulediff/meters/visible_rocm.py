"""Which cards a ROCm program sees, in its order, without starting ROCm.

Two filters follow each other: `ROCR_VISIBLE_DEVICES` picks from all cards, and HIP's variable picks
from what is left. Both lists end at the first entry that names no card, as in the runtimes
themselves (ROCR-Runtime `amd_filter_device.cpp`, HIP `rocdevice.cpp`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ROCR = "ROCR_VISIBLE_DEVICES"
HIP = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def visible_places(uuids: Sequence[Sequence[str]], env: Mapping[str, str]) -> list[int]:
    """Return the places of the visible cards in `uuids`: the first is the program's device 0.

    `uuids` holds the names of each card, in the order of HIP without filters.
    """
    places = list(range(len(uuids)))
    if ROCR in env:
        places = _pick_rocr(env[ROCR], uuids)
    # HIP takes an empty variable for one that is not set, ROCR for a list without cards.
    wanted = next((env[name] for name in HIP if env.get(name)), None)
    if wanted is None:
        return places
    return [places[i] for i in _pick_hip(wanted, [uuids[place] for place in places])]


def _pick_rocr(wanted: str, uuids: Sequence[Sequence[str]]) -> list[int]:
    picked: list[int] = []
    for entry in wanted.split(","):
        place = _find(entry.strip(), uuids)
        if place is None or place in picked:
            break
        picked.append(place)
    return picked


def _pick_hip(wanted: str, uuids: Sequence[Sequence[str]]) -> list[int]:
    picked: list[int] = []
    for entry in wanted.split(","):
        place = _find(entry, uuids)
        if place is None:
            break
        if place not in picked:
            picked.append(place)
    return picked


def _find(entry: str, uuids: Sequence[Sequence[str]]) -> int | None:
    if entry.isascii() and entry.isdigit():
        return int(entry) if int(entry) < len(uuids) else None
    # A UUID may be cut short, as long as it names one card; "GPU-" alone names none.
    start = entry.upper()
    if not start.startswith("GPU-") or start == "GPU-":
        return None
    fits = [i for i, names in enumerate(uuids) if any(name.upper().startswith(start) for name in names)]
    return fits[0] if len(fits) == 1 else None
