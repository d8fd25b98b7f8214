"""Random generators of Python and NumPy: the global ones are seeded alike, and a step's own ones are restored.

The program has the random state that it had, once the context ends.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from joulediff.frameworks.references import parts_of

SEED = 0
# A generator is held by the step, by an object of it, or by an attribute of that.
MAX_DEPTH = 16
MAX_THINGS = 10_000


class Generator(NamedTuple):
    """A random generator of the program's own."""

    read: Callable[[], Any]
    write: Callable[[Any], None]


def seed_host() -> None:
    """Seed the global generators of Python, and of NumPy if the program uses it."""
    random.seed(SEED)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(SEED)


@contextmanager
def host_seeded() -> Iterator[None]:
    """Put back the state of the global generators of Python and NumPy at the end."""
    numpy = sys.modules.get("numpy")
    state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        random.setstate(state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)


def as_generator(thing: object) -> Generator | None:
    """Return an object as a generator, if it is one of Python or NumPy that has a state."""
    numpy = sys.modules.get("numpy")
    if isinstance(thing, random.Random) and not isinstance(thing, random.SystemRandom):
        return Generator(thing.getstate, thing.setstate)
    if numpy is not None and isinstance(thing, numpy.random.Generator | numpy.random.RandomState):
        return _numpy_generator(thing)
    return None


def _numpy_generator(thing: Any) -> Generator:
    if not hasattr(thing, "bit_generator"):
        return Generator(thing.get_state, thing.set_state)

    def read() -> Any:
        return thing.bit_generator.state

    def write(state: Any) -> None:
        thing.bit_generator.state = state

    return Generator(read, write)


def find_generators(
    step: object,
    *,
    as_other: Callable[[object], Generator | None] = as_generator,
    is_leaf: Callable[[object], bool] = lambda _: False,
    max_depth: int = MAX_DEPTH,
    max_things: int = MAX_THINGS,
) -> list[Generator]:
    """Return the random generators of its own that a step refers to.

    `as_other` also knows those of a framework. Parts of an object that `is_leaf` are not looked at.
    """
    found: list[Generator] = []
    seen: set[int] = set()
    queue: deque[tuple[object, int]] = deque([(step, 0)])
    while queue:
        thing, depth = queue.popleft()
        if id(thing) in seen or depth > max_depth or len(seen) > max_things:
            continue
        seen.add(id(thing))
        generator = as_other(thing)
        if generator is not None:
            found.append(generator)
        elif not is_leaf(thing):
            queue += [(each, depth + 1) for _, each in parts_of(thing)]
    return found
