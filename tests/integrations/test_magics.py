"""`%%joules` in an IPython shell on a fake device: results, names, exceptions, options, and what is shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from fakes import DeviceMeter, FakeDevice, counter_domain
from joulediff.measuring.blocks.shared_meters import SharedMeters
from joulediff.measuring.meters import MeterSet
from joulediff.measuring.meters.scripted import FakeClock
from joulediff.model.errors import MeterUnavailable
from joulediff.model.measurement import BlockMeasurement

CPU = counter_domain(1e-6, unit_j=1e-6, name="cpu", device="a scripted CPU", key="scripted/cpu")


class Notebook:
    """A shell whose names hold `work(joules)`."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.clock = FakeClock()
        self.device = FakeDevice(self.clock, idle_w=0.0)
        self.meters = SharedMeters(MeterSet([DeviceMeter(self.device, (CPU,))]), clock=self.clock)
        self.opened: list[tuple[str, float | None]] = []

    def open(self, meter: str, cpu_watts: float | None) -> SharedMeters:
        self.opened.append((meter, cpu_watts))
        if meter == "none":
            raise MeterUnavailable("no meter is called 'none'", fix="there are: auto")
        return self.meters

    def work(self, joules: float) -> float:
        self.device.set(10 * joules)
        self.clock.advance(0.1)
        self.device.set(0.0)
        return joules

    def run(self, cell: str) -> tuple[Any, str]:
        with capture_output() as captured:
            done = self.shell.run_cell(cell)
        return done, captured.stdout + captured.stderr


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(colors="nocolor")
    made = Notebook(shell)
    monkeypatch.setattr("joulediff.measuring.blocks.measure.shared_meters", made.open)
    monkeypatch.setattr("joulediff.integrations.magics.shared_meters", made.open)
    shell.user_ns["work"] = made.work
    shell.run_line_magic("load_ext", "joulediff")
    yield made
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()


def test_a_cell_is_measured_and_its_result_is_that_of_the_cell(notebook: Notebook) -> None:
    done, shown = notebook.run("%%joules -n load\nx = work(0.5)\nx + 1")
    assert done.success
    assert done.result == 1.5
    assert notebook.shell.user_ns["x"] == 0.5
    assert "load  500.0 mJ ± " in shown
    assert "Out[" in shown
    assert "cpu " in shown


def test_names_are_those_of_the_notebook(notebook: Notebook) -> None:
    notebook.run("n = 3")
    done, _ = notebook.run("%%joules -q\nimport math\ndef twice():\n    return 2 * n\nn = 5\nm = [n for _ in range(2)]")
    assert done.success
    assert notebook.run("(twice(), m, math.floor(2.5))")[0].result == (10, [5, 5], 2)
    assert notebook.shell.user_ns["twice"].__globals__ is notebook.shell.user_ns


def test_the_measurement_can_be_stored(notebook: Notebook) -> None:
    done, shown = notebook.run("%%joules -o found -n train --quiet\nwork(0.25)")
    found = notebook.shell.user_ns["found"]
    assert isinstance(found, BlockMeasurement)
    assert found.name == "train"
    assert found.energy is not None
    assert found.energy.joules == pytest.approx(0.25, rel=0.01)
    assert "250.0 mJ" not in shown
    assert done.result == 0.25


def test_an_exception_passes_and_the_energy_so_far_is_shown(notebook: Notebook) -> None:
    done, shown = notebook.run("%%joules -o found\nx = work(0.5)\nraise ValueError('its own')")
    assert isinstance(done.error_in_exec, ValueError)
    assert notebook.shell.user_ns["x"] == 0.5
    assert "cell  500.0 mJ" in shown
    assert "ValueError: its own" in shown
    assert "raise ValueError('its own')" in shown
    assert shown.count("Traceback") == 1
    assert "magics.py" not in shown
    assert notebook.shell.user_ns["found"].energy is not None


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit(3)"])
def test_ctrl_c_and_exit_pass(notebook: Notebook, error: str) -> None:
    # IPython itself warns how to leave it.
    with pytest.warns(UserWarning) if "Exit" in error else capture_output():
        done, _ = notebook.run(f"%%joules\nraise {error}")
    assert type(done.error_in_exec).__name__ == error.partition("(")[0]


def test_a_line(notebook: Notebook) -> None:
    done, shown = notebook.run("%joules work(0.5)")
    assert done.result == 0.5
    assert "line  500.0 mJ" in shown
    notebook.run('y = %joules -q -n "two words" -o found work(0.2) if -1 else "-q"')
    assert notebook.shell.user_ns["y"] == 0.2
    assert notebook.shell.user_ns["found"].name == "two words"
    assert notebook.run("%joules -q -5 + 3")[0].result == -2


def test_magics_and_shell_syntax_work_inside(notebook: Notebook) -> None:
    done, _ = notebook.run("%%joules -q\n%env JOULES_TEST=3\nvalue = %who_ls float\nint?\nlen(value)")
    assert done.success


def test_a_semicolon_hides_the_result(notebook: Notebook) -> None:
    _, shown = notebook.run("%%joules -q\nwork(0.5);")
    assert "Out[" not in shown


@pytest.mark.parametrize("cell", ["%%joules\nx = 1", "%%joules\n# a comment"])
def test_a_cell_without_a_result(notebook: Notebook, cell: str) -> None:
    done, shown = notebook.run(cell)
    assert done.success
    assert done.result is None
    assert "cell  " in shown


def test_await_outside_of_a_function_works_in_a_cell(notebook: Notebook) -> None:
    notebook.run("import asyncio\nasync def later(x):\n    await asyncio.sleep(0)\n    return work(x)")
    done, shown = notebook.run("%%joules\nx = await later(0.5)\nx + await later(0.25)")
    assert done.success
    assert done.result == 0.75
    assert notebook.shell.user_ns["x"] == 0.5
    assert "cell  750.0 mJ" in shown
    assert "Out[" not in notebook.run("%%joules -q\nawait later(0.5);")[1]


def test_await_in_a_line_is_refused_before_it_runs(notebook: Notebook) -> None:
    before = notebook.clock.now()
    done, shown = notebook.run("%joules [work(1), await work(1)]")
    assert isinstance(done.error_in_exec, SyntaxError)
    assert "'await' outside function" in shown
    assert notebook.clock.now() == before


def test_a_syntax_error_is_that_of_the_cell_and_nothing_is_measured(notebook: Notebook) -> None:
    done, shown = notebook.run("%%joules\nx = (1")
    assert isinstance(done.error_in_exec, SyntaxError)
    assert "SyntaxError" in shown
    assert "cell  " not in shown


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        ("%%joules --nothing\nwork(1)", "unrecognized arguments: --nothing"),
        ("%%joules work(1)\nwork(1)", "takes no code in its line: work(1)"),
        ("%joules -n x", "has nothing to run"),
        ("%%joules --cpu-watts x\nwork(1)", "invalid float value"),
        ("%%joules -o a.b\nwork(1)", "a.b cannot be the name of a variable"),
        ("%%joules --meter none\nwork(1)", "no meter is called 'none'"),
    ],
)
def test_wrong_options(notebook: Notebook, cell: str, what: str) -> None:
    before = notebook.clock.now()
    done, shown = notebook.run(cell)
    assert not done.success
    assert f"UsageError: {what}" in shown or what in shown
    assert "Traceback" not in shown
    assert notebook.clock.now() == before, "the cell did not run"


def test_meters_are_chosen(notebook: Notebook) -> None:
    notebook.run("%%joules --meter rapl --cpu-watts 7 --no-sync\nwork(1)")
    assert set(notebook.opened) == {("rapl", 7.0)}


def test_devices_are_waited_for_unless_told(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    monkeypatch.setattr("joulediff.measuring.blocks.block.wait_for_devices", lambda: waits.append(1))
    notebook.run("%%joules -q --no-sync\nwork(1)")
    assert waits == []
    notebook.run("%%joules -q\nwork(1)")
    assert waits == [1, 1]
