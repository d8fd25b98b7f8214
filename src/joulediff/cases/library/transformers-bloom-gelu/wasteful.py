"""BLOOM as it comes: GELU written out, for a compiler that is no longer used."""

from shared import make_model, make_step


def build():
    return make_step(make_model())
