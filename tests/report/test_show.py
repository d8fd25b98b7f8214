"""`joulediff show`: its golden reports, and what each part of them says."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text

from energy_builders import cpu_run, gpu_run, odd_runs, replay, with_replays
from golden_files import check_golden
from joulediff.archive.writer import save
from joulediff.cli import main
from joulediff.energy.ledger import Books, open_books
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Condition
from joulediff.model.run import Kernel, Pass, Run
from joulediff.report.json.run import run_to_json
from joulediff.report.terminal.table import fit_texts
from joulediff.report.views.run.rows import group_rows
from joulediff.report.views.short_texts import format_places, pick_unit, round_to_sum
from run_builders import PASSES, RunBuilder, domain_energy, energy, gpt2_run, measurement
from show_builders import REPORTS, captured_only, compiled, complete, in_regions, metered_only, on_cpu, render, replayed

BYS = ("op", "module", "line", "kernel", "region")


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", list(REPORTS))
def test_golden(name: str, columns: int, pytestconfig: pytest.Config) -> None:
    text = render(REPORTS[name](), columns)
    check_golden(f"show_{name}_{columns}.txt", text, pytestconfig)


@pytest.mark.parametrize("by", BYS)
def test_golden_of_each_grouping(by: Any, pytestconfig: pytest.Config) -> None:
    text = render(complete(), 100, by=by, top=5)
    check_golden(f"show_by_{by}.txt", text, pytestconfig)


@pytest.mark.parametrize("columns", [30, 80, 100, 120, 200])
@pytest.mark.parametrize("by", BYS)
@pytest.mark.parametrize("name", list(REPORTS))
def test_every_line_fits(name: str, by: Any, columns: int) -> None:
    lines = render(REPORTS[name](), columns, by=by).splitlines()
    assert max(map(len, lines)) <= columns
    assert not any(line != line.rstrip() for line in lines)


def test_regions_and_the_rest_sum_to_the_metered_energy() -> None:
    run = in_regions()
    text = render(run, 120)
    assert "energy of one step by region" in text
    assert "by region" not in render(complete(), 120)
    rows = group_rows(run, "region", open_books(run))
    assert [row.name for row in rows] == ["block", "(outside of regions)", "block/attention"]
    assert sum(row.calls for row in rows) == len(run.ops)
    assert sorted(i for row in rows for i in row.kernels) == list(range(len(run.kernels)))


def test_kernels_of_no_operator_are_outside_of_regions() -> None:
    made = RunBuilder()
    made.kernel("k", 1e-3, op=made.op("aten::mm", region="loss"))
    made.kernel("nobody", 2e-3)
    rows = group_rows(made.build(), "region", Books())
    assert {row.name: len(row.kernels) for row in rows} == {"(outside of regions)": 1, "loss": 1}


@pytest.mark.parametrize("name", list(REPORTS))
def test_it_is_one_screen(name: str) -> None:
    assert len(render(REPORTS[name](), 120).splitlines()) <= 45


def test_a_narrow_terminal_cuts_words_and_no_number() -> None:
    text = render(compiled(), 50)
    for line in ("3.124      2.698  0.426        0.000", "1.520   40.4%", "3.767  100.0%"):
        assert line in text


def test_colour_changes_no_word() -> None:
    coloured = render(compiled(), 100, colour=True)
    assert "\x1b[" in coloured
    assert Text.from_ansi(coloured).plain.strip() == render(compiled(), 100).strip()


def number(cell: str) -> float:
    return 0.0 if cell in ("", "-") else float(cell.replace(",", "").rstrip("%"))


def table_of(text: str, head: str) -> tuple[list[str], list[list[str]]]:
    """Return the heads of a table's columns of numbers, and its lines by column up to one that is no row."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if re.match(head, line))
    heads = list(re.finditer(r"\S+", lines[at]))
    ends = [found.end() for found in heads][: [found.group() in _WORDS for found in heads].index(True)]
    rows = []
    for line in lines[at + 1 :]:
        cells = [line[begin:end].strip() for begin, end in pairwise([0, *ends])]
        if not re.fullmatch(r"-?[\d.,]+|[-?]", cells[0]):
            break
        rows.append([*cells, line[ends[-1] :].strip()])
    return [found.group() for found in heads[: len(ends)]], rows


_WORDS = ("source", "operator", "module", "line", "kernel", "region")
BY_ENERGY, BY_TIME = r" *[mµn]?J +share", r" *[mµn]?s +share"


@pytest.mark.parametrize("top", [1, 4, 15, 100])
@pytest.mark.parametrize("by", BYS)
@pytest.mark.parametrize("name", ["complete", "replayed", "compiled", "on_cpu"])
def test_columns_sum_to_the_meter_as_printed(name: str, by: Any, top: int) -> None:
    for width in (80, 120, 200):
        heads, (*rows, total) = table_of(render(REPORTS[name](), width, by=by, top=top), BY_ENERGY)
        assert total[-1] in ("metered", "estimated")
        for column, head in enumerate(heads):
            if head not in ("±", "W"):
                found = sum(number(row[column]) for row in rows)
                assert found == pytest.approx(number(total[column]), abs=1e-9), head
        assert total[1] == "100.0%"


@pytest.mark.parametrize("by", BYS)
def test_without_energies_rows_are_ranked_by_time(by: Any) -> None:
    for run in (replace(complete(), measurement=None), gpt2_run(measurement=measurement(domains={}))):
        heads, (*rows, total) = table_of(render(run, 200, by=by, top=4), BY_TIME)
        assert total[-1] == "total"
        assert heads[:2] == ["ms", "share"]
        for column in range(len(heads)):
            assert sum(number(row[column]) for row in rows) == pytest.approx(number(total[column]), abs=1e-9)
        times = [number(row[0]) for row in rows[:-1]]
        assert times == sorted(times, reverse=True)


def test_rows_are_ranked_by_energy_not_by_time() -> None:
    run = gpu_run(("gemm", 2e-3, 0), ("copy", 4e-3, 1))
    run = with_replays(run, replay(0, 1.8), replay(1, 0.2), calls={0: 0, 1: 1})
    heads, rows = table_of(render(run, by="kernel"), BY_ENERGY)
    assert heads == ["J", "share", "±", "W", "ms", "kernels"]
    # A call's energy above rest, and 100 W of rest in its time.
    assert rows[0][:2] + rows[0][3:] == ["2.000", "40.0%", "1,000", "2.000", "1", "replayed    gemm         aten::mm"]
    assert rows[1][0] == "0.600"
    assert [row[-1].split()[-1] for row in rows[2:]] == ["idle", "J", "metered"]
    assert [row[0] for row in rows[2:]] == ["0.400", "2.000", "5.000"]


def test_unexplained_may_be_negative_and_still_sums() -> None:
    run = gpu_run(("gemm", 2e-3, 0))
    text = render(with_replays(run, replay(0, 4.5), calls={0: 0}), 80)
    _, rows = table_of(text, BY_ENERGY)
    assert [row[0] for row in rows] == ["4.700", "0.800", "-0.500", "5.000"]
    assert [row[1] for row in rows] == ["94.0%", "16.0%", "-10.0%", "100.0%"]
    assert "Not trustworthy" not in text  # ten percent is the limit


def test_books_that_do_not_close_are_not_trustworthy() -> None:
    run = gpu_run(("gemm", 2e-3, 0))
    for joules, said in ((0.8, "64.0% .* less than was metered"), (9.0, "100.0% .* more than was metered")):
        text = render(with_replays(run, replay(0, joules), calls={0: 0}))
        assert re.search(f"! {said.replace('.*', 'of the energy is unexplained: the parts of gpu0 sum to')}", text)
        assert "Not trustworthy: the warnings above say why." in text


def test_a_cpu_without_its_cpu_time_says_why_much_is_unexplained() -> None:
    run = on_cpu()
    assert run.measurement is not None
    text = render(replace(run, measurement=replace(run.measurement, cpu_s=None)))
    assert "! 95.4% of the energy is unexplained: the CPU time of the step is unknown" in text


def test_energy_that_cannot_be_split_has_a_separate_line() -> None:
    run = gpu_run(("gemm", 2e-3, 0))
    assert run.measurement is not None
    domains = {**run.measurement.domains, "gpu1": domain_energy(2.0, 10e-3, None)}
    ops = (*run.ops, replace(run.ops[0], id=1, device="cuda:1"))
    found = replace(run.measurement, domains=domains, energy=energy(7.0))
    _, rows = table_of(render(replace(run, ops=ops, measurement=found), 80), BY_ENERGY)
    assert [(row[0], row[-1].split()[-1]) for row in rows[1:]] == [
        ("0.800", "idle"), ("0.000", "unexplained"), ("2.000", "split"), ("7.000", "metered"),
    ]  # fmt: skip


def test_how_a_row_is_known_is_said() -> None:
    run = gpu_run(("gemm", 2e-3, 0), ("gemm", 2e-3, 1), ("add", 1e-3, 2))
    run = with_replays(run, replay(0, 1.0), calls={0: 0})
    text = render(run, by="op")
    assert re.search(r"\d\d% replayed  aten::mm", text)
    assert "; 1 of 1 distinct operators replayed, " in text
    rows = table_of(render(run, by="kernel"), BY_ENERGY)[1]
    assert [row[-1].split()[:2] for row in rows[:2]] == [["40%", "replayed"], ["attributed", "add"]]
    assert "estimated  aten::mm" in render(on_cpu(), 120)
    assert "source" in render(replayed(), 80)  # rows differ
    assert "source" not in table_of(render(complete(), 80), BY_ENERGY)[0]


def test_attributed_joules_say_so_unless_a_replay_was_tried() -> None:
    said = "energy: split by time; record with replay to measure each operator"
    assert said in render(complete())
    tried = replace(complete(), passes=(*PASSES, Pass("replayed", "failed", 1.0, "the device was lost")))
    assert said not in render(tried)
    assert "! the replayed pass failed: the device was lost" in render(tried)
    assert "energy: split by time\n" in render(tried)
    assert "replayed" not in "".join(line for line in render(complete()).splitlines() if line.startswith("!"))


def test_replays_under_other_conditions_are_folded_warnings() -> None:
    text = render(replayed(), 200)
    assert (
        "! the replayed energy of 2 distinct operators (aten::pow, aten::tanh) may be wrong: ran at 1755 MHz, the"
        in text
    )
    assert "1762" not in text
    assert "- not replayed: 1 distinct operator (aten::native_layer_norm): the 60.0 s for replay were spent" in text
    assert "- replayed with random inputs instead of the recorded ones: 2 distinct operators (aten::add)" in text
    assert "energy: gpu0, cpu metered; 11 of 13 distinct operators replayed, 95.7% of joules" in text
    assert "clock: replayed at 1755 to 1980 MHz, the program ran at 1980 MHz" in text


def test_the_ledger_closes_as_printed() -> None:
    lines = render(replayed(), 120).splitlines()
    at = next(i for i, line in enumerate(lines) if re.match("J a step +metered", line))
    assert lines[at].split()[3:] == ["metered", "±", "operators", "idle", "host", "waits", "unexplained", "source"]
    gpu0, cpu, total = (line.split() for line in lines[at + 1 : at + 4])
    assert gpu0[5:7] == ["-", "-"]
    for row in (gpu0, cpu):
        assert sum(map(number, row[3:8])) == pytest.approx(number(row[1]))
    for column in (1, 3, 4, 5, 6, 7):
        shown = total[column if column == 1 else column - 1]
        assert number(shown) == pytest.approx(number(gpu0[column]) + number(cpu[column]))
    assert f"{total[1]} J ± 1.2% a step" in lines[0]


def test_the_ledger_names_unknown_parts() -> None:
    lines = render(compiled(), 120).splitlines()
    at = next(i for i, line in enumerate(lines) if re.match("J a step +metered", line))
    assert "host" not in lines[at]
    gpu0, gpu1, _, total = (line.split() for line in lines[at + 1 : at + 5])
    assert number(gpu0[1]) == pytest.approx(sum(map(number, gpu0[3:6])))
    assert gpu1[4] == "?"  # no idle power: unknown, not nothing
    assert total[3] == "?"
    assert not any(line.startswith("gpu2 ") for line in lines[at:])


def test_an_unknown_value_is_a_question_mark() -> None:
    text = render(captured_only())
    assert "energy not measured" in text
    _, (*rows, total) = table_of(text, r" *s +share")
    assert {row[0] for row in rows} == {"?"}
    assert {row[1] for row in rows} == {"?%"}
    assert total[0] == "?"
    assert "busy" not in text


def test_warnings_come_before_numbers_and_many_are_folded() -> None:
    text = render(compiled(), 120)
    assert text.index("the traced pass is incomplete: the profiler lost 3 events") < text.index("J a step  metered")
    assert text.count("used by process 4711") == 1  # a condition that a warning tells already
    assert "drift: +3 °C" in text
    assert "power cap" not in text  # of a card that rested
    assert "Not trustworthy" in text
    assert "6 more: --json - has them" in text
    noisy = replace(complete(), measurement=replace(measurement(), warnings=tuple(f"doubt {n}" for n in range(40))))
    assert len(render(noisy).splitlines()) < 45
    assert "35 more" in render(noisy)


def test_kernels_without_an_operator_are_shown() -> None:
    text = render(compiled())
    assert "(not joined)" in text
    assert "compiled: transformer.h.*" in text


def test_a_cpu_run_says_whose_time_it_is() -> None:
    text = render(on_cpu())
    assert "time in operators in one traced step of 1.427 ms" in text
    assert "cpu: 1.369 ms in operators, 4.1% of the time outside of them" in text
    for word in ("CPU time", "idle 4", "busy", "kernels"):
        assert word not in text
    assert "kernels" in render(complete())
    assert "energy of one step, device time in one traced step" in render(complete())
    both = RunBuilder()
    both.kernel("a", 1e-3)
    both.kernel("b", 1e-3, kind="cpu", device="cpu")
    assert "device time and time in CPU operators in one traced step" in render(both.build())


def test_the_next_command_fits_the_run() -> None:
    assert "next: joulediff show 'my run.jd' --by line" in render(complete(), path="my run.jd")
    assert "next: joulediff record sums.py" in render(metered_only())
    assert "next:" not in render(complete(), path=None)
    assert "--by kernel" in render(
        replace(complete(), ops=(), waits=(), kernels=(replace(complete().kernels[0], op=None),))
    )


@pytest.mark.parametrize("by", BYS)
@pytest.mark.parametrize("name", list(REPORTS))
def test_the_next_command_shows_something_else(name: str, by: Any) -> None:
    for run in (REPORTS[name](), replace(REPORTS[name](), ops=(), waits=(), kernels=unjoined(), replays=())):
        following = re.search("--by ([a-z]+)", render(run, by=by))
        if following is not None:
            assert following[1] != by
            assert re.search(" (total|metered|estimated)$", render(run, by=following[1]), re.M)


def unjoined() -> tuple[Kernel, ...]:
    return (replace(complete().kernels[0], op=None, join="none"),)


def test_why_there_are_no_operators_is_said_once() -> None:
    why = "no framework is loaded: there is its energy and nothing to split it by"
    passes = (PASSES[0], Pass("traced", "skipped", 0.0, why), Pass("captured", "skipped", 0.0, why))
    run = replace(metered_only(), passes=passes, notes=(why, "something else"))
    text = render(run)
    assert text.count(why) == 1
    assert f"! the traced and captured passes were skipped: {why}" in text
    assert "- something else" in text
    assert "next:" not in text  # to record it again would skip them again


def test_missing_passes_are_reported() -> None:
    run = replace(metered_only(), passes=PASSES[:1])
    text = render(run)
    assert "! the traced and captured passes are missing: the recording ended early" in text
    assert "next: joulediff record sums.py" in text
    assert "! the captured pass is missing: the recording ended early" in render(
        replace(complete(), passes=PASSES[:2], ops=(), waits=(), kernels=unjoined())
    )
    assert "missing" not in render(complete())
    assert "missing" not in render(replace(complete(), passes=()))  # all is there, whoever recorded it


def test_a_trace_much_slower_than_the_metered_step_is_a_warning() -> None:
    said = "! the profiler slowed the traced step down (6.871 ms instead of 4.000 ms): the order of the rows"
    assert said in render(gpt2_run(measurement=measurement(step_s=4.0e-3)))
    assert "slowed the traced step" not in render(gpt2_run(measurement=measurement(step_s=4.7e-3)))
    said = "! the profiler slowed the traced step down (1.369 ms instead of 900.0 µs): the order of the rows"
    assert said in render(replace(on_cpu(), measurement=measurement(step_s=0.9e-3)))
    assert "slowed the traced step" not in render(replace(on_cpu(), measurement=measurement(step_s=0.95e-3)))
    run = cpu_run(20e-3, 20e-3)
    little, most = (with_replays(run, replay(0, joules, "cpu", call_s=1e-3), calls={0: 0}) for joules in (0.01, 0.9))
    assert "slowed the traced step" in render(little)
    assert "slowed the traced step" not in render(most)


EVIL = "\x1b[31mred\x1b]0;title\x07\r\n\x9b2J\u202e[bold]x[/bold][link=http://x]\ud800\x00"


def evil_run(text: str = EVIL) -> Run:
    made = RunBuilder(device=text)
    frame = made.frame(text, 3, text)
    op = made.op(text, module=text, module_type=text, frame=frame, region=text, outputs=[made.value(dtype=text)])
    made.kernel(text, 1e-3, op=op)
    made.kernel(text, 2e-3, module=text, join="module")
    made.kernel(text, 2e-3)
    made.wait(text, 1e-3, op=op)
    found = measurement(
        label=text,
        domains={text: domain_energy(1.0, 1e-3, device=text), "gpu0": domain_energy(1.0, 1e-3, device=text)},
        warnings=(text,),
        conditions=(Condition(text, False, text, text, None),),
    )
    passes = (Pass("traced", "partial", 1.0, text),)
    evil = made.build(
        label=text,
        program=text,
        created=text,
        tool=text,
        measurement=found,
        passes=passes,
        notes=(text,),
        settings={text: text},
    )
    marks = [replay(op, joules, domain, note=text) for joules, domain in ((0.5, "gpu0"), (None, text))]
    return with_replays(evil, *marks, calls={op: 0})


@pytest.mark.parametrize("by", BYS)
def test_names_cannot_command_the_terminal(by: Any) -> None:
    text = render(evil_run(), by=by, path=EVIL)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "\\x1b[31mred" in text
    assert "[bold]x[/bold]" in text
    coloured = render(evil_run(), 100, by=by, colour=True, path=EVIL)
    left = re.sub(r"\x1b\[[\d;]*m", "", coloured)  # our own colours
    assert all(c.isprintable() or c == "\n" for c in left)


@given(st.text(max_size=30), st.sampled_from(BYS))
@settings(max_examples=40, deadline=None)
def test_any_name_prints(name: str, by: Any) -> None:
    text = render(evil_run(name), 80, by=by)
    assert all(c.isprintable() or c == "\n" for c in text)
    json.loads(run_to_json(evil_run(name)))


ODD = st.sampled_from([0.0, -1.0, 1e-300, 1e300, math.nan, math.inf, -math.inf, 5e-6, 1e9])


@given(st.lists(ODD, min_size=4, max_size=4), st.sampled_from(BYS))
@settings(max_examples=30, deadline=None)
def test_odd_numbers_are_survived(odd: list[float], by: Any) -> None:
    """A recording from anywhere may hold any number: it is shown as unknown, not as a fault."""
    run = gpt2_run(1)
    first, second, *rest = run.kernels
    kernels = (replace(first, duration_s=odd[0]), replace(second, start_s=odd[1]), *rest)
    waits = (replace(run.waits[0], duration_s=odd[2]),)
    found = replace(run.measurement, step_s=odd[3])  # type: ignore[type-var]
    for traced_s in (run.traced_s, odd[1], None):
        made = replace(run, kernels=kernels, waits=waits, measurement=found, traced_s=traced_s)
        render(made, 80, by=by)
        json.loads(run_to_json(made), parse_constant=pytest.fail)


@given(odd_runs(), st.sampled_from(BYS), st.sampled_from([30, 80, 120]))
@settings(max_examples=60, deadline=None)
def test_odd_books_are_survived(run: Run, by: Any, columns: int) -> None:
    render(run, columns, by=by, top=3)
    json.loads(run_to_json(run), parse_constant=pytest.fail)


@given(st.lists(ODD, min_size=3, max_size=3), st.sampled_from(BYS))
@settings(max_examples=30, deadline=None)
def test_odd_replays_are_survived(odd: list[float], by: Any) -> None:
    run = replayed()
    first, second, *rest = run.replays
    changed = (
        replace(first, energy_j=odd[0], clock_mhz=odd[1]),
        replace(second, low_j=odd[1], high_j=odd[2], rest_w=odd[0]),
        *rest,
    )
    assert run.measurement is not None
    found = replace(run.measurement, clocks_mhz={"gpu0": odd[2]}, cpu_s=odd[0], profiles={"gpu0": tuple(odd)})
    made = replace(run, replays=changed, measurement=found)
    render(made, 80, by=by)
    json.loads(run_to_json(made), parse_constant=pytest.fail)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30), st.integers(-(10**10), 10**10))
def test_columns_round_to_a_total_that_is_given(values: list[float], total: int) -> None:
    assert sum(each for each in round_to_sum(values, total=total) if each is not None) == total


@pytest.mark.parametrize(
    ("units", "places", "shown"),
    [
        (3123, 3, "3.123"),
        (-209, 2, "-2.09"),
        (-5, 1, "-0.5"),
        (1234567, 0, "1,234,567"),
        (0, 3, "0.000"),
        (None, 2, "?"),
    ],
)
def test_numbers_of_the_last_place(units: int | None, places: int, shown: str) -> None:
    assert format_places(units, places) == shown


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e9)), max_size=30))
def test_rounded_columns_sum(values: list[float | None]) -> None:
    whole = round_to_sum(values)
    assert [each is None for each in whole] == [value is None for value in values]
    known = [value for value in values if value is not None]
    assert abs(sum(each for each in whole if each is not None) - sum(known)) <= 0.5 + 1e-5
    for each, value in zip(whole, values, strict=True):
        if each is not None and value is not None:
            assert abs(each - value) <= 1.0


@pytest.mark.parametrize(
    ("most", "expected"),
    [(0.0, ("s", 3)), (6.871e-3, ("ms", 3)), (0.0421, ("ms", 2)), (12.0, ("s", 2)), (5e-10, ("ns", 3))],
)
def test_one_unit_for_a_column(most: float, expected: tuple[str, int]) -> None:
    assert pick_unit(most, "s")[1:] == expected


def test_texts_share_the_room() -> None:
    names, places = fit_texts(["a" * 40], ["b" * 40], 40, cut="begin")
    assert (names[0][-1], places[0][0]) == ("…", "…")
    assert len(names[0]) + len(places[0]) == 40
    names, places = fit_texts(["a" * 10], ["b" * 40], 40, cut="end")
    assert names == ["a" * 10]
    assert places[0].endswith("…")


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(*words: str, found: Run | None = None) -> tuple[int, str, str]:
        def load(path: str) -> Run:
            if found is None:
                raise JoulediffError(f"{path} is no recording", fix="record it again")
            return found

        monkeypatch.setattr("joulediff.archive.reader.load", load)
        with pytest.raises(SystemExit) as caught:
            main(["show", *words])
        out, err = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, out, err

    return run


def test_the_command(show: Any) -> None:
    code, out, err = show("run.jd", found=complete())
    assert (code, err) == (0, "")
    assert out == render(complete(), 120)
    _, out, _ = show("run.jd", "--by", "kernel", "--top", "2", found=complete())
    assert out == render(complete(), 120, by="kernel", top=2)


def test_strict_fails_where_the_energy_is_not_trustworthy(show: Any) -> None:
    run = gpu_run(("gemm", 2e-3, 0))
    open_books = with_replays(run, replay(0, 0.8), calls={0: 0})
    for found, code in ((complete(), 0), (compiled(), 2), (open_books, 2), (captured_only(), 2)):
        assert show("run.jd", found=found)[0] == 0
        assert show("run.jd", "--strict", found=found)[0] == code
        assert show("run.jd", "--strict", "--json", "-", found=found)[0] == code


def test_the_command_writes_json(show: Any, tmp_path: Path) -> None:
    code, out, _ = show("run.jd", "--json", "-", "--top", "1", found=complete())
    assert code == 0
    assert json.loads(out)["schema"] == "joulediff.run/1"
    place = tmp_path / "run.json"
    _, shown, _ = show("run.jd", "--json", str(place), found=evil_run())
    assert json.loads(place.read_text(encoding="utf-8"))["label"] == EVIL
    assert "the traced pass is incomplete" in shown


def test_a_file_that_cannot_be_read_or_written_is_a_sentence(show: Any, tmp_path: Path) -> None:
    code, out, err = show("run.jd")
    assert (code, out) == (1, "")
    assert err == "joulediff: run.jd is no recording\n  record it again\n"
    code, _, err = show("run.jd", "--json", str(tmp_path / "no" / "where.json"), found=complete())
    assert code == 1
    assert "cannot write" in err


def test_a_real_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "run.jd")
    save(compiled(), path)
    with pytest.raises(SystemExit) as caught:
        main(["show", path])
    assert caught.value.code == 0
    assert capsys.readouterr().out == render(compiled(), 120, path=path)
    with pytest.raises(SystemExit) as caught:
        main(["show", str(tmp_path / "none.jd")])
    assert caught.value.code == 1
    assert "none.jd" in capsys.readouterr().err


def test_json_is_never_written_over_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run.jd", "other.jd", "renamed"):
        save(complete(), name)
    (tmp_path / "linked.json").symlink_to("run.jd")
    (tmp_path / "hard.json").hardlink_to(tmp_path / "run.jd")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for place in ("run.jd", f"../{tmp_path.name}/run.jd", "linked.json", "hard.json", "other.jd", "renamed"):
        with pytest.raises(SystemExit) as caught:
            main(["show", "./run.jd", "--json", place])
        out, err = capsys.readouterr()
        assert (caught.value.code, out) == (1, "")
        assert err.startswith(f"joulediff: cannot write {place} (it is ")
        assert "choose another file for --json" in err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    for _ in range(2):  # JSON of before may be replaced
        with pytest.raises(SystemExit) as caught:
            main(["show", "run.jd", "--json", "run.json"])
        assert caught.value.code == 0


@pytest.mark.parametrize("words", [["--by", "colour"], ["--top", "0"], ["--top", "many"]])
def test_wrong_words_are_refused(show: Any, words: list[str]) -> None:
    code, _, err = show("run.jd", *words, found=complete())
    assert code == 1
    assert "Usage: joulediff show" in err


def test_help_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "show" in capsys.readouterr().out
