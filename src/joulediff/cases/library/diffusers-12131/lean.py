"""Prompt and image stay apart."""

import torch
from shared import make_step


def project(norm, image, prompt):
    return torch.relu(norm(image)), torch.relu(norm(prompt))


def build():
    return make_step(project)
