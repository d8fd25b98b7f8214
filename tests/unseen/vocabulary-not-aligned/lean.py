"""Score reference tokens against a GPT-2 sized vocabulary in half precision."""

from dataclasses import dataclass

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class ScorerConfig:
    vocab_size: int = 50257
    head_rows: int = 50304
    hidden: int = 2048 if DEVICE == "cuda" else 64
    tokens: int = 8192 if DEVICE == "cuda" else 16


class Scorer(nn.Module):
    """How far the reference token lies below the best one."""

    def __init__(self, config, table):
        super().__init__()
        self.vocab_size = config.vocab_size
        self.norm = nn.LayerNorm(config.hidden)
        self.head = nn.Linear(config.hidden, config.head_rows, bias=False)
        with torch.no_grad():
            self.head.weight.zero_()
            self.head.weight[: config.vocab_size] = table

    def forward(self, hidden, reference):
        logits = self.head(self.norm(hidden))
        best = logits[:, : self.vocab_size].amax(dim=-1)
        return best - logits.gather(1, reference[:, None]).squeeze(1)


def build():
    torch.manual_seed(0)
    config = ScorerConfig()
    table = torch.randn(config.vocab_size, config.hidden) * config.hidden**-0.5
    hidden = torch.randn(config.tokens, config.hidden).to(DEVICE, torch.bfloat16)
    reference = torch.randint(config.vocab_size, (config.tokens,)).to(DEVICE)
    scorer = Scorer(config, table).to(DEVICE, torch.bfloat16).eval()

    @torch.inference_mode()
    def step():
        return scorer(hidden, reference)

    return step
