"""Validate a click model over a held-out part of the data that lies in memory."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, SequentialSampler

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, FIELDS, WIDTH, BATCH = (16384, 64, 1024, 2048) if DEVICE == "cuda" else (2048, 48, 320, 256)


class Clicks(Dataset):
    """Features of impressions, and whether they were clicked."""

    def __init__(self, features, clicked):
        self.features = features
        self.clicked = clicked

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return self.features[index], self.clicked[index]


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FIELDS, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 1),
        )

    def forward(self, features):
        return self.layers(features).squeeze(-1)


def validation_loader(clicks):
    return DataLoader(clicks, batch_size=BATCH, sampler=SequentialSampler(clicks), num_workers=0)


@torch.no_grad()
def validate(model, loader):
    scores, losses = [], []
    for features, clicked in loader:
        logits = model(features.to(DEVICE))
        losses.append(functional.binary_cross_entropy_with_logits(logits, clicked.to(DEVICE)))
        scores.append(logits)
    return torch.cat(scores), torch.stack(losses).mean()


def build():
    torch.manual_seed(0)
    model = ClickModel().to(DEVICE).eval()
    clicks = Clicks(torch.randn(ROWS, FIELDS), torch.randint(2, (ROWS,)).float())
    loader = validation_loader(clicks)

    def step():
        return validate(model, loader)

    return step
