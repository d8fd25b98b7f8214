"""A proven edit of a line that sets a value of the state is named by that value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnosis_builders import LiveProgram, comparison_of, costs, draw, record, region_of
from host_builders import host_run
from invented import Tensor, gelu, gelu_decomposed, tanh
from joulediff.diagnosis.draft import Investigation
from joulediff.diagnosis.lead import Lead, make_cause, make_subject
from joulediff.diagnosis.suspects.effect import Effect
from joulediff.diagnosis.suspects.name_cause import name_cause
from joulediff.diagnosis.suspects.proven import make_proven
from joulediff.diagnosis.suspects.suspect import Differences, Suspect
from joulediff.diagnosis.suspects.try_suspects import Tried
from joulediff.model.diff import Thresholds
from joulediff.model.finding import Trial
from joulediff.model.pair import Pair
from joulediff.model.progress import ProgressListener
from joulediff.model.run import Frame, Run, SourceText
from joulediff.pysource.edits.find_edits import find_edits
from joulediff.pysource.source_files import SourceFile

X, W = draw(16, 32), draw(32, 32, seed=1)
PATH = "model.checkpointing"


def product() -> Tensor:
    return tanh(X @ W)


def program(line: str) -> str:
    return f"def build():\n    model = Model()\n{line}    return lambda: model(x)\n"


def recorded(text: str, value: Any, line: int) -> Run:
    sources = (SourceText("p.py", 1, text),)
    begin = PATH if line == 3 else "model"
    return record(product, costs({}), state={PATH: value}, state_places={begin: f"p.py:{line}:build"}, sources=sources)


NO_EFFECT = Effect(frozenset(), frozenset())


def name(texts: tuple[str, str], values: tuple[Any, Any], lines: tuple[int, int], effect: Effect = NO_EFFECT) -> Lead:
    """Return the lead of the only edit between two programs; the lines set the value, or make its object."""
    a, b = ((SourceFile("", "p.py", text),) for text in texts)
    runs = [recorded(text, value, line) for text, value, line in zip(texts, values, lines, strict=True)]
    live: Any = {"a": LiveProgram(runs[0]), "b": LiveProgram(runs[1])}
    work = Investigation(comparison_of(*runs), [], Thresholds(), live, ProgressListener())
    return name_edit(work, a, b, effect)


def name_edit(
    work: Investigation, a: tuple[SourceFile, ...], b: tuple[SourceFile, ...], effect: Effect, op: str | None = None
) -> Lead:
    """Return the lead of the only edit; `op` is in the row with the most energy."""
    edits = find_edits(a, b)
    assert len(edits) == 1
    subject = None if op is None else make_subject(work.comparison, region_of(work.comparison, op), "a")
    differences = Differences((Suspect("changed", edits[0].key, edit=0),), a, b, edits)
    tried = Tried((0,), "explains", Trial("changed", None, None, None))
    return name_cause(make_proven(work, "a", differences, tried, effect, subject))


ENABLED, NOTHING = program("    model.checkpointing_enable()\n"), program("")


def test_a_method_that_is_left_out_is_named_by_the_attribute_that_it_sets() -> None:
    lead = name((ENABLED, NOTHING), (True, False), (3, 2))
    assert (lead.kind, lead.cause.type, lead.cause.key) == ("misconfiguration", "state", "checkpointing")
    assert (lead.cause.value_a, lead.cause.value_b) == (True, False)
    assert lead.cause.location_a is not None and lead.cause.location_a.line == 3
    assert lead.cause.evidence[0] == "model.checkpointing is True in A and False in B"
    assert lead.suggestion.startswith("Set checkpointing to False; it is True (p.py:3")


def test_a_method_that_is_added_is_named_by_the_attribute_that_it_sets() -> None:
    lead = name((NOTHING, ENABLED), (False, True), (2, 3))
    assert (lead.kind, lead.cause.key, lead.cause.value_b) == ("misconfiguration", "checkpointing", True)
    assert lead.cause.location_b is not None and lead.cause.location_b.line == 3


def test_an_attribute_that_gets_another_value_is_named_by_itself() -> None:
    texts = program("    model.checkpointing = True\n"), program("    model.checkpointing = False\n")
    lead = name(texts, (True, False), (3, 3))
    assert (lead.cause.type, lead.cause.key) == ("state", "checkpointing")


def test_a_line_that_sets_no_state_is_named_by_its_edit() -> None:
    texts = program("    model.other = True\n"), program("    model.other = False\n")
    lead = name(texts, (True, False), (2, 2))
    assert lead.cause.type != "state"


def effect_of(removed: str, added: str) -> Effect:
    return Effect(*(frozenset((f"aten::{each}",) for each in names.split()) for names in (removed, added)))


def test_several_statements_are_named_by_the_call_that_is_gone_at_its_line() -> None:
    begin = "def build():\n    return route\n\ndef route(scores):\n"
    slow = (
        "    p = scores.softmax(-1)\n    best, _ = p.sort(-1)\n    best = best[:, :8]\n    return best / best.sum(-1)\n"
    )
    fast = "    best, _ = scores.topk(8)\n    return best.softmax(-1)\n"
    lead = name((begin + slow, begin + fast), (1, 1), (1, 1), effect_of("softmax sort sum div", "topk softmax"))
    assert lead.cause.key == "p.sort"
    assert lead.cause.location_a is not None and lead.cause.location_a.line == 6


def test_another_class_that_is_passed_is_named_and_is_other_code() -> None:
    texts = [program(f"    model.add(norm_layer={norm})\n") for norm in ("ops.FrozenNorm", "nn.BatchNorm")]
    lead = name((texts[0], texts[1]), (1, 1), (2, 2), effect_of("mul add", "batch_norm"))
    assert (lead.kind, lead.cause.key) == ("api_misuse", "ops.FrozenNorm")


def test_a_text_that_a_configuration_has_is_named_by_its_entry() -> None:
    texts = [program(f"    model.make(kind={text})\n") for text in ('"old"', '"new"')]
    lead = name((texts[0], texts[1]), ("old", "new"), (2, 2), effect_of("mul add", "gelu"))
    assert (lead.kind, lead.cause.type, lead.cause.key) == ("misconfiguration", "state", "checkpointing")
    assert lead.cause.location_a is not None and lead.cause.location_a.line == 3
    plain = [program(f"    model.make(kind={value})\n") for value in (True, False)]
    assert name((plain[0], plain[1]), (True, False), (2, 2), effect_of("mul", "gelu")).cause.key == "kind"


def test_an_object_of_another_class_that_replaces_a_part_is_other_code() -> None:
    changed = program('    for block in model.h:\n        block.act = torch.nn.GELU("tanh")\n')
    lead = name((NOTHING, changed), (1, 1), (2, 2), effect_of("mul add tanh", "gelu"))
    assert lead.kind == "api_misuse"


def test_a_function_that_replaces_a_method_is_other_code() -> None:
    changed = program("    Attention._attend = product\n")
    lead = name((NOTHING, changed), (1, 1), (2, 2), effect_of("mul add tanh", "attention"))
    assert (lead.kind, lead.cause.key) == ("api_misuse", "_attend")
    plain = program("    Attention.dropout = rate\n")
    assert name((NOTHING, plain), (1, 1), (2, 2), effect_of("mul", "add")).kind == "misconfiguration"


class WrittenOut:
    """A layer of a library, from several operators."""

    def forward(self, x: Tensor) -> Tensor:
        return gelu_decomposed(x)


def written_out() -> Tensor:
    return WrittenOut().forward(X @ W)


def in_one() -> Tensor:
    return gelu(X @ W)


def name_loop(loop: str, steps: tuple[Any, Any], op: str) -> Lead:
    texts = NOTHING, program(loop)
    runs = [
        record(step, costs({}), sources=(SourceText("p.py", 1, text),)) for step, text in zip(steps, texts, strict=True)
    ]
    live: Any = {"a": LiveProgram(runs[0]), "b": LiveProgram(runs[1])}
    work = Investigation(comparison_of(*runs), [], Thresholds(), live, ProgressListener())
    a, b = ((SourceFile("", "p.py", text),) for text in texts)
    return name_edit(work, a, b, effect_of("mul add tanh", "gelu"), op)


LOOP = """    for name, part in model.parts():
        if isinstance(part, WrittenOut):
            model.set_part(name, nn.GELU())
"""


def test_a_loop_that_replaces_objects_is_named_by_the_class_whose_code_ran() -> None:
    lead = name_loop(LOOP, (written_out, in_one), "gelu")
    assert (lead.kind, lead.cause.type, lead.cause.key) == ("api_misuse", "call_path", "WrittenOut")
    assert lead.cause.location_b is not None and lead.cause.location_b.line == 3
    assert lead.suggestion.startswith("Replace WrittenOut (tests/diagnosis/test_name_cause.py:")
    other = name_loop(LOOP.replace("WrittenOut", "Other"), (written_out, in_one), "gelu")
    assert (other.kind, other.cause.key) == ("api_misuse", "set_part")


def test_a_loop_that_switches_objects_is_named_by_the_switch() -> None:
    """The class is written there as well, but keeps its code."""
    lead = name_loop(
        LOOP.replace("model.set_part(name, nn.GELU())", "part.in_one = True"), (written_out, in_one), "gelu"
    )
    assert (lead.kind, lead.cause.key) == ("misconfiguration", "in_one")


def test_a_method_that_is_replaced_has_its_full_name() -> None:
    lead = name_loop("    WrittenOut.forward = in_one\n", (written_out, in_one), "gelu")
    assert (lead.kind, lead.cause.key) == ("api_misuse", "WrittenOut.forward")


def test_numbers_that_a_function_returns_have_its_name() -> None:
    texts = [f"def build():\n    return size(3)\n\ndef size(n):\n    return {text}\n" for text in ("n - 1", "1 << n")]
    lead = name((texts[0], texts[1]), (1, 1), (1, 1), effect_of("fft", "fft"))
    assert lead.cause.key == "size"
    assert lead.cause.location_a is not None and lead.cause.location_a.line == 5


def test_numbers_that_a_variable_gets_have_its_name() -> None:
    texts = program("    model.room = longest\n"), program("    model.room = prompt + new\n")
    lead = name(texts, (1, 1), (2, 2), effect_of("where", "where"))
    assert (lead.kind, lead.cause.key) == ("misconfiguration", "room")


def test_a_line_that_sets_two_values_is_named_by_the_one_that_was_changed() -> None:
    texts = program("    model.other = True\n"), program("    model.other = False\n")
    a, b = ((SourceFile("", "p.py", text),) for text in texts)
    found = []
    for values in (("plain", "new"), (True, False)):
        runs = [
            replace(recorded(text, value, 3), state={"model.title": value, "model.other": other})
            for text, value, other in zip(texts, values, (True, False), strict=True)
        ]
        runs = [replace(run, state_places=dict.fromkeys(run.state, "p.py:3:build")) for run in runs]
        live: Any = {"a": LiveProgram(runs[0]), "b": LiveProgram(runs[1])}
        work = Investigation(comparison_of(*runs), [], Thresholds(), live, ProgressListener())
        found.append(name_edit(work, a, b, NO_EFFECT).cause.key)
    assert found == ["other", "other"]


def test_an_argument_is_named_by_its_variable() -> None:
    texts = [program(f"    train({argument})\n") for argument in ("closure", "")]
    assert name((texts[0], texts[1]), (1, 1), (2, 2), effect_of("mul", "")).cause.key == "closure"


@pytest.mark.parametrize(("owner", "kind"), [("fancy", "redundant"), (None, "api_misuse")])
def test_an_argument_that_only_the_cheap_side_passes(
    owner: str | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library's own function does redundant work without it; that of the framework is misused."""
    monkeypatch.setattr(
        "joulediff.diagnosis.suspects.proven.find_leads",
        lambda _: [Lead("redundant", make_cause("call_path", None, Pair(1, 1), Pair(None, None), ()), ())],
    )
    texts = [program(f"    model(x{more})\n") for more in ("", ", full=False")]
    runs = []
    for text in texts:
        run = record(product, costs({}), sources=(SourceText("p.py", 1, text),))
        frames = [Frame("p.py", 3, "build", None, None), *([Frame("lib/f.py", 9, "f", owner, 0)] if owner else [])]
        runs.append(replace(run, frames=tuple(frames), ops=tuple(replace(op, frame=len(frames) - 1) for op in run.ops)))
    live: Any = {"a": LiveProgram(runs[0]), "b": LiveProgram(runs[1])}
    work = Investigation(comparison_of(*runs), [], Thresholds(), live, ProgressListener())
    a, b = ((SourceFile("", "p.py", text),) for text in texts)
    lead = name_edit(work, a, b, effect_of("svd", "svd"), "mm")
    assert (lead.kind, lead.cause.key) == (kind, "full")


def test_a_call_in_whose_place_the_other_side_reads_a_value_is_redundant() -> None:
    begin = "def build():\n    return step\n\ndef step():\n"
    made, kept = (f"{begin}    labels = {text}\n    return scores(labels)\n" for text in ("encode()", "known"))
    sources = (SourceText("p.py", 1, made),)
    frame = Frame("p.py", 5, "step", None, None)
    runs = [replace(record(product, costs({}), sources=sources), frames=(frame,)) for _ in "ab"]
    runs = [replace(run, ops=tuple(replace(op, frame=0) for op in run.ops)) for run in runs]
    live: Any = {"a": LiveProgram(runs[0]), "b": LiveProgram(runs[1])}
    work = Investigation(comparison_of(*runs), [], Thresholds(), live, ProgressListener())
    a, b = ((SourceFile("", "p.py", text),) for text in (made, kept))
    lead = name_edit(work, a, b, effect_of("addmm", ""))
    assert (lead.kind, lead.cause.key) == ("redundant", "encode")
    assert name_edit(work, a, b, effect_of("addmm", "mul")).kind == "api_misuse"


def test_of_nested_calls_the_one_whose_operator_is_gone_is_named() -> None:
    begin = "def build():\n    return step\n\ndef step():\n"
    dense, blocks = (
        f"{begin}    return {text}\n" for text in ("f.linear(x, f.block_diag(w))", "f.bmm(x.view(4, 8, 8), w)")
    )
    frame = Frame("p.py", 5, "step", None, None)
    sources = (SourceText("p.py", 1, dense),)
    runs = [replace(record(product, costs({}), sources=sources), frames=(frame,)) for _ in "ab"]
    runs = [replace(run, ops=tuple(replace(op, frame=0) for op in run.ops)) for run in runs]
    live: Any = {"a": LiveProgram(runs[0]), "b": LiveProgram(runs[1])}
    work = Investigation(comparison_of(*runs), [], Thresholds(), live, ProgressListener())
    a, b = ((SourceFile("", "p.py", text),) for text in (dense, blocks))
    assert name_edit(work, a, b, effect_of("addmm block_diag", "bmm")).cause.key == "f.block_diag"
    assert name_edit(work, a, b, effect_of("linear block_diag", "bmm")).cause.key == "linear"


CELLS = "def build():\n    return step\n\ndef step():\n    for x in xs:\n        y = cell(x)\n    return y\n"
INSIDE = CELLS.replace(
    "    for x in xs:\n        y =", "    with parametrize.cached():\n        for x in xs:\n            y ="
)


@pytest.mark.parametrize(
    ("removed", "added", "kind"),
    [("matrix_exp", "", "redundant"), ("matmul", "fused_attention", "misconfiguration"), ("", "", "misconfiguration")],
)
def test_a_context_that_only_spares_operators_spares_redundant_work(removed: str, added: str, kind: str) -> None:
    lead = name((CELLS, INSIDE), (1, 1), (1, 1), effect_of(removed, added))
    assert (lead.kind, lead.cause.key) == (kind, "cached")


@pytest.mark.parametrize(
    ("line", "kind"), [("lib.fill_memory = True", "misconfiguration"), ("lib.fill(memory)", "host")]
)
def test_a_switch_that_leaves_the_operators_as_they_are_is_a_misconfiguration(line: str, kind: str) -> None:
    """It may act inside of each operator; a call that runs none is work of the host."""
    texts = [
        f"def build():\n    return step\n\ndef step():\n    {each}\n    return cell(x)\n" for each in (line, "pass")
    ]
    in_step = Frame("p.py", 6, "step", None, None)
    runs = [replace(recorded(text, 1, 1), frames=(in_step,)) for text in texts]
    runs = [replace(run, ops=tuple(replace(op, frame=0) for op in run.ops)) for run in runs]
    live: Any = {"a": LiveProgram(runs[0]), "b": LiveProgram(runs[1])}
    work = Investigation(comparison_of(*runs), [], Thresholds(), live, ProgressListener())
    a, b = ((SourceFile("", "p.py", text),) for text in texts)
    assert name_edit(work, a, b, NO_EFFECT).kind == kind


def test_functions_that_replace_others_are_named_by_the_work_that_differs() -> None:
    begin = "def build():\n    return step\n\n"
    saver = "class Saver:\n    def run(self, x):\n        return save(x)\n\n"
    mine = f"{begin}{saver}def step():\n    saver = Saver()\n    saver.run(x)\n"
    other = f"{begin}def run(x):\n    return save(copy(x))\n\ndef step():\n    run(x)\n"
    a, b = ((SourceFile("", "p.py", text),) for text in (mine, other))
    edits = find_edits(a, b)
    chosen = tuple(at for at, edit in enumerate(edits) if edit.kind != "support")
    differences = Differences(tuple(Suspect("changed", edits[at].key, edit=at) for at in chosen), a, b, edits)
    times = [{("return save(x)", ("lib.py", "save")): 8.0}, {("return save(copy(x))", ("lib.py", "save")): 1.0}]
    runs = [host_run(text, each) for text, each in zip((mine, other), times, strict=True)]
    live: Any = {"a": LiveProgram(runs[0]), "b": LiveProgram(runs[1])}
    work = Investigation(comparison_of(*runs), [], Thresholds(), live, ProgressListener())
    tried = Tried(tuple(range(len(chosen))), "explains", Trial("changed", None, None, None))
    lead = name_cause(make_proven(work, "a", differences, tried, NO_EFFECT, None))
    assert (lead.kind, lead.cause.key) == ("host", "save")
    assert lead.cause.location_a is not None and lead.cause.location_a.text == "return save(x)"
