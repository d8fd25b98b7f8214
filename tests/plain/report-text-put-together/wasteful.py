"""Write the rows of a report as text, the newest first."""

import random


def load(rows):
    rng = random.Random(2)
    return [(rng.randrange(10_000), rng.random(), rng.choice("abcdef")) for _ in range(rows)]


def format_row(row):
    number, value, letter = row
    return f"{number:>6} {value:.4f} {letter}\n"


def to_text(rows):
    text = ""
    for row in rows:
        text = format_row(row) + text
    return text


def build():
    rows = load(6_000)

    def step():
        return to_text(rows)

    return step
