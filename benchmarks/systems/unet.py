"""One call of a diffusion UNet by diffusers and by a hand-written model in the style of the first latent diffusion.

joulediff diff benchmarks/systems/unet.py:library benchmarks/systems/unet.py:plain

The hand-written one computes attention with one 1x1 convolution for query, key and value and a written-out softmax, and
activates the embedding of the time once instead of in every block.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from system_sizes import DEVICE, DTYPE, choose, look_trained, make_step, place
from torch import nn
from torch.nn import functional

BATCH, PIXELS = choose(tiny=(2, 8), small=(2, 16), real=(16, 64))
CHANNELS = choose(tiny=(32, 64), small=(64, 128, 128), real=(128, 256, 512))
GROUPS, HEAD = choose(tiny=(8, 16), small=(16, 32), real=(32, 64))
TIME = 421


def _make_source() -> nn.Module:
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    levels = len(CHANNELS)
    model = UNet2DModel(
        sample_size=PIXELS,
        in_channels=4,
        out_channels=4,
        block_out_channels=CHANNELS,
        down_block_types=("DownBlock2D", *["AttnDownBlock2D"] * (levels - 1)),
        up_block_types=(*["AttnUpBlock2D"] * (levels - 1), "UpBlock2D"),
        layers_per_block=2,
        norm_num_groups=GROUPS,
        attention_head_dim=HEAD,
    )
    return place(look_trained(model))


def _draw_image() -> torch.Tensor:
    return torch.randn(BATCH, 4, PIXELS, PIXELS, generator=torch.Generator().manual_seed(2)).to(DEVICE, DTYPE)


def library() -> Callable[[], object]:
    model, image, time = _make_source(), _draw_image(), torch.tensor(TIME, device=DEVICE)
    return make_step(lambda: model(image, time).sample)


def plain() -> Callable[[], object]:
    model, image, time = Unet(_make_source()).eval(), _draw_image(), torch.tensor(TIME, device=DEVICE)
    return make_step(lambda: model(image, time))


class ResBlock(nn.Module):
    """Two convolutions with norms; the embedding of the time is added between."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.norm1, self.conv1, self.norm2, self.conv2 = source.norm1, source.conv1, source.norm2, source.conv2
        self.time, self.skip = source.time_emb_proj, source.conv_shortcut or nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(functional.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(y)))


class Attention(nn.Module):
    """Attention between the pixels, by 1x1 convolutions."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.norm, self.heads = source.group_norm, source.heads
        self.qkv = _to_conv(source.to_q, source.to_k, source.to_v)
        self.out = _to_conv(source.to_out[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, 3, self.heads, channels // self.heads, height * width)
        q, k, v = qkv.unbind(1)
        weights = torch.einsum("bhci,bhcj->bhij", q, k) * (channels // self.heads) ** -0.5
        found = torch.einsum("bhij,bhcj->bhci", weights.softmax(-1), v)
        return x + self.out(found.reshape(x.shape))


def _to_conv(*sources: nn.Linear) -> nn.Conv2d:
    """Return a 1x1 convolution that computes several linear layers."""
    weight = torch.cat([each.weight.detach() for each in sources])
    made = nn.Conv2d(weight.shape[1], weight.shape[0], 1, device=weight.device, dtype=weight.dtype)
    made.weight.data.copy_(weight[:, :, None, None])
    made.bias.data.copy_(torch.cat([each.bias.detach() for each in sources]))
    return made


class Stage(nn.Module):
    """The blocks of one resolution, and the convolution to the next one."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ResBlock(each) for each in source.resnets)
        attentions = getattr(source, "attentions", [None] * len(self.blocks))
        self.attentions = nn.ModuleList(nn.Identity() if each is None else Attention(each) for each in attentions)
        change = getattr(source, "downsamplers", None) or getattr(source, "upsamplers", None)
        self.change = None if change is None else change[0].conv


class Unet(nn.Module):
    """A UNet with the weights of one of diffusers."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.conv_in, self.norm_out, self.conv_out = source.conv_in, source.conv_norm_out, source.conv_out
        self.time1, self.time2 = source.time_embedding.linear_1, source.time_embedding.linear_2
        self.down = nn.ModuleList(Stage(each) for each in source.down_blocks)
        self.up = nn.ModuleList(Stage(each) for each in source.up_blocks)
        middle = source.mid_block
        self.before, self.between, self.after = (
            ResBlock(middle.resnets[0]),
            Attention(middle.attentions[0]),
            ResBlock(middle.resnets[1]),
        )

    def forward(self, image: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        time = self._embed(time, image.shape[0])
        x = self.conv_in(image)
        kept = [x]
        for stage in self.down:
            for block, attention in zip(stage.blocks, stage.attentions, strict=True):
                x = attention(block(x, time))
                kept.append(x)
            if stage.change is not None:
                x = stage.change(x)
                kept.append(x)
        x = self.after(self.between(self.before(x, time)), time)
        for stage in self.up:
            for block, attention in zip(stage.blocks, stage.attentions, strict=True):
                x = attention(block(torch.cat([x, kept.pop()], 1), time))
            if stage.change is not None:
                x = stage.change(functional.interpolate(x, scale_factor=2.0))
        return self.conv_out(functional.silu(self.norm_out(x)))

    def _embed(self, time: torch.Tensor, batch: int) -> torch.Tensor:
        half = CHANNELS[0] // 2
        frequencies = torch.exp(-math.log(10000) * torch.arange(half, device=DEVICE, dtype=torch.float32) / half)
        angles = time.float() * frequencies
        found = torch.cat([angles.cos(), angles.sin()])[None].repeat(batch, 1).to(DTYPE)
        return functional.silu(self.time2(functional.silu(self.time1(found))))
