"""Names of products from picture vectors: the most probable sequences of words under a gated recurrent network."""

from typing import NamedTuple

import torch
from torch import Tensor

GPU = torch.cuda.is_available()
WORDS = 8000 if GPU else 400
STATE = 1024 if GPU else 256
BREADTH = 8
LENGTH = 20


class Path(NamedTuple):
    words: list[int]
    terms: list[float]
    parent: int

    def total(self) -> float:
        return sum(self.terms)


class Writer:
    """Word table, recurrent unit and word scores."""

    def __init__(self, place: str):
        self.table = torch.nn.Embedding(WORDS, STATE).to(place)
        self.unit = torch.nn.GRUCell(STATE, STATE).to(place)
        self.scores = torch.nn.Linear(STATE, WORDS).to(place)
        self.place = place

    def advance(self, words: list[int], states: Tensor) -> tuple[Tensor, Tensor]:
        states = self.unit(self.table(torch.tensor(words, device=self.place)), states)
        return torch.log_softmax(self.scores(states), 1), states


def successors(paths: list[Path], scores: Tensor) -> list[Path]:
    terms, words = (each.tolist() for each in torch.topk(scores, BREADTH))
    return [
        Path([*path.words, word], [*path.terms, term], parent)
        for parent, path in enumerate(paths)
        for word, term in zip(words[parent], terms[parent], strict=True)
    ]


def most_probable(writer: Writer, vector: Tensor) -> list[Path]:
    paths, states = [Path([0], [0.0], 0)], vector.unsqueeze(0)
    for _ in range(LENGTH):
        scores, states = writer.advance([path.words[-1] for path in paths], states)
        paths = sorted(successors(paths, scores), key=Path.total, reverse=True)[:BREADTH]
        states = states[[path.parent for path in paths]]
    return paths


def build():
    torch.manual_seed(0)
    writer = Writer("cuda" if GPU else "cpu")
    vector = torch.randn(STATE).to(writer.place)

    def step():
        with torch.no_grad():
            paths = most_probable(writer, vector)
        return torch.tensor([path.words for path in paths]), torch.tensor([path.total() for path in paths])

    return step
