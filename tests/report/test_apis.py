"""The API calls of a script on the terminal: golden files, sums of the columns, and odd recordings."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from api_run_builders import FILE, Between, Program, make_api_run, many_apis, read_number
from golden_files import check_golden
from joulediff.model.apis.api_run import ApiAccount, ApiRun, Ending, add_accounts
from joulediff.model.energy import Energy
from joulediff.report.render import render
from joulediff.report.terminal.apis import print_api_run
from joulediff.report.views.apis.ledger import api_ledger_table
from joulediff.report.views.apis.lines import api_lines, line_table
from joulediff.report.views.apis.table import api_rows, api_table
from joulediff.report.views.columns import TextTable


def shown(run: ApiRun, width: int, **options: object) -> str:
    file = io.StringIO()
    print_api_run(run, Console(file=file, width=width), path="run.jd", **options)  # type: ignore[arg-type]
    return file.getvalue()


RUNS = {
    "usual": make_api_run(),
    "estimated": make_api_run(domains=("cpu",), source="estimated", idle=False),
    "beside": make_api_run(domains=("gpu0", "cpu", "dram"), not_counted=("cpu",)),
    "many": make_api_run(many_apis(40)),
    "stopped": replace(
        make_api_run(),
        ending="exception",
        exit_code=1,
        error="RuntimeError: out of paper",
        trustworthy=False,
        warnings=("the machine was not quiet before the program: 3 of 16 cores were busy",),
    ),
    "unmeasured": replace(
        make_api_run(), energy=None, net_energy=None, domains={}, ledger={},
        apis=tuple(
            replace(
                api, energy=None, self_energy=None, net_energy=None, self_net_energy=None, domains={}, share=None,
                sites=tuple(
                    replace(site, energy=None, self_energy=None, net_energy=None, self_net_energy=None)
                    for site in api.sites
                ),
            )
            for api in make_api_run().apis
        ),
        gaps=tuple(replace(gap, energy=None, net_energy=None) for gap in make_api_run().gaps),
    ),
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", RUNS)
def test_golden(name: str, width: int, pytestconfig: pytest.Config) -> None:
    text = shown(RUNS[name], width)
    assert max(map(len, text.splitlines())) <= width
    check_golden(f"apis/{name}_{width}.txt", text, pytestconfig)


def sums_to_last(cells: Sequence[str]) -> bool:
    numbers = [read_number(cell) for cell in cells]
    assert None not in numbers
    *parts, whole = (round(1000 * (each or 0.0)) for each in numbers)
    return sum(parts) == whole


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("every", [False, True])
def test_columns_sum_to_the_program(seed: int, every: bool) -> None:
    run = make_api_run(many_apis(30, seed), domains=("gpu0", "cpu", "dram"), not_counted=("dram",) if seed % 2 else ())
    apis = api_table(run, top=8, every=every)
    lines = line_table(run, top=8, every=every)
    assert apis is not None
    assert lines is not None
    for table, heads in ((apis, {"net", "gpu0", "cpu", "dram", "(dram)"}), (lines, set())):
        cells = {column.head: column.cells for column in table.columns}
        assert sums_to_last(table.columns[0].cells)
        assert sums_to_last([cell.removesuffix("%") for cell in cells["share"]])
        for head in heads & set(cells):
            assert sums_to_last(cells[head])
    assert {"net", "gpu0", "cpu"} <= {column.head for column in apis.columns}


@pytest.mark.parametrize("seed", range(25))
def test_the_ledger_sums_across_and_down(seed: int) -> None:
    table = api_ledger_table(make_api_run(many_apis(5, seed)))
    assert table is not None
    at = [column.head for column in table.columns].index("whole program")
    numbers = table.columns[1 : at + 1]
    for row in range(3):
        assert sums_to_last([column.cells[row] for column in numbers])
    for cells in (numbers[-1].cells,):
        parts = [read_number(cell) or 0.0 for cell in cells]
        assert parts[2] == pytest.approx(parts[0] + parts[1], abs=0.11)
    closures = table.columns[at + 2]
    assert closures.head == "closure"
    assert all(cell.endswith("%") for cell in closures.cells)


def test_lines_have_all_the_energy_of_the_calls_and_the_code_between() -> None:
    run = make_api_run()
    lines = api_lines(run)
    account = add_accounts(run.ledger)
    assert account is not None
    own = [account.calls, account.between, account.idle]
    assert sum(line.energy.joules for line in lines if line.energy) == pytest.approx(
        sum(part.joules for part in own if part is not None)
    )
    one = next(line for line in lines if line.line == 13 and not line.is_between)
    assert (one.text, one.more, one.count) == ("model", 1, 32)


def test_all_shows_every_api_and_top_folds_the_others() -> None:
    run = RUNS["many"]
    assert len(api_rows(run, top=5, every=True)) == len(run.apis)
    folded = api_rows(run, top=5, every=False)
    assert folded[-1].name == f"{len(run.apis) - 5} more APIs"
    assert sum(row.calls for row in folded) == run.calls
    assert "more APIs" not in shown(run, 120, every=True)
    assert len(api_rows(run, top=len(run.apis) - 1, every=False)) == len(run.apis), "one row folds into none"


def test_a_call_that_is_too_short_is_marked_and_not_shown_as_nothing() -> None:
    rows = column_by_head(api_table(make_api_run(), top=15))
    at = list(rows["API"]).index("torch.rand")
    assert rows["J"][at] == "<0.1"
    assert rows[""][at] == "*"
    assert "shorter than the meter's period" in shown(make_api_run(), 120)
    long_calls = replace(make_api_run(), apis=tuple(replace(api, too_short=False) for api in make_api_run().apis))
    assert "shorter than the meter's period" not in shown(long_calls, 120)


def column_by_head(table: TextTable | None) -> dict[str, Sequence[str]]:
    assert table is not None
    return {column.head: column.cells for column in table.columns}


def test_unknown_energy_is_not_shown_as_zero() -> None:
    run = make_api_run()
    first = replace(run.apis[0], self_energy=None, energy=None)
    table = column_by_head(api_table(replace(run, apis=(first, *run.apis[1:])), top=15))
    assert table["J"][0] == "?"
    assert table["a call"][0] == "?"
    assert sums_to_last(["0", *table["J"][1:]])


@pytest.mark.parametrize(
    ("ending", "code", "words"),
    [
        ("exception", 1, "the program raised KeyError: 'x'"),
        ("stopped", 130, "the program was stopped"),
        ("killed", -9, "the program was killed"),
        ("exit", 3, "the program ended with exit code 3"),
    ],
)
def test_how_the_program_ended_is_said(ending: Ending, code: int, words: str) -> None:
    run = replace(make_api_run(), ending=ending, exit_code=code, error="KeyError: 'x'")
    assert words in shown(run, 120)
    assert "the program" not in "".join(shown(make_api_run(), 120).splitlines()[:4])


def test_books_that_do_not_close_are_said() -> None:
    program = replace(Program(), unexplained_j={"gpu0": 300.0})
    assert "the parts are 86% of the energy of the program: the rest is unexplained" in shown(
        make_api_run(program), 120
    )
    assert "the rest is unexplained" not in shown(make_api_run(), 120)


def test_the_closure_of_an_unknown_ledger_is_unknown() -> None:
    unknown = Energy(10.0, 9.0, 11.0, "metered")
    assert ApiAccount(unknown, None, None, None, None, None, None).closure is None
    assert add_accounts({}) is None


def test_mostly_short_calls_are_to_be_measured_alone() -> None:
    run = make_api_run()
    assert "next: joulediff show run.jd --markdown report.md" in shown(run, 120)
    short = replace(run, apis=tuple(replace(api, too_short=True) for api in run.apis))
    assert f"next: joulediff apis --isolated {FILE} model.pt" in shown(short, 120)


def test_hostile_names_are_harmless() -> None:
    run = make_api_run()
    api = replace(run.apis[0], api="\x1b[31mred\x1b[0m\u202e[bold]x[/bold]")
    hostile = replace(run, label="a\x1b]0;title\x07", error="\x9b2J", ending="exception", apis=(api, *run.apis[1:]))
    for width in (80, 120):
        text = shown(hostile, width)
        assert text.replace("\n", "").isprintable()
        assert r"\x1b[0m\u202e[bold]x[/bold]" in text


def test_long_names_fit_the_terminal() -> None:
    run = make_api_run()
    site = replace(run.apis[0].sites[0], file=f"/{'f' * 200}.py", text="t" * 300, function="g" * 300, line=10**9)
    api = replace(run.apis[0], api=f"{'lib.' * 100}Model.fit", sites=(site,))
    text = shown(replace(run, label="l" * 300, program="p" * 300, apis=(api, *run.apis[1:])), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "lib.Model.fit" in text
    assert "f.py:1000000000" in text


def test_a_program_without_calls_is_shown() -> None:
    program = Program((), (Between(None, None, 1, 2.0, {"gpu0": 4.0, "cpu": 1.0}),), "pass\n", {})
    text = shown(make_api_run(program), 80)
    assert "0 calls of 0 APIs" in text
    assert "code before the first call" in text


def test_render_gives_the_same_text() -> None:
    assert render(make_api_run(), width=80) == shown_without_path(make_api_run())


def shown_without_path(run: ApiRun) -> str:
    file = io.StringIO()
    print_api_run(run, Console(file=file, width=80))
    return file.getvalue()
