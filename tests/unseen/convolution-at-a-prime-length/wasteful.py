"""Put dry recordings into measured rooms: convolution with impulse responses in the frequency domain."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, SAMPLES, TAPS = (32, 491520, 32768) if DEVICE == "cuda" else (128, 7168, 1024)


def transform_size(samples, taps):
    """Return a size at which the circular convolution equals the linear one."""
    return samples + taps - 1


class Reverb(torch.nn.Module):
    """Adds the room to the dry signal, then brings the level back."""

    def __init__(self, responses, wet=0.4):
        super().__init__()
        self.register_buffer("responses", responses)
        self.wet = wet

    def forward(self, dry):
        samples = dry.shape[-1]
        size = transform_size(samples, self.responses.shape[-1])
        spectrum = torch.fft.rfft(dry, n=size) * torch.fft.rfft(self.responses, n=size)
        wet = torch.fft.irfft(spectrum, n=size)[..., :samples]
        mixed = (1.0 - self.wet) * dry + self.wet * wet
        level = dry.square().mean(-1, keepdim=True).sqrt() / mixed.square().mean(-1, keepdim=True).sqrt()
        return mixed * level


def decaying_noise(count, taps):
    decay = torch.exp(-torch.arange(taps) * (6.0 / taps))
    return torch.randn(count, taps) * decay


def build():
    torch.manual_seed(0)
    reverb = Reverb(decaying_noise(BATCH, TAPS)).to(DEVICE)
    dry = torch.randn(BATCH, SAMPLES).to(DEVICE)

    @torch.no_grad()
    def step():
        return reverb(dry)

    return step
