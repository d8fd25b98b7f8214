"""CodeGen as it comes: queries and keys of a half-precision model are cast to float32 and multiplied there."""

from shared import make_model, make_step


def build():
    return make_step(make_model())
