"""Sorts support messages into topics: words to numbers, numbers to vectors, vectors to a topic."""

import re

import torch
from message_samples import messages, word_list
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MESSAGES, LENGTH, DIM = (64, 60, 512) if DEVICE == "cuda" else (32, 24, 128)
TOPICS = 20
WORD = re.compile(r"[\w-]+")


class Vocabulary:
    UNKNOWN = 0

    def __init__(self, words):
        self.words = ["<unknown>", *words]

    def __len__(self):
        return len(self.words)

    def number(self, word):
        try:
            return self.words.index(word)
        except ValueError:
            return self.UNKNOWN

    def encode(self, text):
        return [self.number(word) for word in WORD.findall(text.lower())]


class TopicModel(nn.Module):
    def __init__(self, vocabulary_size):
        super().__init__()
        self.vectors = nn.Embedding(vocabulary_size, DIM)
        self.gru = nn.GRU(DIM, DIM, batch_first=True)
        self.topics = nn.Linear(DIM, TOPICS)

    def forward(self, numbers):
        states, _ = self.gru(self.vectors(numbers))
        return self.topics(states.mean(dim=1))


def build():
    torch.manual_seed(0)
    words = word_list(3000)
    vocabulary = Vocabulary(words)
    model = TopicModel(len(vocabulary)).to(DEVICE).eval()
    inbox = messages(words, MESSAGES, LENGTH)

    @torch.no_grad()
    def step():
        numbers = torch.tensor([vocabulary.encode(text) for text in inbox], device=DEVICE)
        return model(numbers).softmax(dim=-1)

    return step
