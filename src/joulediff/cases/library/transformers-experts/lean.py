"""All experts in one grouped product."""

from shared import make_step


def build():
    return make_step("grouped_mm")
