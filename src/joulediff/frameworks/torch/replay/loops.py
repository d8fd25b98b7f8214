"""Calls an operator many times from C++, as autograd and composite operators call it.

A call from Python converts the arguments, finds the overload and wraps the outputs, which costs 0.5 to 2 µs: more than
most operators on small tensors. The program either does not do that, or its cost is the host's. So the loop is a graph
of TorchScript, run without optimization: every call in the graph is executed, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

# The arguments of each set of inputs are arguments of the graph, and are converted anew for each run of it.
_MOST_ARGUMENTS = 1024


class OperatorLoop:
    """Calls of one operator, a set of inputs after the other; `run_empty` is the same loop without the operator."""

    def __init__(self, run: Callable[..., object], run_empty: Callable[..., object], arguments: Sequence[Any]) -> None:
        self._run, self._run_empty = run, run_empty
        self._arguments = tuple(arguments)

    def run(self, rounds: int) -> None:
        """Call the operator on each set of inputs, this many times."""
        with _as_written():
            self._run(rounds - 1, *self._arguments)

    def run_empty(self, rounds: int) -> None:
        """Collect the arguments of as many calls, and call nothing."""
        with _as_written():
            self._run_empty(rounds - 1, *self._arguments)


def open_loop(calls: Sequence[partial[Any]]) -> OperatorLoop | None:
    """Return a loop over calls of one operator on different inputs; None if TorchScript does not know it.

    Each set of inputs holds its last outputs, as a program does: memory that is freed at once stays in the cache.
    """
    schema = getattr(calls[0].func, "_schema", None)
    if schema is None:
        return None
    rows = [_arguments(schema, call) for call in calls]
    flat = [each for row in rows for each in row]
    if len(flat) > _MOST_ARGUMENTS:
        return None
    try:
        run, run_empty = (_compile(_build(schema, rows, empty=empty)) for empty in (False, True))
        loop = OperatorLoop(run, run_empty, flat)
        loop.run(1)
        loop.run_empty(1)
    except (RuntimeError, TypeError, ValueError):  # an argument without a type there, or an operator it does not know
        return None
    return loop


@contextmanager
def _as_written() -> Iterator[None]:
    """Run graphs without optimization, which would call an operator once for many equal calls."""
    import torch

    before = torch._C._get_graph_executor_optimize()  # noqa: SLF001
    torch._C._set_graph_executor_optimize(False)  # noqa: SLF001
    try:
        yield
    finally:
        torch._C._set_graph_executor_optimize(before)  # noqa: SLF001


def _arguments(schema: Any, call: partial[Any]) -> list[Any]:
    """Return all arguments of a call in the order of the operator's schema, with their defaults."""
    given = {argument.name: value for argument, value in zip(schema.arguments, call.args, strict=False)}
    given |= call.keywords
    return [given.get(argument.name, argument.default_value) for argument in schema.arguments]


def _compile(graph: Any) -> Callable[..., object]:
    import torch

    compiled: Callable[..., object] = torch._C._create_function_from_graph("loop", graph)  # noqa: SLF001
    return compiled


def _build(schema: Any, rows: Sequence[Sequence[Any]], *, empty: bool) -> Any:
    """Return a graph that calls the operator on each row of arguments once, and then as often as its first input says.

    The outputs of a round are inputs of the next one, and of the graph's result, so no call counts as unused.
    """
    import torch

    graph = torch._C.Graph()  # noqa: SLF001

    def add_input(name: str, type_: Any) -> Any:
        value = graph.addInput(name)
        value.setType(type_)
        return value

    rounds = add_input("rounds", torch._C.IntType.get())  # noqa: SLF001
    inputs = [
        [
            add_input(f"a{at}_{number}", _type_of(argument.type, value))
            for number, (argument, value) in enumerate(zip(schema.arguments, row, strict=True))
        ]
        for at, row in enumerate(rows)
    ]
    call = partial(_add_call, graph, schema, empty=empty)
    held = [value for row in inputs for value in call(row, graph.appendNode)]
    always = graph.insertConstant(True)
    loop = graph.create("prim::Loop", [rounds, always, *held], len(held))
    graph.appendNode(loop)
    body = loop.addBlock()
    body.addInputToBlock().setType(torch._C.IntType.get())  # noqa: SLF001
    for value in held:
        body.addInputToBlock().setType(value.type())
    end = body.returnNode()
    made = [value for row in inputs for value in call(row, lambda node: node.insertBefore(end))]
    for value in (always, *made):
        body.registerOutput(value)
    for value, first in zip(loop.outputs(), held, strict=True):
        value.setType(first.type())
    graph.registerOutput(_pack(graph, list(loop.outputs()), graph.appendNode))
    return graph


def _add_call(graph: Any, schema: Any, row: Sequence[Any], add: Callable[[Any], object], *, empty: bool) -> list[Any]:
    """Add a call to a graph, and return its first output; an empty one puts the arguments into a tuple."""
    if empty:
        return [_pack(graph, row, add)]
    node = graph.create(schema.name, list(row), len(schema.returns))
    add(node)
    outputs = list(node.outputs())
    for value, returned in zip(outputs, schema.returns, strict=True):
        value.setType(returned.type)
    return outputs[:1]


def _pack(graph: Any, values: Sequence[Any], add: Callable[[Any], object]) -> Any:
    import torch

    node = graph.create("prim::TupleConstruct", list(values), 1)
    add(node)
    packed = next(iter(node.outputs()))
    packed.setType(torch._C.TupleType([value.type() for value in values]))  # noqa: SLF001
    return packed


def _type_of(declared: Any, value: Any) -> Any:
    """Return the type of an argument in the graph: a number has the type of its value.

    A number in place of a tensor selects the overload for numbers, which makes a tensor of it as Python's binding does.
    """
    import torch

    c = torch._C  # noqa: SLF001
    inner = declared.getElementType() if declared.kind() == "OptionalType" else declared
    types = {bool: c.BoolType, int: c.IntType, float: c.FloatType, complex: c.ComplexType}
    if inner.kind() == "NumberType":
        types[type(None)] = c.NoneType
    elif inner.kind() != "TensorType" or type(value) not in types:
        return declared
    if type(value) not in types:
        raise TypeError(f"{type(value).__name__} is no number")
    return types[type(value)].get()
