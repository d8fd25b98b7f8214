"""Runs as `joulediff show` meets them, and their report as text."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from energy_builders import replay, with_replays
from joulediff.model.measurement import Condition
from joulediff.model.run import Pass, Run
from joulediff.report.terminal.run import print_run
from run_builders import PASSES, Gpt2, domain_energy, energy, gpt2_run, measurement


def complete() -> Run:
    return gpt2_run()


def compiled() -> Run:
    """A run with compiled layers, kernels without an operator, two GPUs, and many warnings."""
    made = Gpt2(layers=0)
    for layer in range(6):
        at = f"transformer.h.{layer}"
        made.work("aten::addmm", f"{at}.mlp.c_fc", "Conv1D", 0.0, None, compiled=True)
        made.work("aten::gelu", f"{at}.mlp.act", "GELU", 0.0, None, compiled=True)
        made.kernel("triton_poi_fused_gelu_0", 40e-6, module=at, join="module")
        made.kernel("void gemm<128>(float*)", 90e-6, module=at, join="module", after_s=30e-6, stream=13)
    made.kernel("void nobody_knows(int)", 0.33e-3)
    made.kernel("Memset (Device)", 3e-6, kind="memset", size_bytes=4_500_000)
    made.wait("cudaDeviceSynchronize", 0.4e-3)
    found = measurement(
        domains={
            "gpu0": domain_energy(3.1234, 6.2e-3),
            "gpu1": domain_energy(0.4321, 6.2e-3, None),
            "cpu": domain_energy(0.2111, 6.2e-3, 20.0, device="Intel package"),
            "gpu2": domain_energy(0.47, 6.2e-3, counted=False, rested=True),
        },
        energy=energy(3.7666, 0.07),
        trustworthy=False,
        warnings=(
            "the interval is ±7% after 4.6 s, wider than 5%: give it more time (--seconds), a quieter machine, or a "
            "wider --precision",
            "gpu0 is used by process 4711 (python3): its energy is in every number",
        ),
        conditions=(
            Condition(
                "other programs",
                False,
                "4711",
                "gpu0",
                "gpu0 is used by process 4711 (python3): its energy is in every number",
            ),
            Condition("drift", False, "+3 °C", "gpu0"),
            Condition("throttling", False, "power cap", "gpu2"),
        ),
    )
    return made.build(
        label="gpt2, compiled",
        measurement=found,
        passes=(PASSES[0], Pass("traced", "partial", 1.2, "the profiler lost 3 events"), PASSES[2]),
        notes=tuple(f"operator {n} differs between the passes" for n in range(9)),
    )


def on_cpu() -> Run:
    found = measurement(
        step_s=31e-3,
        domains={"cpu": domain_energy(0.41, 31e-3, 0.03, energy=energy(0.41, 0.04, "estimated"), device="Intel Xeon")},
        energy=energy(0.41, 0.04, "estimated"),
        states=(),
        cpu_s=31e-3,
    )
    return gpt2_run(2, device="cpu", measurement=found)


def replayed() -> Run:
    """Replayed as well, with a metered CPU; some operators in another way than the program ran them, some not."""
    made = Gpt2()
    kinds: dict[tuple[str, float], list[int]] = {}
    for kernel in made.kernels:
        assert kernel.op is not None
        kinds.setdefault((made.ops[kernel.op].name, kernel.duration_s), []).append(kernel.op)
    at_1755 = "ran at 1755 MHz, the program at 1980: no pace brings them together"
    changes: dict[str, dict[str, Any]] = {
        "aten::item": {"joules": None, "note": "its result depends on the values of its inputs"},
        "aten::native_layer_norm": {"joules": None, "note": "the 60.0 s for replay were spent"},
        "aten::pow": {"clock_mhz": 1755.0, "note": at_1755},
        "aten::tanh": {"clock_mhz": 1762.0, "note": at_1755.replace("1755", "1762")},
        "aten::add": {"inputs": "drawn"},
    }
    found, calls = [], {}
    for number, ((name, call_s), ops) in enumerate(kinds.items()):
        facts = {"clock_mhz": 1980.0, "how": "graph", "inputs": "real", "calls": 900, **changes.get(name, {})}
        joules = facts.pop("joules", (620.0 if "mm" in name else 210.0) * call_s)
        found.append(replay(ops[0], joules, share=0.03, rest_w=75.8, call_s=call_s, **facts))
        calls |= dict.fromkeys(ops, number)
    measured = measurement(
        domains={
            "gpu0": domain_energy(4.1236, 7.0e-3),
            "cpu": domain_energy(0.3111, 7.0e-3, 20.0, device="Intel package"),
        },
        energy=energy(4.4347, 0.012),
        cpu_s=6.5e-3,
        clocks_mhz={"gpu0": 1980.0},
    )
    passes = (*PASSES, Pass("replayed", "done", 21.0))
    return with_replays(made.build(measurement=measured, passes=passes), *found, calls=calls)


def in_regions() -> Run:
    """A run whose program names the parts of its layers, one inside the other."""
    run = gpt2_run(2)
    names = {"attn": "block/attention", "mlp": "block"}
    parts = [names.get((op.module or "").split(".")[-2] if "." in (op.module or "") else "") for op in run.ops]
    return replace(run, ops=tuple(replace(op, region=part) for op, part in zip(run.ops, parts, strict=True)))


def metered_only() -> Run:
    skipped = (
        Pass("traced", "skipped", 0.0, "torch is not imported"),
        Pass("captured", "failed", 0.3, "out of memory"),
    )
    return Run(
        "sums", "sums.py", "2026-11-20T10:31:22+00:00", "0.2.0", measurement=measurement(), passes=(PASSES[0], *skipped)
    )


def captured_only() -> Run:
    made = Gpt2(layers=4)
    passes = (Pass("metered", "failed", 0.0, "no meter"), Pass("traced", "failed", 0.1, "no profiler"), PASSES[2])
    return made.build(passes=passes, kernels=(), waits=(), traced_s=None)


REPORTS = {f.__name__: f for f in (complete, replayed, compiled, on_cpu, metered_only, captured_only, in_regions)}


def render(run: Run, columns: int = 120, *, colour: bool = False, **options: Any) -> str:
    console = Console(
        file=io.StringIO(),
        width=columns,
        highlight=False,
        force_terminal=colour,
        color_system="standard" if colour else None,
    )
    print_run(run, console, **{"path": "run.jd", **options})
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
