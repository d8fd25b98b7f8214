"""Whole diffs of random PyTorch programs: no finding from noise, and rows that sum to the meter."""

from __future__ import annotations

import random

import pytest

from diagnosis_builders import assert_books_close, jitter, measured
from joulediff.diagnosis.compare import diagnose
from rewrites.programs import make_program, record_step, write_step


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_that_jitter_have_no_finding(seed: int) -> None:
    chance = random.Random(seed)
    run = record_step(write_step(make_program(chance, 12), chance, no_ops=0.3))
    a, b = (measured(run, jitter(10 * seed + at)) for at in range(2))
    assert diagnose(a, b).findings == ()


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_random_rewrites_sum_to_what_was_metered(seed: int) -> None:
    chance = random.Random(seed)
    program = make_program(chance, 14)
    a, b = (measured(record_step(write_step(program, chance, no_ops=0.3)), jitter(seed + at)) for at in range(2))
    assert_books_close(a, b)
