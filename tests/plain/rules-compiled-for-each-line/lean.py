"""Find the first rule that matches each line of a log."""

import random
import re

WORDS = ["timeout", "refused", "denied", "retry", "closed", "opened", "expired", "renewed"]


def load(lines):
    rng = random.Random(11)
    return [f"{rng.choice(WORDS)} id={rng.randrange(1000)} in {rng.randrange(90)} ms" for _ in range(lines)]


def make_rules():
    return [rf"^{word}\s+id={digit}\d*\s+in\s+\d+\s+ms$" for word in WORDS for digit in range(5)]


def matches(rule, line):
    return rule.match(line) is not None


def classify(lines, rules):
    found = []
    for line in lines:
        number = next((at for at, rule in enumerate(rules) if matches(rule, line)), -1)
        found.append(number)
    return found


def build():
    lines = load(120)
    rules = [re.compile(rule, re.IGNORECASE) for rule in make_rules()]

    def step():
        return classify(lines, rules)

    return step
