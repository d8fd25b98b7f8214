"""Short names of files and kernels, for columns and sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

from joulediff.frameworks.framework import kernel_namespaces


def short_files(files: Iterable[str]) -> dict[str, str]:
    """Return the short name of each file: without its folders, or with one folder if two names are equal."""
    files = set(files)
    names = Counter(PurePath(file).name for file in files)
    return {file: "/".join(PurePath(file).parts[-1 if names[PurePath(file).name] == 1 else -2 :]) for file in files}


def short_kernel(name: str) -> str:
    """Return the name of a kernel without the namespaces that most kernels share.

    They would push the part that differs out of a narrow column.
    """
    shared = "|".join(("std", "cuda", *kernel_namespaces()))
    return re.sub(rf"^void |\b(?:{shared})::|\(anonymous namespace\)::|<unnamed>::", "", name)
