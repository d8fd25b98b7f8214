from __future__ import annotations

import subprocess
from typing import Any

import pytest

from joulediff.measuring.meters.visible import Card, visible_cards

CARDS = [
    Card("GPU-aa11-1", "A", ("MIG-11", "MIG-12")),
    Card("GPU-ab22-2", "A", ("MIG-21",)),
    Card("GPU-bb33-3", "A"),
]
UNLIKE = [Card("GPU-aa11", "T4"), Card("GPU-ab22", "H200"), Card("GPU-bb33", "H200")]


def places(cards: list[Card], env: dict[str, str], **kwargs: Any) -> list[int]:
    return [cards.index(card) for card in visible_cards(cards, env, **kwargs)]


def never_asked() -> list[str]:
    raise AssertionError("CUDA was asked")


def test_without_the_variable_all_are_visible() -> None:
    assert places(CARDS, {}, ask_cuda=never_asked) == [0, 1, 2]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("", []),
        (" ", []),
        ("-1", []),
        ("none", []),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 2 , 0 ", [2, 0]),
        ("0,-1,1", [0]),
        ("0,3,1", [0]),
        ("0,,1", [0]),
        ("1,two,2", [1]),
        # As C reads numbers.
        ("1gpu,+2,-0", [1, 2, 0]),
        ("²", []),
        # A card named twice hides all of them.
        ("0,0", []),
        ("1,0,1", []),
        ("0,00", []),
        ("GPU-bb33-3,GPU-bb33-3", []),
        ("GPU-bb33-3,GPU-bb", []),
        # What follows an entry that names no card is not looked at.
        ("0,9,0", [0]),
        ("GPU-ab22-2,GPU-aa11-1", [1, 0]),
        ("GPU-b", [2]),
        ("GPU-a", []),
        ("GPU-bb,GPU-a,GPU-ab", [2]),
        ("GPU-", []),
        ("GPU-zz", []),
        ("gpu-bb33-3", []),
        # The first entry says what the others must be.
        ("0,GPU-bb33-3", [0]),
        ("GPU-bb33-3,0", [2]),
        ("GPU-bb33-3,MIG-11", [2]),
        ("MIG-21", [1]),
        ("MIG-2", []),
        ("MIG-11,MIG-12", [0]),
        ("MIG-12,MIG-21", [0, 1]),
        ("MIG-11,MIG-11", []),
        ("MIG-11,GPU-bb33-3", [0]),
        ("MIG-GPU-ab22-2/1/0", [1]),
        ("MIG-GPU-ab22-2/1/0,MIG-GPU-ab22-2/2/0", [1]),
        ("MIG-GPU-bb/13/0", [2]),
        ("MIG-GPU-a/1/0", []),
    ],
)
def test_visible_cards(wanted: str, found: list[int]) -> None:
    assert places(CARDS, {"CUDA_VISIBLE_DEVICES": wanted}, ask_cuda=never_asked) == found


@pytest.mark.parametrize(("wanted", "found"), [(None, [1, 2, 0]), ("0", [1]), ("2,0", [0, 1])])
def test_the_order_of_unlike_cards_is_asked_of_cuda(wanted: str | None, found: list[int]) -> None:
    env = {} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted}
    order = ["GPU-ab22", "GPU-bb33", "GPU-aa11"]
    assert places(UNLIKE, env, ask_cuda=lambda: order) == found


def test_a_card_that_cuda_does_not_use_is_not_visible() -> None:
    assert places(UNLIKE, {}, ask_cuda=lambda: ["GPU-bb33", "GPU-other", "GPU-ab22"]) == [2, 1]


def test_the_order_of_the_bus_needs_no_question() -> None:
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert places(UNLIKE, env, ask_cuda=never_asked) == [0, 1, 2]
    assert places(UNLIKE, {**env, "CUDA_VISIBLE_DEVICES": "1"}, ask_cuda=never_asked) == [1]


@pytest.mark.parametrize("wanted", ["GPU-bb33", "", "MIG-1"])
def test_names_need_no_question(wanted: str) -> None:
    visible_cards(UNLIKE, {"CUDA_VISIBLE_DEVICES": wanted}, ask_cuda=never_asked)


def test_another_order_than_the_bus_is_asked_too() -> None:
    env = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert places(UNLIKE, env, ask_cuda=lambda: ["GPU-ab22", "GPU-aa11", "GPU-bb33"]) == [1, 0, 2]


def test_where_cuda_does_not_answer_the_bus_decides() -> None:
    assert places(UNLIKE, {"CUDA_VISIBLE_DEVICES": "2,0"}, ask_cuda=list) == [2, 0]


@pytest.mark.parametrize(
    "error",
    [
        OSError(2, "No such file or directory"),
        subprocess.CalledProcessError(1, "python"),
        subprocess.TimeoutExpired("python", 20),
    ],
)
def test_a_question_that_fails_leaves_the_order_of_the_bus(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(subprocess, "run", fail)
    assert places(UNLIKE, {}) == [0, 1, 2]


def test_cuda_is_asked_about_all_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*args: object, env: dict[str, str], **kwargs: object) -> subprocess.CompletedProcess[str]:
        assert "CUDA_VISIBLE_DEVICES" not in env
        return subprocess.CompletedProcess([], 0, "GPU-bb33\nGPU-ab22\nGPU-aa11\n", "")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setattr(subprocess, "run", answer)
    assert places(UNLIKE, {"CUDA_VISIBLE_DEVICES": "0,1"}) == [2, 1]
