"""The same nodes through other kernels and other float types: equal tensors of the two runs differ by rounding.

`DRIFTING` adds variants to each kind of node: products and norms in float32, sums of partial products, other formulas,
a residual stream that stays in float32. `FaithfulRounding` changes the kernels below the recording: the operators stay
the same, and each result is rounded to one of its two neighbours at random, as kernels of other vendors may do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from joulediff.frameworks.named_regions import region
from rewrites.nodes import (
    EPSILON,
    HEADS,
    KINDS,
    KV_HEADS,
    Kind,
    Tensor,
    Variant,
    attend,
    expand,
    gelu_decomposed,
    heads_of,
    layer_norm,
    layer_norm_decomposed,
    multiply_part,
    qkv_apart,
    qkv_fused,
    rms_decomposed,
    rms_norm,
    rotate_halves,
    rotate_whole,
    swiglu_apart,
    swiglu_fused,
)

# Number of partial products of a product that is split along its inner dimension.
SPLITS = 4
# Keys that a chunked attention reads at a time.
CHUNK = 16


def product_float32(x: Tensor, weight: Tensor) -> Tensor:
    return functional.linear(x.float(), weight.float()).to(weight.dtype)


def product_split(x: Tensor, weight: Tensor) -> Tensor:
    """The sum of partial products: each is rounded to the float type, the sum is made in float32."""
    products = [a @ b.t() for a, b in zip(x.chunk(SPLITS, 1), weight.chunk(SPLITS, 1), strict=True)]
    return torch.stack(products).float().sum(0).to(weight.dtype)


def product_split_narrow(x: Tensor, weight: Tensor) -> Tensor:
    """The sum of partial products, all in the float type."""
    total = None
    for a, b in zip(x.chunk(SPLITS, 1), weight.chunk(SPLITS, 1), strict=True):
        total = a @ b.t() if total is None else total + a @ b.t()
    assert total is not None
    return total


def linear_by(product: Variant, weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    return product(x, weight) + bias  # type: ignore[no-any-return]


def linear_float32(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    return functional.linear(x.float(), weight.float(), bias.float()).to(weight.dtype)


def in_float32(function: Variant) -> Variant:
    """Return a function that computes in float32 and rounds its result to the type of its first argument."""

    def run(*tensors: Tensor, **options: Any) -> Tensor:
        return function(*(each.float() for each in tensors), **options).to(tensors[0].dtype)  # type: ignore[no-any-return]

    return run


def rms_rounded(gain: Tensor, x: Tensor, *, eps: float = EPSILON) -> Tensor:
    """As Hugging Face models write it: rounded before the gain."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return gain * wide.to(gain.dtype)


def rms_by_norm(gain: Tensor, x: Tensor, *, eps: float = EPSILON) -> Tensor:
    """Divided by the root, which comes from the norm of the row."""
    wide = x.float()
    size = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return (wide / torch.sqrt(size * size / x.shape[-1] + eps)).to(gain.dtype) * gain


def layer_norm_by_moments(gain: Tensor, bias: Tensor, x: Tensor, *, eps: float = EPSILON) -> Tensor:
    """The variance as the mean of squares less the square of the mean."""
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    variance = (wide * wide).mean(-1, keepdim=True) - mean * mean
    return ((wide - mean) / torch.sqrt(variance + eps) * gain + bias).to(gain.dtype)


def softmax_float32(x: Tensor) -> Tensor:
    return torch.softmax(x, -1, dtype=torch.float32).to(x.dtype)


def softmax_by_logarithm(x: Tensor) -> Tensor:
    return torch.exp(x - torch.logsumexp(x, -1, keepdim=True))


def attend_float32(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """All of it in float32; the result is rounded."""
    wide = (each.float() for each in (q, k, v))
    return attend(*wide, repeat=expand, softmax=partial(torch.softmax, dim=-1), **options).to(q.dtype)


def attend_in_chunks(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """Some keys at a time, with a running maximum and sum, as fused kernels do."""
    dtype, length = q.dtype, q.shape[0]
    q, k, v = heads_of(q, HEADS).float(), heads_of(k, KV_HEADS).float(), heads_of(v, KV_HEADS).float()
    k, v, scale = expand(k), expand(v), 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    most, total, found = torch.full((1, HEADS, length, 1), -1e30), torch.zeros(1, HEADS, length, 1), torch.zeros_like(q)
    for at in range(0, length, CHUNK):
        keys = slice(at, min(length, at + CHUNK))
        mask = torch.arange(length)[:, None] < torch.arange(keys.start, keys.stop)[None]
        scores = ((q @ k[:, :, keys].transpose(-1, -2)) * scale).masked_fill(mask, -1e30)
        higher = torch.maximum(most, scores.amax(-1, keepdim=True))
        powers, fade = torch.exp(scores - higher), torch.exp(most - higher)
        most, total = higher, total * fade + powers.sum(-1, keepdim=True)
        found = found * fade + powers.to(dtype).float() @ v[:, :, keys]
    return (found / total).to(dtype).transpose(1, 2).reshape(length, -1)


def rotate_complex(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.view(x.shape[0], -1, 2 * cos.shape[-1]).float().chunk(2, -1)
    turned = torch.complex(a.contiguous(), b.contiguous()) * torch.complex(cos.float(), sin.float())[:, None]
    return torch.cat([turned.real, turned.imag], -1).to(x.dtype).reshape(x.shape)


def swiglu_rounded_once(gate: Tensor, up: Tensor, x: Tensor, *, activation: Variant = functional.silu) -> Tensor:
    """Products in the float type; activation and multiplication in float32."""
    a, b = multiply_part("gate+up", x, torch.cat([gate, up])).chunk(2, -1)
    with region("act"):
        return (activation(a.float()) * b.float()).to(x.dtype)  # type: ignore[no-any-return]


def add_float32(x: Tensor, y: Tensor) -> Tensor:
    return (x.float() + y.float()).to(y.dtype)


def add_wide(x: Tensor, y: Tensor) -> Tensor:
    """The sum stays in float32: a residual stream that is never rounded."""
    return x.float() + y


def loss_float32(weight: Tensor, targets: Tensor, x: Tensor) -> Tensor:
    return functional.cross_entropy(product_float32(x, weight).float(), targets)


_MORE: Mapping[str, dict[str, Variant]] = {
    "linear": {
        "float32": linear_float32,
        "split": partial(linear_by, product_split),
        "split narrow": partial(linear_by, product_split_narrow),
    },
    "gelu": {"float32": in_float32(partial(functional.gelu, approximate="tanh")), "wide": in_float32(gelu_decomposed)},
    "gelu_exact": {"float32": in_float32(functional.gelu)},
    "silu": {"float32": in_float32(functional.silu)},
    "layer_norm": {
        "float32": in_float32(layer_norm),
        "wide": in_float32(layer_norm_decomposed),
        "moments": layer_norm_by_moments,
    },
    "rms_norm": {
        "float32": in_float32(rms_norm),
        "wide": in_float32(rms_decomposed),
        "rounded": rms_rounded,
        "norm": rms_by_norm,
    },
    "softmax": {"float32": softmax_float32, "logarithm": in_float32(softmax_by_logarithm)},
    "scale": {"float32": in_float32(lambda g, x: (x * g + 1.0) * 0.5)},
    "swiglu": {
        "float32": partial(swiglu_apart, product=product_float32, activation=in_float32(functional.silu)),
        "split": partial(swiglu_fused, product=product_split),
        "rounded once": swiglu_rounded_once,
    },
    "qkv": {
        "float32": partial(qkv_fused, product=product_float32),
        "split": partial(qkv_apart, product=product_split),
    },
    "attention": {
        "float32": attend_float32,
        "chunks": attend_in_chunks,
        "softmax": partial(attend, repeat=expand, softmax=softmax_float32),
    },
    "angles": {},
    "rotary": {"complex": rotate_complex, "float32": in_float32(rotate_whole), "wide": in_float32(rotate_halves)},
    "add": {"float32": add_float32},
    "loss": {"float32": loss_float32},
}

DRIFTING: Mapping[str, Kind] = {
    name: Kind(kind.shapes, {**kind.variants, **_MORE[name]}) for name, kind in KINDS.items()
}

# Ways to write a whole program: the variant of each kind. A kind that is left out has the first of its variants.
STYLES: Mapping[str, Mapping[str, str]] = {
    "fused": {
        "linear": "linear",
        "rms_norm": "fused",
        "qkv": "fused",
        "rotary": "halves",
        "attention": "gqa",
        "swiglu": "fused",
    },
    "eager": {
        "linear": "matmul",
        "layer_norm": "decomposed",
        "rms_norm": "rounded",
        "gelu": "decomposed",
        "gelu_exact": "decomposed",
        "qkv": "apart",
        "rotary": "whole",
        "attention": "softmax",
        "swiglu": "apart",
    },
    "narrow": {
        "linear": "split narrow",
        "layer_norm": "decomposed",
        "rms_norm": "decomposed",
        "gelu": "decomposed",
        "gelu_exact": "decomposed",
        "qkv": "split",
        "rotary": "whole",
        "attention": "decomposed",
        "swiglu": "split",
        "add": "out",
    },
    "float32": {
        "linear": "float32",
        "layer_norm": "moments",
        "rms_norm": "norm",
        "gelu": "float32",
        "gelu_exact": "float32",
        "qkv": "float32",
        "rotary": "complex",
        "attention": "chunks",
        "swiglu": "float32",
        "add": "float32",
        "loss": "float32",
    },
    # The residual stream is never rounded.
    "wide stream": {
        "add": "wide stream",
        "layer_norm": "float32",
        "rms_norm": "float32",
        "loss": "float32",
        "qkv": "fused",
        "rotary": "float32",
        "attention": "gqa",
        "swiglu": "rounded once",
    },
}


def kinds_of(style: str) -> Mapping[str, Kind]:
    """Return the kinds of nodes, each with the one variant of a style; with all that round alike for `any`."""
    if style == "any":
        return DRIFTING
    found = {}
    for name, kind in DRIFTING.items():
        variants = {**kind.variants, "wide stream": add_wide} if name == "add" else kind.variants
        chosen = STYLES[style].get(name, next(iter(variants)))
        found[name] = Kind(kind.shapes, {chosen: variants[chosen]})
    return found


class FaithfulRounding(TorchDispatchMode):
    """Runs each operator in a wider float type and rounds each result to one of its two neighbours, at random.

    A result that the narrow type can hold stays as it is, so copies and views do. Enter it around the recording.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        kwargs = kwargs or {}
        if func.is_view or func._schema.name in _CASTS:
            return func(*args, **kwargs)
        given = tree_flatten((args, kwargs))[0]
        wide_args, wide_kwargs = tree_map_only(Tensor, _widen, (args, kwargs))
        wide = func(*wide_args, **wide_kwargs)
        output = func(*args, **kwargs)
        # Without a tensor of a narrow type there is nothing to round; operators that write return what they wrote to.
        if any(isinstance(each, Tensor) and each.dtype in _WIDER for each in given):
            for narrow, exact in zip(tree_flatten(output)[0], tree_flatten(wide)[0], strict=True):
                if isinstance(narrow, Tensor) and narrow.dtype in _WIDER and exact.dtype == _WIDER[narrow.dtype]:
                    narrow.copy_(self._round(exact, narrow.dtype))
        return output

    def _round(self, exact: Tensor, dtype: torch.dtype) -> Tensor:
        nearest = exact.to(dtype)
        error = exact - nearest.to(exact.dtype)
        other = torch.nextafter(nearest, torch.where(error > 0, torch.inf, -torch.inf).to(dtype))
        share = error.abs() / (other.to(exact.dtype) - nearest.to(exact.dtype)).abs()
        is_other = torch.rand(exact.shape, generator=self._generator) < share
        return torch.where(is_other & exact.isfinite(), other, nearest)


_CASTS = ("aten::_to_copy", "aten::copy_", "aten::clone")
_WIDER = {torch.bfloat16: torch.float32, torch.float32: torch.float64}


def _widen(tensor: Tensor) -> Tensor:
    """Return a copy in the wider type: an operator that writes must not write to the original twice."""
    return tensor.to(_WIDER.get(tensor.dtype, tensor.dtype), copy=True)
