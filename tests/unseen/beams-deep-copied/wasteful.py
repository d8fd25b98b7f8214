"""Beam search of a recurrent decoder that names the products of an image embedding."""

import copy

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCAB, HIDDEN = (8000, 1024) if DEVICE == "cuda" else (400, 256)
BEAM_SIZE, MAX_LENGTH = 8, 20


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.cell = nn.GRUCell(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, VOCAB)

    def forward(self, tokens, hidden):
        hidden = self.cell(self.embedding(tokens), hidden)
        return self.out(hidden).log_softmax(dim=-1), hidden


class Hypothesis:
    """A partial name: its tokens, the log probability of each, and the row of its state."""

    def __init__(self, tokens, log_probs, row):
        self.tokens = tokens
        self.log_probs = log_probs
        self.row = row

    @property
    def score(self):
        return sum(self.log_probs)

    def extend(self, token, log_prob, row):
        hyp = copy.deepcopy(self)
        hyp.tokens.append(token)
        hyp.log_probs.append(log_prob)
        hyp.row = row
        return hyp


class BeamSearch:
    def __init__(self, decoder, beam_size=BEAM_SIZE, max_length=MAX_LENGTH):
        self.decoder = decoder
        self.beam_size = beam_size
        self.max_length = max_length

    def __call__(self, embedding):
        beams = [Hypothesis([0], [0.0], 0)]
        hidden = embedding[None]
        for _ in range(self.max_length):
            last = torch.tensor([hyp.tokens[-1] for hyp in beams], device=hidden.device)
            log_probs, hidden = self.decoder(last, hidden)
            best = log_probs.topk(self.beam_size, dim=-1)
            candidates = []
            for row, (hyp, values, indices) in enumerate(
                zip(beams, best.values.tolist(), best.indices.tolist(), strict=True)
            ):
                for value, index in zip(values, indices, strict=True):
                    candidates.append(hyp.extend(index, value, row))
            candidates.sort(key=lambda hyp: hyp.score, reverse=True)
            beams = candidates[: self.beam_size]
            hidden = hidden[[hyp.row for hyp in beams]]
        return beams


def build():
    torch.manual_seed(0)
    decoder = Decoder().to(DEVICE).eval()
    search = BeamSearch(decoder)
    embedding = torch.randn(HIDDEN).to(DEVICE)

    @torch.no_grad()
    def step():
        beams = search(embedding)
        return torch.tensor([hyp.tokens for hyp in beams]), torch.tensor([hyp.score for hyp in beams])

    return step
