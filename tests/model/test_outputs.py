"""Results of a step: what it returns, and what it changes."""

import paths
from joulediff import load
from joulediff.model.outputs import result_distance

FOLDER = paths.GOLDEN / "cases" / "h200" / "vllm-10811"


def test_a_buffer_that_only_one_program_fills_is_no_result() -> None:
    """The expensive program of this case copies the result of its attention into a buffer."""
    filling, direct = load(FOLDER / "a.jd"), load(FOLDER / "b.jd")
    assert result_distance(filling, direct, is_read=lambda _: False) == 1.0
    found = result_distance(filling, direct, is_read=lambda _: False, needed=direct)
    assert found is not None and found < 1e-2
    assert result_distance(filling, direct, is_read=lambda _: False, needed=filling) == 1.0
