"""Notebooks for tests, as the text of their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def code(*lines: str, **members: Any) -> dict[str, Any]:
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": list(lines)}
    return {**cell, **members}


def notebook(*cells: Any, **members: Any) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **members}


def write(folder: Path, *cells: Any, **members: Any) -> str:
    path = folder / "train.ipynb"
    path.write_text(json.dumps(notebook(*cells, **members), indent=1), encoding="utf-8")
    return str(path)
