"""A diff as a comment on a pull request: the facts of the terminal, and nothing that a name can do to the page."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from markdown_it import MarkdownIt

from diff_builders import (
    HOSTILE,
    gpt2_diff,
    hostile_diff,
    mixed_diff,
    open_diff,
    same_diff,
    unlike_diff,
    unmeasured_diff,
)
from golden_files import check_golden
from joulediff.model.diff import Diff
from joulediff.report.markdown import code, diff_to_markdown, escape
from joulediff.report.render import render
from joulediff.report.sanitize import plain_text
from joulediff.report.views.diff_table import diff_table

HTML = re.compile(r"</?(details|summary|code|sub)>")
PARSER = MarkdownIt("commonmark").enable("table")


def html_of(text: str) -> str:
    return str(PARSER.render(text))


@pytest.mark.parametrize(("name", "build"), [("gpt2", gpt2_diff), ("mixed", mixed_diff), ("open", open_diff)])
def test_golden(name: str, build: Callable[[], Diff], pytestconfig: pytest.Config) -> None:
    shown = diff_to_markdown(build())
    check_golden(f"diff/{name}.md", shown, pytestconfig)


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("build", [gpt2_diff, mixed_diff, open_diff, same_diff, unlike_diff, unmeasured_diff])
def test_every_line_of_the_terminal_is_in_the_table(build: Callable[[], Diff], every: bool) -> None:
    rows = re.findall(r"<tr>(.*?)</tr>", html_of(diff_to_markdown(build(), every=every)), re.DOTALL)
    cells = {tuple(re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row)) for row in rows}
    lines = diff_table(build(), top=10, every=every).lines
    assert lines
    for line in lines:
        assert (line.number, line.sign, *line.numbers, line.region, line.cause, line.mark) in cells


@pytest.mark.parametrize("words", ["replayed with allow_tf32=True: 1.271 → 0.815 J", "61.00 ↔ 39.00 J", "saves 3.6%"])
def test_the_same_facts_as_the_terminal(words: str) -> None:
    assert words in re.sub(r"\s+", " ", render(gpt2_diff(), "terminal"))
    assert words in diff_to_markdown(gpt2_diff())


def test_conditions_that_differ_come_first() -> None:
    shown = diff_to_markdown(unlike_diff())
    assert shown.startswith("### The energies of A and B cannot be compared: record both under the same conditions.")
    assert "- **A and B differ in device: NVIDIA H200 ↔ NVIDIA A100-SXM4-80GB**" in shown
    assert "the energy of" not in shown


@pytest.mark.parametrize("every", [False, True])
def test_hostile_names_do_nothing(every: bool) -> None:
    shown = diff_to_markdown(hostile_diff(), every=every)
    page = html_of(shown)
    assert "<script" not in page and "<a " not in page and "<img" not in page and "<h1" not in page
    tags = {token.content for block in PARSER.parse(shown) for token in block.children or () if "html" in token.type}
    assert {tag for tag in tags if not HTML.fullmatch(tag)} == set()
    for sign in ("@", "`", "|`", "\x1b", "\u202e", "www.", "://evil", "**b**", "$x$"):
        assert sign not in shown
    assert len({row.count("<td") for row in re.findall("<tr>.*?</tr>", page, re.DOTALL)}) == 3  # heads and two tables


@pytest.mark.parametrize("make", [escape, code])
def test_a_hostile_name_is_shown_as_it_is(make: Callable[[str], str]) -> None:
    short = plain_text(HOSTILE)[:90]
    page = html_of(f"- {make(short)}").replace("\u200b", "")
    shown = re.sub("</?(?:ul|li|code)>", "", page).strip()
    assert shown == short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def test_names_stay_in_their_cell() -> None:
    for name in ("a|b", "a\\|b", "a\\\\|b", "`|`", "|", "\\"):
        page = html_of(f"| x | y |\n| --- | --- |\n| {code(name)} | {escape(name)} |")
        assert page.count("<td>") == 2
        assert re.sub("<.*?>", "", page).split() == ["x", "y", name, name]


def test_long_names_are_cut() -> None:
    assert len(code("x" * 10_000)) < 200
    assert len(escape("x" * 10_000)) < 1000
