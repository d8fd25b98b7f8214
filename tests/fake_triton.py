"""Enough of Triton in NumPy to run the kernel of signatures without a GPU, and without Triton.

Programs run one after the other. A scalar is an array of one element, so that whole numbers wrap around silently.
"""

from __future__ import annotations

import builtins
import ctypes
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

KERNEL = "joulediff.frameworks.torch.capture.signature_kernel"
BFLOAT16 = "bfloat16"


class Array(np.ndarray):
    """An array with Triton's way to convert it."""

    def to(self, dtype: Any) -> Array:
        return self.astype(dtype)


class Pointer:
    """Addresses of elements of one type: a base and offsets from it."""

    def __init__(self, base: int, dtype: Any, offsets: Any = 0) -> None:
        self.base, self.dtype, self.offsets = base, dtype, offsets

    def to(self, dtype: Any) -> Pointer:
        return Pointer(self.base, dtype)

    def __add__(self, offsets: Any) -> Pointer:
        return Pointer(self.base, self.dtype, self.offsets + offsets)

    def memory(self, count: int) -> np.ndarray:
        dtype = np.dtype(np.uint16 if self.dtype is BFLOAT16 else self.dtype)
        return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(self.base), dtype)


def load(pointer: Pointer, *, mask: np.ndarray, other: float) -> Array:
    places = np.where(mask, pointer.offsets, 0)
    found = pointer.memory(int(places.max()) + 1)[places]
    if pointer.dtype is BFLOAT16:
        found = (found.astype(np.uint32) << 16).view(np.float32)
    return np.where(mask, found, np.array(other, found.dtype)).view(Array)


def store(pointer: Pointer, value: np.ndarray) -> None:
    places = np.atleast_1d(pointer.offsets)
    pointer.memory(int(places.max()) + 1)[places] = value


class Kernel:
    """A function of Triton. Called by another one it is a plain function, launched it runs once for each program."""

    def __init__(self, function: Callable[..., Any], language: ModuleType) -> None:
        self.function, self.language = function, language

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(data: int, out: Any, *arguments: Any, **options: Any) -> None:
            self.function.__globals__["range"] = count
            self.language.num_programs = lambda axis: scalar(grid[axis], np.int32)
            for program in builtins.range(grid[0]):
                self.language.program_id = lambda axis, program=program: scalar(program, np.int32)
                with np.errstate(all="ignore"):
                    self.function(Pointer(data, None), Pointer(out.data_ptr(), np.float64), *arguments)

        return launch


def scalar(value: int, dtype: Any) -> Array:
    return np.array([value], dtype).view(Array)


def count(start: Any, stop: Any, step: Any) -> Iterator[Array]:
    for at in builtins.range(int(start[0]), stop, int(step[0])):
        yield scalar(at, np.int64)


def load_kernel() -> ModuleType:
    """Return the module of the kernel, loaded with this instead of Triton."""
    triton, language, compiler = ModuleType("triton"), ModuleType("triton.language"), ModuleType("triton.compiler")
    names = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "uint32")
    language.__dict__.update({name: getattr(np, name) for name in names})
    language.__dict__.update(
        bfloat16=BFLOAT16,
        constexpr=lambda value: value,
        pointer_type=lambda kind: kind,
        arange=lambda first, end: np.arange(first, end, dtype=np.int32).view(Array),
        zeros=lambda shape, dtype: np.zeros(shape, dtype).view(Array),
        full=lambda shape, value, dtype: np.full(shape, value, dtype).view(Array),
        where=lambda mask, a, b: np.where(mask, a, b).view(Array),
        reshape=lambda x, shape: x.reshape(shape),
        sum=lambda x, axis=None: np.atleast_1d(np.sum(x, axis=axis)).view(Array),
        min=np.min,
        max=np.max,
        abs=np.abs,
        floor=np.floor,
        minimum=np.minimum,
        maximum=np.maximum,
        load=load,
        store=store,
    )
    triton.language = language  # type: ignore[attr-defined]
    compiler.CompiledKernel = SimpleNamespace  # type: ignore[attr-defined]

    def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
        return Kernel(function, language) if function is not None else lambda each: Kernel(each, language)

    triton.jit = jit  # type: ignore[attr-defined]
    fakes = {"triton": triton, "triton.language": language, "triton.compiler": compiler}
    kept = {name: sys.modules.pop(name) for name in (*fakes, KERNEL) if name in sys.modules}
    sys.modules.update(fakes)
    try:
        return import_module(KERNEL)
    finally:
        for name in (*fakes, KERNEL):
            sys.modules.pop(name, None)
        sys.modules.update(kept)
