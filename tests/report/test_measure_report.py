"""The reports of `measure` and `doctor`: their golden files and their sentences."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import pytest
from rich.console import Console

from cli_builders import make_domain
from golden_files import check_golden
from joulediff.model.energy import Energy, Source
from joulediff.model.measurement import (
    Checkup,
    Condition,
    DeviceState,
    DomainEnergy,
    IdlePower,
    Learned,
    Measurement,
    MeterReport,
    Quiet,
)
from joulediff.report.json.measurement import to_json
from joulediff.report.terminal.doctor import print_checkup
from joulediff.report.terminal.measurement import print_measurement
from joulediff.report.views.short_texts import format_interval

H200 = "NVIDIA H200"
XEON = "Intel(R) Xeon(R) Platinum 8468, 6.2 W a busy core assumed"


def joules(value: float, half: float, source: Source = "metered") -> Energy:
    return Energy(value, value - half, value + half, source)


def domain_energy(value_j: float, net_j: float, power_w: float, rest_w: float, **changes: object) -> DomainEnergy:
    found = DomainEnergy(
        energy=joules(value_j, 0.009 * value_j),
        net_energy=joules(net_j, 0.02 * value_j),
        power_w=power_w,
        idle=IdlePower(rest_w, 0.99 * rest_w, 1.01 * rest_w, 0.004, 1.0),
        kind="counter",
        device=H200,
        counted=True,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def one_gpu() -> Measurement:
    return Measurement(
        label="gelu_eager",
        step_s=2.1043e-3,
        repeats=16,
        steps=1901,
        energy=joules(1.4112, 0.0127),
        net_energy=joules(1.2517, 0.0282),
        domains={"gpu0": domain_energy(1.4112, 1.2517, 670.6, 75.8)},
        trustworthy=True,
        states=(DeviceState("gpu0", clock_mhz=1980.0, temperature_c=44.0),),
    )


def doubtful() -> Measurement:
    """Two cards, an estimate, a wall plug, a warning that needs two lines and one domain without idle power."""
    return Measurement(
        label="a program with a long label",
        step_s=1.5321,
        repeats=2,
        steps=3,
        energy=joules(1834.2, 110.1),
        net_energy=None,
        domains={
            "gpu0": domain_energy(1041.6, 925.2, 679.9, 76.0),
            "gpu1": domain_energy(792.6, 0.0, 517.3, 0.0, net_energy=None, idle=None),
            "wall": domain_energy(2904.1, 1500.0, 1895.4, 916.4, counted=False, device="power log rack7.csv"),
            "cpu": replace(
                domain_energy(9.71, 9.68, 6.3, 0.03, counted=False, device=XEON, note="from a table"),
                energy=joules(9.71, 0.97, "estimated"),
                net_energy=joules(9.68, 0.97, "estimated"),
            ),
        },
        trustworthy=False,
        warnings=(
            "the interval is ±6% after 4.6 s, wider than 5%: give it more time (--seconds), a quieter machine, or a "
            "wider --precision",
            "gpu1 is used by process 4711 (python3): its energy is in every number",
            "gpu0 ran at its power limit of 700.0 W, its clock at 1410 MHz: joules per step depend on that limit",
            "cpu is estimated, not measured (from a table); not in the total",
        ),
        states=(DeviceState("gpu0", clock_mhz=1410.0, temperature_c=61.0), DeviceState("gpu1", temperature_c=38.0)),
    )


def healthy() -> Checkup:
    counter = make_domain("gpu0", kind="counter", device=H200, key="a", period_s=0.1003, resolution_j=0.001)
    samples = make_domain("gpu0", device=H200, key="b", period_s=0.0201, resolution_j=2.1e-5)
    package = make_domain("cpu", kind="counter", device="Intel package", key="c", period_s=0.001, resolution_j=6.1e-5)
    learned = (Learned("a", 0.1003, 0.001, 4e-4, 0.0041), Learned("b", 0.0201, 2.1e-5, 9e-4, 0.0124))
    conditions = (Condition("throttling", True, "none", "gpu0"),)
    return Checkup(
        meters=(
            MeterReport("nvml", True, (counter, samples), learned),
            MeterReport("rapl", True, (package,)),
            MeterReport(
                "powerlog", False, reason="reads a file", fix="joulediff measure FILE.py --meter powerlog:FILE"
            ),
        ),
        quiet=Quiet(
            True,
            conditions,
            {"gpu0": IdlePower(75.8, 75.5, 76.1, 0.0031, 1.0), "cpu": IdlePower(41.2, 40.9, 41.5, 0.012, 1.0)},
            (DeviceState("gpu0", clock_mhz=345.0, temperature_c=31.0),),
        ),
        verdict="this machine measures gpu0, cpu, and is quiet",
        exit_code=0,
    )


def restless() -> Checkup:
    estimate = make_domain(
        "cpu", kind="counter", device=XEON, key="e", period_s=1e-6, resolution_j=6e-6, source="estimated"
    )
    return Checkup(
        meters=(
            MeterReport(
                "nvml",
                False,
                reason="no NVIDIA driver answers (NVML Shared Library Not Found)",
                fix="needs an NVIDIA GPU and its driver; `nvidia-smi` must work",
            ),
            MeterReport("apple", False, reason="this is not Apple silicon but Linux on x86_64"),
            MeterReport(
                "rapl",
                False,
                reason="/sys/class/powercap shows no RAPL counter: virtual machines and containers have none",
                fix="run on the bare machine, or load the module: sudo modprobe intel_rapl_msr",
            ),
            MeterReport("estimated", True, (estimate,)),
        ),
        quiet=Quiet(False, (), {"cpu": IdlePower(0.031, 0.02, 0.04, 0.36, 1.0)}),
        verdict="this machine has no energy sensor; cpu is estimated, but is not quiet",
        exit_code=2,
        advice=(
            "other programs keep 1.6 cores busy: stop them, or measure when they have finished",
            "the host of this virtual machine takes 0.3 cores away: times will not repeat; try later",
        ),
    )


def nothing() -> Checkup:
    report = MeterReport("nvml", False, reason="no NVIDIA driver answers", fix="`nvidia-smi` must work")
    return Checkup((report,), Quiet(False, (), {}), "no energy can be measured on this machine", 1)


REPORTS = {f.__name__: f for f in (one_gpu, doubtful, healthy, restless, nothing)}


def render(record: Measurement | Checkup, columns: int, *, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(),
        width=columns,
        highlight=False,
        force_terminal=colour,
        color_system="standard" if colour else None,
    )
    if isinstance(record, Measurement):
        print_measurement(record, console)
    else:
        print_checkup(record, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", list(REPORTS))
def test_golden(name: str, columns: int, pytestconfig: pytest.Config) -> None:
    text = render(REPORTS[name](), columns)
    check_golden(f"{name}_{columns}.txt", text, pytestconfig)


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
@pytest.mark.parametrize("name", list(REPORTS))
def test_every_line_fits_and_none_is_cut(name: str, columns: int) -> None:
    text = render(REPORTS[name](), columns)
    assert max(map(len, text.splitlines())) <= columns
    assert "…" not in text
    assert not any(line != line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("name", list(REPORTS))
def test_a_narrow_terminal_is_survived(name: str) -> None:
    assert max(map(len, render(REPORTS[name](), 30).splitlines())) <= 30


def test_colour_changes_no_word() -> None:
    from rich.text import Text

    coloured = render(doubtful(), 100, colour=True)
    assert "\x1b[" in coloured
    assert Text.from_ansi(coloured).plain.strip() == render(doubtful(), 100).strip()


def test_what_looks_like_markup_is_shown_as_it_is() -> None:
    text = render(replace(one_gpu(), label="[red]x[/red]", warnings=("see [link=x]",)), 120)
    assert "[red]x[/red]" in text
    assert "see [link=x]" in text


def test_the_parts_sum_to_the_total_shown() -> None:
    found = doubtful()
    counted = sum(d.energy.joules for d in found.domains.values() if d.counted)
    assert counted == pytest.approx(found.energy.joules)
    assert "total" in render(found, 120)
    assert "total" not in render(one_gpu(), 120)  # one domain is its own total


def test_unknown_is_a_question_mark_and_never_zero() -> None:
    line = next(line for line in render(doubtful(), 120).splitlines() if line.startswith("gpu1 "))
    assert line.split()[-2:] == ["?", "metered"]
    assert " 0 J" not in line
    unbounded = Energy(1.0, -math.inf, math.inf, "metered")
    assert format_interval(unbounded) == "1.000 J ± ?%"


def test_json_of_a_measurement() -> None:
    found = json.loads(to_json(doubtful()))
    assert found["net_energy"] is None
    assert found["domains"]["gpu1"]["net_energy"] is None
    assert set(found["idle_w"]) == {"gpu0", "wall", "cpu"}
    assert [name for name, domain in found["domains"].items() if domain["in_total"]] == ["gpu0", "gpu1"]
    assert found["energy"]["joules"] == 1834.2
    assert found["energy"]["low"] == pytest.approx(1724.1)
    assert found["energy"]["high"] == pytest.approx(1944.3)
    assert found["devices"][0]["clock_mhz"] == 1410.0
    assert found["devices"][1]["clock_mhz"] is None


def test_json_has_the_clocks_the_cpu_time_and_the_watts_within_a_step() -> None:
    found = json.loads(to_json(one_gpu()))
    assert (found["clocks_mhz"], found["cpu_s"], found["profiles"]) == ({}, None, {})
    changed = replace(one_gpu(), clocks_mhz={"gpu0": 1974.5}, cpu_s=0.002, profiles={"gpu0": (650.0, math.nan)})
    found = json.loads(to_json(changed))
    assert (found["clocks_mhz"], found["cpu_s"]) == ({"gpu0": 1974.5}, 0.002)
    assert found["profiles"] == {"gpu0": [650.0, None]}


def test_json_has_null_where_a_number_is_unknown() -> None:
    record = replace(one_gpu(), energy=Energy(1.0, -math.inf, math.inf, "metered"), sampling_share=math.nan)
    text = to_json(record)
    found = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert found["energy"] == {"joules": 1.0, "low": None, "high": None, "source": "metered"}
    assert found["sampling_share"] is None
    assert text.endswith("}\n")


def test_json_of_a_checkup() -> None:
    found = json.loads(to_json(healthy()))
    nvml, rapl, powerlog = found["meters"]
    assert [d["found_by_measuring"] for d in nvml["domains"]] == [True, True]
    assert nvml["domains"][0]["overhead_share"] == 0.0041
    assert rapl["domains"][0]["found_by_measuring"] is False
    assert powerlog["domains"] == []
    assert powerlog["fix"].startswith("joulediff measure")
    assert found["idle_w"]["gpu0"] == 75.8


def printed_measurement(found: Measurement) -> str:
    console = Console(width=120, file=io.StringIO())
    print_measurement(found, console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_page_faults_are_shown_if_there_are_any() -> None:
    shown = printed_measurement(replace(one_gpu(), minor_faults=3010.2, major_faults=0.0))
    assert "page faults of a step: 3,010 that took memory, 0 that read from a disk" in shown
    assert "page faults" not in printed_measurement(replace(one_gpu(), minor_faults=0.2, major_faults=0.0))
    assert "page faults" not in printed_measurement(one_gpu())
