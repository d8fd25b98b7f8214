"""Cases for tests: folders with a `case.toml` and two programs, and the judgements of a small library."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from joulediff.cases.case import Case, read_case
from joulediff.cases.judge import Judgement
from joulediff.model.energy import Ratio

FACTS: dict[str, Any] = {
    "title": "Float32 products without TF32",
    "system": "PyTorch",
    "origin": "published",
    "kind": "misconfiguration",
    "keys": ["allow_tf32", "torch.float32_matmul_precision"],
    "devices": ["cpu", "cuda"],
    "about": "Products of float32 run on the slow units.\nSet the precision instead.",
}
# What the first finding of `gpt2_diff` answers.
GELU: dict[str, Any] = {"kind": "api_misuse", "keys": ["activation_function"]}
PROGRAM = "def build():\n    return lambda: sum(range(20_000))\n"

SHARED = """
    import torch
    from joulediff.cases.sizes import DEVICE, pick

    def build_with(transpose):
        torch.manual_seed(0)
        x = torch.randn(pick(256, 16384), pick(192, 4096), device=DEVICE)

        def step():
            with torch.no_grad():
                return torch.relu(transpose(x))

        return step
"""
COPIES = "from shared import build_with\n\n\ndef build():\n    return build_with(lambda x: x.t().contiguous())\n"
LEAN = "from shared import build_with\n\n\ndef build():\n    return build_with(lambda x: x.t())\n"


def write_toml(folder: Path, text: str) -> Path:
    """Write a case whose `case.toml` has this text, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.toml").write_text(text, encoding="utf-8")
    for name in ("wasteful.py", "lean.py"):
        (folder / name).write_text(PROGRAM, encoding="utf-8")
    return folder


def write_case(folder: Path, **changes: Any) -> Path:
    """Write the case of TF32 with other entries; None leaves one out. Returns its folder."""
    entries = {name: value for name, value in {**FACTS, **changes}.items() if value is not None}
    return write_toml(folder, "".join(f"{name} = {_toml(value)}\n" for name, value in entries.items()))


def make_case(folder: Path, **changes: Any) -> Case:
    return read_case(write_case(folder, **changes))


def write_copies(folder: Path) -> Path:
    """Write a case that runs anywhere in moments: a copy that is not needed."""
    write_case(folder, title="A copy that nobody needs", kind="redundant", keys=["contiguous"], origin="ours")
    for name, text in (("shared.py", SHARED), ("wasteful.py", COPIES), ("lean.py", LEAN)):
        (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_toml(each)}' for name, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)  # a text, a number or a truth value is the same in TOML


def judgement(case: str, outcome: Any = "found", **changes: Any) -> Judgement:
    """Return how the case of TF32 went."""
    facts: dict[str, Any] = {
        "detected": True,
        "kind_right": True,
        "key_right": True,
        "line_right": True,
        "proof": "cause confirmed",
        "finding": "1",
        "end_to_end": Ratio(6.31, 6.2, 6.42),
        "saved_share": 0.84,
        "region_ratio": 8.123,
        "region_delta_j": 1.5,
        "rank_energy": 1,
        "rank_time": 2,
        "told_kind": "misconfiguration",
        "told_key": "torch.backends.cuda.matmul.allow_tf32",
        "verdict": "waste",
        "seconds": 31.4,
        "device": "NVIDIA H200",
        "versions": "torch 2.11.0",
    }
    return Judgement(case, outcome, **{**facts, **changes})


def library_judgements() -> list[Judgement]:
    """Return a library in which everything happens."""
    wrong = "reported redundant: contiguous; expected API misuse: gelu"
    return [
        judgement("a-case-with-a-rather-long-name-of-its-own"),
        judgement("gelu-by-hand", told_kind="api_misuse", told_key="config.activation_function", rank_time=11),
        judgement(
            "copies",
            told_kind="redundant",
            told_key="contiguous",
            region_ratio=None,
            finding="3",
            proof="replacement confirmed",
        ),
        judgement(
            "busy-waiting", told_kind="host", told_key="synchronize", rank_energy=None, rank_time=None, seconds=12.0
        ),
        judgement(
            "wrong-cause",
            "partly",
            kind_right=False,
            key_right=False,
            told_kind="redundant",
            told_key="contiguous",
            note=wrong,
        ),
        judgement("wrong-line", "partly", line_right=False, note="reported the line x.t(); expected x.contiguous()"),
        judgement("not-proved", "partly", proof="observed", note="not confirmed"),
        silent("addmm-epilogue", "fixed upstream", end_to_end=Ratio(1.003, 0.99, 1.016), note="1.00x (0.99 .. 1.02)"),
        silent("nothing-seen", end_to_end=Ratio(1.0, 0.99, 1.01), note="no difference measured: 1.00x (0.99 .. 1.01)"),
        silent("fails", note="wasteful: build() in wasteful.py raised ValueError: no such model (wasteful.py:2)"),
        Judgement("stable-diffusion-vae", "not run", note="needs diffusers"),
        Judgement("two-cards", "not run", note="only on cuda"),
        Judgement("other-cards", "not run", note="only on cuda"),
    ]


def silent(case: str, outcome: Any = "missed", **changes: Any) -> Judgement:
    """Return how a case without a finding went."""
    return Judgement(case, outcome, **{"seconds": 20.0, "device": "NVIDIA H200", **changes})
