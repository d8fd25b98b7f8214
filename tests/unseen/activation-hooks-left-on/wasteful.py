"""Serve a mixer network for tabular windows; the service can watch activations while it is brought up."""

from dataclasses import dataclass

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, STEPS, WIDTH, DEPTH = (256, 128, 512, 8) if DEVICE == "cuda" else (32, 32, 96, 4)


@dataclass
class ServiceOptions:
    max_batch: int = 256
    watch_activations: bool = True
    warn_above: float = 50.0
    name: str = "windows-a"


class MixerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.over_time = nn.Linear(STEPS, STEPS)
        self.over_features = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, windows):
        windows = windows + self.over_time(self.norm(windows).mT).mT
        return windows + self.over_features(windows)


class ActivationMonitor:
    """Keeps the latest statistics of what each layer puts out."""

    def __init__(self, model, kinds=(nn.Linear, nn.GELU, nn.LayerNorm)):
        self.latest = {}
        for name, module in model.named_modules():
            if isinstance(module, kinds):
                module.register_forward_hook(self.recorder(name))

    def recorder(self, name):
        def record(module, inputs, output):
            flat = output.detach().abs().flatten()
            self.latest[name] = {
                "mean": flat.mean(),
                "std": flat.std(),
                "largest": flat.max(),
                "dead": (flat < 1e-6).float().mean(),
            }

        return record


class Service:
    def __init__(self, model, options):
        self.model = model.to(DEVICE).eval()
        self.options = options
        self.monitor = ActivationMonitor(self.model) if options.watch_activations else None

    @torch.inference_mode()
    def predict(self, windows):
        return self.model(windows[: self.options.max_batch]).mean(dim=1)


def build():
    torch.manual_seed(0)
    service = Service(nn.Sequential(*(MixerBlock() for _ in range(DEPTH))), ServiceOptions())
    windows = torch.randn(BATCH, STEPS, WIDTH).to(DEVICE)

    def step():
        return service.predict(windows)

    return step
