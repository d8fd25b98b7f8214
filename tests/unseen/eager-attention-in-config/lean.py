"""Image embeddings of a vision transformer whose attention is chosen by a flag of the script."""

from argparse import Namespace

import torch
from transformers import ViTConfig, ViTModel

LARGE = torch.cuda.is_available()
DEVICE = "cuda" if LARGE else "cpu"

args = Namespace(attention="sdpa", batch=32 if LARGE else 1, side=384 if LARGE else 192, patch=16 if LARGE else 8)


def load(args):
    config = ViTConfig(
        image_size=args.side,
        patch_size=args.patch,
        hidden_size=768 if LARGE else 64,
        num_hidden_layers=8 if LARGE else 2,
        num_attention_heads=12 if LARGE else 4,
        intermediate_size=3072 if LARGE else 128,
        attn_implementation=args.attention,
    )
    return ViTModel(config, add_pooling_layer=False).to(DEVICE).eval()


def build():
    torch.manual_seed(0)
    model = load(args)
    images = torch.rand(args.batch, 3, args.side, args.side).to(DEVICE)

    @torch.inference_mode()
    def step():
        states = model(pixel_values=images).last_hidden_state
        return torch.nn.functional.normalize(states[:, 0], dim=-1)

    return step
