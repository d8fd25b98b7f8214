"""GPT-2's default: `gelu_new` computes GELU with eight elementwise operators."""

from shared import make_step


def build():
    return make_step("gelu_new")
