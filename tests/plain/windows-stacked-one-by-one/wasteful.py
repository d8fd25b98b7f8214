"""Collect windows of a signal into one matrix and take their spectra."""

import numpy as np

WINDOW, HOP = 256, 64


def load(length):
    return np.random.default_rng(5).standard_normal(length)


def windows_of(signal):
    rows = np.empty((0, WINDOW))
    for start in range(0, len(signal) - WINDOW + 1, HOP):
        rows = np.vstack([rows, signal[start : start + WINDOW]])
    return rows


def spectra(rows):
    return np.abs(np.fft.rfft(rows * np.hanning(WINDOW), axis=1))


def build():
    signal = load(48_000)

    def step():
        rows = windows_of(signal)
        return spectra(rows).mean(axis=0)

    return step
