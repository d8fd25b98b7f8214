"""The API calls of a script as Markdown: its source with the energy of each line, and names that stay names."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from api_run_builders import FILE, Program, make_api_run
from golden_files import check_golden
from joulediff.model.apis.api_run import ApiRun
from joulediff.model.run import SourceText
from joulediff.report.apis_markdown import api_run_to_markdown
from joulediff.report.render import render
from joulediff.report.views.apis.source import WHOLE_LINES, annotate_sources

GUTTER = re.compile(r"^ *(?P<joules><?[\d,.?]+) J +(?P<share>[\d.]+%)? *(?P<line>\d+)? (?P<bar>[│┊]) (?P<text>.*)$")


def annotated(run: ApiRun, **options: bool) -> list[str]:
    (file,) = annotate_sources(run, **options)
    return list(file.lines)


def test_golden(pytestconfig: pytest.Config) -> None:
    check_golden("apis/usual.md", api_run_to_markdown(make_api_run()), pytestconfig)


def test_the_lines_of_one_file_sum_to_the_program() -> None:
    calls = [replace(each, inside=()) for each in Program().calls]
    run = make_api_run(replace(Program(), calls=calls))
    found = [match for line in annotated(run) if (match := GUTTER.match(line))]
    joules = [0.0 if each["joules"].startswith("<") else float(each["joules"].replace(",", "")) for each in found]
    assert run.energy is not None
    unexplained = 1.25
    assert sum(joules) == pytest.approx(run.energy.joules - unexplained, abs=0.11)
    assert {each["bar"] for each in found} == {"│", "┊"}


def test_each_line_has_its_calls_and_the_code_after_it() -> None:
    lines = annotated(make_api_run())
    at = next(at for at, line in enumerate(lines) if "loss.backward()" in line)
    assert GUTTER.match(lines[at])
    after = GUTTER.match(lines[at + 1])
    assert after is not None
    assert (after["line"], after["bar"], after["text"]) == (None, "┊", "code to line 13")
    plain = next(line for line in lines if "import sys" in line)
    assert not GUTTER.match(plain)
    assert plain.lstrip().startswith("3 │ import sys")


def test_a_long_file_is_shown_around_its_measured_lines() -> None:
    filler = "".join(f"x{at} = {at}\n" for at in range(3 * WHOLE_LINES))
    run = make_api_run(replace(Program(), source=Program().source + filler))
    parts, whole = annotated(run), annotated(run, every=True)
    assert len(parts) < 30
    assert parts[-1] == "…"
    assert "x200 = 200" not in "\n".join(parts)
    assert "…" not in whole
    assert len([line for line in whole if "│" in line]) == len((Program().source + filler).splitlines())
    assert [line for line in parts if GUTTER.match(line)] == [line for line in whole if GUTTER.match(line)]


def test_without_sources_there_are_tables_alone() -> None:
    text = api_run_to_markdown(replace(make_api_run(), sources=()))
    assert "```" not in text
    assert "train.py:14" in text


def test_a_source_cannot_end_its_block() -> None:
    source = 'x = """\n```\n<script>\n````\n"""\n'
    run = replace(make_api_run(), sources=(SourceText(FILE, 1, source),))
    lines = api_run_to_markdown(run).splitlines()
    assert "`````text" in lines
    begin = lines.index("`````text")
    assert lines.index("`````") > begin + 4


def test_names_of_a_recording_stay_names() -> None:
    run = make_api_run()
    odd = "**x** <img src=x onerror=alert(1)> [a](http://b) @ada #1 | `c`\x1b[31m"
    api = replace(run.apis[0], api=odd, sites=(replace(run.apis[0].sites[0], text=odd, function=odd),))
    text = api_run_to_markdown(
        replace(run, label=odd, apis=(api, *run.apis[1:]), sources=(SourceText(f"{FILE}<b>`", 1, odd + "\n\tx = 1"),))
    )
    assert "<img" not in text.partition("```text")[0]
    assert "http://" not in text.partition("```text")[0]
    assert "@ada" not in text.partition("```text")[0]
    assert "\x1b" not in text
    assert "    x = 1" in text.partition("```text")[2], "tabs are spaces, and not shown by their codes"


def test_render_writes_it() -> None:
    run = make_api_run()
    assert render(run, "markdown", every=True) == api_run_to_markdown(run, every=True)
