"""Parts of a finding: keys and reasons that its texts hold, and values by side."""

from __future__ import annotations

from joulediff.model.finding import NOT_TRIED, TOGETHER, Cause, Region
from joulediff.model.pair import Pair


def cause(key: str | None, *evidence: str) -> Cause:
    return Cause("setting", key, 1, 2, None, None, evidence)


def test_settings_that_are_one_cause_together_have_a_key_each() -> None:
    assert cause(f"torch.x{TOGETHER}torch.y").keys == ("torch.x", "torch.y")
    assert cause("torch.x").keys == ("torch.x",)
    assert cause(None).keys == ()


def test_the_last_reason_why_a_change_was_not_tried_is_found() -> None:
    first, last = f"{NOT_TRIED}line by line", f"{NOT_TRIED}no program"
    assert cause("x", "seen", first, last, "more").not_tried == last
    assert cause("x", "this was not tried: no").not_tried is None


def test_values_are_asked_for_by_side() -> None:
    assert cause("x").values == Pair(1, 2)
    region = Region(0, "equal", (1,), (2,), ((3, 4), (5, 6)), ((7, 8),))
    assert (region.inputs_of("a"), region.inputs_of("b"), region.outputs_of("b")) == ([3, 5], [4, 6], [8])
