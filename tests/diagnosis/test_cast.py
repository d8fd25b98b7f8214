"""A cast that only one side runs is named by the data type that its reader gets."""

from __future__ import annotations

import paths
from diagnosis_builders import comparison_of
from joulediff.archive.reader import load
from joulediff.diagnosis.comparison import ops_of
from joulediff.diagnosis.evidence.layout import find_layout
from joulediff.diagnosis.lead import make_subject

FOLDER = paths.GOLDEN / "cases" / "h200" / "transformers-loss-upcast"


def test_a_cast_in_a_library_is_left_out_at_its_line() -> None:
    """`ForCausalLMLoss` casts logits from bfloat16; the other program gives them to cross entropy as they are."""
    comparison = comparison_of(load(FOLDER / "a.jd"), load(FOLDER / "b.jd"))
    casts = [
        region
        for region in comparison.regions
        if not region.b and [comparison.a.ops[op].name for op in ops_of(region, "a")] == ["aten::_to_copy"]
    ]
    found = [lead for region in casts for lead in find_layout(make_subject(comparison, region, "a"))]
    assert {(lead.kind, lead.cause.type, lead.cause.key) for lead in found} == {("api_misuse", "layout", "dtype")}
    assert (found[0].cause.value_a, found[0].cause.value_b) == ("float32", "bfloat16")
    assert found[0].suggestion.startswith(
        "Leave out the cast from bfloat16 to float32 in ForCausalLMLoss (transformers/loss/loss_utils.py:59"
    )
