"""Train a small classifier with PyTorch."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.hidden = nn.Linear(784, width)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        return self.out(F.gelu(self.norm(self.hidden(x))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=256)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, labels = torch.randn(20_000, 784), torch.randint(0, 10, (20_000,))
    model = Classifier(args.width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        order = torch.randperm(len(images))
        total = 0.0
        for start in range(0, len(images), args.batch):
            batch = order[start : start + args.batch]
            x, y = images[batch].to(device), labels[batch].to(device)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / (len(images) // args.batch):.4f}")


if __name__ == "__main__":
    main()
