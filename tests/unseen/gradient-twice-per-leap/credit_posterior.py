"""Data of a logistic regression, and the states from which the chains of a sampler start."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, COLUMNS, CHAINS = (65536, 256, 256) if DEVICE == "cuda" else (3600, 32, 24)
LEAPS = 10
STEP_SIZE = 0.01 if DEVICE == "cpu" else 0.002


def observations():
    features = torch.randn(ROWS, COLUMNS)
    truth = torch.randn(COLUMNS)
    labels = (torch.rand(ROWS) < torch.sigmoid(features @ truth)).float()
    return features.to(DEVICE), labels.to(DEVICE)


def chains():
    return 0.1 * torch.randn(CHAINS, COLUMNS).to(DEVICE), torch.randn(CHAINS, COLUMNS).to(DEVICE)
