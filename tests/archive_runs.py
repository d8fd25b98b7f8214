"""Runs to store, and what tests of the archive ask of what comes back."""

from __future__ import annotations

import json
import random
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from joulediff.archive.reader import load
from joulediff.model.energy import Energy
from joulediff.model.errors import ArchiveError
from joulediff.model.measurement import Condition, DeviceState, DomainEnergy, IdlePower, Measurement
from joulediff.model.run import Frame, HostSample, Kernel, Op, Pass, Replay, Run, Sampling, SourceText, Value, Wait
from joulediff.model.signature import SKETCH, SKETCH_STEP, Signature

DAMAGED = "copy it again from where it was recorded, or record the program again"
NAN, INF = float("nan"), float("inf")


def small_run() -> Run:
    """Return `y = gelu(x @ w)` with every kind of record, and every optional field both set and not."""
    return Run(
        label="café",
        program="step.py:step",
        created="2025-01-31T12:00:00+00:00",
        tool="0.1.0",
        measurement=small_measurement(),
        traced_s=0.25,
        passes=(
            Pass("metered", "done", 4.5),
            Pass("sampled", "done", 1.5),
            Pass("traced", "partial", 1.0, "the profiler lost events"),
            Pass("replayed", "done", 9.0),
        ),
        notes=("two passes ran different operators",),
        settings={"allow_tf32": False, "threads": 8, "dropout": 0.1, "backend": "cudnn", "seed": None, "loss": INF},
        ops=(
            small_op(0, "aten::mm", (0, 1), (2,), frame=1, module="", module_type="Net", replay=0),
            small_op(
                1,
                "aten::gelu_",
                (2,),
                (3,),
                writes=(3,),
                cpp="at::gelu_\nmain",
                stream=7,
                autocast="bfloat16",
                replay=2,
            ),
            small_op(2, "aten::gelu_backward", (3,), (), phase="backward", forward=1, region="loss/gelu"),
        ),
        values=(
            small_value(0, (8, 16), kind="input", signature=0),
            small_value(1, (16, 4), kind="parameter", name="w"),
            small_value(2, (8, 4), producer=0, writers=(0,), repeats=3),
            small_value(3, (8, 4), producer=1, previous=2, writers=(0, 1), name="output.0"),
            small_value(4, ()),
        ),
        signatures=(
            Signature(128, 0, 0, 0, 5, True, -1.0, 2.0, 0.5, 1.5, 2.5, -0.0, 1e-310, sketch(random.Random(3))),
            Signature(2**62, 1, 2, 3, 0, False, None, None, NAN, INF, -INF, 0.0, 0.0),
        ),
        frames=(Frame("step.py", 3, "step", None, None), Frame("torch/nn/modules.py", 42, "forward", "torch", 0)),
        kernels=(
            Kernel("sgemm", "kernel", "cuda:0", 7, 0.001, 2e-5, 0, None, "op", (8, 1, 1), (256, 1, 1)),
            Kernel("Memcpy HtoD", "memcpy", "cuda:0", 7, 0.002, 1e-6, None, "h.0", "module", size_bytes=4096),
            Kernel("fused_add", "kernel", "cuda:0", 7, 0.003, 1e-6, 1, None, "fused", members=(0,)),
        ),
        waits=(Wait("cudaStreamSynchronize", 0.003, 0.001, 1, 0), Wait("cudaDeviceSynchronize", 0.004, 0.001, None, 1)),
        sources=(SourceText("step.py", 1, "import torch\n\ndef step(): ...\n"),),
        replays=small_replays(),
        sampling=Sampling(100, 0.001, 0.011, 0.01),
        host_samples=(HostSample(1, "line", 0.002, 0.001, 200), HostSample(None, "gc", 0.0, 0.0, 3)),
    )


def sketch(rng: random.Random) -> tuple[int, ...]:
    """Return a sketch as unrelated tensors have it."""
    return tuple(round(rng.gauss(0, SKETCH**-0.5) / SKETCH_STEP) for _ in range(SKETCH))


def small_replays() -> tuple[Replay, ...]:
    """Return one distinct operator in two domains, and one that could not be measured."""
    timed: dict[str, Any] = {"call_s": 2e-5, "calls": 40_000, "copies": 3}
    card = Replay(
        0, "gpu0", 0.01, 0.009, 0.012, "replayed", 75.0, clock_mhz=1980.0, how="graph", inputs="real", **timed
    )
    cpu = Replay(
        0, "cpu", 0.0, -0.001, 0.001, "estimated", cpu_s=1e-5, how="loop", inputs="drawn", beside_j=2e-7, **timed
    )
    return (card, cpu, Replay(1, "gpu0", note="it changes its input"))


def small_measurement() -> Measurement:
    idle = IdlePower(75.0, 74.0, 76.0, 0.01, 1.0)
    card = DomainEnergy(energy(10.0), energy(4.0), 300.0, idle, "counter", "NVIDIA H200", True, note="shared")
    cpu = DomainEnergy(energy(5.0, "estimated"), None, 60.0, None, "power", "Xeon", False, rested=True)
    state = DeviceState("gpu0", 1980.0, None, 41.0, 700.0, ("SwPowerCap",), (123, 456))
    return Measurement(
        label="café",
        step_s=0.02,
        repeats=20,
        steps=4000,
        energy=energy(10.0),
        net_energy=Energy(4.0, -INF, INF, "metered"),
        domains={"gpu0": card, "cpu": cpu},
        trustworthy=True,
        warnings=("the clock changed",),
        conditions=(Condition("clock", False, "1200 MHz", "gpu0", "lock the clocks"), Condition("load", True, "0.1")),
        states=(state, DeviceState("cpu")),
        sampling_share=0.004,
        clocks_mhz={"gpu0": 1965.5},
        cpu_s=0.018,
        profiles={"gpu0": (250.0, 350.0)},
    )


def energy(joules: float, source: Any = "metered") -> Energy:
    return Energy(joules, joules * 0.9, joules * 1.1, source)


def small_op(number: int, name: str, inputs: tuple[int, ...], outputs: tuple[int, ...], **more: Any) -> Op:
    given: dict[str, Any] = {
        "overload": "default",
        "arguments": json.dumps([{"tensor": at} for at in range(len(inputs))]),
        "returns": "[]",
        "writes": (),
        "frame": None,
        "module": None,
        "module_type": None,
        "phase": "forward",
        "forward": None,
        "thread": 0,
        "device": "cuda:0",
        "stream": None,
        "region": None,
        "grad": True,
        "inference": False,
        "autocast": None,
        "compiled": False,
    }
    return Op(id=number, name=name, inputs=inputs, outputs=outputs, **(given | more))


def small_value(number: int, shape: tuple[int, ...], **more: Any) -> Value:
    given: dict[str, Any] = {
        "strides": tuple(range(len(shape), 0, -1)),
        "offset": 0,
        "dtype": "float32",
        "device": "cuda:0",
        "storage": number,
        "kind": "produced",
        "name": None,
        "producer": None,
        "previous": None,
        "writers": (),
        "signature": None,
        "repeats": 1,
    }
    return Value(id=number, shape=shape, **(given | more))


def large_run(ops: int, *, seed: int = 1) -> Run:
    """Return a run of so many operators, as varied as that of a transformer; five values for each."""
    rng = random.Random(seed)
    shapes = [(8, 512, 768), (8, 512, 3072), (768, 768), (8, 12, 512, 64), (8, 12, 512, 512)]
    names = [
        f"aten::{name}" for name in ("addmm", "view", "transpose", "gelu", "native_layer_norm", "add", "mul", "bmm")
    ]
    signatures, frames = max(1, ops * 8 // 5), max(1, 3 * ops)
    return Run(
        "large",
        "gpt2.py:step",
        "2025-01-31T12:00:00+00:00",
        "0.1.0",
        small_measurement(),
        ops=tuple(
            small_op(
                at,
                rng.choice(names),
                tuple(rng.randrange(5 * at + 1) for _ in range(rng.randrange(4))),
                (5 * at,),
                arguments=json.dumps(
                    [{"tensor": 0}, rng.choice([1, 2, 768]), {"dtype": "float32"}, rng.random() < 0.1]
                ),
                frame=rng.randrange(frames),
                module=f"transformer.h.{at // 40 % 48}.{rng.choice(['attn', 'mlp', 'ln_1'])}",
                module_type="Conv1D",
                stream=7,
                replay=at // 10 * 2,
            )
            for at in range(ops)
        ),
        values=tuple(
            small_value(
                at,
                rng.choice(shapes),
                storage=at // 2,
                producer=at // 5,
                writers=(at // 5,),
                signature=rng.randrange(signatures),
                previous=at - 1 if at and rng.random() < 0.1 else None,
            )
            for at in range(5 * ops)
        ),
        signatures=tuple(
            Signature(2**20, 0, 0, 0, rng.randrange(9), False, *(rng.gauss(0, 1) for _ in range(7)), sketch(rng))
            for _ in range(signatures)
        ),
        frames=tuple(
            Frame(
                f"site-packages/transformers/models/file{at % 30}.py",
                rng.randrange(2000),
                rng.choice(["forward", "_call_impl", "wrapper"]),
                "transformers",
                rng.randrange(at) if at else None,
            )
            for at in range(frames)
        ),
        kernels=tuple(
            Kernel(
                f"void at::native::kernel<{rng.randrange(40)}>(int, float*)" + "x" * 80,
                "kernel",
                "cuda:0",
                7,
                at * 1e-5 + rng.random() * 1e-6,
                rng.random() * 1e-5,
                at % ops,
                None,
                "op",
                (rng.randrange(1000), 1, 1),
                (256, 1, 1),
            )
            for at in range(ops * 6 // 5)
        ),
        waits=tuple(Wait("cudaStreamSynchronize", at * 1e-3, 1e-4, at, 0) for at in range(ops // 20)),
        sources=tuple(
            SourceText(
                f"file{at}.py", 10, "".join(f"    x{n} = self.layer_{rng.randrange(99)}(x)\n" for n in range(20))
            )
            for at in range(min(ops // 10, 300))
        ),
        replays=tuple(
            Replay(at, domain, joules, joules * 0.9, joules * 1.1, calls=rng.randrange(10**6), rest_w=rng.gauss(75, 1))
            for at in range(0, ops, 10)
            for domain, joules in (("gpu0", rng.random()), ("cpu", rng.random()))
        ),
    )


def refusal(data: bytes, folder: Path) -> ArchiveError:
    """Return the error that a file of such bytes gives, without the part that names the file."""
    path = folder / "bad.jd"
    path.write_bytes(data)
    try:
        load(path)
    except ArchiveError as error:
        what, fix = error.what, error.fix
    else:
        raise AssertionError("it was read")
    assert what.startswith(f"{path} cannot be read: ")
    assert fix
    assert len(what.splitlines()) == len(fix.splitlines()) == 1
    return ArchiveError(what.removeprefix(f"{path} cannot be read: "), fix=fix)


def to_parquet(table: pa.Table, **options: Any) -> bytes:
    """Return a table as the archive packs it, but for the options."""
    sink = pa.BufferOutputStream()
    given = {"compression": "zstd", "write_statistics": False, "store_schema": False}
    pq.write_table(table, sink, **(given | options))
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def flat(value: Any, place: str = "run") -> dict[str, str]:
    """Return every scalar of a record by its place, as text."""
    if is_dataclass(value):
        return {k: v for f in fields(value) for k, v in flat(getattr(value, f.name), f"{place}.{f.name}").items()}
    if isinstance(value, tuple | list | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        found = {k: v for at, each in items for k, v in flat(each, f"{place}[{at}]").items()}
        return found | {f"{place}.length": str(len(value))}
    return {place: repr(value)}


def exactly(value: Any) -> Any:
    """Return a key for exact comparison of records: NaN equals NaN, and 1, 1.0 and True differ."""
    if is_dataclass(value):
        return (type(value), *(exactly(getattr(value, field.name)) for field in fields(value)))
    if isinstance(value, tuple | list):
        return (type(value), *map(exactly, value))
    if isinstance(value, dict):
        return [(exactly(key), exactly(each)) for key, each in value.items()]
    return type(value), repr(value)
