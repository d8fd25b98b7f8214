"""The reports of a series of sizes: golden files, Markdown, JSON and the plot."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from golden_files import check_golden
from joulediff.measuring.scaling.series import fit_all
from joulediff.model.apis.scaling import Scaling, SeriesEnd, SizePoint
from joulediff.model.measurement import Measurement
from joulediff.model.units import format_energy
from joulediff.report.render import render
from joulediff.report.views.scaling.plot import Series, legend, plot
from run_builders import domain_energy, energy, measurement

SIZES = (1000, 3162, 10000, 31623, 100000, 316228, 1000000)


def measured(size: int, **changes: Any) -> Measurement:
    """A step whose GPU grows as n log n, whose memory grows as n, and whose CPU is constant."""
    step_s = 2e-6 + 1e-10 * size * math.log(size)
    gpu, cpu, dram = 600 * step_s, 0.004, 5e-9 * size
    domains = {
        "gpu0": domain_energy(gpu, step_s),
        "cpu": domain_energy(cpu, step_s, 20.0, device="Intel package"),
        "dram": domain_energy(dram, step_s, None, device="Intel memory"),
    }
    return measurement(step_s, energy=energy(gpu + cpu + dram), net_energy=None, domains=domains, **changes)


def series(**changes: Any) -> Scaling:
    points = [SizePoint(size, measured(size)) for size in SIZES]
    again = SizePoint(SIZES[0], measured(SIZES[0]))
    found = Scaling(
        label="sort",
        created="2026-11-19T12:00:00+00:00",
        tool="0.1",
        points=tuple(points),
        again=again,
        growths=fit_all([*points, again]),
    )
    return replace(found, **changes)


def broken() -> Scaling:
    """A series that ended early: one size is not trustworthy, and there is no order."""
    points = (
        SizePoint(1000, measured(1000)),
        SizePoint(3162, measured(3162, trustworthy=False, warnings=("the interval is ±7%",))),
    )
    end = SeriesEnd(10000, "build() in sort.py raised MemoryError (sort.py:3)", out_of_memory=True)
    return series(points=points, again=None, growths=fit_all(points), ended=end, warnings=("the machine changed",))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("name", "make"), [("scale", series), ("scale_ended", broken)])
def test_terminal(name: str, make: Any, width: int, pytestconfig: pytest.Config) -> None:
    text = render(make(), width=width)
    assert max(map(len, text.splitlines())) <= width
    check_golden(f"{name}_{width}.txt", text, pytestconfig)


def test_the_terminal_report_names_the_orders() -> None:
    text = render(series())
    assert text.startswith("sort  energy grows as n log n, time as n log n   7 sizes, n = 1,000 to 1,000,000\n")
    for quantity, domain, order in [
        ("time", "step", "n log n"),
        ("energy", "gpu0", "n log n"),
        ("energy", "dram", "n"),
        ("energy", "cpu", "constant"),
    ]:
        assert any(
            line.split()[: 2 + len(order.split())] == [quantity, domain, *order.split()] for line in text.splitlines()
        )


def test_markdown_has_the_tables_and_the_plots_as_text() -> None:
    text = render(series(label="sort | <b>"), "markdown")
    assert text.startswith("### sort &#124; &#60;b&#62;  energy grows")
    assert "| n | energy a step |" in text
    assert text.count("```text") == 2
    assert "| energy | gpu0 | n log n |" in text
    assert "Not trustworthy" not in text
    ended = render(broken(), "markdown")
    assert "the series ended before n = 10,000 (out of memory)" in ended
    assert "- n = 3,162: the interval is ±7%" in ended
    assert "Not trustworthy" in ended


def test_json() -> None:
    found = json.loads(render(series(), "json"))
    assert found["schema"] == "joulediff.scale/1"
    assert [each["size"] for each in found["points"]] == list(SIZES)
    first = found["points"][0]
    assert first["energy"]["joules"] / 1000 == pytest.approx(first["energy_per_unit"]["joules"])
    assert first["net_energy"] is None
    assert set(first["domains"]) == {"gpu0", "cpu", "dram"}
    assert found["again"]["size"] == 1000
    growths = {(each["quantity"], each["domain"]): each for each in found["growths"]}
    assert growths["energy", "gpu0"]["orders"] == ["n log n"]
    assert growths["energy", "cpu"]["orders"] == ["1"]
    assert growths["energy", "cpu"]["exponent"] is None
    assert growths["energy", None]["constant"]["value"] == pytest.approx(0.0052, rel=0.2)
    assert found["trustworthy"] is True
    ended = json.loads(render(broken(), "json"))
    assert ended["ended"] == {
        "size": 10000, "why": "build() in sort.py raised MemoryError (sort.py:3)", "out_of_memory": True
    }  # fmt: skip
    assert ended["trustworthy"] is False
    assert all(each["orders"] == [] for each in ended["growths"])


def test_names_of_the_program_cannot_control_the_terminal() -> None:
    assert "\x1b" not in render(series(label="a\x1b[31mb"))


def test_a_notebook_shows_it() -> None:
    html = series()._repr_html_()
    assert html is not None
    assert "n log n" in html


def points(exponent: float) -> list[tuple[float, float]]:
    return [(n, n**exponent) for n in (1.0, 10.0, 100.0, 1000.0)]


def test_a_power_law_is_a_straight_line_in_the_plot() -> None:
    lines = plot([Series("step", "o", points(2))], width=60, height=10, show_y=format_energy)
    marks = [(line.index("o"), at) for at, line in enumerate(lines) if "o" in line.partition("|")[2]]
    assert len(marks) == 4
    columns, rows = zip(*sorted(marks), strict=True)
    assert rows == (9, 6, 3, 0)
    assert {b - a for a, b in pairwise(columns)} <= {15, 16, 17}
    assert lines[0].startswith("1.000 MJ |")
    assert lines[-1].split() == ["n", "=", "1", "1,000"]
    assert max(map(len, lines)) <= 60


def test_a_constant_is_in_the_middle_of_the_plot() -> None:
    lines = plot([Series("step", "o", points(0))], width=60, height=11, show_y=format_energy)
    assert [at for at, line in enumerate(lines) if "o" in line.partition("|")[2]] == [5]


def test_points_of_two_series_in_one_place_share_a_mark() -> None:
    both = [Series("step", "o", points(1)), Series("cpu", "c", points(1))]
    lines = plot(both, width=60, height=10, show_y=format_energy)
    assert sum(line.count("*") for line in lines) == 4
    assert legend(both, lines) == "o step   c cpu   * several"


@pytest.mark.parametrize("values", [[], [(1.0, 2.0)], [(1.0, 0.0), (2.0, 0.0)], [(1.0, math.nan), (2.0, math.inf)]])
def test_without_two_points_there_is_no_plot(values: list[tuple[float, float]]) -> None:
    assert plot([Series("step", "o", values)], width=60, height=10, show_y=format_energy) == []
