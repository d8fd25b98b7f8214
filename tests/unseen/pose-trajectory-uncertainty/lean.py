"""Human pose forecasting with a full covariance over the joints of each future frame."""

import logging
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import MultivariateNormal

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BIG = DEVICE == "cuda"
log = logging.getLogger(__name__)


@dataclass
class Options:
    joints: int = 16
    past: int = 10
    batch: int = 4096 if BIG else 320
    hidden: int = 512 if BIG else 64
    floor: float = 0.5
    offdiag: float = 0.05
    lr: float = 1e-3
    weight_decay: float = 0.0

    @property
    def dims(self):
        return self.joints * 2


class PoseForecaster(nn.Module):
    """Multilayer perceptron over the past frames with a Gaussian head."""

    def __init__(self, options):
        super().__init__()
        self.options = options
        self.encoder = nn.Sequential(
            nn.Linear(options.past * options.dims, options.hidden),
            nn.Tanh(),
            nn.Linear(options.hidden, options.hidden),
            nn.Tanh(),
        )
        self.mean = nn.Linear(options.hidden, options.dims)
        self.diagonal = nn.Linear(options.hidden, options.dims)
        self.lower = nn.Linear(options.hidden, options.dims * (options.dims - 1) // 2)
        rows, columns = torch.tril_indices(options.dims, options.dims, offset=-1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def cholesky_factor(self, hidden):
        """Lower triangular factor with a positive diagonal."""
        diagonal = F.softplus(self.diagonal(hidden)) + self.options.floor
        factor = torch.diag_embed(diagonal)
        factor[:, self.rows, self.columns] = self.options.offdiag * torch.tanh(self.lower(hidden))
        return factor

    def forward(self, past):
        hidden = self.encoder(past.flatten(1))
        loc = past[:, -1] + self.mean(hidden)
        factor = self.cholesky_factor(hidden)
        return MultivariateNormal(loc, scale_tril=factor)


def make_tracks(options):
    """Random walks of joints: the past frames and the frame to predict."""
    generator = torch.Generator().manual_seed(5)
    moves = torch.randn(options.batch, options.past + 1, options.dims, generator=generator) * 0.2
    tracks = moves.cumsum(1)
    return tracks[:, :-1].to(DEVICE), tracks[:, -1].to(DEVICE)


class Trainer:
    def __init__(self, options):
        self.model = PoseForecaster(options).to(DEVICE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=options.lr, weight_decay=options.weight_decay)
        log.info("forecaster ready on %s", DEVICE)

    def train_step(self, past, future):
        self.optimizer.zero_grad()
        forecast = self.model(past)
        nll = forecast.log_prob(future).neg()
        loss = nll.mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), nll.detach(), forecast.mean.detach()


def build():
    torch.manual_seed(0)
    options = Options()
    trainer = Trainer(options)
    past, future = make_tracks(options)

    def step():
        return trainer.train_step(past, future)

    return step
