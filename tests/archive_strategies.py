"""Any run that keeps its own rules, for Hypothesis."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from joulediff.model.energy import Energy, Source
from joulediff.model.measurement import Condition, DeviceState, DomainEnergy, IdlePower, Kind, Measurement
from joulediff.model.run import (
    Frame,
    HostKind,
    HostSample,
    How,
    Inputs,
    Join,
    Kernel,
    KernelKind,
    Op,
    Pass,
    PassName,
    PassStatus,
    Phase,
    Replay,
    Run,
    Sampling,
    SettingSpan,
    SourceText,
    Value,
    ValueKind,
    Wait,
)
from joulediff.model.signature import Signature

# Half surrogate pairs cannot be stored; `save` replaces them, which has a test of its own.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INT64 = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**63 - 1)
FLOAT = st.floats()
TIME = st.floats(0.0, allow_infinity=False)
SIZES = st.lists(COUNT, max_size=4).map(tuple)
GRID = st.tuples(COUNT, COUNT, COUNT)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Return any run that keeps its own rules."""
    some = {name: draw(st.integers(0, 4)) for name in ("ops", "values", "signatures", "frames", "kernels", "waits")}

    def of(table: str) -> st.SearchStrategy[int | None]:
        return st.none() | st.integers(0, some[table] - 1) if some[table] else st.none()

    def several(table: str) -> st.SearchStrategy[tuple[int, ...]]:
        return st.lists(st.integers(0, some[table] - 1), max_size=3).map(tuple) if some[table] else st.just(())

    def above(row: int) -> st.SearchStrategy[int | None]:
        return st.none() | st.integers(0, row - 1) if row else st.none()

    def each(table: str, make: Any) -> tuple[Any, ...]:
        return tuple(draw(make(row)) for row in range(some[table]))

    maybe = st.none() | TEXT
    measured = replays(draw, some["ops"])
    firsts = [row for row, replay in enumerate(measured) if row == 0 or measured[row - 1].op != replay.op]
    return Run(
        label=draw(TEXT),
        program=draw(maybe),
        created=draw(TEXT),
        tool=draw(TEXT),
        measurement=draw(st.none() | measurements()),
        traced_s=draw(st.none() | FLOAT),
        passes=draw(st.lists(st.builds(Pass, one(PassName), one(PassStatus), FLOAT, maybe), max_size=3).map(tuple)),
        notes=draw(st.lists(TEXT, max_size=3).map(tuple)),
        settings=draw(st.dictionaries(TEXT, st.none() | st.booleans() | INT64 | FLOAT | TEXT, max_size=4)),
        set_places=draw(st.dictionaries(TEXT, TEXT, max_size=2)),
        state=draw(st.dictionaries(TEXT, st.none() | st.booleans() | INT64 | FLOAT | TEXT, max_size=3)),
        state_places=draw(st.dictionaries(TEXT, TEXT, max_size=2)),
        spans=spans(draw, some["ops"]),
        ops=each(
            "ops",
            lambda row: st.builds(
                Op,
                st.just(row),
                *[TEXT] * 4,
                *[several("values")] * 3,
                of("frames"),
                maybe,
                maybe,
                one(Phase),
                of("ops"),
                INT64,
                TEXT,
                st.none() | INT64,
                maybe,
                st.booleans(),
                st.booleans(),
                maybe,
                st.booleans(),
                maybe,
                st.sampled_from([None, *firsts]),
            ),
        ),
        values=each(
            "values",
            lambda row: st.builds(
                Value,
                st.just(row),
                SIZES,
                st.lists(INT64, max_size=4).map(tuple),
                COUNT,
                TEXT,
                TEXT,
                INT64,
                one(ValueKind),
                maybe,
                of("ops"),
                above(row),
                several("ops"),
                of("signatures"),
                COUNT,
            ),
        ),
        signatures=each(
            "signatures",
            lambda _: st.builds(
                Signature,
                *[COUNT] * 5,
                st.booleans(),
                st.none() | FLOAT,
                st.none() | FLOAT,
                *[FLOAT] * 5,
                st.none() | st.tuples(*[st.integers(1 - 2**31, 2**31 - 1)] * 16),
            ),
        ),
        frames=each("frames", lambda row: st.builds(Frame, TEXT, INT64, TEXT, maybe, above(row))),
        kernels=each(
            "kernels",
            lambda _: st.builds(
                Kernel,
                TEXT,
                one(KernelKind),
                TEXT,
                INT64,
                FLOAT,
                FLOAT,
                of("ops"),
                maybe,
                one(Join),
                st.none() | GRID,
                st.none() | GRID,
                st.none() | COUNT,
                members=several("ops"),
            ),
        ),
        waits=each("waits", lambda _: st.builds(Wait, TEXT, FLOAT, FLOAT, of("ops"), INT64)),
        sources=draw(st.lists(st.builds(SourceText, TEXT, INT64, TEXT), max_size=3).map(tuple)),
        replays=measured,
        sampling=draw(st.none() | st.builds(Sampling, COUNT, FLOAT, FLOAT, FLOAT)),
        host_samples=draw(
            st.lists(st.builds(HostSample, of("frames"), one(HostKind), TIME, TIME, COUNT), max_size=3).map(tuple)
        ),
    )


def spans(draw: st.DrawFn, ops: int) -> tuple[SettingSpan, ...]:
    """Return spans of settings over some of so many operators, in order."""
    ends = draw(st.lists(st.integers(0, max(0, ops - 1)), max_size=2 * ops, unique=True).map(sorted))
    values = st.dictionaries(TEXT, st.none() | st.booleans() | INT64 | FLOAT | TEXT, max_size=2)
    return tuple(SettingSpan(first, last, draw(values)) for first, last in zip(ends[::2], ends[1::2], strict=False))


def replays(draw: st.DrawFn, ops: int) -> tuple[Replay, ...]:
    """Return replays of some of so many operators, in any order, each in up to two domains."""
    distinct = draw(st.permutations(range(ops)))[: draw(st.integers(0, ops))]
    number = st.none() | FLOAT
    joules = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3).map(sorted)
    more: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
        {
            "rest_w": number,
            "call_s": number,
            "cpu_s": number,
            "calls": COUNT,
            "clock_mhz": number,
            "how": st.none() | one(How),
            "inputs": st.none() | one(Inputs),
            "copies": st.integers(1, 2**63 - 1),
            "note": st.none() | TEXT,
            "beside_j": number,
        }
    )
    found = []
    for op in distinct:
        for domain in draw(st.lists(TEXT, min_size=1, max_size=2, unique=True)):
            low_j, energy_j, high_j = draw(joules | st.just([None] * 3))
            found.append(Replay(op, domain, energy_j, low_j, high_j, draw(one(Source)), **draw(more)))
    return tuple(found)


def one(literal: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(get_args(literal))


def energies() -> st.SearchStrategy[Energy]:
    ordered = st.lists(st.floats(allow_nan=False), min_size=3, max_size=3).map(sorted)
    return st.builds(lambda e, source: Energy(e[1], e[0], e[2], source), ordered, one(Source))


def measurements() -> st.SearchStrategy[Measurement]:
    maybe = st.none() | TEXT
    number = st.none() | FLOAT
    idle = st.builds(IdlePower, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT)
    domain = st.builds(
        DomainEnergy,
        energies(),
        st.none() | energies(),
        FLOAT,
        st.none() | idle,
        one(Kind),
        TEXT,
        st.booleans(),
        st.booleans(),
        maybe,
    )
    pids = st.lists(COUNT, max_size=2).map(tuple)
    words = st.lists(TEXT, max_size=2).map(tuple)
    return st.builds(
        Measurement,
        TEXT,
        FLOAT,
        COUNT,
        COUNT,
        energies(),
        st.none() | energies(),
        st.dictionaries(TEXT, domain, max_size=2),
        st.booleans(),
        words,
        st.lists(st.builds(Condition, TEXT, st.booleans(), TEXT, maybe, maybe), max_size=2).map(tuple),
        st.lists(st.builds(DeviceState, TEXT, number, number, number, number, words, pids), max_size=2).map(tuple),
        FLOAT,
        st.dictionaries(TEXT, FLOAT, max_size=2),
        number,
        st.dictionaries(TEXT, st.lists(FLOAT, max_size=3).map(tuple), max_size=2),
        number,
        number,
    )
