"""Training as it comes: `TrainingArguments(tf32=...)` is not given, so products are in full float32."""

from shared import make_step


def build():
    return make_step()
