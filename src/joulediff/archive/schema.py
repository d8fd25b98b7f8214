"""The tables of a stored run, and the allowed cells of each column.

There are no nested columns, because they let a few bytes stand for very many cells. A tuple of records is a table, a
tuple of numbers a text (`8,512,768`), and a list of references a table of pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from joulediff.model.energy import Source
from joulediff.model.run import HostKind, How, Inputs, Join, KernelKind, Phase, ValueKind
from joulediff.model.signature import SKETCH, SKETCH_LIMIT

SCHEMA = "joulediff.run"
FORMAT = 5
"""The format this version writes, and the newest one it reads."""
MIN_READER = 5
"""The oldest format whose readers understand files of this version: format 4 has no kernels joined as `fused`."""

Role = Literal["in", "out", "write"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table, and the rules for its cells.

    `id` is the number of the row itself; `sizes` a text of numbers between commas.
    """

    name: str
    kind: Literal["id", "int", "float", "bool", "text", "sizes"]
    optional: bool = False
    refers: str | None = None
    """The table whose rows it refers to."""
    earlier: bool = False
    """It refers to an earlier row of its own table, so that following it always ends."""
    among: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    """The largest size that a text of `sizes` may have."""
    length: int | None = None
    """The number of sizes that a text of `sizes` must have."""
    since: int = 1
    """The first format with it; a run of an older format gets `default` in every row."""
    default: bool | int | float | str | None = None


@dataclass(slots=True)
class Tables:
    """A run as plain data: the manifest, and the cells of each table by column."""

    manifest: dict[str, Any]
    columns: dict[str, dict[str, list[Any]]] = field(default_factory=dict)


TABLES: dict[str, tuple[Column, ...]] = {
    "ops": (
        Column("id", "id"),
        Column("name", "text"),
        Column("overload", "text"),
        Column("arguments", "text"),
        Column("returns", "text"),
        Column("frame", "int", optional=True, refers="frames"),
        Column("module", "text", optional=True),
        Column("module_type", "text", optional=True),
        Column("phase", "text", among=get_args(Phase)),
        Column("forward", "int", optional=True, refers="ops"),
        Column("thread", "int"),
        Column("device", "text"),
        Column("stream", "int", optional=True),
        Column("region", "text", optional=True),
        Column("grad", "bool"),
        Column("inference", "bool"),
        Column("autocast", "text", optional=True),
        Column("compiled", "bool"),
        Column("cpp", "text", optional=True),
        Column("replay", "int", optional=True, refers="replays", since=2),
    ),
    "op_values": (
        Column("op", "int", refers="ops"),
        Column("role", "text", among=get_args(Role)),
        Column("position", "int", least=0),
        Column("value", "int", refers="values"),
    ),
    "values": (
        Column("id", "id"),
        Column("shape", "sizes", least=0),
        Column("strides", "sizes"),
        Column("offset", "int", least=0),
        Column("dtype", "text"),
        Column("device", "text"),
        Column("storage", "int"),
        Column("kind", "text", among=get_args(ValueKind)),
        Column("name", "text", optional=True),
        Column("producer", "int", optional=True, refers="ops"),
        Column("previous", "int", optional=True, refers="values", earlier=True),
        Column("signature", "int", optional=True, refers="signatures"),
        Column("repeats", "int", least=0),
    ),
    "value_writers": (
        Column("value", "int", refers="values"),
        Column("op", "int", refers="ops"),
    ),
    "signatures": (
        *(Column(name, "int", least=0) for name in ("count", "nans", "positive_infs", "negative_infs", "zeros")),
        Column("integral", "bool"),
        Column("low", "float", optional=True),
        Column("high", "float", optional=True),
        *(Column(name, "float") for name in ("sum_x", "sum_abs", "sum_x2", "sum_x3", "sum_x4")),
        Column("sketch", "sizes", optional=True, least=1 - SKETCH_LIMIT, most=SKETCH_LIMIT - 1, length=SKETCH, since=3),
    ),
    "frames": (
        Column("file", "text"),
        Column("line", "int"),
        Column("function", "text"),
        Column("owner", "text", optional=True),
        Column("parent", "int", optional=True, refers="frames", earlier=True),
    ),
    "kernels": (
        Column("name", "text"),
        Column("kind", "text", among=get_args(KernelKind)),
        Column("device", "text"),
        Column("stream", "int"),
        Column("start_s", "float"),
        Column("duration_s", "float"),
        Column("op", "int", optional=True, refers="ops"),
        Column("module", "text", optional=True),
        Column("join", "text", among=get_args(Join)),
        Column("grid", "sizes", optional=True, least=0, length=3),
        Column("block", "sizes", optional=True, least=0, length=3),
        Column("size_bytes", "int", optional=True, least=0),
    ),
    "kernel_members": (
        Column("kernel", "int", refers="kernels", since=5),
        Column("op", "int", refers="ops", since=5),
    ),
    "waits": (
        Column("name", "text"),
        Column("start_s", "float"),
        Column("duration_s", "float"),
        Column("op", "int", optional=True, refers="ops"),
        Column("thread", "int"),
    ),
    "sources": (
        Column("file", "text"),
        Column("first", "int"),
        Column("text", "text"),
    ),
    "replays": (
        Column("op", "int", refers="ops", since=2),
        Column("domain", "text", since=2),
        *(Column(name, "float", optional=True, since=2) for name in ("energy_j", "low_j", "high_j")),
        Column("source", "text", among=get_args(Source), since=2),
        *(Column(name, "float", optional=True, since=2) for name in ("rest_w", "call_s", "cpu_s")),
        Column("calls", "int", least=0, since=2),
        Column("clock_mhz", "float", optional=True, since=2),
        Column("how", "text", optional=True, among=get_args(How), since=2),
        Column("inputs", "text", optional=True, among=get_args(Inputs), since=2),
        Column("copies", "int", least=1, since=2),
        Column("note", "text", optional=True, since=2),
        Column("beside_j", "float", optional=True, since=5),
    ),
    "host_samples": (
        Column("frame", "int", optional=True, refers="frames", since=4),
        Column("kind", "text", among=get_args(HostKind), since=4),
        Column("time_s", "float", since=4),
        Column("cpu_s", "float", since=4),
        Column("count", "int", least=0, since=4),
    ),
}
