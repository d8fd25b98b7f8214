"""Character language model trained with orthogonalized momentum."""

import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SCALE = 8 if DEVICE == "cuda" else 1

VOCAB = 96
CONTEXT = 8
EMBED = 16
WIDTH = 128 * SCALE
INNER = 320 * SCALE
DEPTH = 2
BATCH = 384 * SCALE
LR = 1e-3
BETA = 0.9


def init_weights():
    shapes = {"embed": (VOCAB, EMBED), "inp": (WIDTH, CONTEXT * EMBED)}
    for i in range(DEPTH):
        shapes[f"up{i}"] = (INNER, WIDTH)
        shapes[f"down{i}"] = (WIDTH, INNER)
    shapes["out"] = (VOCAB, WIDTH)
    return {name: torch.randn(shape) / shape[1] ** 0.5 for name, shape in shapes.items()}


def logits_of(w, chars):
    h = F.linear(w["embed"][chars].flatten(1), w["inp"])
    for i in range(DEPTH):
        z = F.layer_norm(h, (WIDTH,))
        z = torch.relu(z @ w[f"up{i}"].t()).square()
        h = h + z @ w[f"down{i}"].t()
    return F.layer_norm(h, (WIDTH,)) @ w["out"].t()


def orthogonalize(g, rounds=5):
    tall = g.shape[0] > g.shape[1]
    x = g.t() if tall else g
    x = x / (x.norm() + 1e-7)
    for _ in range(rounds):
        gram = x @ x.t()
        poly = torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        x = torch.addmm(x, poly, x, beta=3.4445)
    return x.t() if tall else x


@torch.no_grad()
def apply_update(w, momentum):
    for name, p in w.items():
        if name in momentum:
            m = momentum[name]
            m.mul_(BETA).add_(p.grad)
            p.sub_(orthogonalize(m), alpha=LR)
        else:
            p.sub_(p.grad, alpha=LR)
        p.grad = None


def build():
    torch.manual_seed(0)
    w = init_weights()
    text = torch.randint(0, VOCAB, (BATCH, CONTEXT + 1))
    w = {name: t.to(DEVICE).requires_grad_() for name, t in w.items()}
    text = text.to(DEVICE)
    hidden = [name for name in w if name not in ("embed", "out")]
    momentum = {name: torch.zeros_like(w[name]) for name in hidden}

    def step():
        loss = F.cross_entropy(logits_of(w, text[:, :-1]), text[:, -1])
        loss.backward()
        apply_update(w, momentum)
        return loss.detach(), torch.stack([w[name].detach().norm() for name in hidden])

    return step
