"""Operators that only move data, by name: what matching is judged by must not be decided by matching."""

from __future__ import annotations

# They return the elements of their inputs: views, copies, casts, parts, repetition and padding.
MOVES = frozenset(
    {
        "aten::_reshape_alias",
        "aten::_to_copy",
        "aten::_unsafe_view",
        "aten::alias",
        "aten::as_strided",
        "aten::cat",
        "aten::chunk",
        "aten::clone",
        "aten::complex",
        "aten::constant_pad_nd",
        "aten::copy_",
        "aten::detach",
        "aten::expand",
        "aten::index_select",
        "aten::lift_fresh",
        "aten::permute",
        "aten::repeat",
        "aten::select",
        "aten::slice",
        "aten::split",
        "aten::split_with_sizes",
        "aten::squeeze",
        "aten::stack",
        "aten::t",
        "aten::transpose",
        "aten::unbind",
        "aten::unsafe_split",
        "aten::unsqueeze",
        "aten::view",
        "aten::view_as_complex",
        "aten::view_as_real",
    }
)
