"""Train a classifier of expression profiles: standardized inputs, one wide layer, a few narrow ones."""

import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, GENES, HIDDEN, CLASSES = (4096, 20000, 512, 32) if DEVICE == "cuda" else (128, 4096, 256, 8)


class Standardizer(nn.Module):
    """Bring each gene to zero mean and unit scale with the statistics of the training set."""

    def __init__(self, mean, scale):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, profiles):
        return (profiles - self.mean) / self.scale


class ProfileTrainer:
    def __init__(self, standardizer, network, learning_rate=1e-5):
        self.standardizer = standardizer.to(DEVICE)
        self.network = network.to(DEVICE).train()
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=learning_rate)

    def prepare(self, profiles):
        return self.standardizer(profiles)

    def train_batch(self, profiles, classes):
        inputs = self.prepare(profiles)
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.network(inputs), classes, label_smoothing=0.05)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def build():
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(GENES, HIDDEN),
        nn.GELU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.GELU(),
        nn.Linear(HIDDEN, CLASSES),
    )
    standardizer = Standardizer(torch.rand(GENES), 0.5 + torch.rand(GENES))
    trainer = ProfileTrainer(standardizer, network)
    profiles = torch.rand(BATCH, GENES).to(DEVICE)
    classes = torch.randint(CLASSES, (BATCH,)).to(DEVICE)

    def step():
        return trainer.train_batch(profiles, classes)

    return step
