"""`show`, `render`, short texts of results and their HTML: complete, escaped, and without scripts."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import joulediff as jd
from diff_builders import gpt2_diff
from joulediff.archive.writer import save
from joulediff.model.energy import Energy
from joulediff.model.errors import JoulediffError, WrongType
from joulediff.model.measurement import BlockMeasurement
from joulediff.report.notebook import to_html
from joulediff.report.render import render
from joulediff.report.show import show
from run_builders import domain_energy, gpt2_run, measurement
from show_builders import compiled

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">&amp;\x1b]0;title\x07'
MOST_BYTES = 40_000


def block(name: str = "load") -> BlockMeasurement:
    found = {"gpu0": domain_energy(3.0, 1.5, None)}
    return BlockMeasurement(name, 3, 1.5, 0.4, 0.6, Energy(3.0, 2.9, 3.1, "metered"), found, 0.2, ("gpu0: old",))


RESULTS: dict[str, Any] = {
    "run": gpt2_run(),
    "diff": gpt2_diff(),
    "measurement": measurement(),
    "block": block(),
}


class Page(HTMLParser):
    """Collects the text and the tags of a page, and fails at a tag that is not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


@pytest.mark.parametrize("name", RESULTS)
def test_html_has_the_text_of_the_terminal_and_nothing_that_runs(name: str) -> None:
    found = RESULTS[name]._repr_html_()
    page = parse(found)
    assert page.tags <= {"pre", "span"}
    assert page.attributes <= {"class", "style"}
    assert len(found) < MOST_BYTES
    assert page.text.splitlines() == render(RESULTS[name], width=110).splitlines()


def test_names_of_other_people_are_escaped() -> None:
    hostile = replace(compiled(), label=HOSTILE, notes=(HOSTILE,))
    for result in (hostile, block(HOSTILE)):
        text = result._repr_html_()
        assert text is not None
        page = parse(text)
        assert page.tags <= {"pre", "span"}
        assert "<script>" in page.text
        assert "\x1b" not in text
        assert "\x07" not in text


def test_html_names_no_colour_of_the_page() -> None:
    """Text and background are those of the notebook, light or dark."""
    text = to_html(gpt2_run())
    assert "color:inherit;background:transparent" in text
    assert "#000" not in text
    assert "#fff" not in text


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_one_short_line(name: str) -> None:
    text = repr(RESULTS[name])
    assert "\n" not in text
    assert len(text) < 160
    assert text.startswith("<")


def test_short_texts_say_the_energy() -> None:
    assert repr(Energy(0.0169, 0.0162, 0.0176, "metered")) == "<Energy 16.90 mJ ± 4.1%, metered>"
    run = gpt2_run()
    assert repr(run).startswith(f"<Run {run.label}: 3.123 J ± ")
    assert repr(run).endswith(f", {len(run.ops)} ops, {len(run.passes)} passes>")
    assert repr(replace(run, measurement=None)).startswith(f"<Run {run.label}: not measured")
    assert repr(block()) == "<BlockMeasurement load: 3.000 J ± 3.3% in 1.500 s, 3 calls>"
    finding = gpt2_diff().findings[0]
    assert repr(finding).startswith(f"<Finding {finding.id}: {finding.region}, ")


@pytest.mark.parametrize("name", RESULTS)
def test_show_prints_what_the_commands_print(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULTS[name])
    assert capsys.readouterr().out == render(RESULTS[name], "terminal")


def test_show_reads_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, diff = gpt2_run(), gpt2_diff()
    save(run, tmp_path / "run.jd")
    render(diff, path=tmp_path / "diff.json")
    show(tmp_path / "run.jd", by="module")
    assert "module" in capsys.readouterr().out
    show(str(tmp_path / "diff.json"))
    assert capsys.readouterr().out.splitlines()[0] == render(diff).splitlines()[0]
    with pytest.raises(JoulediffError, match="cannot be read"):
        show(tmp_path / "missing.jd")


def test_a_notebook_shows_html(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[Any] = []
    display = SimpleNamespace(display=lambda data, *, raw: shown.append((data, raw)))
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()), display=display, __path__=[])
    monkeypatch.setitem(__import__("sys").modules, "IPython", shell)
    monkeypatch.setitem(__import__("sys").modules, "IPython.display", display)
    show(gpt2_run(), top=2)
    assert capsys.readouterr().out == ""
    ((data, raw),) = shown
    assert raw is True
    assert data["text/html"] == to_html(gpt2_run(), top=2)
    assert data["text/plain"] == repr(gpt2_run())


def test_a_terminal_of_ipython_is_no_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace())
    monkeypatch.setitem(__import__("sys").modules, "IPython", shell)
    show(block())
    assert "load" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [3, None, [gpt2_run()], gpt2_run])
def test_what_has_no_report_is_said(wrong: Any) -> None:
    for call in (show, render):
        with pytest.raises(WrongType, match=r"no report|nothing to show") as caught:
            call(wrong)
        assert caught.value.fix


def test_the_form_of_a_report_follows_its_file(tmp_path: Path) -> None:
    diff = gpt2_diff()
    assert render(diff, path=tmp_path / "a.md").startswith("### ")
    assert json.loads(render(diff, path=tmp_path / "a.json"))["schema"]
    assert render(diff, path=tmp_path / "a.txt") == render(diff) == render(diff, "terminal")
    assert (tmp_path / "a.txt").read_text() == render(diff)
    with pytest.raises(JoulediffError, match="names no report"):
        render(diff, path=tmp_path / "a.docx")
    with pytest.raises(JoulediffError, match="cannot write"):
        render(diff, path=tmp_path / "no folder" / "a.md")
    with pytest.raises(JoulediffError, match="there is no report 'html'"):
        render(diff, "html")


def test_other_results_are_rendered_too() -> None:
    assert json.loads(render(gpt2_run(), "json"))["schema"] == "joulediff.run/1"
    assert json.loads(render(measurement(), "json"))["schema"] == "joulediff.measure/1"
    assert json.loads(render(block(), "json")) | {"domains": {}} == {
        "schema": "joulediff.block/1",
        "name": "load",
        "calls": 3,
        "seconds": 1.5,
        "shortest_s": 0.4,
        "longest_s": 0.6,
        "energy": {"joules": 3.0, "low": 2.9, "high": 3.1, "source": "metered"},
        "domains": {},
        "cpu_s": 0.2,
        "warnings": ["gpu0: old"],
    }
    markdown = render(replace(gpt2_run(), label=HOSTILE), "markdown")
    assert markdown.startswith("### ")
    assert "<script>" not in markdown
    assert "| **3.123** |" in markdown
    with pytest.raises(JoulediffError, match="no Markdown of a Measurement"):
        render(measurement(), "markdown")


def test_every_public_name_can_be_used() -> None:
    assert {name for name in jd.__all__ if not hasattr(jd, name)} == set()
    assert {"show", "measured", "diff", "measure"} <= set(jd.__all__)
