"""The values that operators read and produce are compared with a simulation of the last writer of each element."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interpreter import copy, inputs_of, interpret, record, replay, sign, to_run
from joulediff.frameworks.torch.capture.capture import Captured, capture_step
from joulediff.frameworks.torch.capture.geometry import overlap
from joulediff.frameworks.torch.capture.values import _bytes, _Piece
from joulediff.model.run import Run, Value

aten = torch.ops.aten
BEFORE = -1
Statement = tuple[str, int, Any]

# --- Random programs: views of two tensors, writes through them, and reads, one operator a statement. ---


def views() -> st.SearchStrategy[tuple[str, Any]]:
    small = st.integers(0, 5)
    return st.one_of(
        st.tuples(st.just("slice"), st.tuples(small, small, st.integers(1, 6), st.integers(1, 2))),
        st.tuples(st.just("select"), st.tuples(small, small)),
        st.tuples(st.just("expand"), st.integers(2, 3)),
        st.tuples(st.sampled_from(["transpose", "diagonal", "unsqueeze", "flatten", "alias"]), st.none()),
    )


def statements() -> st.SearchStrategy[Statement]:
    which = st.integers(0, 30)
    return st.one_of(
        st.tuples(st.just("view"), which, views()),
        st.tuples(st.just("view"), which, views()),
        st.tuples(st.just("write"), which, st.sampled_from(["fill", "add", "zero"])),
        st.tuples(st.just("copy"), which, which),
        st.tuples(st.just("out"), which, which),
        st.tuples(st.just("new"), which, st.none()),
    )


PROGRAMS = st.lists(statements(), min_size=1, max_size=14)


def take_view(x: torch.Tensor, kind: str, detail: Any) -> torch.Tensor:
    if kind == "slice" and x.dim():
        dim, start, length, stride = detail
        return aten.slice.Tensor(x, dim % x.dim(), start, start + length, stride)
    if kind == "select" and x.dim() and x.numel():
        dim, index = detail[0] % x.dim(), detail[1]
        return aten.select.int(x, dim, index % x.shape[dim])
    if kind == "expand" and x.dim() < 4:
        return aten.expand.default(x, [detail, *x.shape])
    if kind == "transpose" and x.dim() >= 2:
        return aten.transpose.int(x, 0, -1)
    if kind == "diagonal" and x.dim() >= 2:
        return aten.diagonal.default(x)
    if kind == "unsqueeze" and x.dim() < 4:
        return aten.unsqueeze.default(x, 0)
    if kind == "flatten" and x.is_contiguous():
        return aten.view.default(x, [-1])
    return aten.alias.default(x)


class Real:
    """Does what a program says."""

    def view(self, x: torch.Tensor, detail: Any) -> torch.Tensor:
        return take_view(x, *detail)

    def write(self, x: torch.Tensor, how: str) -> None:
        if how == "fill":
            aten.fill_.Scalar(x, 5)
        elif how == "add":
            aten.add_.Tensor(x, 1)
        else:
            aten.zero_.default(x)

    def copy(self, x: torch.Tensor, y: torch.Tensor) -> None:
        aten.copy_.default(x, y)

    def out(self, x: torch.Tensor, y: torch.Tensor) -> None:
        aten.add.out(y, 1, out=x)

    def new(self, x: torch.Tensor) -> torch.Tensor:
        return aten.add.Tensor(x, 1)


class Shadow:
    """Writes into each element the number of the operator that wrote it, and keeps what each operator saw."""

    def __init__(self) -> None:
        self.read: list[list[set[int]]] = []
        self.made: list[set[int]] = []

    def view(self, x: torch.Tensor, detail: Any) -> torch.Tensor:
        self.read.append([writers_in(x)])
        view = take_view(x, *detail)
        self.made.append(writers_in(view))
        return view

    def write(self, x: torch.Tensor, _: str) -> None:
        self._write(x, x)

    def copy(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self._write(x, x, y)

    def out(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self._write(x, y, x)

    def new(self, x: torch.Tensor) -> torch.Tensor:
        made = aten.add.Tensor(x, 1)  # laid out as the real one
        self._write(made, x)
        return made

    def _write(self, changed: torch.Tensor, *read: torch.Tensor) -> None:
        self.read.append([writers_in(each) for each in read])
        changed.fill_(len(self.made))
        self.made.append(writers_in(changed))


def writers_in(shadow: torch.Tensor) -> set[int]:
    return {int(each) for each in shadow.reshape(-1)} - {BEFORE}


def perform(program: list[Statement], bases: list[torch.Tensor], actor: Real | Shadow) -> list[torch.Tensor]:
    """Run a program; what does not fit is left out, by layout alone, so that every actor leaves out the same."""
    pool = list(bases)
    for kind, which, detail in program:
        x = pool[which % len(pool)]
        if kind == "view":
            pool.append(actor.view(x, detail))
        elif kind == "new":
            pool.append(actor.new(x))
        elif 0 in [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]:
            continue
        elif kind == "write":
            actor.write(x, detail)
        else:
            y = pool[detail % len(pool)]
            if y.shape == x.shape and y.untyped_storage()._cdata != x.untyped_storage()._cdata:
                getattr(actor, kind)(x, y)
    return pool


def make_bases() -> list[torch.Tensor]:
    return [torch.arange(24).view(4, 6), torch.arange(100, 124).view(3, 4, 2)]


def chain(run: Run | Captured, value: int | None) -> list[Value]:
    """Return a value and all that its place held before."""
    found = []
    while value is not None:
        found.append(run.values[value])
        value = run.values[value].previous
    return found


def in_bytes(value: Value) -> tuple[Any, int]:
    at, dims = _bytes(_Piece(value.offset, value.shape, value.strides, getattr(torch, value.dtype)))
    return dims, at


@given(PROGRAMS)
@settings(max_examples=200, deadline=None)
def test_a_value_lists_every_write_it_shows(program: list[Statement]) -> None:
    shadow, held = Shadow(), make_bases()
    perform(program, [torch.full_like(base, BEFORE) for base in make_bases()], shadow)
    found = capture_step(lambda: perform(program, held, Real()))
    assert len(found.ops) == len(shadow.made)
    for op, read, made in zip(found.ops, shadow.read, shadow.made, strict=True):
        for value, shown in [*zip(op.inputs, read, strict=True), ((op.writes or op.outputs)[0], made)]:
            listed = {writer for each in chain(found, value) for writer in each.writers}
            assert shown <= listed, f"{op.name}: {found.values[value]} shows writes of {shown - listed}"
            # What is listed beyond that once wrote there, as far as the geometry can tell, or made the view.
            of = found.values[value]
            for extra in {*of.writers} - shown - {of.producer}:
                parts = found.ops[extra].writes or found.ops[extra].outputs
                assert any(overlap(*in_bytes(of), *in_bytes(found.values[part])) for part in parts), (op, of, extra)


@given(PROGRAMS)
@settings(max_examples=100, deadline=None)
def test_random_programs_run_again_give_the_same(program: list[Statement]) -> None:
    held, named = make_bases(), {f"held.{i}": base for i, base in enumerate(make_bases())}
    expected = [copy(tensor) for tensor in perform(program, make_bases(), Real())]
    run, _, captured = record(lambda: perform(program, held, Real()))
    for again in (interpret, replay):
        found = again(run, inputs_of(run, named))
        for name, value in captured.outputs:
            assert torch.equal(found[value], expected[int(name.split(".")[1])])


# --- Aliases, one by one. ---


def values_of(found: Captured, op: int) -> tuple[list[Value], list[Value], list[Value]]:
    """Return what an operator read, returned and wrote."""
    of = found.ops[op]
    return tuple([found.values[i] for i in ids] for ids in (of.inputs, of.outputs, of.writes))  # type: ignore[return-value]


def test_a_write_through_one_view_is_seen_through_another() -> None:
    base = torch.zeros(4, 6)

    def step() -> torch.Tensor:
        left, right = base[:, :3], base[:, 3:]
        left.add_(1)
        return (base.t() * 1).sum() + right.sum()

    found = capture_step(step)
    names = [op.name for op in found.ops]
    add, transpose = names.index("aten::add_"), names.index("aten::t")
    (read,), _, _ = values_of(found, transpose)
    assert (read.name, read.kind, read.writers) == ("base", "produced", (add,))
    assert found.values[read.previous].producer is None
    (right,), _, _ = values_of(found, len(names) - 2)
    assert right.previous is None, "nobody wrote to the right half"
    assert found.changed == ("base",)


def test_views_of_one_place_and_order_are_one_value_and_share_a_signature_with_their_base() -> None:
    base = torch.randn(4, 6)
    found = capture_step(lambda: (base[1], base[1], base.t(), base.view(24), base[1:2]))
    first, again, transposed, flat, row = (found.values[value] for _, value in found.outputs)
    assert first.id == again.id
    assert transposed.storage == flat.storage == first.storage
    base_value = found.values[found.ops[0].inputs[0]]
    assert flat.signature == base_value.signature != first.signature
    assert row.signature == first.signature, "one row is one row, as a vector or as a matrix"
    whole, other = found.signatures[flat.signature], found.signatures[transposed.signature]  # type: ignore[index]
    assert whole != other == replace(whole, sketch=other.sketch), "the order changes the sketch and nothing else"
    assert other.sketch == sign(base.t().contiguous()).sketch


def test_a_view_of_a_weight_in_another_order_has_its_sums_and_no_sketch() -> None:
    linear = torch.nn.Linear(6, 4)
    found = capture_step(lambda: linear.weight.t().contiguous().t())
    weight, view = (found.signatures[found.values[value].signature] for value in (0, 1))  # type: ignore[index]
    copied = found.signatures[found.values[found.outputs[0][1]].signature]  # type: ignore[index]
    assert weight == sign(linear.weight.detach())
    assert view == replace(weight, sketch=None)
    assert copied.sketch == weight.sketch, "what is computed from it has one in each order"


def test_a_view_that_only_views_read_has_no_sketch() -> None:
    def step() -> tuple[torch.Tensor, ...]:
        x = torch.randn(4, 6) + 1
        x.t().t()
        y = x * 2
        y.t().view(3, 2, 4).exp()
        return y, y.t().view(3, 2, 4)[0]

    run, _, _ = record(step)
    lacks = [(op.name, run.signature_of(op.outputs[0]).sketch is None) for op in run.ops]  # type: ignore[union-attr]
    assert lacks == [
        ("aten::randn", False),
        ("aten::add", False),
        ("aten::t", True),
        ("aten::t", False),
        ("aten::mul", False),
        ("aten::t", False),
        ("aten::view", False),
        ("aten::exp", False),
        ("aten::t", False),
        ("aten::view", False),
        ("aten::select", False),
    ]


def test_a_write_renews_the_sketches_of_all_orders() -> None:
    base = torch.randn(4, 6)

    def step() -> tuple[torch.Tensor, ...]:
        before = base.t() * 1
        base[2].add_(1)
        return before, base.t() * 1, base * 1, base[:2].t() * 1

    run, _, found = record(step)
    for op in found.ops:
        if op.name == "aten::mul":
            read, made = (run.signature_of(value) for value in (op.inputs[0], op.outputs[0]))
            assert read is not None
            assert made is not None
            assert read.sketch == made.sketch is not None


def test_an_operator_that_returns_its_input_makes_no_value() -> None:
    x = torch.randn(3)
    found = capture_step(lambda: torch.ops.aten.alias(x).detach().view(3))
    assert {op.outputs for op in found.ops} == {(0,)}
    assert found.values[0].name == "x, output"


def test_in_place_operators_return_the_written_tensor() -> None:
    x = torch.randn(3)
    found = capture_step(lambda: x.clone().add_(1).mul_(2))
    assert [(op.outputs, op.writes) for op in found.ops[1:]] == [((2,), (2,)), ((3,), (3,))]
    assert [value.previous for value in found.values] == [None, None, 1, 2]
    assert found.changed == ()


def test_one_operator_that_writes_two_views_of_one_place_makes_one_change() -> None:
    base = torch.zeros(6)

    def step() -> torch.Tensor:
        a, b = base[:4], base[2:]
        torch._foreach_add_([a, b], 1.0)
        return a + 1

    found = capture_step(step)
    write = next(op for op in found.ops if op.name == "aten::_foreach_add_")
    assert [value.writers for value in values_of(found, write.id)[2]] == [(write.id,), (write.id,)]
    assert found.ops[-1].inputs == write.writes[:1], "it is the value that was written, not a later one"


def test_a_bit_cast_view_sees_writes_to_its_bytes() -> None:
    def step() -> torch.Tensor:
        x = torch.zeros(4)
        bits = x.view(torch.int32)
        x[1].fill_(1.0)
        return bits + 0

    found = capture_step(step)
    fill = next(op.id for op in found.ops if op.name == "aten::fill_")
    (read,), _, _ = values_of(found, len(found.ops) - 1)
    assert read.dtype == "int32"
    assert read.writers == (fill,)


def test_conjugate_and_negative_views_are_values_of_their_own() -> None:
    z = torch.randn(3, dtype=torch.complex64)
    found = capture_step(lambda: (z.conj(), torch.view_as_real(z), z.conj().imag))
    conjugate = found.values[found.outputs[0][1]]
    negative = found.values[found.outputs[2][1]]
    assert conjugate.producer is not None
    run = to_run(found)
    assert run.signature_of(conjugate.id).sum_x == pytest.approx(float(z.real.sum() - z.imag.sum()))  # type: ignore[union-attr]
    assert run.signature_of(negative.id).sum_x == pytest.approx(float(-z.imag.sum()))  # type: ignore[union-attr]


def test_outputs_that_share_a_new_storage_are_both_made() -> None:
    @torch.library.custom_op("joulediff_tests::halves", mutates_args=())
    def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return tuple(t.clone() for t in x.chunk(2))  # type: ignore[return-value]

    found = capture_step(lambda: torch.ops.joulediff_tests.halves(torch.ones(4)))
    assert [found.values[value].kind for _, value in found.outputs] == ["produced", "produced"]
    assert [value.writers for value in values_of(found, 1)[1]] == [(1,), (1,)]


def test_memory_of_dead_tensors_is_not_taken_for_them() -> None:
    def step() -> int:
        for i in range(50):
            torch.full((1000,), float(i))
        return 0

    found = capture_step(step)
    assert len({value.storage for value in found.values}) == 50
    assert all(value.previous is None for value in found.values)


def test_a_tensor_pointed_at_other_memory_is_that_memory() -> None:
    source = torch.ones(4)

    def step() -> torch.Tensor:
        x = torch.zeros(2)
        x.set_(source)
        return x + 1

    found = capture_step(step)
    assert found.values[found.ops[-1].inputs[0]].name == "source"
    assert found.changed == (), "`set_` changes the tensor, not the memory"


def test_out_arguments_and_resized_ones() -> None:
    x = torch.ones(3)

    def step() -> tuple[torch.Tensor, ...]:
        fits, grows = torch.empty(3), torch.empty(0)
        return torch.add(x, 1, out=fits), torch.mul(x, 2, out=grows)

    found = capture_step(step)
    assert len(found.outputs) == 2
    for op, value in zip([op for op in found.ops if op.overload == "out"], found.outputs, strict=True):
        assert op.outputs == op.writes == (value[1],)
        assert found.values[value[1]].shape == (3,)


# --- Contents that are not there. ---


def test_memory_without_contents_is_not_signed() -> None:
    found = capture_step(lambda: (torch.empty(3, 4).t(), torch.empty(2).fill_(1), torch.ones(2).new_empty(3)))
    blank, filled, new = (found.values[value] for _, value in found.outputs)
    assert blank.signature is None
    assert filled.signature is not None
    assert new.signature is None


def test_blank_memory_is_signed_once_it_is_written_in_part() -> None:
    def step() -> torch.Tensor:
        x = torch.empty(4)
        x[:2], x[2:] = 1.0, 2.0
        return x

    run, _, found = record(step)
    assert run.signature_of(found.outputs[0][1]).sum_x == 6.0  # type: ignore[union-attr]


def test_sparse_and_nested_tensors_are_values_without_a_signature() -> None:
    sparse = torch.eye(3).to_sparse()
    found = capture_step(lambda: ((sparse * 2), sparse @ torch.ones(3, 1)))
    doubled, product = (found.values[value] for _, value in found.outputs)
    assert (doubled.shape, doubled.strides, doubled.signature) == ((3, 3), (), None)
    assert product.signature is not None
    assert len({value.storage for value in found.values}) == len(found.values)


# --- Names and changes. ---


def test_tied_weights_are_one_value_with_the_first_name() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = torch.nn.Embedding(5, 3)
            self.decode = torch.nn.Linear(3, 5, bias=False)
            self.decode.weight = self.encode.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.decode(self.encode(x))

    model, ids = Tied(), torch.tensor([1, 2])
    found = capture_step(lambda: model(ids))
    assert [value.name for value in found.values if value.kind == "parameter"] == ["encode.weight"]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda x, y: x.add_(1), ("x",)),
        (lambda x, y: x[1].zero_(), ("x",)),
        (lambda x, y: x.t()[0].copy_(y[0, :2]), ("x",)),
        (lambda x, y: torch.add(x, 1, out=y), ("y",)),
        (lambda x, y: x.clone().add_(1), ()),
        (lambda x, y: torch.tensor([1.0, 2.0]).add_(1), ()),
        (lambda x, y: x.detach().add_(y), ("x",)),
        (lambda x, y: (x + 1, y[:0].add_(1)), ()),
    ],
)
def test_tensors_that_the_step_starts_from_and_changes_are_named(
    change: Callable[[torch.Tensor, torch.Tensor], object], names: tuple[str, ...]
) -> None:
    x, y = torch.ones(2, 3), torch.ones(2, 3)
    assert capture_step(lambda: change(x, y)).changed == names


def test_a_tensor_without_a_name_that_changes_is_reported_too() -> None:
    hidden = itertools.repeat(torch.ones(3))  # nothing can look into an iterator without moving it
    assert capture_step(lambda: next(hidden).add_(1)).changed == (None,)


# --- Nothing is kept. ---


@pytest.mark.parametrize("make", [lambda: torch.ones(1000), lambda: torch.eye(9).to_sparse().coalesce()])
def test_no_tensor_is_kept_alive(make: Callable[[], torch.Tensor]) -> None:
    alive: list[bool] = []

    def step() -> float:
        x = make() * 2
        dead = weakref.ref(x)
        view = x.transpose(0, 0) if x.layout is not torch.strided else x[1:]
        total = float(view.sum())
        del x, view
        alive.append(dead() is not None)
        return total

    capture_step(step)
    assert alive == [False]


def test_storages_have_the_same_owners_as_without_capture() -> None:
    counts: list[int] = []

    def step() -> torch.Tensor:
        x = torch.ones(1000).add_(1)
        y = x[10:].relu()
        counts.append(torch._C._storage_Use_Count(x.untyped_storage()._cdata))
        counts.append(torch._C._storage_Use_Count(y.untyped_storage()._cdata))
        return y

    step()
    capture_step(step)
    assert counts[:2] == counts[2:]


def test_a_model_made_in_the_step_is_not_kept_alive() -> None:
    alive: list[bool] = []

    def step() -> torch.Tensor:
        model = torch.nn.Linear(3, 4)
        out = model(torch.ones(2, 3)).detach()
        dead = weakref.ref(model), weakref.ref(model.weight)
        del model
        gc.collect()
        alive.extend(each() is not None for each in dead)
        return out

    found = capture_step(step)
    assert alive == [False, False]
    assert found.ops[-1].name == "aten::detach"
