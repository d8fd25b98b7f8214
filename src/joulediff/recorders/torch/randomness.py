"""The same random numbers in every pass, and the program's own afterwards."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SEED = 0


def seed() -> None:
    """Seed every generator alike."""
    import torch

    random.seed(SEED)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(SEED)
    torch.manual_seed(SEED)


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
