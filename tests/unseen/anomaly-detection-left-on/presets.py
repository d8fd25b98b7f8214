"""Presets of a training run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    learning_rate: float
    detect_anomaly: bool
    clip: float


RELEASE = Preset(learning_rate=0.01, detect_anomaly=False, clip=1.0)
DEBUG = Preset(learning_rate=0.01, detect_anomaly=True, clip=1.0)
