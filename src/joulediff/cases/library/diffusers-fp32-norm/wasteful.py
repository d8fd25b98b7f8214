"""AuraFlow as it comes: layer norms cast to float32, normalize, and cast back."""

from shared import make_model, make_step


def build():
    return make_step(make_model())
