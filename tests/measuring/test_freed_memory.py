"""Freed memory stays with the process: the same step takes no page from the system again."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from joulediff.measuring import freed_memory
from joulediff.measuring.freed_memory import NAME, judge_freed_memory, keep_freed_memory

HAS_MALLOPT = hasattr(ctypes.CDLL(None), "mallopt")
# Blocks of 16 MB, which glibc takes from the system one by one at first, are used and freed in each step.
PROGRAM = """
import resource, sys
from joulediff.measuring.freed_memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def step():
    blocks = [bytearray(b"x") * 16_000_000 for _ in range(4)]
    return sum(map(len, blocks))
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 10)
"""


def faults_of(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.skipif(not HAS_MALLOPT, reason="the C library has no mallopt")
def test_the_same_step_takes_no_memory_from_the_system_again() -> None:
    pages = 4 * 16_000_000 // 4096
    assert faults_of("keep") < pages / 100


@pytest.mark.parametrize(
    "environ", [{"MALLOC_TRIM_THRESHOLD_": "0"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=0"}]
)
def test_limits_that_the_user_set_stay(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "_is_kept", False)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: pytest.fail("mallopt was called"))
    assert not keep_freed_memory(environ)
    assert judge_freed_memory().value == "as the C library does by itself"


def test_a_c_library_without_the_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "_is_kept", False)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not keep_freed_memory({})


def test_the_condition_says_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "_is_kept", True)
    found = judge_freed_memory()
    assert (found.name, found.ok) == (NAME, True)
    assert found.value == "kept by the process up to 1024 MiB, in blocks below 32 MiB"
