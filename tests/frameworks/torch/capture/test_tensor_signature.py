"""The properties of a tensor that its signature depends on, and those it does not."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interpreter import sign
from invented import sketch
from joulediff.frameworks.torch.capture import signature as module
from joulediff.frameworks.torch.capture.geometry import extent_of
from joulediff.frameworks.torch.capture.signature import BLOCK, STRETCH, Signers
from joulediff.model.signature import Signature
from signature_checks import SUMS, assert_same, by_hand, distance

FLOATS = st.floats(-1e6, 1e6, width=32) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -3.0, 2.5])


@given(st.lists(FLOATS, min_size=1, max_size=40))
@settings(max_examples=200, deadline=None)
def test_it_equals_the_definition(values: list[float]) -> None:
    assert_same(sign(torch.tensor(values)), by_hand(values))


@given(st.lists(FLOATS, min_size=1, max_size=20), st.lists(FLOATS, min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_it_adds_up_under_concatenation(first: list[float], second: list[float]) -> None:
    a, b, both = (sign(torch.tensor(values)) for values in (first, second, first + second))
    for name in ("count", "nans", "positive_infs", "negative_infs", "zeros", *SUMS):
        assert getattr(both, name) == pytest.approx(getattr(a, name) + getattr(b, name), rel=1e-9, abs=1e-6)
    assert both.integral == (a.integral and b.integral)


@pytest.mark.parametrize("count", [1, 7, STRETCH - 1, STRETCH, STRETCH + 1, BLOCK, BLOCK + 1, 2 * BLOCK + STRETCH + 3])
def test_blocks_and_stretches_leave_nothing_out(count: int) -> None:
    x = torch.randn(count, dtype=torch.float64)
    assert_same(sign(x), by_hand(x.tolist()))


LAYOUTS = {
    "permuted": lambda x: x.permute(2, 0, 1),
    "reshaped": lambda x: x.reshape(-1),
    "squeezed": lambda x: x[None, :, :, None],
    "channels last": lambda x: x[None].contiguous(memory_format=torch.channels_last)[0],
    "copied": lambda x: x.clone(),
    "transposed twice": lambda x: x.transpose(0, 2).contiguous().transpose(0, 2),
    "with gaps": lambda x: torch.cat([x, x], dim=2)[:, :, : x.shape[2]],
    "every second": lambda x: x.repeat_interleave(2, dim=1)[:, ::2],
    "transposed and copied": lambda x: x.transpose(0, 2).contiguous(),
    "flipped": lambda x: x.flip(0, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("shape", [(4, 5, 6), (40, 33, 50), (2, 3, 40000), (70000, 1, 2)])
def test_the_layout_does_not_matter(layout, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    made = layout(x)
    is_ordered = made.numel() == x.numel() and torch.equal(made.reshape(-1), x.reshape(-1))
    assert_same(sign(made), sign(x), ordered=is_ordered)
    assert is_ordered or distance(sign(made), sign(x)) > 0.5


def test_an_expanded_tensor_repeats_its_elements() -> None:
    x = torch.randn(3, 1, 4)
    expanded = x.expand(3, 5, 4)
    extent = extent_of(expanded.shape, expanded.stride())
    signers = Signers()
    signers.sign(expanded, extent)
    assert extent.repeats == 5
    assert signers.finish()[0] == sign(x), "only what is there is read"
    assert_same(sign(expanded), sign(expanded.contiguous()), ordered=False)
    assert sign(expanded).sketch == sign(x).sketch, "and sketched"


VIEWS = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.transpose(0, 1),
    "reversed": lambda x: x.permute(2, 1, 0),
    "rotated": lambda x: x.permute(1, 2, 0),
    "a slice": lambda x: x[1:, :, 1:-1],
    "a slice, transposed": lambda x: x[:, 1:, 2:].transpose(1, 2),
    "every second": lambda x: x[:, ::2],
    "a diagonal": lambda x: x.diagonal(0, 0, 1),
    "expanded": lambda x: x[:, :, None].expand(-1, -1, 3, -1).transpose(0, 3),
    "windows": lambda x: x[0].unfold(1, 2, 1).transpose(0, 1),
}
KINDS = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("shape", [(3, 4, 5), (17, 30, 33), (5, 66, 500), (3, 2, 33000), (1100, 33, 2)])
def test_a_sketch_is_in_the_order_of_the_shape(view, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    for kind in KINDS:
        made = view((torch.randn(shape) * 3).to(kind))
        once = made[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in made.stride())]
        values = once.double().reshape(-1).numpy()
        assert sign(made).sketch == sketch(values, math.fsum(values * values))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_sketch_of_any_strides_and_offset(data: st.DataObject) -> None:
    """The strides need not be those of a tensor without overlaps."""
    sizes = data.draw(st.lists(st.integers(1, 9), max_size=4))
    strides = data.draw(st.lists(st.integers(1, 40), min_size=len(sizes), max_size=len(sizes)))
    offset = data.draw(st.integers(0, 40))
    memory = torch.randn(1500, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    made = memory.as_strided(sizes, strides, offset)
    if data.draw(st.booleans()):
        memory[data.draw(st.integers(0, 1499))] = data.draw(st.sampled_from([math.nan, math.inf, -math.inf]))
    assert_same(sign(made), by_hand(made.reshape(-1).tolist()))


def test_a_sketch_changes_with_the_order_of_elements() -> None:
    x = torch.randn(64, 48)
    swapped = x.clone()
    swapped[[3, 7]] = swapped[[7, 3]]
    for other in (x.sort().values, x.flip(0), x.flip(1), x.roll(1), -x, x[torch.randperm(64)]):
        assert distance(sign(x), sign(other)) > 0.5
    moved = float((x - swapped).norm() / x.norm())
    assert 0.3 * moved < distance(sign(x), sign(swapped)) < 3 * moved


@pytest.mark.parametrize(
    ("dtype", "share"),
    [(torch.float64, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 1e-2), (torch.float8_e4m3fn, 0.1)],
)
def test_a_change_of_float_type_changes_it_within_rounding(dtype: torch.dtype, share: float) -> None:
    x = torch.randn(5000).clamp(-4, 4)
    a, b = sign(x), sign(x.to(dtype))
    assert (a.count, a.integral) == (b.count, b.integral)
    for name in ("sum_abs", "sum_x2", "sum_x4"):
        assert getattr(a, name) == pytest.approx(getattr(b, name), rel=share)
    moved = float((x - x.to(dtype).float()).norm() / x.norm())
    assert moved / 3 - 2e-5 < distance(a, b) < 3 * moved + 1e-4


def test_sums_are_kept_in_double_precision() -> None:
    """In single precision a sum of so many ones would stop at 2 ** 24."""
    x = torch.ones(2**24 + 1000, dtype=torch.float16)
    assert sign(x).sum_x == 2**24 + 1000
    y = torch.full((100_000,), 0.1)
    assert sign(y).sum_x == pytest.approx(100_000 * float(np.float32(0.1)), rel=1e-13)


def test_kinds_of_contents_are_distinguished() -> None:
    different = [
        torch.zeros(6),
        torch.ones(6),
        torch.full((6,), math.nan),
        torch.full((6,), math.inf),
        torch.full((6,), -math.inf),
        torch.tensor([1.0, 2, 3, 4, 5, 6]),
        torch.tensor([1.5, 1.5, 3, 4, 5, 6]),
        torch.tensor([-1.0, -2, -3, -4, -5, -6]),
        torch.tensor([0.0, 1, 0, 1, 0, 1]),
        torch.zeros(7),
        torch.zeros(0),
    ]
    assert len({repr(sign(each)) for each in different}) == len(different)
    assert sign(torch.ones(6)).constant
    assert not sign(torch.full((6,), math.nan)).constant
    assert sign(torch.arange(5)).integral
    assert not sign(torch.tensor([0.5] + [1.0] * BLOCK)).integral
    assert not sign(torch.tensor([1.0] * BLOCK + [0.5])).integral


def test_nothing_is_finite() -> None:
    found = sign(torch.tensor([math.nan, math.inf, -math.inf]))
    assert (found.low, found.high, found.sum_x, found.integral) == (None, None, 0.0, True)
    assert sign(torch.zeros(0)) == replace(found, count=0, nans=0, positive_infs=0, negative_infs=0)


def test_huge_numbers_overflow_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sign(torch.tensor([1e200, -1e200, 1.0], dtype=torch.float64))
        tiny = sign(torch.tensor([1e-300, 0.0], dtype=torch.float64))
        nans = sign(torch.tensor([math.nan, 1.0]))
    assert (found.nans, found.low, found.high, found.sum_x2) == (0, -1e200, 1e200, math.inf)
    assert found.sketch is tiny.sketch is None
    assert (tiny.zeros, tiny.low, tiny.high) == (1, 0.0, 1e-300)
    assert nans.nans == 1


def test_zeros_of_either_sign_are_one() -> None:
    assert repr(sign(torch.tensor([0.0, -0.0]))) == repr(sign(torch.tensor([-0.0, 0.0])))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16])
def test_whole_numbers(dtype: torch.dtype) -> None:
    assert_same(sign(torch.tensor([0, 1, 2, 100], dtype=dtype)), by_hand([0.0, 1.0, 2.0, 100.0]))


def test_truth_values_count() -> None:
    found = sign(torch.tensor([True, False, True]))
    assert (found.zeros, found.sum_x, found.integral) == (1, 2.0, True)


def test_complex_numbers_are_pairs() -> None:
    z = torch.randn(4, 5, dtype=torch.complex64)
    assert_same(sign(z), replace(sign(torch.view_as_real(z).contiguous()), count=40))
    assert_same(sign(z.conj()), sign(z.conj().resolve_conj()))
    assert_same(sign(z.conj().imag), sign(-z.imag))
    extent = extent_of((3, 4, 5), (0, 5, 1))
    signers = Signers()
    signers.sign(z.conj().expand(3, 4, 5), extent)
    assert signers.finish()[0].count == 40, "what repeats is read once, also conjugated"


# torch 2.13 warns of the half complex type when one is made.
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
def test_any_type_is_signed_or_left_alone() -> None:
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    signed = set()
    for dtype in dtypes:
        try:
            x = torch.zeros(32, dtype=torch.uint8).view(dtype)
        except RuntimeError:
            continue  # a quantised type has no plain memory
        if Signers().sign(x, extent_of(x.shape, x.stride())) is not None:
            signed.add(dtype)
    assert {torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32, torch.uint64, torch.bool} <= signed
    assert torch.bits8 not in signed


# torch 2.13 says that quantised types will go.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_without_memory_or_numbers_have_no_signature() -> None:
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    without = [
        freed,
        torch.empty(3, device="meta"),
        torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8),
        torch._subclasses.FakeTensorMode().from_tensor(torch.ones(3)),
    ]
    for tensor in without:
        assert Signers().sign(tensor, extent_of(tensor.shape, tensor.stride())) is None


def test_it_depends_on_nothing_but_the_elements() -> None:
    """BLAS adds up in another order where memory begins elsewhere: each signer brings its own memory."""
    x = torch.randn(100_003)
    expected, keep = repr(sign(x)), []
    for i in range(8):
        keep.append(np.empty(1000 * i + 1))
        assert repr(sign(x)) == expected
        moved = torch.empty(x.numel() + i + 1)[i + 1 :].copy_(x)
        assert repr(sign(moved)) == expected


def test_signing_takes_no_more_memory_than_its_blocks() -> None:
    x = torch.randn(300, 400, 10)
    sign(x)
    tracemalloc.start()
    try:
        signers = Signers()
        for view in (x, x[:, :, 1:7], x.permute(1, 0, 2)[::2]):
            signers.sign(view, extent_of(view.shape, view.stride()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * 8 * BLOCK + 100_000, "numpy's memory: three blocks of doubles"


def test_signing_allocates_no_tensor_for_views_with_gaps() -> None:
    x = torch.randn(2000, 300)[:, 5:250]
    extent = extent_of(x.shape, x.stride())
    signers = Signers()
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        signers.sign(x, extent)
    assert sum(max(event.cpu_memory_usage, 0) for event in profile.function_events) == 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_grad_modes_do_not_matter(mode) -> None:
    x = torch.randn(10, requires_grad=True)
    signers = Signers()
    with mode():
        signers.sign(x, extent_of((10,), (1,)))
        y = x * 2
    signers.sign(y.detach(), extent_of((10,), (1,)))
    assert_same(signers.finish()[0], sign(x.detach()))


def test_a_default_device_does_not_matter() -> None:
    torch.set_default_device("meta")
    try:
        assert sign(torch.ones(3, device="cpu")).sum_x == 3.0
    finally:
        torch.set_default_device(None)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the time of one thread")
def test_blas_starts_no_threads() -> None:
    """Threads of BLAS wait for cores that the program keeps busy: every call stays below what it threads for."""
    code = """
import time
from resource import RUSAGE_SELF, RUSAGE_THREAD, getrusage
import torch
from joulediff.frameworks.torch.capture.geometry import extent_of
from joulediff.frameworks.torch.capture.signature import Signers
x, signers = torch.randn(500_000), Signers()
def used():
    return [getrusage(who).ru_utime for who in (RUSAGE_SELF, RUSAGE_THREAD)]
signers.sign(x, extent_of((500_000,), (1,)))
time.sleep(0.5)  # a new pool of threads spins for a tenth of a second
every, mine = used()
for _ in range(60):
    signers.sign(x, extent_of((500_000,), (1,)))
print(*(now - before for now, before in zip(used(), (every, mine))))
"""
    plain = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
        env={**plain, "OPENBLAS_NUM_THREADS": "2"},
    )
    every_s, mine_s = map(float, done.stdout.split())
    assert every_s < 1.05 * mine_s + 0.01


def test_the_columns_of_a_row_are_those_of_a_signature() -> None:
    names = (*module.SUMS, "low", "high", *module.COUNTS)
    assert len(names) == module.WIDTH
    assert set(names) - {"fractions"} | {"count", "integral", "sketch"} == set(Signature.__slots__)
