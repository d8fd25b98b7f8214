"""The headline of a diff always shows a measured difference, also where both programs ran the same kernels."""

from __future__ import annotations

from diff_builders import gpt2_diff, row, same_diff, side
from joulediff.model.diff import Diff
from joulediff.model.energy import Ratio
from joulediff.report.views.diff_sentences import headline


def twice(host_j: float, kernels_j: float) -> Diff:
    """Return a diff with A at 2.1 times the energy of B and the same kernels on both sides."""
    rows = (
        row("mm", 10.0 + kernels_j, 10.0),
        row("(host: Python, launches)", 10.0 + host_j, 10.0, kind="host", ops_a=0, ops_b=0),
    )
    total_j = 20.0 + host_j + kernels_j
    return gpt2_diff(
        a=side("slow", total_j),
        b=side("fast", 20.0),
        ratio=Ratio(2.1, 2.0, 2.2),
        delta_j=22.0,
        delta_low_j=20.0,
        delta_high_j=24.0,
        findings=(),
        rows=rows,
        explained_share=None,
        same_work=True,
    )


def test_a_difference_of_the_host_is_shown_and_placed() -> None:
    text = headline(twice(host_j=22.0, kernels_j=0.0))
    assert text.startswith("A uses 2.10x the energy of B: +22.00 J")
    assert text.endswith(
        " Both programs ran the same kernels on the same shapes; most of the difference is outside the kernels."
    )


def test_a_difference_of_the_kernels_is_shown_and_not_placed_elsewhere() -> None:
    text = headline(twice(host_j=0.0, kernels_j=22.0))
    assert text.startswith("A uses 2.10x the energy of B")
    assert text.endswith(" Both programs ran the same kernels on the same shapes.")


def test_a_program_against_itself() -> None:
    plain = same_diff()
    same = gpt2_diff(**{name: getattr(plain, name) for name in ("a", "b", "ratio", "rows", "findings")}, same_work=True)
    assert headline(same) == f"{headline(plain)} Both programs ran the same kernels on the same shapes."
