"""Similarity of a few questions to the sentences of a document."""

import torch
from encoder import SentenceEncoder, similarities

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY, WIDTH, LENGTH, SENTENCES = (30000, 512, 32, 64) if DEVICE == "cuda" else (1000, 48, 16, 40)


class Searcher:
    def __init__(self, encoder):
        self.encoder = encoder

    def embed(self, sentences):
        return self.encoder(sentences)

    @torch.inference_mode()
    def search(self, questions, sentences):
        return similarities(self.embed(questions), self.embed(sentences))


def build():
    torch.manual_seed(0)
    searcher = Searcher(SentenceEncoder(VOCABULARY, WIDTH, LENGTH).to(DEVICE).eval())
    questions = torch.randint(VOCABULARY, (8, LENGTH)).to(DEVICE)
    sentences = torch.randint(VOCABULARY, (SENTENCES, LENGTH)).to(DEVICE)

    def step():
        return searcher.search(questions, sentences)

    return step
