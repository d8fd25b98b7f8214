"""Tags for the tokens of sentences, from a network whose low-rank adapters are merged outside of training."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, RANK, DEPTH, TOKENS = (2048, 256, 12, 16384) if DEVICE == "cuda" else (128, 48, 6, 1024)


class LowRankLinear(nn.Linear):
    """A linear layer with an adapter: `eval` adds it to the weight, `train` takes it out again."""

    def __init__(self, width, rank):
        super().__init__(width, width)
        self.down = nn.Parameter(torch.randn(rank, width) / width**0.5)
        self.up = nn.Parameter(torch.randn(width, rank) / (10 * rank**0.5))
        self.merged = False

    @torch.no_grad()
    def train(self, mode=True):
        super().train(mode)
        if mode == self.merged:
            self.weight += (-1 if mode else 1) * (self.up @ self.down)
            self.merged = not mode
        return self

    def forward(self, x):
        y = super().forward(x)
        if not self.merged:
            y = y + (x @ self.down.T) @ self.up.T
        return y


class Tagger(nn.Module):
    def __init__(self, tags=17):
        super().__init__()
        self.layers = nn.ModuleList(LowRankLinear(WIDTH, RANK) for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, tags)

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.head(x)


def load_tagger(checkpoint=None):
    model = Tagger()
    if checkpoint is not None:
        model.load_state_dict(torch.load(checkpoint, map_location="cpu"))
    return model.to(DEVICE).eval()


def build():
    torch.manual_seed(0)
    tagger = load_tagger()
    tokens = torch.randn(TOKENS, WIDTH).to(DEVICE)

    @torch.inference_mode()
    def step():
        return tagger(tokens).log_softmax(dim=-1)

    return step
