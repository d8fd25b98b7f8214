"""Llama as it comes: `LlamaRMSNorm` is written with six operators, in float32."""

from shared import make_model, make_step


def build():
    return make_step(make_model())
