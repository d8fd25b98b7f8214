"""The input sizes of a series: `1e3..1e6` in equal ratios, or a list such as `100,200,400`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from joulediff.model.errors import JoulediffError
from joulediff.model.options import ScaleOptions

# Every size is built and measured, which takes seconds.
MOST_SIZES = 100
_RANGE = re.compile(r"(?P<first>[^,/]+?)\.\.(?P<last>[^,/]+)(?:/(?P<count>\d+))?")
_FIX = "give a range such as 1e3..1e6, a range with the number of sizes (1e3..1e6/10), or a list: 100,200,400"


def parse_sizes(text: str, *, points: int = ScaleOptions.points) -> tuple[int, ...]:
    """Return the sizes that a text means, from small to large; a range has `points` sizes unless it says how many."""
    text = text.replace(" ", "").replace("_", "")
    found = _RANGE.fullmatch(text)
    if found is None:
        return check_sizes([_whole(part, text) for part in text.split(",")])
    first, last = _whole(found["first"], text), _whole(found["last"], text)
    count = points if found["count"] is None else int(found["count"])
    if not first < last:
        raise JoulediffError(f"the sizes {text} do not go up", fix="give the smaller size first: 1e3..1e6")
    if not 2 <= count <= MOST_SIZES:
        raise JoulediffError(f"{count} sizes cannot be a series", fix=f"give a number from 2 to {MOST_SIZES}")
    check_sizes([first, last])
    ratio = math.log(last / first)
    return check_sizes([round(first * math.exp(ratio * at / (count - 1))) for at in range(count)])


def check_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the different sizes from small to large; raises JoulediffError for a number that is no size."""
    wrong = [each for each in sizes if isinstance(each, bool) or not isinstance(each, int) or each < 1]
    if wrong or not sizes:
        what = f"{wrong[0]!r:.40} is not a size" if wrong else "there is no size"
        raise JoulediffError(what, fix="give whole numbers from 1 on")
    distinct = sorted(set(sizes))
    if len(distinct) > MOST_SIZES:
        raise JoulediffError(f"{len(distinct)} sizes are too many", fix=f"give {MOST_SIZES} at most")
    return tuple(distinct)


def _whole(text: str, whole: str) -> int:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number != int(number):
        raise JoulediffError(f"{text or 'nothing'!r} in the sizes {whole!r:.60} is not a whole number", fix=_FIX)
    return int(number)
