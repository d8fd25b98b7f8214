"""For any program, a trace joins to the operators it was generated from, and no kernel gets lost."""

import random
import time
from collections import Counter
from math import fsum

from hypothesis import given, settings
from hypothesis import strategies as st

from joulediff.frameworks.torch.trace.align import align
from joulediff.frameworks.torch.trace.chrome import to_traced
from joulediff.frameworks.torch.trace.join import join
from trace_builders import STEP_THREAD, Renderer, Work, call, make_op

OPS = [f"aten::{name}" for name in ("add", "mul", "view", "addmm", "cat", "clone", "native_layer_norm", "sum")]
COMPOSITES = [f"aten::{name}" for name in ("linear", "dropout", "layer_norm", "contiguous")] + [
    "LinearBackward0",
    "mine",
]
INNER = ["aten::empty", "aten::as_strided", "aten::copy_"]


class Program:
    """A random program: what the profiler shows of it, and what a dispatch mode does."""

    def __init__(self, seed, *, threads=1, length=30):
        self.random = random.Random(seed)
        self.names, self.owners = [], {}
        self.threads = {thread: self.forest(thread, length) for thread in range(threads)}

    def forest(self, thread, length):
        items = []
        while len(items) < length:
            if self.random.random() < 0.3:
                items.append(call(self.random.choice(COMPOSITES), *self.forest(thread, self.random.randrange(4))))
            else:
                items.append(self.operator(thread))
        return items

    def operator(self, thread):
        number, name = len(self.names), self.random.choice(OPS)
        self.names.append((name, thread))
        return call(name, *self.inside(number, 0))

    def inside(self, owner, depth):
        for _ in range(self.random.randrange(3 - depth)):
            if self.random.random() < 0.5:
                kernel = f"kernel {len(self.owners)}"
                self.owners[kernel] = owner
                yield Work(kernel, stream=self.random.choice((7, 20)), duration_us=self.random.uniform(0.5, 90))
            else:
                yield call(self.random.choice(INNER + OPS), *self.inside(owner, depth + 1))

    def ops(self):
        return [make_op(number, name, thread=thread) for number, (name, thread) in enumerate(self.names)]

    def traced(self):
        renderer = Renderer()
        renderer.step({STEP_THREAD + thread: items for thread, items in self.threads.items()})
        return to_traced(renderer.trace())


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(0, 60))
def test_a_trace_joins_back_to_its_operators(seed, length):
    program = Program(seed, length=length)
    joined = join(program.traced(), program.ops())
    # A call that is no operator of a program without any may be work of the host: only that of the device has owners.
    assert {kernel.name: kernel.op for kernel in joined.kernels if kernel.kind != "cpu"} == program.owners
    assert joined.agreed
    assert joined.notes == ()


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), order=st.permutations([1, 2, 3]))
def test_threads_may_appear_in_another_order(seed, order):
    program = Program(seed, threads=4, length=25)
    numbers = {0: 0, **dict(zip([1, 2, 3], order, strict=True))}
    ops = [make_op(at, f"{name}{thread}", thread=numbers[thread]) for at, (name, thread) in enumerate(program.names)]
    renamed = {
        thread: [rename(item, thread) for item in items] for thread, items in program.threads.items()
    }  # each thread has names of its own, as forward and backward have
    renderer = Renderer()
    renderer.step({STEP_THREAD + thread: items for thread, items in renamed.items()})
    joined = join(to_traced(renderer.trace()), ops)
    assert {kernel.name: kernel.op for kernel in joined.kernels} == program.owners
    assert joined.agreed


def rename(item, thread):
    if isinstance(item, Work):
        return item
    name = f"{item.name}{thread}" if item.name in OPS else item.name
    return call(name, *[rename(child, thread) for child in item.children])


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_no_kernel_is_lost_when_the_steps_differ(seed, data):
    program, other = Program(seed, length=40), Program(seed + 1, length=data.draw(st.integers(0, 20)))
    traced = program.traced()
    kept = data.draw(st.sets(st.integers(0, len(program.names) - 1)))
    names = [name for at, (name, _) in enumerate(program.names) if at not in kept]
    names[10:10] = [name for name, _ in other.names]
    joined = join(traced, [make_op(at, name) for at, name in enumerate(names)])
    launched = [launch.kernel for launch in traced.launches]
    assert Counter(kernel.name for kernel in joined.kernels) == Counter(kernel.name for kernel in launched)
    assert fsum(k.duration_s for k in joined.kernels) == fsum(k.duration_s for k in launched)
    by_launch = {launch.kernel.name: launch.start_s for launch in traced.launches}
    in_order = sorted((k for k in joined.kernels if k.op is not None), key=lambda k: by_launch[k.name])
    numbers = [kernel.op for kernel in in_order]
    assert numbers == sorted(numbers), "operators and launches are in the same order"
    assert all((kernel.op is None) == (kernel.join == "none") for kernel in joined.kernels)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), gone=st.integers(1, 15), at=st.integers(20, 100))
def test_the_join_finds_back_after_a_difference(seed, gone, at):
    program = Program(seed, length=160)
    ops = program.ops()
    missing = range(at, at + gone)
    left = [op for op in ops if op.id not in missing]
    joined = join(program.traced(), [make_op(number, op.name) for number, op in enumerate(left)])
    found = {kernel.name: kernel.op for kernel in joined.kernels}
    expected = {number: op.id for number, op in enumerate(left)}
    right = [
        name for name, owner in program.owners.items() if found[name] is not None and expected[found[name]] == owner
    ]
    assert len(right) > 0.7 * len(program.owners)


def long_program(length):
    """Return the calls of a deep model, their ends, and its operators."""
    layer = ["view", "addmm", "view", "split", "transpose", "sdpa", "transpose", "add", "norm", "mul", "pow", "tanh"]
    ops = [f"aten::{layer[at % len(layer)]}{at // 120 % 7}" for at in range(length)]
    names, ends = [], []
    for op in ops:
        names += ["aten::composite", op, "aten::empty", "aten::as_strided"]
        at = len(names)
        ends += [at, at, at - 1, at]
    return names, ends, ops


def test_fifty_thousand_operators_join_in_seconds():
    names, ends, ops = long_program(50_000)
    begin_s = time.process_time()
    assert [op for _, op in align(names, ends, ops)] == [*range(50_000)]
    assert time.process_time() - begin_s < 5


def test_a_long_difference_costs_little_more_than_a_short_one():
    names, ends, ops = long_program(10_000)
    more = ops[:4_000] + ["aten::only_captured"] * 300 + ops[4_000:]
    begin_s = time.process_time()
    assert [call // 4 for call, _ in align(names, ends, more)] == [*range(10_000)]
    assert time.process_time() - begin_s < 10
