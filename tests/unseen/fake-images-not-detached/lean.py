"""One round of a picture generator against its critic: the critic learns, then the generator learns."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"


@dataclass(frozen=True)
class Sizes:
    latent: int = 128 if LARGE else 32
    generator: int = 256 if LARGE else 80
    critic: int = 64 if LARGE else 4
    pictures: int = 128 if LARGE else 8


def upscale(inputs: int, outputs: int, *, stride: int = 2, padding: int = 1) -> list[nn.Module]:
    convolution = nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


def make_painter(sizes: Sizes) -> nn.Sequential:
    width = sizes.generator
    layers = upscale(sizes.latent, 2 * width, stride=1, padding=0)
    layers += upscale(2 * width, width)
    layers += upscale(width, width)
    layers += [nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers)


def make_critic(sizes: Sizes) -> nn.Sequential:
    layers: list[nn.Module] = []
    inputs = 3
    for factor in (1, 2, 4):
        outputs = factor * sizes.critic
        layers += [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
        inputs = outputs
    return nn.Sequential(*layers, nn.Conv2d(inputs, 1, 4, bias=False), nn.Flatten(0))


def judged(logits: Tensor, label: float) -> Tensor:
    return binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


class AdversarialTrainer:
    def __init__(self, sizes: Sizes):
        self.painter = make_painter(sizes).to(DEVICE)
        self.critic = make_critic(sizes).to(DEVICE)
        self.painter_updates = torch.optim.SGD(self.painter.parameters(), lr=1e-4)
        self.critic_updates = torch.optim.SGD(self.critic.parameters(), lr=1e-4)

    def train_critic(self, pictures: Tensor, latent: Tensor) -> Tensor:
        self.critic_updates.zero_grad()
        loss_true = judged(self.critic(pictures), 1.0)
        loss_true.backward()
        painted = self.painter(latent).detach()
        loss_painted = judged(self.critic(painted), 0.0)
        loss_painted.backward()
        self.critic_updates.step()
        return (loss_true + loss_painted).detach()

    def train_painter(self, latent: Tensor) -> Tensor:
        self.painter_updates.zero_grad()
        loss = judged(self.critic(self.painter(latent)), 1.0)
        loss.backward()
        self.painter_updates.step()
        return loss.detach()


def build():
    torch.manual_seed(0)
    sizes = Sizes()
    trainer = AdversarialTrainer(sizes)
    pictures = (2 * torch.rand(sizes.pictures, 3, 32, 32) - 1).to(DEVICE)
    first, second = (torch.randn(sizes.pictures, sizes.latent, 1, 1).to(DEVICE) for _ in range(2))

    def step():
        return trainer.train_critic(pictures, first), trainer.train_painter(second)

    return step
