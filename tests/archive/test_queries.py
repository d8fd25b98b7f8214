"""The queries in the document of the file format work as they are written there."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from paths import GOLDEN, ROOT

SECTION = re.search(r"^## Queries$(.*?)^## ", (ROOT / "docs" / "file-format.md").read_text("utf-8"), re.M | re.S)
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", SECTION.group(1) if SECTION else "", re.S)


@pytest.mark.parametrize(("library", "example"), list(zip(("duckdb", "pandas"), EXAMPLES, strict=True)))
def test_a_query_prints_the_output_in_the_document(
    library: str,
    example: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip(library)
    code, shown = example
    assert f"import {library}" in code
    shutil.copy(GOLDEN / "h200_gpt2.jd", tmp_path / "gpt2.jd")
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    exec(compile(code, "file-format.md", "exec"), {})
    assert capsys.readouterr().out == shown
    assert "joulediff" not in {name.partition(".")[0] for name in set(sys.modules) - before}
