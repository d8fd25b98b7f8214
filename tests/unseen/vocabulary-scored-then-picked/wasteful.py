"""Pretraining of an encoder: a share of the tokens is masked, and the model fills them in."""

from dataclasses import dataclass

import torch
from encoder import IGNORED, Block, mask_tokens
from torch import Tensor, nn
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
    mask_share: float = 0.15
    init_std: float = 0.02
    label_smoothing: float = 0.0
    lr: float = 1e-2


class PredictionHead(nn.Module):
    """Scores of all words of the vocabulary."""

    def __init__(self, config: PretrainingConfig):
        super().__init__()
        self.dense = nn.Linear(config.width, config.width)
        self.decoder = nn.Linear(config.width, config.vocabulary)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.decoder(functional.gelu(self.dense(hidden)))


class MaskedLanguageModel(nn.Module):
    def __init__(self, config: PretrainingConfig):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.length, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width)
        self.head = PredictionHead(config)
        self.apply(self.init_weights)

    def init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.init_std)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))

    def loss(self, tokens: Tensor, labels: Tensor) -> Tensor:
        masked = labels != IGNORED
        logits = self(tokens)[masked]
        return functional.cross_entropy(logits, labels[masked], label_smoothing=self.config.label_smoothing)


def build():
    torch.manual_seed(0)
    config = PretrainingConfig()
    model = MaskedLanguageModel(config).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    tokens = torch.randint(2, config.vocabulary, (config.batch, config.length))
    tokens, labels = (each.to(DEVICE) for each in mask_tokens(tokens, config.mask_share))

    def step():
        loss = model.loss(tokens, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step
