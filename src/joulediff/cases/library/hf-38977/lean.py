"""Logits of the last token alone."""

from shared import make_step


def next_logits(model, ids):
    return model(ids, logits_to_keep=1).logits[:, -1]


def build():
    return make_step(next_logits)
