# Arm controller: temporal-difference updates on stored experience.
import numpy as np
import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cuda":
    N_BATCH, WIDTH = 1024, 256
else:
    N_BATCH, WIDTH = 256, 192
N_UPDATES, N_STORED = 3, 4000
OBS, ACT = 96, 9
GAMMA, LR = 0.95, 0.01


def init_params():
    params = []
    for fan_in, fan_out in [(OBS, WIDTH), (WIDTH, WIDTH), (WIDTH, ACT)]:
        layer = torch.nn.Linear(fan_in, fan_out)
        params += [layer.weight.detach(), layer.bias.detach()]
    return [p.to(DEVICE).requires_grad_() for p in params]


def q_values(params, obs):
    w1, b1, w2, b2, w3, b3 = params
    h = F.relu(F.linear(obs, w1, b1))
    h = F.relu(F.linear(h, w2, b2))
    return F.linear(h, w3, b3)


def record_experience():
    obs = torch.randn(N_STORED + 1, OBS).numpy()
    act = torch.randint(ACT, (N_STORED,)).tolist()
    rew = torch.randn(N_STORED).tolist()
    end = (torch.rand(N_STORED) < 0.05).float().tolist()
    return [
        {"o": obs[t].copy(), "a": act[t], "r": rew[t], "o2": obs[t + 1].copy(), "end": end[t]} for t in range(N_STORED)
    ]


def load(experience, ids):
    picked = [experience[i] for i in ids]
    obs = torch.from_numpy(np.stack([e["o"] for e in picked]))
    nxt = torch.from_numpy(np.stack([e["o2"] for e in picked]))
    act = torch.tensor([e["a"] for e in picked])
    rew = torch.tensor([e["r"] for e in picked])
    end = torch.tensor([e["end"] for e in picked])
    return [t.to(DEVICE) for t in (obs, act, rew, nxt, end)]


def td_update(params, experience, ids):
    obs, act, rew, nxt, end = load(experience, ids)
    with torch.no_grad():
        best = q_values(params, nxt).max(1).values
        goal = rew + GAMMA * best * (1.0 - end)
    q = q_values(params, obs).gather(1, act[:, None])[:, 0]
    loss = F.smooth_l1_loss(q, goal)
    grads = torch.autograd.grad(loss, params)
    with torch.no_grad():
        for p, g in zip(params, grads):
            p.sub_(g, alpha=LR)
    return loss.detach(), q.detach()


def build():
    torch.manual_seed(0)
    params = init_params()
    experience = record_experience()
    ids = torch.randint(N_STORED, (N_UPDATES, N_BATCH)).tolist()

    def step():
        out = [td_update(params, experience, row) for row in ids]
        return torch.stack([o[0] for o in out]), torch.stack([o[1] for o in out])

    return step
