"""Pretraining of an encoder: a share of the tokens is masked, and the model fills them in."""

from dataclasses import dataclass

import torch
from encoder import IGNORED, Block, mask_tokens
from torch import nn
from torch.nn import functional

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"


@dataclass(frozen=True)
class PretrainingConfig:
    vocabulary: int = 50304 if LARGE else 3072
    width: int = 512 if LARGE else 96
    heads: int = 8 if LARGE else 4
    depth: int = 4 if LARGE else 3
    batch: int = 32 if LARGE else 4
    length: int = 512 if LARGE else 64
    share: float = 0.15
    lr: float = 1e-2


class MaskedLanguageModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.length, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width)
        self.dense = nn.Linear(config.width, config.width)
        self.decoder = nn.Linear(config.width, config.vocabulary)
        self.apply(self.init_weights)

    @staticmethod
    def init_weights(module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def encode(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            hidden = block(hidden)
        return self.norm(hidden)

    def predict(self, hidden):
        return self.decoder(functional.gelu(self.dense(hidden)))

    def forward(self, tokens, labels):
        hidden = self.encode(tokens)
        masked = labels != IGNORED
        logits = self.predict(hidden[masked])
        return functional.cross_entropy(logits, labels[masked])


def build():
    torch.manual_seed(0)
    config = PretrainingConfig()
    model = MaskedLanguageModel(config).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    tokens = torch.randint(2, config.vocabulary, (config.batch, config.length))
    tokens, labels = (each.to(DEVICE) for each in mask_tokens(tokens, config.share))

    def step():
        loss = model(tokens, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step
