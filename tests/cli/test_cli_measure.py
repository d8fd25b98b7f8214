"""`joulediff measure` as a user meets it: the report, the JSON, the exit code, and every way to fail."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import scipy.special  # noqa: F401 - so that no measurement below waits for its import

from cli_builders import (
    forget_programs,
    make_domain,
    make_machine_rest,
    noisy,
    rising,
    steady,
    write_program,
    write_script,
)
from joulediff.cli import main
from joulediff.measuring.meters.scripted import ScriptedMeter
from joulediff.model.errors import MeterFailed

pytestmark = pytest.mark.live  # each measures a program against the real clock

SLEEPER = """
    import time
    def build():
        return lambda: time.sleep(0.002)
"""
# Each call takes so long that the calls before `{call}` are measured one by one.
FAILS_IN_CALL = """
    import time
    calls = 0
    def build():
        def step():
            global calls
            calls += 1
            time.sleep(0.02)
            if calls == {call}:
                raise {error}
        return step
"""
TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def record(self) -> dict[str, Any]:
        """The JSON on standard output, which must hold nothing else."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


@pytest.fixture(autouse=True)
def at_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    make_machine_rest(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("sys.argv", list(sys.argv))
    before = set(sys.modules)
    yield
    forget_programs(tmp_path, before)


@pytest.fixture
def steady_meter(tmp_path: Path) -> str:
    return write_script(tmp_path / "steady.json", (make_domain(), steady(50.0)))


@pytest.fixture
def one_window_meter(tmp_path: Path) -> str:
    """A meter with windows so long that a program that breaks off ends within the first."""
    return write_script(tmp_path / "slow.json", (make_domain(window_s=10.0), rising(50.0)))


@pytest.fixture
def sleeper(tmp_path: Path) -> str:
    return write_program(tmp_path / "sleeper.py", SLEEPER)


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> Ended:
        with pytest.raises(SystemExit) as caught:
            main(words)
        out, err = capfd.readouterr()
        assert isinstance(caught.value.code, int)
        return Ended(caught.value.code, out, err)

    return run


@pytest.fixture
def measure(call: Any) -> Any:
    """Measure briefly, and wide enough an interval for a machine that stumbles."""

    def run(*words: str) -> Ended:
        ended = call("measure", "--seconds", "0.4", "--wait", "0", "--precision", "400%", *words)
        assert isinstance(ended, Ended)
        return ended

    return run


def test_report(measure: Any, sleeper: str, steady_meter: str) -> None:
    ended = measure(sleeper, "--meter", steady_meter)
    assert ended.code == 0
    assert ended.err == ""
    assert re.search(
        r"^sleeper  [\d.,]+ m?J ± [\d.]+% a step   [\d.]+ ms a step   \d+ steps in \d+ windows?$", ended.out, re.M
    )
    assert re.search(r"^cpu .* 50\.0 W +50\.0 W +metered$", ended.out, re.M)
    assert "cpu: Scripted 9000" in ended.out
    assert "Not trustworthy" not in ended.out


def test_json_has_the_fields_of_its_schema(measure: Any, sleeper: str, steady_meter: str) -> None:
    ended = measure(sleeper, "--meter", steady_meter, "--label", "my step", "--json", "-")
    found = ended.record
    assert ended.code == 0
    assert set(found) >= {
        "schema", "label", "step_s", "repeats", "energy", "net_energy", "domains", "idle_w", "trustworthy", "warnings"
    }  # fmt: skip
    assert found["schema"] == "joulediff.measure/1"
    assert found["label"] == "my step"
    assert found["trustworthy"] is True
    assert isinstance(found["warnings"], list)
    assert isinstance(found["repeats"], int)
    assert found["repeats"] >= 1
    assert found["steps"] >= found["repeats"]
    assert set(found["domains"]) == set(found["idle_w"]) == {"cpu"}
    cpu = found["domains"]["cpu"]
    assert set(cpu) == {"energy", "net_energy", "power_w", "idle", "kind", "device", "in_total", "rested", "note"}
    for energy in (found["energy"], found["net_energy"], cpu["energy"], cpu["net_energy"]):
        assert set(energy) == {"joules", "low", "high", "source"}
        assert energy["low"] <= energy["joules"] <= energy["high"]
        assert energy["source"] == "metered"
    assert set(cpu["idle"]) == {"power_w", "low_w", "high_w", "spread_share", "window_s"}
    assert found["idle_w"]["cpu"] == cpu["idle"]["power_w"] == pytest.approx(50.0)
    assert cpu["power_w"] == pytest.approx(50.0)
    assert found["energy"]["joules"] == pytest.approx(50.0 * found["step_s"], rel=0.3)


def test_json_is_pure_whatever_the_program_writes(measure: Any, tmp_path: Path, steady_meter: str) -> None:
    text = """
        import os, subprocess, sys, time
        print("loading")
        def build():
            print("building")
            os.write(1, b"from below\\n")
            subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
            def step():
                print("stepping")
                sys.stdout.write("unfinished")
                time.sleep(0.002)
            return step
    """
    ended = measure(write_program(tmp_path / "chatty.py", text), "--meter", steady_meter, "--json", "-")
    assert ended.record["label"] == "chatty"
    for said in ("loading", "building", "from below", "from a child", "stepping"):
        assert said in ended.err


def test_a_program_may_print_beside_the_report(measure: Any, tmp_path: Path, steady_meter: str) -> None:
    text = "import time\nprint('hello')\ndef build():\n    return lambda: time.sleep(0.002)\n"
    ended = measure(write_program(tmp_path / "chatty.py", text), "--meter", steady_meter)
    assert ended.out.startswith("hello\n")


def test_json_to_a_file_comes_with_the_report(measure: Any, tmp_path: Path, sleeper: str, steady_meter: str) -> None:
    ended = measure(sleeper, "--meter", steady_meter, "--json", str(tmp_path / "out.json"))
    assert ended.code == 0
    assert "a step" in ended.out
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["label"] == "sleeper"


@pytest.mark.parametrize(("place", "why"), [("nowhere/out.json", "its folder does not exist"), (".", "it is a folder")])
def test_a_place_for_json_that_cannot_be_is_refused_first(measure: Any, sleeper: str, place: str, why: str) -> None:
    ended = measure(sleeper, "--json", place)
    assert ended.code == 1
    assert ended.err == f"joulediff: cannot write {place} ({why})\n  choose another file for --json\n"
    assert ended.out == ""


def test_a_disk_that_fails_at_the_end_does_not_cost_the_report(measure: Any, sleeper: str, steady_meter: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    ended = measure(sleeper, "--meter", steady_meter, "--json", "/dev/full")
    assert ended.code == 1
    assert "cannot write /dev/full" in ended.err
    assert "a step" in ended.out


def test_the_estimate_says_so(measure: Any, tmp_path: Path) -> None:
    busy = "def build():\n    return lambda: sum(range(20_000))\n"
    ended = measure(
        write_program(tmp_path / "busy.py", busy), "--meter", "estimated", "--cpu-watts", "10", "--json", "-"
    )
    found = ended.record
    assert found["energy"]["source"] == "estimated"
    assert any("cpu is estimated, not measured" in warning for warning in found["warnings"])
    assert found["energy"]["joules"] > 0


def test_only_energy_of_one_source_is_added(measure: Any, tmp_path: Path, sleeper: str) -> None:
    script = write_script(
        tmp_path / "two.json",
        (make_domain("gpu0"), steady(300.0)),
        (make_domain("dram"), steady(10.0)),
        (make_domain("wall", whole=True), steady(400.0)),
    )
    ended = measure(sleeper, "--meter", f"{script},estimated", "--json", "-")
    found = ended.record
    in_total = {name for name, domain in found["domains"].items() if domain["in_total"]}
    assert in_total == {"gpu0", "dram"}
    parts = [found["domains"][name]["energy"]["joules"] for name in in_total]
    assert found["energy"]["joules"] == pytest.approx(sum(parts))
    assert found["energy"]["source"] == "metered"


def test_words_after_two_dashes_are_the_programs(measure: Any, tmp_path: Path, steady_meter: str) -> None:
    write_program(tmp_path / "noted.py", f"import sys\n{SLEEPER.replace(chr(10) + '    ', chr(10))}print(sys.argv)\n")
    ended = measure("noted.py", "--meter", steady_meter, "--json", "-", "--", "--json", "x", "-vv")
    assert ended.code == 0
    assert ended.err == "['noted.py', '--json', 'x', '-vv']\n"
    assert ended.record["label"] == "noted"


NOISY = """
    import ctypes, os, subprocess, sys, time
    print("at import")
    def build():
        os.write(2, b"raw\\n")
        subprocess.run(["echo", "from below"], check=True)
        ctypes.CDLL(None).puts(b"from C")
        def step():
            print("step", file=sys.stderr)
            time.sleep(0.002)
            {end}
        return step
"""


def test_what_a_program_prints_can_be_hidden(measure: Any, tmp_path: Path, steady_meter: str) -> None:
    path = write_program(tmp_path / "noisy.py", NOISY.format(end=""))
    ended = measure(path, "--meter", steady_meter, "--json", "-", "--quiet-program")
    assert (ended.code, ended.err) == (0, "")
    assert ended.record["label"] == "noisy"
    assert "step\n" in measure(path, "--meter", steady_meter).err


def test_the_last_lines_of_a_hidden_program_explain_its_failure(
    measure: Any, tmp_path: Path, steady_meter: str
) -> None:
    path = write_program(tmp_path / "noisy.py", NOISY.format(end="raise OSError('no data')"))
    ended = measure(path, "--meter", steady_meter, "--quiet-program")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("joulediff: the step raised OSError: no data")
    _, said, shown = ended.err.partition("\n  the last lines that the program printed:\n")
    assert said
    assert {"    raw", "    from below", "    from C", "    at import", "    step"} == set(shown.splitlines())
    path = write_program(tmp_path / "bad.py", "def build():\n    print('here')\n    return eval('3')\n")
    assert measure(path, "--quiet-program").err.endswith("the last lines that the program printed:\n    here\n")


def test_a_function_that_is_the_step(measure: Any, tmp_path: Path, steady_meter: str) -> None:
    write_program(tmp_path / "noted.py", "import time\ndef main():\n    time.sleep(0.002)\n    print('ran')\n")
    refused = measure("noted.py:main", "--meter", steady_meter)
    assert (refused.code, refused.out) == (1, "")
    assert "noted.py:main --step" in refused.err
    ended = measure("noted.py:main", "--step", "--meter", steady_meter, "--json", "-")
    assert ended.code == 0
    assert ended.record["label"] == "noted:main"
    assert ended.err.splitlines().count("ran") >= ended.record["steps"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["laen.py"], ["there is no file laen.py", "sleeper.py"]),
        (["sleeper.py:nope"], ["sleeper.py has no nope()", "it defines: build"]),
        (["sleeper.py", "--meter", "voltmeter"], ["no meter is called 'voltmeter'", "nvml"]),
        (["sleeper.py", "--meter", "scripted"], ["the meter scripted reads a file", "scripted:FILE"]),
        (["sleeper.py", "--meter", "scripted:nope.json"], ["nope.json", "cannot read"]),
        (["sleeper.py", "--meter", "estimated", "--cpu-watts", "-3"], ["--cpu-watts -3"]),
        (["sleeper.py", "--precision", "tight"], ["'tight' is not a share; write 2% or 0.02"]),
        (["sleeper.py", "--precision", "5"], ["'5' is not a share"]),
        (["sleeper.py", "--seconds", "0"], ["cannot measure for 0 seconds"]),
        (["sleeper.py", "--seconds", "soon"], ["'soon' is not a valid float"]),
        (["sleeper.py", "--frobnicate"], ["--frobnicate", "joulediff measure --help"]),
        ([], ["Missing argument", "joulediff measure --help"]),
    ],
)
def test_a_users_mistake_is_reported_without_a_traceback(
    measure: Any, sleeper: str, words: list[str], said: list[str]
) -> None:
    ended = measure(*words)
    assert ended.code == 1
    assert ended.out == ""
    assert ended.err.startswith("joulediff: ")
    assert TRACEBACK not in ended.err
    assert "fault in joulediff" not in ended.err
    for text in said:
        assert text in ended.err


def test_an_unknown_command(call: Any) -> None:
    ended = call("mesure")
    assert ended.code == 1
    assert "'mesure'" in ended.err
    assert "joulediff --help" in ended.err


@pytest.mark.parametrize(
    ("file", "command"), [("train.py", "measure"), ("train.py:main", "measure"), ("base.jd", "show")]
)
def test_a_file_without_a_command(call: Any, file: str, command: str) -> None:
    ended = call(file)
    assert ended.code == 1
    assert f"joulediff {command} {file}" in ended.err


def test_no_command_is_help(call: Any) -> None:
    ended = call()
    assert ended.code == 0
    assert "measure" in ended.out
    assert ended.err == ""


def test_version(call: Any) -> None:
    ended = call("--version")
    assert ended.code == 0
    assert re.fullmatch(r"joulediff \d+\.\d+\.\d+\S*\n", ended.out)


def test_build_that_raises(measure: Any, tmp_path: Path) -> None:
    ended = measure(write_program(tmp_path / "bad.py", "def build():\n    raise OSError('no data')\n"))
    assert ended.code == 1
    assert "raised OSError: no data (bad.py:2)" in ended.err
    assert TRACEBACK not in ended.err
    assert ended.out == ""


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("verbose", [["-vv"], ["-v", "-v"], ["--verbose", "--verbose"]])
def test_vv_shows_the_traceback(call: Any, tmp_path: Path, verbose: list[str], place: str) -> None:
    path = write_program(tmp_path / "bad.py", "def build():\n    raise OSError('no data')\n")
    ended = call(*verbose, "measure", path) if place == "before" else call("measure", path, *verbose)
    assert ended.code == 1
    assert TRACEBACK in ended.err
    assert "raise OSError('no data')" in ended.err
    assert "joulediff: build() in" in ended.err


def test_one_v_shows_none(call: Any, tmp_path: Path) -> None:
    assert TRACEBACK not in call("-v", "measure", str(tmp_path / "nope.py")).err


def test_our_own_fault_asks_for_a_report(measure: Any, sleeper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object, **__: object) -> None:
        raise LookupError("a hole")

    monkeypatch.setattr("joulediff.measuring.step.measure", break_down)
    ended = measure(sleeper)
    assert ended.code == 1
    assert "a fault in joulediff itself: LookupError: a hole" in ended.err
    assert "please report it" in ended.err
    assert TRACEBACK not in ended.err


def test_an_interval_that_stays_too_wide(call: Any, tmp_path: Path, sleeper: str) -> None:
    meter = write_script(tmp_path / "noisy.json", (make_domain(), noisy(5.0, 500.0)))
    words = ("measure", sleeper, "--meter", meter, "--seconds", "0.5", "--wait", "0", "--precision", "3%")
    ended = call(*words)
    assert ended.code == 2
    flat = " ".join(ended.out.split())
    assert re.search(r"the interval is ±\S+% after [\d.]+ s, wider than 3%: give it more time \(--seconds\)", flat)
    assert "Not trustworthy" in ended.out
    ended = call(*words, "--json", "-")
    assert ended.code == 2
    assert ended.record["trustworthy"] is False
    assert any("wider than" in warning for warning in ended.record["warnings"])


def test_a_restless_machine_is_not_trusted(measure: Any, tmp_path: Path, sleeper: str) -> None:
    meter = write_script(tmp_path / "noisy.json", (make_domain(), noisy(5.0, 500.0)))
    ended = measure(sleeper, "--meter", meter, "--json", "-")
    assert ended.code == 2
    assert any("the idle power of cpu varies" in warning for warning in ended.record["warnings"])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ValueError('out of data')", "ValueError: out of data"),
        ("SystemExit(7)", "SystemExit: 7"),
        ("EOFError", "EOFError"),
        ("BrokenPipeError('gone')", "BrokenPipeError: gone"),
    ],
)
def test_a_step_that_fails_keeps_what_was_measured(
    measure: Any, tmp_path: Path, one_window_meter: str, error: str, said: str
) -> None:
    path = write_program(tmp_path / "fails.py", FAILS_IN_CALL.format(call=10, error=error))
    ended = measure(path, "--meter", one_window_meter, "--seconds", "5", "--json", "-")
    assert ended.code == 1
    assert f"joulediff: the step raised {said}" in ended.err
    assert "(fails.py:10) in its call number 10" in ended.err
    assert TRACEBACK not in ended.err
    found = ended.record
    assert found["trustworthy"] is False
    assert any("ended before" in warning for warning in found["warnings"])
    assert 0 < found["steps"] < 10
    assert found["energy"]["joules"] > 0
    assert found["domains"]["cpu"]["power_w"] == pytest.approx(51.0, rel=0.1)


def test_the_report_of_a_step_that_fails(measure: Any, tmp_path: Path, one_window_meter: str) -> None:
    path = write_program(tmp_path / "fails.py", FAILS_IN_CALL.format(call=10, error="ValueError('out of data')"))
    ended = measure(path, "--meter", one_window_meter, "--seconds", "5")
    assert ended.code == 1
    assert "fails  " in ended.out
    assert "the program ended before the measurement was complete" in ended.out
    assert "Not trustworthy" in ended.out
    assert not shows_zero(ended)


@pytest.mark.parametrize("number", [1, 2])
def test_a_step_that_fails_at_once_has_nothing_to_show(
    measure: Any, tmp_path: Path, steady_meter: str, number: int
) -> None:
    path = write_program(tmp_path / "fails.py", FAILS_IN_CALL.format(call=number, error="ValueError('no')"))
    ended = measure(path, "--meter", steady_meter)
    assert ended.code == 1
    assert f"in its call number {number}" in ended.err
    assert ended.out == ""


def test_ctrl_c_keeps_what_was_measured(measure: Any, tmp_path: Path, one_window_meter: str) -> None:
    path = write_program(tmp_path / "stopped.py", FAILS_IN_CALL.format(call=12, error="KeyboardInterrupt"))
    ended = measure(path, "--meter", one_window_meter, "--seconds", "5")
    assert ended.code == 130
    assert "joulediff: stopped" in ended.err
    assert TRACEBACK not in ended.err
    assert "stopped  " in ended.out
    assert "Not trustworthy" in ended.out
    assert not shows_zero(ended)


def test_ctrl_c_while_building(measure: Any, tmp_path: Path) -> None:
    ended = measure(write_program(tmp_path / "slow.py", "def build():\n    raise KeyboardInterrupt\n"))
    assert ended.code == 130
    assert ended.out == ""


def make_meter_mortal(monkeypatch: pytest.MonkeyPatch, sign: Path) -> None:
    """Let scripted meters die as soon as the file `sign` exists."""
    alive = ScriptedMeter.poll

    def poll(self: ScriptedMeter) -> Any:
        if sign.exists():
            raise MeterFailed("the sensor was unplugged")
        return alive(self)

    monkeypatch.setattr(ScriptedMeter, "poll", poll)


KILLS_METER = """
    import time
    from pathlib import Path
    calls = 0
    def build():
        def step():
            global calls
            calls += 1
            time.sleep(0.005)
            if calls == {call}:
                Path({sign!r}).touch()
        return step
"""


def test_a_meter_that_dies_while_measuring(
    measure: Any, tmp_path: Path, steady_meter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = tmp_path / "unplugged"
    make_meter_mortal(monkeypatch, sign)
    path = write_program(tmp_path / "killer.py", KILLS_METER.format(call=100, sign=str(sign)))
    ended = measure(path, "--meter", steady_meter, "--seconds", "2", "--precision", "0.01%", "--json", "-")
    assert ended.code == 2
    found = ended.record
    assert found["trustworthy"] is False
    assert any(re.match("meter scripted.*: the sensor was unplugged", warning) for warning in found["warnings"])
    assert any(re.search(r"cpu has no readings of the last [\d.]+ s", warning) for warning in found["warnings"])
    assert found["energy"]["joules"] > 0


def test_a_meter_that_dies_before_it_measured_anything(
    measure: Any, tmp_path: Path, steady_meter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = tmp_path / "unplugged"
    make_meter_mortal(monkeypatch, sign)
    path = write_program(tmp_path / "killer.py", KILLS_METER.format(call=1, sign=str(sign)))
    ended = measure(path, "--meter", steady_meter)
    assert ended.code == 1
    assert "no meter gave a number" in ended.err
    assert "the sensor was unplugged" in ended.err
    assert "joulediff doctor" in ended.err
    assert not shows_zero(ended)


def test_a_broken_cache_costs_a_warning(measure: Any, cache: Path, sleeper: str, steady_meter: str) -> None:
    cache.mkdir()
    (cache / "sensors.json").write_text("{ not json")
    ended = measure(sleeper, "--meter", steady_meter, "--json", "-")
    assert ended.code == 0
    warnings = [w for w in ended.record["warnings"] if "sensors.json is ignored" in w]
    assert len(warnings) == 1
    assert "joulediff doctor" in warnings[0]


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_longer_than_the_terminal(
    measure: Any, tmp_path: Path, sleeper: str, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    device = "A card with a name that goes on and on, as the names of cards do these days, revision 7b"
    script = write_script(
        tmp_path / "many.json",
        (make_domain("gpu0", device=device), noisy(5.0, 500.0)),
        (
            make_domain("gpu1", device=device, note="a note that must be read in full, however long it is"),
            steady(123.4),
        ),
        (make_domain("wall", whole=True), steady(4567.8)),
    )
    label = "a label that somebody found helpful, with [bold]brackets[/bold]"
    ended = measure(sleeper, "--meter", f"{script},estimated", "--label", label)
    lines = ended.out.splitlines()
    assert max(map(len, lines)) <= columns
    assert not any(line != line.rstrip() for line in lines)
    assert "[bold]brackets[/bold]" in " ".join(ended.out.split())
    assert "…" not in ended.out


def test_colour_only_where_it_is_wanted(
    measure: Any, sleeper: str, steady_meter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b" not in measure(sleeper, "--meter", steady_meter).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    colour = re.compile(r"\x1b\[[\d;]*\b(3[0-7]|9[0-7])m")
    assert colour.search(measure(sleeper, "--meter", steady_meter).out)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour.search(measure(sleeper, "--meter", steady_meter).out)


def shows_zero(ended: Ended) -> bool:
    return re.search(r"(?<![\d.,])0(\.0+)? [nµmk]?J", ended.out + ended.err) is not None
