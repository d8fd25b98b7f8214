"""Invented runs: recordings made by hand from numpy arrays, without a framework."""

from __future__ import annotations

import numpy as np

from joulediff.model.signature import Signature


def sign(x: np.ndarray) -> Signature:
    """Return the signature of an array, written another way than the recorder's."""
    x = np.asarray(x, dtype=np.float64).ravel()
    finite = x[np.isfinite(x)]
    with np.errstate(all="ignore"):
        sums = [float(np.sum(finite)), float(np.sum(np.abs(finite))), *(float(np.sum(finite**n)) for n in (2, 3, 4))]
    return Signature(
        x.size,
        int(np.isnan(x).sum()),
        int(np.isposinf(x).sum()),
        int(np.isneginf(x).sum()),
        int((x == 0).sum()),
        bool((finite == np.floor(finite)).all()),
        float(finite.min()) if finite.size else None,
        float(finite.max()) if finite.size else None,
        *sums,
    )
