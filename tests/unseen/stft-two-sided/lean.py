"""Log-mel features of a batch of recordings."""

from dataclasses import dataclass

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class FeatureConfig:
    """What the front end of the recogniser needs to know."""

    sample_rate: int = 16000
    n_fft: int = 1024
    hop_length: int = 256
    n_mels: int = 80
    onesided: bool = True


def mel_filters(config: FeatureConfig) -> torch.Tensor:
    bins = config.n_fft // 2 + 1
    top = 2595.0 * torch.log10(torch.tensor(1.0 + config.sample_rate / 2 / 700.0))
    mels = torch.linspace(0.0, float(top), config.n_mels + 2)
    hertz = 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    frequencies = torch.linspace(0.0, config.sample_rate / 2, bins)
    slopes = hertz[:, None] - frequencies[None, :]
    widths = hertz[1:] - hertz[:-1]
    rising = -slopes[:-2] / widths[:-1, None]
    falling = slopes[2:] / widths[1:, None]
    return torch.clamp(torch.minimum(rising, falling), min=0.0)


class LogMel(torch.nn.Module):
    """Waveforms in, log-mel frames out."""

    def __init__(self, config: FeatureConfig):
        super().__init__()
        self.config = config
        self.register_buffer("window", torch.hann_window(config.n_fft))
        self.register_buffer("filters", mel_filters(config))

    def forward(self, waves):
        config = self.config
        spectrum = torch.stft(
            waves,
            n_fft=config.n_fft,
            hop_length=config.hop_length,
            window=self.window,
            onesided=config.onesided,
            return_complex=True,
        )
        power = spectrum.abs().square()[:, : config.n_fft // 2 + 1]
        return torch.log(self.filters @ power + 1e-5)


def build():
    torch.manual_seed(0)
    batch, seconds = (64, 20) if DEVICE == "cuda" else (4, 3)
    config = FeatureConfig()
    front_end = LogMel(config).to(DEVICE).eval()
    waves = torch.randn(batch, seconds * config.sample_rate).to(DEVICE)

    @torch.no_grad()
    def step():
        return front_end(waves)

    return step
