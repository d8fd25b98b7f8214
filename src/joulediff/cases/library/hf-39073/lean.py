"""The same function as one kernel."""

from shared import make_step


def build():
    return make_step("gelu_pytorch_tanh")
