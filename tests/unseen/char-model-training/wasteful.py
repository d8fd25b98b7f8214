import torch
from torch import nn
from torch.optim import Optimizer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

if DEVICE == "cuda":
    D_MODEL, D_FF, N_SAMPLES = 1024, 2560, 3072
else:
    D_MODEL, D_FF, N_SAMPLES = 128, 320, 384
N_CHARS = 96
HISTORY = 8
D_CHAR = 16
N_BLOCKS = 2


def linear(n_in, n_out):
    layer = nn.utils.skip_init(nn.Linear, n_in, n_out, bias=False)
    layer.weight = nn.Parameter(torch.randn(n_out, n_in) / n_in**0.5)
    return layer


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D_MODEL, elementwise_affine=False)
        self.expand = linear(D_MODEL, D_FF)
        self.reduce = linear(D_FF, D_MODEL)

    def forward(self, x):
        y = nn.functional.relu(self.expand(self.norm(x)))
        return x + self.reduce(y * y)


class CharModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.chars = nn.Embedding(N_CHARS, D_CHAR, _weight=torch.randn(N_CHARS, D_CHAR) / D_CHAR**0.5)
        self.entry = linear(HISTORY * D_CHAR, D_MODEL)
        self.blocks = nn.Sequential(*[FeedForward() for _ in range(N_BLOCKS)])
        self.norm = nn.LayerNorm(D_MODEL, elementwise_affine=False)
        self.exit = linear(D_MODEL, N_CHARS)

    def forward(self, history):
        e = self.chars(history)
        x = self.entry(e.reshape(e.size(0), -1))
        return self.exit(self.norm(self.blocks(x)))


class Muon(Optimizer):
    """Momentum whose matrix is driven towards an orthogonal one by Newton-Schulz steps."""

    def __init__(self, params, lr, momentum=0.9, ns_steps=5):
        super().__init__(params, {"lr": lr, "momentum": momentum, "ns_steps": ns_steps})

    @staticmethod
    def newton_schulz(matrix, steps):
        a, b, c = 3.4445, -4.7750, 2.0315
        X = matrix / matrix.norm().add(1e-7)
        for _ in range(steps):
            A = X @ X.T
            B = torch.addmm(A, A, A, beta=b, alpha=c)
            X = torch.addmm(X, B, X, beta=a)
        return X

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "buffer" not in state:
                    state["buffer"] = torch.zeros_like(p)
                buffer = state["buffer"].mul_(group["momentum"]).add_(p.grad)
                p.add_(self.newton_schulz(buffer, group["ns_steps"]), alpha=-group["lr"])


def build():
    torch.manual_seed(0)
    net = CharModel()
    data = torch.randint(0, N_CHARS, (N_SAMPLES, HISTORY + 1)).to(DEVICE)
    net.to(DEVICE)

    matrices = [net.entry.weight] + [p for p in net.blocks.parameters()]
    muon = Muon(matrices, lr=1e-3)
    sgd = torch.optim.SGD([net.chars.weight, net.exit.weight], lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    history, target = data[:, :HISTORY], data[:, HISTORY]

    def step():
        muon.zero_grad()
        sgd.zero_grad()
        loss = criterion(net(history), target)
        loss.backward()
        muon.step()
        sgd.step()
        return loss.detach(), torch.stack([torch.linalg.norm(p.detach()) for p in matrices])

    return step
