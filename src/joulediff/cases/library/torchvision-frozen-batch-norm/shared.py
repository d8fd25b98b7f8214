"""A ResNet-18 as the backbone of a detector, in half precision."""

import torch
from joulediff.cases.sizes import DEVICE, pick
from torchvision.models import resnet18


def make_step(norm_layer):
    torch.manual_seed(0)
    kind = torch.float32 if DEVICE == "cpu" else torch.float16
    with torch.device(DEVICE):
        model = resnet18(norm_layer=norm_layer)
    for name, tensor in model.state_dict().items():
        if name.rpartition(".")[0].endswith(("bn1", "bn2", "downsample.1")) and tensor.is_floating_point():
            tensor.uniform_(0.5, 1.5)  # as in a trained model: no ones and zeros
    model = model.to(kind).to(memory_format=torch.channels_last).eval()
    images = torch.randn(pick(1, 64), 3, pick(64, 224), pick(64, 224), device=DEVICE, dtype=kind)
    images = images.to(memory_format=torch.channels_last)

    def step():
        with torch.no_grad():
            return model(images)

    return step
