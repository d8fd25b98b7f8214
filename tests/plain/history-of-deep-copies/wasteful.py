"""Advance a small warehouse simulation by some ticks and keep the stock of each tick."""

import copy
import random


def load(shelves):
    rng = random.Random(4)
    return {
        "tick": 0,
        "layout": {f"shelf-{at}": [rng.randrange(50) for _ in range(6)] for at in range(shelves)},
        "stock": [rng.randrange(100) for _ in range(shelves)],
    }


def advance(state):
    tick = state["tick"]
    stock = [(each + tick * at) % 97 for at, each in enumerate(state["stock"])]
    return {"tick": tick + 1, "layout": state["layout"], "stock": stock}


def run(state, ticks):
    history = []
    for _ in range(ticks):
        state = advance(state)
        history.append(copy.deepcopy(state)["stock"])
    return history


def build():
    state = load(150)

    def step():
        return [sum(each) for each in run(state, 12)]

    return step
