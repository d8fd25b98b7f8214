"""One training step that reports its loss and its accuracy on the same batch."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CHANNELS, BATCH, SIDE = (96, 64, 64) if DEVICE == "cuda" else (16, 8, 32)


class Classifier(nn.Module):
    def __init__(self, channels, classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * channels, 2 * channels, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(2 * channels, classes)

    def forward(self, images):
        return self.head(self.features(images).mean(dim=(2, 3)))


class Task:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @torch.no_grad()
    def accuracy(self, logits, labels):
        return (logits.argmax(dim=-1) == labels).float().mean()

    def training_step(self, images, labels):
        logits = self.model(images)
        loss = nn.functional.cross_entropy(logits, labels)
        metrics = {"loss": loss.detach(), "accuracy": self.accuracy(logits, labels)}
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return metrics


def build():
    torch.manual_seed(0)
    task = Task(Classifier(CHANNELS).to(DEVICE))
    images = torch.randn(BATCH, 3, SIDE, SIDE).to(DEVICE)
    labels = torch.randint(10, (BATCH,)).to(DEVICE)

    def step():
        return task.training_step(images, labels)

    return step
