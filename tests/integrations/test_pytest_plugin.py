"""The pytest plugin in runs of pytest inside of pytest, on a fake device that knows its exact energy."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

# Loaded here: what an inner run loads first is forgotten after it, and would not be the module that is patched.
import joulediff.integrations.baseline
import joulediff.integrations.measured_tests  # noqa: F401
from fakes import DeviceMeter, FakeDevice, counter_domain
from joulediff.measuring.blocks.shared_meters import SharedMeters
from joulediff.measuring.meters import MeterSet
from joulediff.measuring.meters.scripted import FakeClock

pytest_plugins = ["pytester"]

PLUGIN = "joulediff.integrations.pytest_plugin"
# An installed joulediff is loaded by its entry point.
IS_INSTALLED = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
WORDS = () if IS_INSTALLED else ("-p", PLUGIN)
CPU = counter_domain(1e-6, unit_j=1e-6, name="cpu", device="a scripted CPU", key="scripted/cpu", repeat_share=0.01)

Run = Callable[..., pytest.RunResult]


class Machine:
    """A device that idles at 0 W, and work for it, in fake time."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.device = FakeDevice(self.clock, idle_w=0.0)
        self.domain = CPU
        self.opened: list[tuple[str, float | None]] = []
        self._meters: SharedMeters | None = None

    def open(self, meter: str, cpu_watts: float | None) -> SharedMeters:
        self.opened.append((meter, cpu_watts))
        if self._meters is None:
            meters = MeterSet([DeviceMeter(self.device, (self.domain,))])
            self._meters = SharedMeters(meters, clock=self.clock, read_cpu_s=self.clock.now)
        return self._meters

    def work(self, joules: float) -> None:
        """Use some joules in 0.1 s."""
        self.device.set(10 * joules)
        self.clock.advance(0.1)
        self.device.set(0.0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr("joulediff.integrations.measured_tests.shared_meters", made.open)
    monkeypatch.setattr("joulediff.integrations.baseline.platform_name", lambda: "host1")
    monkeypatch.setitem(sys.modules, "machine_at_work", SimpleNamespace(work=made.work))  # type: ignore[arg-type]
    return made


@pytest.fixture
def run(pytester: pytest.Pytester, machine: Machine) -> Run:
    def running(text: str, *words: str) -> pytest.RunResult:
        pytester.makepyfile(f"import pytest\nfrom machine_at_work import work\n{text}")
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-Werror", *WORDS, *words)

    return running


def text_of(result: pytest.RunResult) -> str:
    return "\n".join(result.outlines)


USES = """
@pytest.mark.joules(max={limit})
def test_it():
    work({joules})
"""


@pytest.mark.parametrize("limit", [0.5, "'500 mJ'", "'0.5 J'"])
def test_a_test_with_more_than_its_limit_fails(run: Run, limit: Any) -> None:
    result = run(USES.format(limit=limit, joules=0.6))
    result.assert_outcomes(failed=1)
    text = text_of(result)
    assert "the test used 600.0 mJ (588.2 mJ .. 611.8 mJ), more than its limit of 500.0 mJ" in text
    assert "repeat=True" in text
    assert "Traceback" not in text


def test_a_test_with_less_than_its_limit_passes_and_is_listed(run: Run) -> None:
    result = run(USES.format(limit=0.5, joules=0.4))
    result.assert_outcomes(passed=1)
    assert "energy of tests (joulediff)" in text_of(result)
    assert "1 test, 400.0 mJ ± 2%" in text_of(result)


def test_a_test_near_its_limit_passes_with_a_warning_and_fails_if_strict(run: Run) -> None:
    result = run(USES.format(limit=0.5, joules=0.501))
    result.assert_outcomes(passed=1)
    assert "cannot tell whether it keeps its limit: 501.0 mJ (491.2 mJ .. 510.8 mJ)" in text_of(result)
    strict = run(USES.format(limit="0.5, strict=True", joules=0.501))
    strict.assert_outcomes(failed=1)
    assert "the test may have used 501.0 mJ" in text_of(strict)


def test_only_the_call_is_measured(run: Run) -> None:
    result = run("""
@pytest.fixture
def ready():
    work(5.0)
    yield
    work(7.0)

@pytest.mark.joules(max=0.5)
def test_it(ready):
    work(0.2)
""")
    result.assert_outcomes(passed=1)
    assert "1 test, 200.0 mJ" in text_of(result)


def test_without_marks_and_options_nothing_is_measured(run: Run, machine: Machine) -> None:
    result = run("def test_it():\n    work(1.0)\n")
    result.assert_outcomes(passed=1)
    assert machine.opened == []
    assert "energy of tests" not in text_of(result)


def test_no_joules_turns_marks_off(run: Run, machine: Machine) -> None:
    run(USES.format(limit=0.5, joules=0.6), "--no-joules", "--joules").assert_outcomes(passed=1)
    assert machine.opened == []


MANY = """
@pytest.mark.parametrize("joules", [0.1, 0.3, 0.2])
def test_each(joules):
    work(joules)

def test_skipped():
    pytest.skip("no")

@pytest.mark.xfail(strict=True)
def test_expected():
    raise ValueError

def test_failing():
    work(0.9)
    assert False, "its own reason"
"""


def test_all_tests_are_measured_and_the_highest_are_listed(run: Run, machine: Machine) -> None:
    result = run(MANY, "--joules", "--joules-top", "2", "--joules-meter", "rapl", "--joules-cpu-watts", "7")
    result.assert_outcomes(passed=3, failed=1, skipped=1, xfailed=1)
    assert machine.opened[0] == ("rapl", 7.0)
    text = text_of(result)
    table = text[text.index("energy of tests") :].splitlines()
    assert table[1].split() == ["energy", "time", "runs", "test"]
    assert float(table[2].split()[0]) == pytest.approx(900, rel=0.01)
    assert table[2].endswith("::test_failing")
    assert table[3].endswith("::test_each[0.3]")
    assert table[4].startswith("4 tests, 1."), "a test that was skipped or that failed as expected is not listed"
    assert table[4].endswith(", 2 not listed")
    assert "its own reason" in text


def test_exceptions_and_results_are_those_of_the_test(run: Run) -> None:
    result = run("""
@pytest.mark.joules(max="1 mJ")
def test_it():
    work(1.0)
    raise ValueError("its own")

@pytest.mark.joules(max="1 mJ")
@pytest.mark.xfail(raises=KeyError, strict=True)
def test_expected():
    work(1.0)
    raise KeyError(3)
""")
    result.assert_outcomes(failed=1, xfailed=1)
    assert "ValueError: its own" in text_of(result)
    assert "more than its limit" not in text_of(result)
    assert "measured_tests.py" not in text_of(result)


def test_unittest_and_async_cases(run: Run) -> None:
    text = """
import unittest

class TestCase(unittest.IsolatedAsyncioTestCase):
    async def test_async(self):
        work(0.2)

    def test_plain(self):
        work(0.6)

    def test_failing(self):
        work(0.3)
        self.fail("its own reason")
"""
    result = run(text, "--joules", "--joules-save", "b.json")
    result.assert_outcomes(passed=2, failed=1)
    assert "its own reason" in text_of(result)
    saved = json.loads(Path("b.json").read_text())
    assert {each["id"].rpartition("::")[2] for each in saved["tests"]} == {"test_async", "test_plain"}


REPEATED = """
calls = []
@pytest.fixture(scope="module", autouse=True)
def shown():
    yield
    print("calls:", len(calls))

@pytest.mark.joules(max={limit}, repeat={repeat})
def test_it():
    work({joules})
    calls.append(1)
"""


@pytest.mark.parametrize(
    ("joules", "repeat", "calls", "outcome"),
    [
        # The first run costs more, as it loads what the others find ready.
        ("(1.0 if not calls else 0.4)", True, 8, "passed"),
        ("0.6", True, 8, "failed"),
        ("(1.0 if not calls else 0.4)", 1, 1, "failed"),
        ("(1.0 if not calls else 0.4)", 4, 4, "passed"),
        ("0.2", True, 1, "passed"),
    ],
)
def test_a_test_that_allows_it_is_repeated_until_it_is_sure(
    run: Run, joules: str, repeat: Any, calls: int, outcome: str
) -> None:
    words = ("-s", "--joules-seconds", "5")
    result = run(REPEATED.format(limit=0.5, joules=joules, repeat=repeat), *words)
    result.assert_outcomes(**{outcome: 1})
    assert f"calls: {calls}" in text_of(result)


def test_repeats_end_with_their_time(run: Run) -> None:
    text = REPEATED.format(limit=0.5, joules="(0.505 if len(calls) % 2 else 0.495)", repeat=True)
    result = run(text, "-s", "--joules-seconds", "0.5")
    result.assert_outcomes(passed=1)
    assert "calls: 8" in text_of(result)
    assert "cannot tell whether it keeps its limit" in text_of(result)


def test_a_repeat_that_raises_fails_the_test_with_its_exception(run: Run) -> None:
    text = REPEATED.format(limit=0.5, joules="1 / (1 - len(calls))", repeat=True)
    result = run(text)
    result.assert_outcomes(failed=1)
    assert "ZeroDivisionError" in text_of(result)


@pytest.mark.parametrize("mark", ["max='5 W'", "most=1", "strict=3"])
def test_a_wrong_mark_fails_its_test(run: Run, mark: str) -> None:
    result = run(f"@pytest.mark.joules({mark})\ndef test_it():\n    pass\ndef test_other():\n    pass\n")
    result.assert_outcomes(passed=1, failed=1)
    assert "joulediff: the mark joules has" in text_of(result)
    assert "write @pytest.mark.joules(max=" in text_of(result) or "strict is True or False" in text_of(result)


def test_strict_markers_know_the_mark(run: Run) -> None:
    run(USES.format(limit=0.5, joules=0.1), "--strict-markers").assert_outcomes(passed=1)


SUITE = """
def test_a():
    work({a})

def test_b():
    work({b})
"""


def test_a_baseline_fails_the_test_that_got_more_expensive(run: Run) -> None:
    first = run(SUITE.format(a=0.5, b=1.0), "--joules-save", "b.json")
    first.assert_outcomes(passed=2)
    assert "b.json has the energy of 2 tests" in text_of(first)
    saved = json.loads(Path("b.json").read_text())
    assert saved["schema"] == "joulediff.tests/1"
    assert saved["machine"]["name"] == "host1"
    assert saved["machine"]["meters"] == ["cpu: a scripted CPU (scripted/cpu, counter)"]
    assert saved["tests"][0]["id"].endswith("::test_a")
    assert saved["tests"][0]["energy"]["joules"] == pytest.approx(0.5, rel=0.01)

    again = run(SUITE.format(a=0.5, b=1.08) + "\ndef test_new():\n    work(3.0)\n", "--joules-baseline", "b.json")
    again.assert_outcomes(passed=3)
    assert "not in the baseline: test_a_baseline_fails_the_test_that_got_more_expensive.py::test_new" in text_of(again)

    worse = run(SUITE.format(a=0.5, b=1.2), "--joules-baseline", "b.json")
    worse.assert_outcomes(passed=1, failed=1)
    found = re.search(r"the test used (\S+) J \(.*\), 1.20x its baseline of 1.000 J \((.*)\) in b.json", text_of(worse))
    assert found is not None
    assert float(found[1]) == pytest.approx(1.2, rel=0.01)
    assert found[2] == "980.4 mJ .. 1.020 J"
    assert "the tolerance is 10%" in text_of(worse)
    assert "write the baseline anew: pytest --joules-save FILE" in text_of(worse)
    run(SUITE.format(a=0.5, b=1.2), "--joules-baseline", "b.json", "--joules-tolerance", "0.3").assert_outcomes(
        passed=2
    )
    cheaper = run(SUITE.format(a=0.1, b=0.2), "--joules-baseline", "b.json", "--joules-tolerance", "0")
    cheaper.assert_outcomes(passed=2)


def test_a_test_that_failed_for_its_energy_is_saved_and_one_that_raised_is_not(run: Run) -> None:
    text = (
        USES.format(limit=0.5, joules=0.6) + "\n@pytest.mark.joules(max=0.5)\ndef test_x():\n    work(0.6)\n    1 / 0\n"
    )
    run(text, "--joules-save", "b.json").assert_outcomes(failed=2)
    assert [each["id"].rpartition("::")[2] for each in json.loads(Path("b.json").read_text())["tests"]] == ["test_it"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"name": "host2"}, "its machine was 'host2', and here it is 'host1'"),
        ({"cpu": "another CPU"}, "its CPU was 'another CPU'"),
        ({"meters": ["cpu: RAPL"]}, "its meters was 'cpu: RAPL'"),
    ],
)
def test_a_baseline_of_another_machine_is_refused(run: Run, change: dict[str, Any], what: str) -> None:
    run(SUITE.format(a=0.5, b=1.0), "--joules-save", "b.json")
    saved = json.loads(Path("b.json").read_text())
    saved["machine"] |= change
    Path("b.json").write_text(json.dumps(saved))
    result = run(SUITE.format(a=0.5, b=1.0), "--joules-baseline", "b.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"the baseline b.json cannot be compared: {what}" in "\n".join(result.errlines)
    assert "write a baseline here" in "\n".join(result.errlines)


def test_equal_machines_can_share_a_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--joules-machine", "runners")
    run(SUITE.format(a=0.5, b=1.0), "--joules-save", "b.json", *words)
    monkeypatch.setattr("joulediff.integrations.baseline.platform_name", lambda: "host2")
    run(SUITE.format(a=0.5, b=1.0), "--joules-baseline", "b.json", *words).assert_outcomes(passed=2)
    assert run(SUITE.format(a=0.5, b=1.0), "--joules-baseline", "b.json").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "cannot read the baseline b.json"),
        ("{", "is not JSON"),
        ("[]", "is no baseline of tests"),
        ('{"schema": "joulediff.measure/1"}', "is no baseline of tests"),
        ('{"schema": "joulediff.tests/1", "tests": 3}', "is damaged"),
        (
            '{"schema": "joulediff.tests/1", "created": "", "tool": "", "tests": [{"id": "a", "energy": 1}],'
            ' "machine": {"name": "", "cpu": "", "meters": []}}',
            "is damaged",
        ),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(run: Run, text: str | None, what: str) -> None:
    if text is not None:
        Path("b.json").write_text(text)
    result = run(SUITE.format(a=0.5, b=1.0), "--joules-baseline", "b.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert what in "\n".join(result.errlines)
    assert "pytest --joules-save FILE" in "\n".join(result.errlines)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--joules-save", "nowhere/b.json"), "its folder does not exist"),
        (("--joules", "--joules-tolerance", "5"), "is not a share"),
    ],
)
def test_wrong_options_are_refused_before_any_test(run: Run, words: tuple[str, ...], what: str) -> None:
    result = run(SUITE.format(a=0.5, b=1.0), *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert what in "\n".join(result.errlines)


def test_a_meter_that_is_missing_is_an_error_of_the_option_and_of_the_marked_test(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.joules(max=1)\ndef test_it(): pass\ndef test_other(): pass\n")
    words = (*WORDS, "-p", "no:cacheprovider", "--joules-meter", f"scripted:{tmp_path / 'none.json'}")
    result = pytester.runpytest_inprocess(*words)
    result.assert_outcomes(passed=1, failed=1)
    assert "the energy of the test cannot be measured" in text_of(result)
    assert pytester.runpytest_inprocess("--joules", *words).ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.live
@pytest.mark.parametrize("source", ["metered", "estimated"])
def test_workers_share_the_meters_of_the_machine(pytester: pytest.Pytester, tmp_path: Path, source: str) -> None:
    """A limit cannot be exceeded surely while other workers run, unless the energy is that of the process alone."""
    from cli_builders import make_domain, steady, write_script

    meter = write_script(tmp_path / "steady.json", (make_domain(source=source), steady(50.0)))
    pytester.makepyfile("""
import pytest, time

@pytest.mark.parametrize("each", range(4))
@pytest.mark.joules(max="1 mJ")
def test_it(each):
    end = time.perf_counter() + 0.1
    while time.perf_counter() < end:
        pass
""")
    words = ("-p", "no:cacheprovider", "--joules-meter", meter, "--joules-save", "b.json", "-n", "2")
    result = pytester.runpytest_subprocess(*WORDS, *words)
    text = text_of(result)
    if source == "metered":
        result.assert_outcomes(passed=4)
        assert "tests ran in several processes at once" in text
        assert text.count("cannot tell whether it keeps its limit") == 4
    else:
        result.assert_outcomes(failed=4)
        assert "tests ran in several processes at once" not in text
    assert len(json.loads(Path("b.json").read_text())["tests"]) == 4


@pytest.mark.live
def test_loading_the_plugin_imports_nothing_heavy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\ndef test_it():\n"
        "    assert not {'numpy', 'scipy', 'rich', 'click', 'psutil', 'torch', 'pyarrow'} & set(sys.modules)\n"
        "    assert 'joulediff.integrations.measured_tests' not in sys.modules\n"
        "    assert 'joulediff.integrations.pytest_plugin' in sys.modules\n"
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider", *WORDS).assert_outcomes(passed=1)
