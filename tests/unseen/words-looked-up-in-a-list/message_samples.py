"""Messages such as the support desk gets, made up from a word list."""

import random


def word_list(count):
    return [f"w{index * 7919 % 100003:05d}" for index in range(count)]


def messages(words, count, length):
    source = random.Random(4)
    weights = [1.0 / (rank + 20) for rank in range(len(words))]
    texts = []
    for _ in range(count):
        chosen = source.choices(words, weights, k=length)
        chosen[source.randrange(length)] = "unheard-of"
        texts.append(" ".join(chosen).capitalize() + ".")
    return texts
