"""Scores given captions for images: a GRU with additive attention over the regions of the image."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, REGIONS, WORDS = (128, 196, 20) if DEVICE == "cuda" else (8, 49, 12)
FEATURES, HIDDEN = (2048, 512) if DEVICE == "cuda" else (256, 128)
VOCABULARY = 2000


class BahdanauAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.Wa = nn.Linear(HIDDEN, HIDDEN)
        self.Ua = nn.Linear(FEATURES, HIDDEN)
        self.Va = nn.Linear(HIDDEN, 1)

    def forward(self, query, keys):
        energies = self.Va(torch.tanh(self.Wa(query).unsqueeze(1) + self.Ua(keys)))
        weights = energies.squeeze(2).softmax(dim=-1)
        return torch.bmm(weights.unsqueeze(1), keys).squeeze(1)


class AttentionDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.attention = BahdanauAttention()
        self.gru = nn.GRUCell(HIDDEN + FEATURES, HIDDEN)
        self.out = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, regions, captions):
        hidden = regions.new_zeros(len(regions), HIDDEN)
        states = []
        for word in self.embedding(captions[:, :-1]).unbind(dim=1):
            context = self.attention(hidden, regions)
            hidden = self.gru(torch.cat([word, context], dim=1), hidden)
            states.append(hidden)
        scores = self.out(torch.stack(states, dim=1)).log_softmax(dim=-1)
        return scores.gather(2, captions[:, 1:, None]).squeeze(2).sum(dim=1)


def build():
    torch.manual_seed(0)
    decoder = AttentionDecoder().to(DEVICE).eval()
    regions = torch.randn(BATCH, REGIONS, FEATURES).to(DEVICE)
    captions = torch.randint(VOCABULARY, (BATCH, WORDS + 1)).to(DEVICE)

    @torch.no_grad()
    def step():
        return decoder(regions, captions)

    return step
