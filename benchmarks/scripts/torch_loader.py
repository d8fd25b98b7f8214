"""Train a convolutional network from a data set with worker processes."""

import argparse

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        rng = np.random.default_rng(at)
        picture = rng.standard_normal((3, 32, 32), dtype=np.float32)
        return torch.from_numpy(picture), at % 10


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def train(model, loader, optimizer, criterion, device):
    model.train()
    losses = []
    for pictures, labels in loader:
        pictures, labels = pictures.to(device), labels.to(device)
        loss = criterion(model(pictures), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--count", type=int, default=3000)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = build_model().to(device)
    loader = DataLoader(Pictures(options.count), batch_size=64, shuffle=True, num_workers=options.workers)
    sgd = optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(2):
        print(epoch, train(network, loader, sgd, nn.CrossEntropyLoss(), device))
