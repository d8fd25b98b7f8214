"""The nearest rows of a table, by their largest difference in any column.

Few rows are compared one by one: that is done before scipy's tree is imported, which takes a quarter of a second.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# So many comparisons of rows take about as long as the import.
FEW = 1_000_000
_CHUNK = 256


def find_nearest(
    table: Floats, rows: Floats, *, count: int = 1, within: float = np.inf
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the distances and places in `table` of the `count` nearest to each row, the nearest first.

    A place beyond `within`, or beyond the table, has an infinite distance.
    """
    if len(table) * len(rows) > FEW:
        from scipy.spatial import cKDTree

        found = cKDTree(table).query(rows, k=count, p=np.inf, distance_upper_bound=within)
        distances, places = (np.asarray(each).reshape(len(rows), count) for each in found)
        return distances, places
    distances = np.full((len(rows), count), np.inf)
    places = np.full((len(rows), count), len(table), dtype=np.int64)
    kept = min(count, len(table))
    for begin in range(0, len(rows), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        apart = np.abs(rows[part, None, :] - table[None, :, :]).max(axis=2, initial=0.0)
        nearest = np.argsort(apart, axis=1, kind="stable")[:, :kept]
        distances[part, :kept] = np.take_along_axis(apart, nearest, axis=1)
        places[part, :kept] = nearest
    distances[distances >= within] = np.inf
    return distances, places
