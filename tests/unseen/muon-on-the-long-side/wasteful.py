"""Training of a small regression network with orthogonalised momentum updates (Muon)."""

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
D_MODEL, N_LAYER, BATCH = (1024, 8, 1024) if DEVICE == "cuda" else (64, 4, 256)


def zeropower_via_newtonschulz(update, steps=5, eps=1e-7):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = update / (update.norm() + eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, momentum=0.9, ns_steps=5):
        super().__init__(params, {"lr": lr, "momentum": momentum, "ns_steps": ns_steps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                buf = state["momentum_buffer"]
                buf.lerp_(p.grad, 1 - group["momentum"])
                update = zeropower_via_newtonschulz(buf, steps=group["ns_steps"])
                p.add_(update, alpha=-group["lr"] * max(1, p.size(0) / p.size(1)) ** 0.5)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(D_MODEL, 4 * D_MODEL, bias=False)
        self.c_proj = nn.Linear(4 * D_MODEL, D_MODEL, bias=False)

    def forward(self, x):
        return x + self.c_proj(F.relu(self.c_fc(x)).square())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList([MLP() for _ in range(N_LAYER)])

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return x


def build():
    torch.manual_seed(0)
    model = Net().to(DEVICE)
    optimizer = Muon(model.parameters(), lr=1e-4)
    x = torch.randn(BATCH, D_MODEL).to(DEVICE)
    y = torch.randn(BATCH, D_MODEL).to(DEVICE)

    def step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
