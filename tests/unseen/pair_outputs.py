"""Build both programs of unseen pairs on the CPU, run one step of each, and compare what they return.

    python tests/unseen/pair_outputs.py NAME...

Prints a line of JSON for each pair: the largest difference, as a share of the norm of the wasteful program's output, or
the error. Each program has a process of its own, forked after the slow imports: settings do not reach the next one.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).resolve().parent
PROGRAMS = ("wasteful.py", "lean.py")


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    with suppress(ImportError):
        import transformers  # noqa: F401 (once for all programs that use it)
    for name in names:
        begin_s = time.monotonic()
        a, b = (run_apart(FOLDER / name / program) for program in PROGRAMS)
        errors = [each for each in (a, b) if isinstance(each, str)]
        difference = None if errors else compare(a, b)
        seconds = time.monotonic() - begin_s
        found = {"pair": name, "difference": difference, "errors": errors, "seconds": seconds}
        sys.stdout.write(f"{json.dumps(found)}\n")
        sys.stdout.flush()


def run_apart(program: Path) -> Any:
    """Return the tensors that a step of a program returns, as NumPy arrays, or its error as text."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(program, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return f"{program.parent.name}/{program.name} ended early"
    finally:
        process.join()


def _run(program: Path, sender: Connection) -> None:
    try:
        sys.path.insert(0, str(program.parent))
        spec = importlib.util.spec_from_file_location("program", program)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        step = module.build()
        sender.send([each.detach().to_dense().double().numpy() for each in tensors_in(step())])
    except Exception as error:  # noqa: BLE001 (it is the result)
        sender.send(f"{program.name}: {type(error).__name__}: {error}")


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value, in order; numbers count as tensors."""
    if isinstance(value, torch.Tensor):
        yield value if not value.is_complex() else torch.view_as_real(value)
    elif isinstance(value, bool | int | float):
        yield torch.tensor(float(value))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors_in(each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)


def compare(a: list[Any], b: list[Any]) -> float:
    """Return the largest difference of two lists of arrays, as a share of the norm; infinite for other shapes."""
    if [each.shape for each in a] != [each.shape for each in b] or not a:
        return float("inf")
    shares = [float(abs(x - y).max(initial=0.0) / (abs(x).max(initial=0.0) or 1.0)) for x, y in zip(a, b, strict=True)]
    return max(shares)


if __name__ == "__main__":
    main(sys.argv[1:])
