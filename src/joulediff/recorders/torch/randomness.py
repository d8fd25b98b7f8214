"""The same random numbers in every pass, and the program's own afterwards."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

SEED = 0
# A step that calls a function that calls another.
MAX_DEPTH = 3


def seed() -> None:
    """Seed every generator alike."""
    import torch

    random.seed(SEED)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(SEED)
    torch.manual_seed(SEED)


def find_generators(step: object) -> list[Any]:
    """Return the random generators of its own that a step, or a function it calls, has in a variable."""
    import torch

    found: dict[int, Any] = {}
    seen: set[int] = set()
    queue: list[tuple[object, int]] = [(step, 0)]
    while queue:
        thing, depth = queue.pop()
        if isinstance(thing, torch.Generator):
            found[id(thing)] = thing
        elif inspect.isroutine(thing) and id(thing) not in seen and depth < MAX_DEPTH:
            seen.add(id(thing))
            with suppress(TypeError, ValueError):  # one of C, or with a variable that has nothing in it yet
                names = inspect.getclosurevars(thing)
                queue += [(each, depth + 1) for each in (*names.nonlocals.values(), *names.globals.values())]
    return list(found.values())


@contextmanager
def seeded() -> Iterator[Callable[[], None]]:
    """Give `seed`, and put every generator back at the end."""
    import torch

    numpy = sys.modules.get("numpy")
    state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy is not None else None
    torch_state = torch.get_rng_state()
    on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    cuda_states = torch.cuda.get_rng_state_all() if on_gpu else []

    try:
        yield seed
    finally:
        random.setstate(state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)
