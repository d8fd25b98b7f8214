"""The schedule of a CUDA device is read from the driver, changed and restored; without a driver it is unknown."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("torch")  # loaded before anything stands for its libraries

from joulediff.frameworks.torch.switches.change import _find_access, changed
from joulediff.frameworks.torch.switches.schedule import read_schedule, schedule_index, write_schedule
from joulediff.model.errors import JoulediffError

SETTING = "device.cuda:1.schedule"
# Other flags of a context, which say nothing about waiting: mapped memory, memory kept for local variables.
OTHERS = 8 | 16


@dataclass
class Driver:
    """libcuda as far as waiting needs it: devices by number, each with the flags of its context."""

    flags: dict[int, int] = field(default_factory=lambda: {0: 0, 1: OTHERS | 1})
    active: bool = True
    state_error: int = 0
    set_error: int = 0
    stays: bool = False
    """It takes a change, and does not follow it."""
    written: list[tuple[int, int]] = field(default_factory=list)

    def cuDeviceGet(self, device: Any, index: int) -> int:
        device._obj.value = index
        return 0 if index in self.flags else 101

    def cuDevicePrimaryCtxGetState(self, device: Any, flags: Any, active: Any) -> int:
        flags._obj.value, active._obj.value = self.flags[device.value], int(self.active)
        return self.state_error

    def cuDevicePrimaryCtxSetFlags_v2(self, device: Any, flags: int) -> int:
        if self.set_error:
            return self.set_error
        self.written.append((device.value, flags))
        if not self.stays:
            self.flags[device.value] = flags
        return 0


def install(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> Driver:
    def load(name: str) -> Driver:
        assert name == "libcuda.so.1"
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)
    return driver


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return install(monkeypatch, Driver())


@pytest.mark.parametrize(("flags", "name"), [(0, "auto"), (1, "spin"), (2, "yield"), (4, "blocking_sync")])
def test_the_flags_of_a_context_have_names(driver: Driver, flags: int, name: str) -> None:
    driver.flags[1] = flags | OTHERS
    assert read_schedule(1) == name
    driver.flags[1] = OTHERS | (1 if name == "auto" else 0)
    write_schedule(1, name)
    assert driver.written == [(1, flags | OTHERS)], "what else the flags say stays"
    assert driver.flags[0] == 0


def test_an_unknown_schedule_is_refused(driver: Driver) -> None:
    driver.flags[1] = 3
    with pytest.raises(LookupError):
        read_schedule(1)
    for name in ("sleep", None, 4):
        with pytest.raises(ValueError, match="no schedule called"):
            write_schedule(1, name)
    assert driver.written == []


@pytest.mark.parametrize(
    ("changes", "index", "said"),
    [
        ({}, 7, "does not know this device"),
        ({"state_error": 3}, 1, "does not report the device's setting"),
        ({"active": False}, 1, "has no context"),
    ],
)
def test_an_unreadable_schedule_is_unknown(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], index: int, said: str
) -> None:
    driver = install(monkeypatch, Driver(**changes))
    with pytest.raises(RuntimeError, match=said):
        read_schedule(index)
    with pytest.raises(RuntimeError, match=said):
        write_schedule(index, "spin")
    assert driver.written == [], "no context is made to be asked, nor a device that is not known changed"


def test_without_a_driver_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    with pytest.raises(OSError, match="libcuda"):
        read_schedule(0)
    with (
        pytest.raises(JoulediffError, match=r"device\.cuda:0\.schedule cannot be changed to spin: libcuda"),
        changed({"device.cuda:0.schedule": "spin"}),
    ):
        pass


@pytest.mark.parametrize(
    ("setting", "index"),
    [
        ("device.cuda:0.schedule", 0),
        ("device.cuda:12.schedule", 12),
        ("device.cuda:.schedule", None),
        ("device.cuda:x.schedule", None),
        ("device.cuda:-1.schedule", None),
        ("device.cuda:0.name", None),
        ("device.cuda:0.schedule.x", None),
        ("config.schedule", None),
        ("0", None),
    ],
)
def test_the_device_of_a_setting(setting: str, index: int | None) -> None:
    assert schedule_index(setting) == index
    assert (_find_access(setting) is not None) == (index is not None)


def test_a_change_that_the_driver_refuses_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Driver(set_error=1))
    with pytest.raises(RuntimeError, match="does not let it be changed"):
        write_schedule(1, "yield")


def test_it_is_changed_for_a_while_and_restored(driver: Driver) -> None:
    with changed({SETTING: "blocking_sync"}):
        assert read_schedule(1) == "blocking_sync"
        assert read_schedule(0) == "auto"
    assert read_schedule(1) == "spin"
    assert driver.written == [(1, OTHERS | 4), (1, OTHERS | 1)]


def test_it_is_restored_after_a_failure(driver: Driver) -> None:
    with pytest.raises(ValueError, match="no"), changed({SETTING: "yield"}):
        raise ValueError("no")
    assert read_schedule(1) == "spin"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stays": True}, "stays spin, although it was changed to yield"),
        ({"active": False}, "cannot be changed to yield: the device has no context"),
        ({"set_error": 1}, "cannot be changed to yield: the driver does not let it be changed"),
    ],
)
def test_a_driver_that_does_not_follow_is_reported(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    driver = install(monkeypatch, Driver(**changes))
    ran: list[int] = []
    with pytest.raises(JoulediffError, match=said), changed({SETTING: "yield"}):
        ran.append(1)
    assert ran == []
    assert driver.flags == {0: 0, 1: OTHERS | 1}
