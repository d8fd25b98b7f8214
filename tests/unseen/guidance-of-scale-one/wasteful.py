"""Sampling of a small class-conditional diffusion model with a few deterministic DDIM steps."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DIM, DEPTH, BATCH = (1024, 8, 64) if DEVICE == "cuda" else (128, 2, 6)
TOKENS, CHANNELS, CLASSES = 64, 16, 10


@dataclass
class SamplingConfig:
    num_inference_steps: int = 4
    guidance_scale: float = 1.0


class Block(nn.Module):
    def __init__(self, dim, heads=8):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.fc2(F.relu(self.fc1(self.norm2(x))))


class DiffusionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.x_in = nn.Linear(CHANNELS, DIM)
        self.label_embedding = nn.Embedding(CLASSES + 1, DIM)
        self.time_in = nn.Linear(1, DIM)
        self.blocks = nn.ModuleList([Block(DIM) for _ in range(DEPTH)])
        self.x_out = nn.Linear(DIM, CHANNELS)

    def forward(self, latents, t, labels):
        condition = self.label_embedding(labels) + self.time_in(t[:, None])
        x = self.x_in(latents) + condition[:, None]
        for block in self.blocks:
            x = block(x)
        return self.x_out(x)


class Pipeline:
    def __init__(self, model, config):
        self.model = model
        self.config = config
        self.alphas = torch.linspace(0.05, 0.999, config.num_inference_steps + 1).tolist()

    def predict_noise(self, latents, t, labels):
        null_labels = torch.full_like(labels, CLASSES)
        noise = self.model(torch.cat([latents, latents]), torch.cat([t, t]), torch.cat([labels, null_labels]))
        cond, uncond = noise.chunk(2)
        return uncond + self.config.guidance_scale * (cond - uncond)

    @torch.no_grad()
    def __call__(self, latents, labels):
        for alpha, alpha_next in zip(self.alphas[:-1], self.alphas[1:], strict=True):
            t = torch.full((len(latents),), 1.0 - alpha, device=latents.device)
            noise = self.predict_noise(latents, t, labels)
            clean = (latents - (1 - alpha) ** 0.5 * noise) / alpha**0.5
            latents = alpha_next**0.5 * clean + (1 - alpha_next) ** 0.5 * noise
        return latents


def build():
    torch.manual_seed(0)
    pipeline = Pipeline(DiffusionTransformer().to(DEVICE).eval(), SamplingConfig())
    latents = torch.randn(BATCH, TOKENS, CHANNELS).to(DEVICE)
    labels = torch.randint(CLASSES, (BATCH,)).to(DEVICE)

    def step():
        return pipeline(latents, labels)

    return step
