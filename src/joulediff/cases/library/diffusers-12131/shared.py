"""Joint attention over the tokens of a prompt and of an image, as in Stable Diffusion 3 and Flux."""

import torch
from joulediff.cases.sizes import DEVICE, pick


def make_step(project):
    torch.manual_seed(0)
    kind = torch.float32 if DEVICE == "cpu" else torch.float16
    width = pick(64, 1536)
    image = torch.randn(pick(1, 4), pick(64, 4096), width, device=DEVICE, dtype=kind)
    prompt = torch.randn(image.shape[0], pick(16, 333), width, device=DEVICE, dtype=kind)
    norm = torch.nn.LayerNorm(width).to(DEVICE, kind)

    def step():
        with torch.no_grad():
            return project(norm, image, prompt)

    return step
