"""Watts of one busy core, by CPU model: the vendor's thermal design power over its cores.

A rough guide for machines without a sensor. A busy core draws more when its neighbours rest and
less when it waits for memory; joules made from this are `estimated` and say so.
"""

from __future__ import annotations

import re
import statistics

# (pattern in the model name, design power in W, physical cores). Entered as commonly stated and not checked
# against data sheets; models made for one cloud (8175M, 8259CL, 8375C, 8488C, 7B12, 7R13, 9R14 ...) have no
# public one, and stand as their nearest relatives.
_MODELS: tuple[tuple[str, float, int], ...] = (
    (r"Xeon.*Platinum 8592", 350, 64),
    (r"Xeon.*Platinum 8480|Xeon.*Platinum 8481", 350, 56),
    (r"Xeon.*Platinum 8488", 385, 48),
    (r"Xeon.*Platinum 8470", 350, 52),
    (r"Xeon.*Platinum 8468", 350, 48),
    (r"Xeon.*Platinum 8462", 300, 32),
    (r"Xeon.*Platinum 8380", 270, 40),
    (r"Xeon.*Platinum 8375", 300, 32),
    (r"Xeon.*Platinum 8358", 250, 32),
    (r"Xeon.*Platinum 8280", 205, 28),
    (r"Xeon.*Platinum 8275", 240, 24),
    (r"Xeon.*Platinum 8259", 210, 24),
    (r"Xeon.*Platinum 8175", 240, 24),
    (r"Xeon.*Gold 6338", 205, 32),
    (r"Xeon.*Gold 6248", 150, 20),
    (r"Xeon.*Gold 6148", 150, 20),
    (r"Xeon.*Silver 4314", 135, 16),
    (r"Xeon.*E5-2699 v4", 145, 22),
    (r"Xeon.*E5-2686 v4", 145, 18),
    (r"EPYC 9654", 360, 96),
    (r"EPYC 9554", 360, 64),
    (r"EPYC 9R14", 360, 96),
    (r"EPYC 7763", 280, 64),
    (r"EPYC 7742", 225, 64),
    (r"EPYC 7R32", 280, 48),
    (r"EPYC 7R13", 225, 48),
    (r"EPYC 7B12", 240, 64),
    (r"EPYC 7B13", 240, 60),
    (r"EPYC 7543", 225, 32),
    (r"Ryzen Threadripper PRO 5995WX", 280, 64),
    (r"Ryzen 9 7950X", 170, 16),
    (r"Ryzen 9 5950X", 105, 16),
    (r"Ryzen 7 5800X", 105, 8),
    (r"i9-14900K|i9-13900K", 125, 24),
    (r"i9-12900K", 125, 16),
    (r"i7-12700K", 125, 12),
    (r"i7-10700K", 125, 8),
    (r"i5-12400", 65, 6),
)

DEFAULT_WATTS_PER_CORE = round(statistics.median(watts / cores for _, watts, cores in _MODELS), 1)


def watts_per_core(model: str) -> tuple[float, str]:
    """Return the watts of one busy core of `model`, and a sentence on where they come from."""
    for pattern, design_w, cores in _MODELS:
        if re.search(pattern, model):
            return design_w / cores, f"{model}: {design_w:g} W design power over {cores} cores"
    return (
        DEFAULT_WATTS_PER_CORE,
        f"{model or 'an unknown CPU'} is not in the table: {DEFAULT_WATTS_PER_CORE} W, the median of those that are",
    )
