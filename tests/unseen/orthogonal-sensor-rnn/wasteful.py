"""Activity recognition from wearable sensors with an orthogonal recurrent network."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BIG = DEVICE == "cuda"


@dataclass
class Options:
    channels: int = 9
    hidden: int = 512 if BIG else 96
    frames: int = 64 if BIG else 24
    batch: int = 1024 if BIG else 512
    classes: int = 12
    lr: float = 1e-3
    clip: float = 5.0
    report_every: int = 100


class BoundedGate(nn.Module):
    """Saturating nonlinearity with a bias for each unit."""

    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.tanh(x + self.bias)


class OrthogonalCell(nn.Module):
    """One recurrent transition with a norm preserving matrix."""

    def __init__(self, hidden):
        super().__init__()
        self.transition = parametrizations.orthogonal(nn.Linear(hidden, hidden, bias=False))
        self.gate = BoundedGate(hidden)

    def forward(self, drive, state):
        return self.gate(drive + self.transition(state))


class SensorRNN(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.options = options
        self.norm = nn.LayerNorm(options.channels)
        self.encode = nn.Linear(options.channels, options.hidden)
        self.cell = OrthogonalCell(options.hidden)
        self.classify = nn.Linear(options.hidden, options.classes)

    def scan(self, drive):
        """Run the cell over the frames and return the last state."""
        state = drive.new_zeros(drive.shape[1], drive.shape[2])
        for frame in drive.unbind(0):
            state = self.cell(frame, state)
        return state

    def forward(self, frames):
        drive = self.encode(self.norm(frames)).transpose(0, 1)
        return self.classify(self.scan(drive))


def make_recordings(options):
    """Synthetic windows of accelerometer, gyroscope and magnetometer."""
    gen = torch.Generator().manual_seed(11)
    labels = torch.randint(options.classes, (options.batch,), generator=gen)
    time = torch.linspace(0, 1, options.frames)
    rate = 1.0 + labels.float()
    wave = torch.sin(6.2832 * rate[:, None] * time[None, :])
    noise = torch.randn(options.batch, options.frames, options.channels, generator=gen)
    return (wave[..., None] + 0.3 * noise).to(DEVICE), labels.to(DEVICE)


class Trainer:
    def __init__(self, model, options):
        self.model = model
        self.options = options
        self.optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
        self.count = 0

    def train_step(self, frames, labels):
        self.optimizer.zero_grad()
        logits = self.model(frames)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)
        self.optimizer.step()
        self.count += 1
        return loss.detach(), norm.detach(), logits.detach()


def build():
    torch.manual_seed(0)
    options = Options()
    model = SensorRNN(options).to(DEVICE)
    frames, labels = make_recordings(options)
    trainer = Trainer(model, options)

    def step():
        return trainer.train_step(frames, labels)

    return step
