"""PPO update on one batch of experience: clipped surrogate plus value loss, gradients returned to the caller."""

import torch
from rollouts import collected, trained
from torch.nn import functional

DISCOUNT = 0.99
LAMBDA = 0.95
EPSILON = 0.2


def gae(r, v, d, bootstrap):
    """Sweep back in time; each row holds one moment of all environments."""
    mask = 1.0 - d
    v_next = torch.cat([v[1:], bootstrap[None]])
    td = r + DISCOUNT * v_next * mask - v
    decay = DISCOUNT * LAMBDA * mask
    acc = torch.zeros_like(bootstrap)
    out = []
    for td_t, decay_t in zip(reversed(td.unbind()), reversed(decay.unbind()), strict=True):
        acc = torch.addcmul(td_t, decay_t, acc)
        out.append(acc)
    return torch.stack(out[::-1])


def policy_and_value(theta, obs):
    w1, b1, w2, b2, wa, ba, wc, bc = theta
    h = torch.tanh(functional.linear(obs, w1, b1))
    h = torch.tanh(functional.linear(h, w2, b2))
    return functional.log_softmax(functional.linear(h, wa, ba), dim=-1), functional.linear(h, wc, bc)[..., 0]


def ppo_loss(theta, batch, adv, target):
    logp_all, v = policy_and_value(theta, batch.observations)
    logp = torch.gather(logp_all, -1, batch.actions[..., None])[..., 0]
    rho = (logp - batch.log_probabilities).exp()
    surrogate = torch.min(rho * adv, torch.clamp(rho, 1 - EPSILON, 1 + EPSILON) * adv)
    return 0.5 * (target - v).pow(2).mean() - surrogate.mean()


def build():
    torch.manual_seed(0)
    theta = [tensor.requires_grad_() for pair in trained() for tensor in pair]
    batch = collected()

    def step():
        with torch.no_grad():
            adv = gae(batch.rewards, batch.values, batch.dones, batch.last_values)
            target = adv + batch.values
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        loss = ppo_loss(theta, batch, adv, target)
        for tensor in theta:
            tensor.grad = None
        loss.backward()
        return loss.detach(), [tensor.grad for tensor in theta]

    return step
