"""The cards that are visible to a CUDA program, in its order, found without starting CUDA.

Follows CUDA's own rules for `CUDA_VISIBLE_DEVICES`: indices count in `CUDA_DEVICE_ORDER`, UUIDs may be
cut short, the list ends at the first entry that names no card or is of another kind than the first,
and a card named twice hides all (not documented; `torch.cuda` and nvitop found it). Starting CUDA
here would break programs that fork or that set the variable themselves.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# Asks the CUDA driver in a separate process: only the driver knows the order of different models.
_ASK_CUDA = """
import ctypes, uuid
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
count = ctypes.c_int()
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
for index in range(count.value):
    raw = (ctypes.c_ubyte * 16)()
    assert cuda.cuDeviceGetUuid(ctypes.byref(raw), index) == 0
    print("GPU-" + str(uuid.UUID(bytes=bytes(raw))))
"""
# CUDA reads an index as C does: with a sign, and text after the digits is ignored.
_INDEX = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class Card:
    """A card as the driver lists it, in bus order."""

    uuid: str
    model: str
    mig_uuids: tuple[str, ...] = ()


def visible_cards(
    cards: Sequence[Card], env: Mapping[str, str], *, ask_cuda: Callable[[], list[str]] | None = None
) -> list[Card]:
    """Return the cards a program with this environment sees: the first is its device 0."""
    wanted = env.get("CUDA_VISIBLE_DEVICES")
    entries = [entry.strip() for entry in (wanted or "").split(",")]
    kind = _kind(entries[0])
    ordered = list(cards)
    if (wanted is None or kind == "index") and _order_is_unsure(cards, env):
        ordered = _in_cuda_order(cards, ask_cuda or _ask_cuda)
    if wanted is None:
        return ordered
    chosen: dict[str, Card] = {}
    for entry in entries:
        card = _find(entry, ordered) if _kind(entry) == kind else None
        if card is None:
            break
        # Instances of one card are not duplicates: they share its sensor.
        if entry in chosen or (card in chosen.values() and kind != "MIG-"):
            return []
        chosen[entry] = card
    return list(dict.fromkeys(chosen.values()))


def _kind(entry: str) -> str | None:
    if _INDEX.match(entry):
        return "index"
    return next((prefix for prefix in ("GPU-", "MIG-") if entry.startswith(prefix)), None)


def _order_is_unsure(cards: Sequence[Card], env: Mapping[str, str]) -> bool:
    unlike = len({card.model for card in cards}) > 1
    return unlike and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _find(entry: str, cards: Sequence[Card]) -> Card | None:
    if found := _INDEX.match(entry):
        index = int(found.group())
        return cards[index] if 0 <= index < len(cards) else None
    if entry.startswith("MIG-GPU-"):
        # Older drivers write MIG-GPU-<card>/<instance>/<slice>.
        entry = entry.removeprefix("MIG-").split("/")[0]
    if entry.startswith("MIG-"):
        return next((card for card in cards if entry in card.mig_uuids), None)
    fits = [card for card in cards if entry.startswith("GPU-") and card.uuid.startswith(entry)]
    return fits[0] if len(fits) == 1 else None


def _in_cuda_order(cards: Sequence[Card], ask: Callable[[], list[str]]) -> list[Card]:
    order = ask()
    known = {card.uuid: card for card in cards}
    return [known[uuid] for uuid in order if uuid in known] or list(cards)


def _ask_cuda() -> list[str]:
    import os

    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_CUDA], env=env, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.split()


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
        place = _find_rocm(entry.strip(), uuids)
        if place is None or place in picked:
            break
        picked.append(place)
    return picked


def _pick_hip(wanted: str, uuids: Sequence[Sequence[str]]) -> list[int]:
    picked: list[int] = []
    for entry in wanted.split(","):
        place = _find_rocm(entry, uuids)
        if place is None:
            break
        if place not in picked:
            picked.append(place)
    return picked


def _find_rocm(entry: str, uuids: Sequence[Sequence[str]]) -> int | None:
    if entry.isascii() and entry.isdigit():
        return int(entry) if int(entry) < len(uuids) else None
    # A UUID may be cut short, as long as it names one card; "GPU-" alone names none.
    start = entry.upper()
    if not start.startswith("GPU-") or start == "GPU-":
        return None
    fits = [i for i, names in enumerate(uuids) if any(name.upper().startswith(start) for name in names)]
    return fits[0] if len(fits) == 1 else None
