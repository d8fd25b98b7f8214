"""Kilowatt-hours, price and carbon dioxide of many steps: the arithmetic, and each report that shows them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import click
import pytest
from rich.console import Console

from diff_builders import gpt2_diff, same_diff, unlike_diff, unmeasured_diff
from joulediff.cli import cli
from joulediff.model.diff import Diff, scale_diff
from joulediff.model.energy import Amount, Energy, Scale
from joulediff.model.measurement import scale_measurement
from joulediff.model.run import Run
from joulediff.model.units import format_mass, format_price, parse_price
from joulediff.report.json.diff import diff_from_json, diff_to_json
from joulediff.report.json.measurement import to_json
from joulediff.report.json.run import run_to_json
from joulediff.report.markdown import diff_to_markdown
from joulediff.report.render import render
from joulediff.report.terminal.measurement import print_measurement
from joulediff.report.views.many_steps import many_steps_difference, many_steps_texts
from show_builders import captured_only, metered_only
from show_builders import render as render_run

SCALE = Scale(1e6, 0.25, "EUR", 380.0)


def metered(joules: float = 3.6, **changes: Any) -> Run:
    run = metered_only()
    assert run.measurement is not None
    energy = Energy(joules, 0.9 * joules, 1.05 * joules, "metered")
    return replace(run, measurement=replace(run.measurement, **{"energy": energy, **changes}))


def texts_of(run: Run, scale: Scale = SCALE) -> list[str]:
    assert run.measurement is not None
    return list(many_steps_texts(scale_measurement(run.measurement, scale)))


def test_many_steps_take_their_number_of_joules() -> None:
    found = scale_measurement(metered().measurement, SCALE)  # type: ignore[arg-type]
    assert found.energy_kwh == Amount(*(pytest.approx(kwh) for kwh in (1.0, 0.9, 1.05)))
    assert found.price == Amount(*(pytest.approx(euro) for euro in (0.25, 0.225, 0.2625)))
    assert found.carbon_kg == Amount(*(pytest.approx(kg) for kg in (0.38, 0.342, 0.399)))


def test_the_sentence_says_what_the_energy_is_of() -> None:
    first, second = texts_of(metered())
    assert first == "1,000,000 steps: 1.000 kWh ± 10%, 0.25 EUR, 380.0 g CO2"
    assert second.startswith("metered energy of gpu0, with the idle power during the steps; nothing else")


def test_price_and_carbon_are_shown_only_if_they_were_given() -> None:
    assert texts_of(metered(), Scale(1e6))[0] == "1,000,000 steps: 1.000 kWh ± 10%"
    assert texts_of(metered(), Scale(1e9, carbon_g=380))[0] == "1,000,000,000 steps: 1.000 MWh ± 10%, 380.0 kg CO2"
    assert texts_of(metered(), Scale(0.5, price=1e4))[0] == "0.5 steps: 500.0 µWh ± 10%, 0.005"


def test_an_estimate_is_called_one() -> None:
    run = metered(energy=Energy(3.6, 3.0, 4.2, "estimated"))
    first, second = texts_of(run)
    assert "estimated 1.000 kWh" in first
    assert second.startswith("estimated energy of")


@pytest.mark.parametrize("columns", [80, 120])
def test_show_and_measure_print_it(columns: int) -> None:
    run = metered()
    assert run.measurement is not None
    file = io.StringIO()
    print_measurement(run.measurement, Console(file=file, width=columns), scale=SCALE)
    for shown in (file.getvalue(), render_run(run, columns, scale=SCALE)):
        assert "1,000,000 steps: 1.000 kWh ± 10%, 0.25 EUR, 380.0 g CO2\n" in shown
        assert max(map(len, shown.splitlines())) <= columns
    assert "1,000,000 steps" not in render_run(run, columns)


def test_a_run_that_was_not_measured_shows_none() -> None:
    assert "1,000,000 steps" not in render_run(captured_only(), scale=SCALE)
    assert json.loads(run_to_json(captured_only(), scale=SCALE))["step"]["many_steps"] is None


def test_json_has_each_amount_with_its_interval() -> None:
    run = metered()
    assert run.measurement is not None
    records = (json.loads(run_to_json(run, scale=SCALE))["step"], json.loads(to_json(run.measurement, scale=SCALE)))
    for record in records:
        found = record["many_steps"]
        assert found["scale"] == {"steps": 1e6, "price": 0.25, "currency": "EUR", "carbon_g": 380.0}
        assert found["energy_kwh"] == pytest.approx({"value": 1.0, "low": 0.9, "high": 1.05})
        assert (found["sources"], found["domains"]) == (["metered"], ["gpu0"])
    assert json.loads(to_json(run.measurement))["many_steps"] is None


def with_difference(delta_j: float, low_j: float, high_j: float) -> Diff:
    diff = replace(gpt2_diff(), delta_j=delta_j, delta_low_j=low_j, delta_high_j=high_j)
    return replace(diff, many_steps=scale_diff(diff, SCALE))


def difference_of(diff: Diff) -> str:
    assert diff.many_steps is not None
    return next(many_steps_difference(diff.many_steps))


def test_a_difference_names_the_side_that_takes_more() -> None:
    assert difference_of(with_difference(3.6, 1.8, 5.4)) == (
        "1,000,000 steps: A takes 1.000 kWh, 0.25 EUR, 380.0 g CO2 more than B (95% CI 500.0 Wh .. 1.500 kWh)"
    )
    assert difference_of(with_difference(-3.6, -5.4, -1.8)) == (
        "1,000,000 steps: B takes 1.000 kWh, 0.25 EUR, 380.0 g CO2 more than A (95% CI 500.0 Wh .. 1.500 kWh)"
    )


def test_a_difference_within_noise_claims_nothing() -> None:
    assert difference_of(with_difference(-3.6, -9.0, 1.8)) == (
        "1,000,000 steps: A and B may take the same energy (B - A: 95% CI -500.0 Wh .. 2.500 kWh)"
    )


def test_energies_that_cannot_be_compared_have_no_difference() -> None:
    assert scale_diff(unmeasured_diff(), SCALE) is None
    assert scale_diff(replace(gpt2_diff(), comparable=False), SCALE) is None
    assert scale_diff(same_diff(), SCALE) is not None
    assert unlike_diff().many_steps is None


def test_a_difference_is_in_every_report() -> None:
    diff = with_difference(3.6, 1.8, 5.4)
    assert "1,000,000 steps: A takes 1.000 kWh, 0.25 EUR" in render(diff, "terminal")
    assert "- 1,000,000 steps: A takes 1.000 kWh, 0.25 EUR" in diff_to_markdown(diff)
    assert diff_from_json(diff_to_json(diff).encode()).many_steps == diff.many_steps


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("0.25", (0.25, "")),
        ("0.25 EUR", (0.25, "EUR")),
        ("0.25EUR", (0.25, "EUR")),
        ("$0.25", (0.25, "$")),
        ("CHF 1", (1.0, "CHF")),
        (".3 €", (0.3, "€")),
        ("1e-2", (0.01, "")),
    ],
)
def test_a_price_with_any_currency(text: str, price: tuple[float, str]) -> None:
    assert parse_price(text) == price


@pytest.mark.parametrize("text", ["", "EUR", "-1", "1.2.3", "$1 USD", "1 2", "0.25\x1b[31m", "nan"])
def test_what_is_no_price(text: str) -> None:
    with pytest.raises(ValueError):
        parse_price(text)


@pytest.mark.parametrize(
    ("amount", "text"), [(1234.5, "1,234.50 EUR"), (0.0123456, "0.0123 EUR"), (0.0, "0.00 EUR"), (float("inf"), "?")]
)
def test_money(amount: float, text: str) -> None:
    assert format_price(amount, "EUR") == text


@pytest.mark.parametrize(("kilograms", "text"), [(3.1284, "3.128 kg"), (0.0005, "500.0 mg"), (12_100, "12.10 t")])
def test_mass(kilograms: float, text: str) -> None:
    assert format_mass(kilograms) == text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--price", "1"), "--price and --carbon need the number of steps"),
        (("--carbon", "1"), "--price and --carbon need the number of steps"),
        (("--times", "0"), "at least one step"),
        (("--times", "-1"), "'-1' is not a number from 0 on"),
        (("--times", "inf"), "'inf' is not a number from 0 on"),
        (("--times", "1", "--price", "cheap"), "'cheap' is not a price; write 0.25 or '0.25 EUR'"),
    ],
)
def test_options_that_mean_nothing(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        cli.main(["show", "nothing.jd", *words], standalone_mode=False)
    assert said in caught.value.format_message()
