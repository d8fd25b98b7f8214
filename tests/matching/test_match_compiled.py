"""Regions of compiled code: operators of one kernel are in one region."""

from dataclasses import replace

from invented import record
from joulediff.model.run import Kernel
from matching_builders import V, W, X, match_runs, names


def chain():
    return (((X @ W) * 2.0) + 1.0) @ V


def fuse(run, *groups):
    """Return a run with a kernel for each group of operators."""
    kernels = [
        Kernel("k", "kernel", "cuda:0", 7, at * 1e-3, 1e-3, ops[0], None, "fused", members=tuple(ops[1:]))
        for at, ops in enumerate(groups)
    ]
    return replace(run, kernels=tuple(kernels))


def test_regions_of_one_compiled_kernel_are_merged():
    a, b = record(chain), record(chain)
    assert [names(a, each.a) for each in match_runs(a, b)] == [["mm"], ["mul"], ["add"], ["mm"]]
    fused = fuse(b, (0,), (1, 2), (3,))
    found = match_runs(a, fused)
    assert [(names(a, each.a), names(fused, each.b)) for each in found] == [
        (["mm"], ["mm"]),
        (["mul", "add"], ["mul", "add"]),
        (["mm"], ["mm"]),
    ]
    assert {each.kind for each in found} == {"equal"}
    assert {each.basis for each in found} == {"equal"}
    assert len(found[1].inputs) == len(found[1].outputs) == 1


def test_kernels_of_both_sides_merge_regions():
    a, b = fuse(record(chain), (0, 1), (2,), (3,)), fuse(record(chain), (0,), (1, 2), (3,))
    assert [(names(a, each.a), names(b, each.b)) for each in match_runs(a, b)] == [
        (["mm", "mul", "add"], ["mm", "mul", "add"]),
        (["mm"], ["mm"]),
    ]
