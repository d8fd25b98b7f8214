"""Rolls a small weather model forward and publishes regional tiles to subscribers."""

import io
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LARGE = DEVICE == "cuda"

FIELDS = 8
HEIGHT = 512 if LARGE else 192
WIDTH = 1024 if LARGE else 256
HIDDEN = 64 if LARGE else 16
HOURS = 4 if LARGE else 2
TILE = 24
REGIONS = {
    "alps": (40, 60),
    "baltic": (10, 90),
    "iberia": (62, 20),
    "sahel": (110, 44),
    "anatolia": (58, 120),
    "nile": (90, 128),
    "siberia": (8, 180),
    "gobi": (50, 210),
    "deccan": (112, 190),
    "cape": (160, 70),
}

logger = logging.getLogger(__name__)


class Propagator(nn.Module):
    """One hour of weather as a residual convolution, periodic in longitude."""

    def __init__(self, fields, hidden):
        super().__init__()
        self.lift = nn.Conv2d(fields, hidden, 3)
        self.mix = nn.Conv2d(hidden, hidden, 1)
        self.drop = nn.Conv2d(hidden, fields, 1)

    def forward(self, state):
        x = F.pad(state, (1, 1, 0, 0), mode="circular")
        x = F.pad(x, (0, 0, 1, 1), mode="replicate")
        x = F.silu(self.lift(x))
        x = F.silu(self.mix(x))
        return state + 0.1 * self.drop(x)


class Publisher:
    """Cuts the tiles of the subscribed regions and collects them as messages."""

    def __init__(self, regions: dict[str, tuple[int, int]], size: int):
        self.regions = regions
        self.size = size
        self.outbox: list[bytes] = []

    def cut(self, state: torch.Tensor, name: str) -> torch.Tensor:
        top, left = self.regions[name]
        return state[:, top : top + self.size, left : left + self.size]

    def publish(self, state: torch.Tensor, hour: int) -> None:
        for name in self.regions:
            tile = self.cut(state, name)
            self.outbox.append(pack(name, hour, tile))
        logger.debug("hour %d: %d messages waiting", hour, len(self.outbox))


def pack(name: str, hour: int, tile: torch.Tensor) -> bytes:
    buffer = io.BytesIO()
    torch.save({"region": name, "hour": hour, "tile": tile}, buffer)
    return buffer.getvalue()


def unpack(message: bytes) -> dict:
    return torch.load(io.BytesIO(message), map_location=DEVICE, weights_only=True)


def summarize(tile):
    flat = tile.flatten(1)
    return torch.stack([flat.mean(1), flat.amin(1), flat.amax(1)])


def read_outbox(outbox):
    totals = {}
    for message in outbox:
        content = unpack(message)
        totals.setdefault(content["region"], []).append(summarize(content["tile"]))
    return torch.stack([torch.stack(rows) for rows in totals.values()])


def make_state():
    lat = torch.linspace(-1.5, 1.5, HEIGHT).view(1, HEIGHT, 1)
    lon = torch.linspace(0.0, 6.28, WIDTH).view(1, 1, WIDTH)
    wave = torch.arange(1, FIELDS + 1).view(FIELDS, 1, 1)
    return torch.cos(lat * wave) * torch.sin(lon * wave) + 0.1 * torch.randn(FIELDS, HEIGHT, WIDTH)


def build():
    torch.manual_seed(0)
    model = Propagator(FIELDS, HIDDEN)
    model = model.to(DEVICE).eval()
    analysis = make_state().to(DEVICE)

    @torch.no_grad()
    def step():
        publisher = Publisher(REGIONS, TILE)
        state = analysis.unsqueeze(0)
        for hour in range(HOURS):
            state = model(state)
            publisher.publish(state[0], hour)
        return read_outbox(publisher.outbox), state[0].mean(dim=(1, 2))

    return step
