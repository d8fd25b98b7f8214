"""Pass the messages of a queue through two stages of a pipeline in one process."""

import random


def load(messages):
    rng = random.Random(8)
    return [
        {"id": at, "tags": [rng.choice("xyz") for _ in range(12)], "values": [rng.random() for _ in range(40)]}
        for at in range(messages)
    ]


def hand_over(message):
    return dict(message)


def count_tags(message):
    return {tag: message["tags"].count(tag) for tag in "xyz"}


def pipeline(messages):
    results = []
    for message in messages:
        received = hand_over(message)
        results.append({"id": received["id"], "sum": sum(received["values"]), **count_tags(received)})
    return results


def build():
    messages = load(300)

    def step():
        return pipeline(messages)

    return step
