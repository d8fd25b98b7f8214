"""Reads the code that `torch.compile` generated: what each graph runs, in order, and the operators it computes.

The compiler keeps the source of each graph that it loaded, also of those from its caches. Comments in it name the
operators of the program behind each kernel. Nothing of it has to be switched on before the program compiles.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """One kernel or one call of a library in the code of a graph."""

    name: str
    """The name of a generated kernel, or that of an operator as the profiler shows it."""
    ops: tuple[str, ...]
    """The operators it computes; empty if the code does not say it."""
    is_generated: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """The parts of a graph in the order in which it runs them. `keys`: its names in a trace, if they are known."""

    parts: tuple[Part, ...]
    keys: frozenset[str] = frozenset()


_CODE_CACHE = "torch._inductor.codecache"
_GRAPH_CLASS = "CompiledFxGraph"
_IS_GRAPH = "def call("


def read_graphs() -> tuple[Graph, ...]:
    """Return the graphs that the compiler holds in this process; none if it was not loaded."""
    cache = getattr(sys.modules.get(_CODE_CACHE), "PyCodeCache", None)
    if cache is None:
        return ()
    keys: dict[str, set[str]] = {text: set() for text in _loaded_texts(cache)}
    for graph in [each for each in gc.get_objects() if type(each).__name__ == _GRAPH_CLASS]:
        text, key = getattr(graph, "source_code", None), getattr(graph, "_fx_graph_cache_key", None)
        if isinstance(text, str) and _IS_GRAPH in text:
            keys.setdefault(text, set()).update([key] if isinstance(key, str) else [])
    graphs = (Graph(parse_graph(text), frozenset(found)) for text, found in keys.items())
    return tuple(graph for graph in graphs if graph.parts)


def _loaded_texts(cache: Any) -> Iterator[str]:
    """Yield the sources of the modules of graphs; PyTorch 2.4 and 2.5 hold the modules in another table."""
    modules = [*getattr(cache, "modules", ()), *getattr(cache, "modules_no_attr", {}).values()]
    modules += [*getattr(cache, "cache", {}).values()]
    for path in dict.fromkeys(getattr(module, "__file__", None) for module in modules):
        try:
            text = "" if path is None else Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # the cache's folder was removed
        if _IS_GRAPH in text:
            yield text


# `# Topologically Sorted Source Nodes: [x, gelu], Original ATen: [aten.addmm, aten.gelu]`; "# Source Nodes: ..." in
# earlier versions.
_COMMENT = re.compile(r"\s*#.*\bOriginal ATen: \[([^\]]*)\]")
# `triton_poi_fused_gelu_0 = async_compile.triton('triton_poi_fused_gelu_0', '''`; the device shows the second name.
_DEFINITION = re.compile(r"(\w+) = async_compile\.\w+\((?:'(\w+)'|\[)")
_FUNCTION = re.compile(r"(\s*)def (call|partition_\d+)\(")
# `self.partitions[0](partition0_args)`
_PARTITION = re.compile(r"\b(?:partitions\[(\d+)\]|partition_(\d+))\(")
_RUN = re.compile(r"(?:\w+ = )?(\w+)(?:\.run)?\(")
_EXTERN = re.compile(r"(?:[\w, ()\[\]]+ = )?(extern_kernels|torch\.ops|aten|inductor_ops|_quantized)\.([\w.]+)\(")
_NAMESPACES = {"extern_kernels": "aten", "aten": "aten", "inductor_ops": "inductor", "_quantized": "_quantized"}


def parse_graph(text: str) -> tuple[Part, ...]:
    """Return the parts of a graph from its generated source."""
    return _Parser(text).parts("call")


@dataclass(slots=True)
class _Definition:
    name: str
    ops: tuple[str, ...]


@dataclass(slots=True)
class _Parser:
    """The kernels that a module defines, and the lines of its functions."""

    text: str
    kernels: dict[str, _Definition] = field(default_factory=dict)
    functions: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ops: tuple[str, ...] = ()
        function: list[str] = []
        depth: int | None = None
        for line in self.text.splitlines():
            if depth is not None and line.strip() and len(line) - len(line.lstrip()) <= depth:
                depth = None
            if found := _FUNCTION.match(line):
                depth, function = len(found[1]), self.functions.setdefault(found[2], [])
            elif depth is not None:
                function.append(line)
            elif found := _COMMENT.match(line):
                ops = _to_ops(found[1])
            elif found := _DEFINITION.match(line):
                self.kernels[found[1]] = _Definition(found[2] or found[1], ops)
                ops = ()

    def parts(self, function: str) -> tuple[Part, ...]:
        """Return the parts of one function, with those of the partitions that it calls."""
        found: list[Part] = []
        ops: tuple[str, ...] = ()
        for line in self.functions.get(function, ()):
            if comment := _COMMENT.match(line):
                ops = _to_ops(comment[1])
            elif function == "call" and (partition := _PARTITION.search(line)):
                found += self.parts(f"partition_{partition[1] or partition[2]}")
            elif part := self._to_part(line.strip(), ops):
                found.append(part)
                ops = ()
        return tuple(found)

    def _to_part(self, line: str, ops: tuple[str, ...]) -> Part | None:
        run = _RUN.match(line)
        if run is not None and run[1] in self.kernels:
            kernel = self.kernels[run[1]]
            return Part(kernel.name, ops or kernel.ops, is_generated=True)
        extern = _EXTERN.match(line)
        if extern is None:
            return None
        name = _extern_name(extern[1], extern[2])
        # The comment of a library call names the operators before it, too; its own is the last one. A call of several,
        # such as a convolution with its activation, has a name of its own.
        own = ops[-1:] if name.startswith("aten::") else ops
        return Part(name, tuple(dict.fromkeys((*own, name))), is_generated=False)


def _extern_name(owner: str, path: str) -> str:
    """Return the profiler's name: `torch.ops.aten.cumsum.default` is `aten::cumsum`."""
    names = path.split(".")
    if owner == "torch.ops":
        return "::".join(names[:2])
    return f"{_NAMESPACES[owner]}::{names[0]}"


def _to_ops(text: str) -> tuple[str, ...]:
    names = (each.strip() for each in text.split(","))
    return tuple(name.replace(".", "::", 1) for name in names if name)


_FUSED = re.compile(r"(?:triton|cpp)_(?:[a-z]{3}_)?fused_(\w+)")


def ops_in_name(kernel: str, known: Mapping[str, str]) -> tuple[str, ...]:
    """Return the operators in the name of a generated kernel: `triton_poi_fused_add_gelu_3`.

    The compiler joins up to ten names. `known` are the operators that may be meant, by their names without namespace.
    """
    found = _FUSED.match(kernel)
    rest, ops = found[1] if found else "", []
    while rest:
        name = _longest_prefix(rest, known)
        if name is not None:
            ops.append(known[name])
        skipped = len(name) if name is not None else max(1, len(rest.partition("_")[0]))
        rest = rest[skipped:].removeprefix("_") if name is not None or not rest.startswith("_") else rest[1:]
    return tuple(dict.fromkeys(ops))


def _longest_prefix(text: str, known: Mapping[str, str]) -> str | None:
    words = text.split("_")
    prefixes = ("_".join(words[:count]) for count in range(len(words), 0, -1))
    return next((prefix for prefix in prefixes if prefix in known), None)


def is_fused_name(name: str) -> bool:
    """Return whether a kernel has a name that the compiler gives."""
    return _FUSED.match(name) is not None


def find_graph(graphs: Sequence[Graph], key: str | None, shown: Sequence[str]) -> Graph | None:
    """Return the graph with this key, or else the one that fits best to the names of what ran.

    Without a key, the part of the names that a graph and the trace have in common decides; a graph that shares none
    does not fit.
    """
    named = [graph for graph in graphs if key is not None and key in graph.keys]
    if named:
        return named[0]
    best = max(graphs, key=lambda graph: _likeness(graph, shown), default=None)
    return best if best is not None and _likeness(best, shown) > 0.0 else None


def _likeness(graph: Graph, shown: Sequence[str]) -> float:
    left = [part.name for part in graph.parts]
    size = len(left) + len(shown)
    for name in shown:
        if name in left:
            left.remove(name)
    shared = len(graph.parts) - len(left)
    return shared / (size - shared)
