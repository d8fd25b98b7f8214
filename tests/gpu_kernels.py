"""A Triton kernel as a program may have one of its own."""

import triton
import triton.language as tl


@triton.jit
def add_one(source, target, count, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < count) + 1, mask=at < count)
