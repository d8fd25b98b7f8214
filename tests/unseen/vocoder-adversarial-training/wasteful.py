"""Adversarial training of a small vocoder: mel frames in, waveform out."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LARGE = DEVICE == "cuda"

BATCH = 16 if LARGE else 2
MELS = 80 if LARGE else 40
FRAMES = 128 if LARGE else 32
WIDTH = 256 if LARGE else 64
UPSAMPLE = (8, 8)
CRITIC_UPDATES = 2
LAMBDA_WAVE = 45.0


@dataclass(frozen=True)
class TrainConfig:
    lr_generator: float = 1e-5
    lr_critic: float = 1e-4


class ResidualBlock(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)

    def forward(self, x):
        return x + self.conv(F.leaky_relu(x, 0.1))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Conv1d(MELS, WIDTH, 7, padding=3)
        stages = []
        channels = WIDTH
        for rate in UPSAMPLE:
            stages.append(nn.LeakyReLU(0.1))
            stages.append(nn.ConvTranspose1d(channels, channels // 2, 2 * rate, rate, padding=rate // 2))
            channels //= 2
            stages.append(ResidualBlock(channels, 1))
            stages.append(ResidualBlock(channels, 3))
        self.stages = nn.Sequential(*stages)
        self.post = nn.Conv1d(channels, 1, 7, padding=3)

    def forward(self, mel):
        x = self.stages(self.pre(mel))
        return torch.tanh(self.post(F.leaky_relu(x, 0.1)))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.Conv1d(1, 16, 15, stride=2, padding=7),
                nn.Conv1d(16, 32, 11, stride=4, padding=5),
                nn.Conv1d(32, 64, 11, stride=4, padding=5),
                nn.Conv1d(64, 1, 3, padding=1),
            ]
        )

    def forward(self, wave):
        x = wave
        for layer in self.layers[:-1]:
            x = F.leaky_relu(layer(x), 0.1)
        return self.layers[-1](x)


def critic_loss(real, fake):
    return ((1.0 - real) ** 2).mean() + (fake**2).mean()


def generator_loss(fake, wave_hat, wave):
    return ((1.0 - fake) ** 2).mean() + LAMBDA_WAVE * F.l1_loss(wave_hat, wave)


class Trainer:
    """Alternates updates of the critic with one update of the generator."""

    def __init__(self, generator: nn.Module, critic: nn.Module, config: TrainConfig):
        self.generator = generator
        self.critic = critic
        self.opt_g = torch.optim.SGD(generator.parameters(), lr=config.lr_generator)
        self.opt_d = torch.optim.SGD(critic.parameters(), lr=config.lr_critic)

    def update_critic(self, mel: torch.Tensor, wave: torch.Tensor) -> torch.Tensor:
        fake = self.generator(mel)
        self.opt_d.zero_grad()
        loss_d = critic_loss(self.critic(wave), self.critic(fake))
        loss_d.backward()
        self.opt_d.step()
        return loss_d.detach()

    def update_generator(self, mel: torch.Tensor, wave: torch.Tensor) -> torch.Tensor:
        wave_hat = self.generator(mel)
        self.opt_g.zero_grad()
        loss_g = generator_loss(self.critic(wave_hat), wave_hat, wave)
        loss_g.backward()
        self.opt_g.step()
        return loss_g.detach()


def build():
    torch.manual_seed(0)
    generator = Generator()
    critic = Critic()
    hop = UPSAMPLE[0] * UPSAMPLE[1]
    mels = torch.randn(CRITIC_UPDATES + 1, BATCH, MELS, FRAMES)
    waves = 0.3 * torch.randn(CRITIC_UPDATES + 1, BATCH, 1, FRAMES * hop).clamp(-3, 3)
    generator, critic = generator.to(DEVICE), critic.to(DEVICE)
    mels, waves = mels.to(DEVICE), waves.to(DEVICE)
    trainer = Trainer(generator, critic, TrainConfig())

    def step():
        for mel, wave in zip(mels[:-1], waves[:-1]):
            loss_d = trainer.update_critic(mel, wave)
        loss_g = trainer.update_generator(mels[-1], waves[-1])
        return loss_d, loss_g

    return step
