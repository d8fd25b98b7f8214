"""A tower of sparse mixture-of-experts layers (eight experts, two chosen per token), scored in inference."""

import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DIM, HIDDEN, LAYERS, TOKENS = (1024, 2048, 4, 8192) if DEVICE == "cuda" else (128, 256, 3, 384)
EXPERTS, CHOSEN = 8, 2


class ExpertBank(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.w_in = nn.Parameter(torch.randn(EXPERTS, DIM, HIDDEN) * DIM**-0.5)
        self.w_out = nn.Parameter(torch.randn(EXPERTS, HIDDEN, DIM) * HIDDEN**-0.5)

    def routing(self, tokens):
        probabilities = self.gate(tokens).softmax(dim=-1)
        best, chosen = probabilities.topk(CHOSEN, dim=-1)
        best = best / best.sum(dim=-1, keepdim=True)
        return torch.zeros_like(probabilities).scatter(1, chosen, best)

    def forward(self, tokens):
        combine = self.routing(tokens)
        hidden = functional.silu(torch.einsum("td,edh->eth", tokens, self.w_in))
        answers = torch.einsum("eth,ehd->etd", hidden, self.w_out)
        return torch.einsum("te,etd->td", combine, answers)


class SparseTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.banks = nn.ModuleList(ExpertBank() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)

    def forward(self, tokens):
        for bank in self.banks:
            tokens = tokens + bank(self.norm(tokens))
        return tokens


def build():
    torch.manual_seed(3)
    tower = SparseTower().to(DEVICE).eval()
    tokens = torch.randn(TOKENS, DIM).to(DEVICE)

    @torch.no_grad()
    def step():
        return tower(tokens)

    return step
