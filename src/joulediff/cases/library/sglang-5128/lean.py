"""The best scores, and the probabilities of those."""

from shared import TOP, make_step


def route(scores):
    best, _ = scores.topk(TOP, dim=-1)
    return best.softmax(-1)


def build():
    return make_step(route)
