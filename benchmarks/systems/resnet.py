"""A ResNet-50 by Hugging Face, by torchvision, and by torchvision with batch norms folded into convolutions.

joulediff diff benchmarks/systems/resnet.py:hf benchmarks/systems/resnet.py:vision
joulediff diff benchmarks/systems/resnet.py:vision benchmarks/systems/resnet.py:folded

The folded model has no weight of a convolution in common with the others; inputs and outputs are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from system_sizes import DEVICE, DTYPE, choose, look_trained, make_step, place
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from transformers import ResNetConfig, ResNetForImageClassification

BATCH, PIXELS = choose(tiny=(2, 64), small=(2, 64), real=(32, 224))
DEPTHS = choose(tiny=[1, 1, 1, 1], small=[3, 4, 6, 3], real=[3, 4, 6, 3])


def _make_hf() -> ResNetForImageClassification:
    torch.manual_seed(0)
    model = look_trained(ResNetForImageClassification(ResNetConfig(depths=DEPTHS, num_labels=1000)))
    generator = torch.Generator().manual_seed(2)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.add_(0.1 * torch.randn(module.running_mean.shape, generator=generator))
            module.running_var.mul_(1 + 0.3 * torch.rand(module.running_var.shape, generator=generator))
    return place(model)


def _draw_images() -> torch.Tensor:
    return torch.randn(BATCH, 3, PIXELS, PIXELS, generator=torch.Generator().manual_seed(3)).to(DEVICE, DTYPE)


def hf() -> Callable[[], object]:
    model, images = _make_hf(), _draw_images()
    return make_step(lambda: model(images).logits)


def vision() -> Callable[[], object]:
    model, images = _make_vision(), _draw_images()
    return make_step(lambda: model(images))


def folded() -> Callable[[], object]:
    model, images = _make_vision(), _draw_images()
    for module in model.modules():
        for convolution, norm in (("conv1", "bn1"), ("conv2", "bn2"), ("conv3", "bn3"), ("0", "1")):
            if isinstance(getattr(module, norm, None), nn.BatchNorm2d):
                setattr(module, convolution, fuse_conv_bn_eval(getattr(module, convolution), getattr(module, norm)))
                setattr(module, norm, nn.Identity())
    return make_step(lambda: model(images))


def _make_vision() -> nn.Module:
    from torchvision.models.resnet import Bottleneck, ResNet

    source, model = _make_hf(), place(ResNet(Bottleneck, DEPTHS))
    for (convolution, norm), other in zip(_pairs_of_vision(model), _pairs_of_hf(source), strict=True):
        convolution.load_state_dict(other.convolution.state_dict())
        norm.load_state_dict(other.normalization.state_dict())
    model.fc.load_state_dict(source.classifier[1].state_dict())
    return model


def _pairs_of_vision(model: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Yield convolutions with their norms."""
    yield model.conv1, model.bn1
    for block in (block for stage in (model.layer1, model.layer2, model.layer3, model.layer4) for block in stage):
        if block.downsample is not None:
            yield block.downsample[0], block.downsample[1]
        yield from ((block.conv1, block.bn1), (block.conv2, block.bn2), (block.conv3, block.bn3))


def _pairs_of_hf(model: ResNetForImageClassification) -> Iterator[nn.Module]:
    """Yield the layers of a convolution and its norm, in the same order."""
    yield model.resnet.embedder.embedder
    for block in (block for stage in model.resnet.encoder.stages for block in stage.layers):
        if not isinstance(block.shortcut, nn.Identity):
            yield block.shortcut
        yield from block.layer
