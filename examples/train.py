"""An ordinary training script: `joulediff record examples/train.py --loop -o train.jd -- --epochs 1`."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        return sum((model(x).argmax(1) == y).sum().item() for x, y in loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--no-mkldnn", action="store_true")
    args = parser.parse_args()
    torch.backends.mkldnn.set_flags(not args.no_mkldnn)

    torch.manual_seed(0)
    data = TensorDataset(torch.randn(256, 3, 16, 16), torch.randint(0, 10, (256,)))
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=args.workers)
    layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 144, 10)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=args.epochs * len(loader) + 1)
    step, losses = 0, []
    for epoch in range(args.epochs):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            losses.append(loss.item())
            if step % 10 == 0:
                print(f"step {step}: loss {losses[-1]:.3f}")  # noqa: T201
        print(f"epoch {epoch}: {evaluate(model, loader)} of {len(data)} right")  # noqa: T201


if __name__ == "__main__":
    main()
