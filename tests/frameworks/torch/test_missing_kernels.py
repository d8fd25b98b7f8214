"""A trace without kernels of a GPU that the program uses is not taken for a program without work."""

from dataclasses import replace

import paths
from joulediff import load
from joulediff.frameworks.torch.recorder import note_missing_kernels

RECORDED = paths.GOLDEN / "cases" / "h200" / "pytorch-153195" / "a.jd"


def test_operators_of_a_gpu_without_any_kernel_are_noted():
    run = load(RECORDED)
    assert note_missing_kernels(run) == []
    (note,) = note_missing_kernels(replace(run, kernels=()))
    assert note.startswith("the profiler recorded no kernel of cuda:0")


def test_a_program_on_the_host_has_no_kernels_of_a_gpu():
    run = load(RECORDED)
    on_host = replace(run, kernels=(), ops=tuple(replace(op, device="cpu") for op in run.ops))
    assert note_missing_kernels(on_host) == []
