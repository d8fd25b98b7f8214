"""Click prediction: histories of product ids are averaged and go through a small network."""

import torch
from click_log import latest_ids
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
USERS, HISTORY, DIM = (8192, 100, 128) if DEVICE == "cuda" else (2048, 50, 64)
CATALOGUES = {"products": 20000, "brands": 2000, "searches": 8000}


class HistoryEncoder(nn.Module):
    def __init__(self, catalogue_size):
        super().__init__()
        self.table = nn.Embedding(catalogue_size, DIM)

    def forward(self, history):
        vectors = self.table(history)
        return vectors.mean(dim=1)


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoders = nn.ModuleDict({name: HistoryEncoder(size) for name, size in CATALOGUES.items()})
        self.network = nn.Sequential(nn.Linear(3 * DIM, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, histories):
        features = [self.encoders[name](history) for name, history in histories.items()]
        return torch.sigmoid(self.network(torch.cat(features, dim=1))).squeeze(1)


def build():
    torch.manual_seed(0)
    model = ClickModel().to(DEVICE).eval()
    histories = {name: latest_ids(size, USERS, HISTORY).to(DEVICE) for name, size in CATALOGUES.items()}

    @torch.no_grad()
    def step():
        return model(histories)

    return step
