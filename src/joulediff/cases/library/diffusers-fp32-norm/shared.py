"""Layers of AuraFlow, a diffusion transformer, in half precision."""

import torch
from diffusers import AuraFlowTransformer2DModel
from joulediff.cases.sizes import DEVICE, pick


def make_model():
    torch.manual_seed(0)
    model = AuraFlowTransformer2DModel(
        sample_size=pick(16, 64),
        num_mmdit_layers=1,
        num_single_dit_layers=2,
        attention_head_dim=pick(16, 128),
        num_attention_heads=pick(4, 12),
        joint_attention_dim=pick(32, 2048),
        caption_projection_dim=pick(64, 1536),
        pos_embed_max_size=pick(256, 4096),
    )
    return model.to(DEVICE, torch.float32 if DEVICE == "cpu" else torch.bfloat16).eval()


def make_step(model):
    torch.manual_seed(1)
    kind, size = next(model.parameters()).dtype, pick(16, 128)
    image = torch.randn(pick(1, 2), 4, size, size, device=DEVICE, dtype=kind)
    prompt = torch.randn(image.shape[0], pick(8, 256), model.config.joint_attention_dim, device=DEVICE, dtype=kind)
    time = torch.full((image.shape[0],), 0.5, device=DEVICE, dtype=kind)

    def step():
        with torch.no_grad():
            return model(image, prompt, time).sample

    return step
