"""Audio augmentation: convolve speech with a bank of room impulse responses by FFT."""

from dataclasses import dataclass

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BIG = DEVICE == "cuda"


@dataclass
class Options:
    rate: int = 16000
    clip_samples: int = 160000 if BIG else 24000
    room_samples: int = 40000 if BIG else 8008
    rooms: int = 16 if BIG else 4
    clips: int = 32 if BIG else 12
    decay: float = 6.0
    wet: float = 0.4
    peak: float = 0.95
    frame: int = 512
    hop: int = 160
    verbose: bool = False


def room_responses(options):
    """Exponentially decaying noise with a direct path at sample zero."""
    gen = torch.Generator().manual_seed(21)
    time = torch.linspace(0, 1, options.room_samples)
    noise = torch.randn(options.rooms, options.room_samples, generator=gen)
    rooms = noise * torch.exp(-options.decay * time)
    rooms[:, 0] = 4.0
    return rooms / rooms.norm(dim=-1, keepdim=True)


def speech_like(options):
    """Clips of noise with a slow modulation, as of syllables."""
    gen = torch.Generator().manual_seed(22)
    time = torch.arange(options.clip_samples) / options.rate
    carrier = torch.randn(options.clips, options.clip_samples, generator=gen)
    envelope = 0.5 + 0.5 * torch.sin(6.2832 * 3.0 * time)
    return carrier * envelope * 0.1


def convolution_length(signal, kernel):
    """Samples of a full linear convolution."""
    return signal.shape[-1] + kernel.shape[-1] - 1


class FFTConvolver(nn.Module):
    """Linear convolution over the last dimension through the frequency domain."""

    def forward(self, signal, kernel):
        full = convolution_length(signal, kernel)
        size = full
        spectrum = torch.fft.rfft(signal, n=size) * torch.fft.rfft(kernel, n=size)
        return torch.fft.irfft(spectrum, n=size)[..., :full]


class LogSpectrogram(nn.Module):
    """Features of the recogniser: log power of short frames."""

    def __init__(self, frame, hop):
        super().__init__()
        self.frame, self.hop = frame, hop
        self.register_buffer("window", torch.hann_window(frame))

    def forward(self, audio):
        frames = torch.stft(audio, self.frame, self.hop, window=self.window, return_complex=True)
        return frames.abs().square().add(10.0).log()


class RoomReverb(nn.Module):
    """Mixes each clip with its reverberated version for one room."""

    def __init__(self, options):
        super().__init__()
        self.options = options
        self.convolve = FFTConvolver()
        self.register_buffer("rooms", room_responses(options))

    def normalise(self, audio):
        loudest = audio.abs().amax(-1, keepdim=True).clamp_min(1e-6)
        return audio * (self.options.peak / loudest)

    def forward(self, clips, room):
        kernel = self.rooms[room]
        wet = self.convolve(clips, kernel)[..., : clips.shape[-1]]
        mixed = (1 - self.options.wet) * clips + self.options.wet * wet
        return self.normalise(mixed)


@torch.no_grad()
def augment(reverb, spectrogram, clips, options):
    """Every clip gets the room that its number names."""
    room = torch.arange(options.clips, device=clips.device) % options.rooms
    audio = reverb(clips, room)
    if options.verbose:
        print("augmented", tuple(audio.shape))
    return audio, spectrogram(audio)


def build():
    torch.manual_seed(0)
    options = Options()
    reverb = RoomReverb(options).to(DEVICE).eval()
    spectrogram = LogSpectrogram(options.frame, options.hop).to(DEVICE)
    clips = speech_like(options).to(DEVICE)

    def step():
        return augment(reverb, spectrogram, clips, options)

    return step
