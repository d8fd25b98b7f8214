"""One denoising step of a Stable Diffusion UNet (two of its four levels) in float32."""

import torch
from diffusers import UNet2DConditionModel
from joulediff.cases.sizes import DEVICE, pick


def make_step():
    torch.manual_seed(0)
    width = pick(32, 640)
    unet = UNet2DConditionModel(
        sample_size=64,
        block_out_channels=(width, width),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=1,
        cross_attention_dim=pick(32, 768),
        attention_head_dim=8,
        norm_num_groups=32,
    ).to(DEVICE)
    unet.eval()
    size = pick(8, 64)
    latents = torch.randn(pick(1, 4), 4, size, size, device=DEVICE)
    prompt = torch.randn(latents.shape[0], pick(8, 77), unet.config.cross_attention_dim, device=DEVICE)
    time = torch.tensor(10, device=DEVICE)

    def step():
        with torch.no_grad():
            return unet(latents, time, prompt).sample

    return step
