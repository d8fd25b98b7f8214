"""Forward pass of a small Mixtral-like stack."""

import torch
import torch.nn.functional as nnf


class Router(torch.nn.Module):
    def __init__(self, width, n_experts, k):
        super().__init__()
        self.scores = torch.nn.Linear(width, n_experts, bias=False)
        self.k = k

    def forward(self, x):
        weight, index = nnf.softmax(self.scores(x), dim=1).topk(self.k, dim=1)
        return weight / weight.sum(1, keepdim=True), index


class MixtureLayer(torch.nn.Module):
    def __init__(self, width, inner, n_experts, k):
        super().__init__()
        self.router = Router(width, n_experts, k)
        self.up = torch.nn.Parameter(torch.randn(n_experts, width, inner) * width**-0.5)
        self.down = torch.nn.Parameter(torch.randn(n_experts, inner, width) * inner**-0.5)

    def forward(self, x):
        weight, index = self.router(x)
        result = torch.zeros_like(x)
        for expert, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            row, slot = torch.where(index == expert)
            y = nnf.silu(x[row] @ up) @ down
            result.index_add_(0, row, y * weight[row, slot, None])
        return result


def run_stack(layers, norm, x):
    for layer in layers:
        x = x + layer(norm(x))
    return x


def build():
    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    settings = {"width": 1024, "inner": 2048} if gpu else {"width": 128, "inner": 256}
    n_layers, n_tokens = (4, 8192) if gpu else (3, 384)

    torch.manual_seed(3)
    layers = [MixtureLayer(**settings, n_experts=8, k=2).to(device) for _ in range(n_layers)]
    norm = torch.nn.LayerNorm(settings["width"]).to(device)
    x = torch.randn(n_tokens, settings["width"]).to(device)

    def step():
        with torch.no_grad():
            return run_stack(layers, norm, x)

    return step
