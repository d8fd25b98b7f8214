"""Re-ranking of image captions by the likelihood that a recurrent captioner gives them."""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional


class Layout(NamedTuple):
    device: str
    images: int
    grid: int
    words: int
    image_dim: int
    state_dim: int
    vocab: int = 2000


def layout():
    if torch.cuda.is_available():
        return Layout("cuda", images=128, grid=196, words=20, image_dim=2048, state_dim=512)
    return Layout("cpu", images=8, grid=49, words=12, image_dim=256, state_dim=128)


class CaptionLikelihood(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.state_dim = shape.state_dim
        self.words = nn.Embedding(shape.vocab, shape.state_dim)
        self.from_state = nn.Linear(shape.state_dim, shape.state_dim)
        self.from_image = nn.Linear(shape.image_dim, shape.state_dim)
        self.score = nn.Linear(shape.state_dim, 1)
        self.cell = nn.GRUCell(shape.state_dim + shape.image_dim, shape.state_dim)
        self.vocabulary = nn.Linear(shape.state_dim, shape.vocab)

    def look(self, state, image, seen):
        energy = self.score(torch.tanh(self.from_state(state)[:, None] + seen))
        share = functional.softmax(energy, dim=1)
        return (share.transpose(1, 2) @ image)[:, 0]

    def forward(self, image, text):
        seen = self.from_image(image)
        state = torch.zeros(image.shape[0], self.state_dim, device=image.device)
        embedded = self.words(text)
        outputs = torch.empty(image.shape[0], text.shape[1] - 1, self.state_dim, device=image.device)
        for place in range(text.shape[1] - 1):
            glimpse = self.look(state, image, seen)
            state = self.cell(torch.cat((embedded[:, place], glimpse), dim=-1), state)
            outputs[:, place] = state
        logs = functional.log_softmax(self.vocabulary(outputs), dim=2)
        return logs.gather(2, text[:, 1:].unsqueeze(2)).sum(dim=(1, 2))


def build():
    shape = layout()
    torch.manual_seed(0)
    judge = CaptionLikelihood(shape)
    image = torch.randn(shape.images, shape.grid, shape.image_dim)
    text = torch.randint(shape.vocab, (shape.images, shape.words + 1))
    judge, image, text = (each.to(shape.device) for each in (judge, image, text))
    judge.requires_grad_(requires_grad=False)

    def step():
        return judge(image, text)

    return step
