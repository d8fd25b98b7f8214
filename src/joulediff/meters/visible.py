"""Which cards a CUDA program sees, in its order, without starting CUDA.

Follows CUDA's own rules for `CUDA_VISIBLE_DEVICES`: indices count in `CUDA_DEVICE_ORDER`, UUIDs may be
cut short, and the list ends at the first entry that names no card. Starting CUDA here would break
programs that fork or that set the variable themselves.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# Asks the CUDA driver in a process of its own: the order of unlike cards is known to it alone.
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


@dataclass(frozen=True, slots=True)
class Card:
    """A card as the driver lists it, in the order of its bus."""

    uuid: str
    model: str
    mig_uuids: tuple[str, ...] = ()


def visible_cards(
    cards: Sequence[Card], env: Mapping[str, str], *, ask_cuda: Callable[[], list[str]] | None = None
) -> list[Card]:
    """Return the cards a program with this environment sees: the first is its device 0."""
    wanted = env.get("CUDA_VISIBLE_DEVICES")
    by_index = wanted is None or any(e.strip().lstrip("-").isdigit() for e in wanted.split(","))
    ordered = list(cards)
    if by_index and _order_is_unsure(cards, env):
        ordered = _in_cuda_order(cards, ask_cuda or _ask_cuda)
    if wanted is None:
        return ordered
    chosen: list[Card] = []
    for entry in wanted.split(","):
        card = _find(entry.strip(), ordered)
        if card is None:
            break
        if card not in chosen:
            chosen.append(card)
    return chosen


def _order_is_unsure(cards: Sequence[Card], env: Mapping[str, str]) -> bool:
    unlike = len({card.model for card in cards}) > 1
    return unlike and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _find(entry: str, cards: Sequence[Card]) -> Card | None:
    if entry.isdigit():
        return cards[int(entry)] if int(entry) < len(cards) else None
    if entry.startswith("MIG-"):
        # Older drivers write MIG-GPU-<card>/<instance>/<slice>.
        legacy = entry.removeprefix("MIG-").split("/")[0]
        return next((c for c in cards if entry in c.mig_uuids or c.uuid == legacy), None)
    fits = [c for c in cards if entry.startswith("GPU-") and c.uuid.startswith(entry)]
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
