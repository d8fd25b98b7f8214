"""Captions of image features, decoded to text for the log of the service after each batch."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, DEPTH, BATCH, LENGTH = (1024, 6, 64, 32) if DEVICE == "cuda" else (96, 3, 16, 16)
VOCABULARY = 16000
MARK = "\u2581"


def pieces(count):
    """Return word pieces; those that begin a word carry a mark."""
    return [f"{MARK if index % 3 == 0 else ''}p{index:x}" for index in range(count)]


class Tokenizer:
    def __init__(self, pieces):
        self.pieces = pieces

    def clean(self, piece):
        return piece.replace(MARK, " ")

    def decode(self, ids):
        return "".join(self.clean(self.pieces[index]) for index in ids).strip()


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.GRU(WIDTH, WIDTH, batch_first=True) for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, 512)

    def forward(self, features):
        for layer in self.layers:
            features = features + layer(features)[0]
        return self.head(features)


def build():
    torch.manual_seed(0)
    model = Captioner().to(DEVICE).eval()
    tokenizer = Tokenizer(pieces(VOCABULARY))
    features = torch.randn(BATCH, LENGTH, WIDTH).to(DEVICE)
    log = {}

    @torch.no_grad()
    def step():
        scores = model(features).log_softmax(dim=-1)
        best = scores.argmax(dim=-1)
        log["example"] = tokenizer.decode(best[0].tolist())
        return scores, best

    return step
