"""Results of a step: what it returns, and what it changes."""

import pytest

import paths
from joulediff import load
from joulediff.model.outputs import result_distance, rounding_share

FOLDER = paths.GOLDEN / "cases" / "h200" / "vllm-10811"


def test_a_buffer_that_only_one_program_fills_is_no_result() -> None:
    """The expensive program of this case copies the result of its attention into a buffer."""
    filling, direct = load(FOLDER / "a.jd"), load(FOLDER / "b.jd")
    assert result_distance(filling, direct, is_read=lambda _: False) == 1.0
    found = result_distance(filling, direct, is_read=lambda _: False, needed=direct)
    assert found is not None and found < 1e-2
    assert result_distance(filling, direct, is_read=lambda _: False, needed=filling) == 1.0


@pytest.mark.parametrize(("case", "share"), [("transformers-rms-norm", 2**-5), ("sd-279", 0.0)])
def test_results_in_bfloat16_move_by_four_of_its_roundings(case: str, share: float) -> None:
    assert rounding_share(load(paths.GOLDEN / "cases" / "h200" / case / "a.jd")) == share
