"""Prompt and image are put together, normed, and split again."""

import torch
from shared import make_step


def project(norm, image, prompt):
    both = norm(torch.cat([prompt, image], dim=1))
    prompt, image = both.split([prompt.shape[1], image.shape[1]], dim=1)
    return torch.relu(image), torch.relu(prompt)


def build():
    return make_step(project)
