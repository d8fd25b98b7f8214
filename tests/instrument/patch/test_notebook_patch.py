"""A patched notebook: changed lines, everything else of the file as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulediff.instrument.patch.edits import apply_edits
from joulediff.instrument.patch.notebook import patch_notebook, unpatch_notebook
from joulediff.instrument.patch.program import patch_program, unpatch_program
from joulediff.instrument.patch.source import PatchRequest
from joulediff.model.errors import ProgramError
from notebook_builders import code, notebook

HEADER = [
    "# Added by `joulediff patch`; `joulediff patch --undo FILE` removes it and each `measured(...)`.\n",
    "from joulediff.patched import measured\n",
    'measured.start("train.ipynb", "numpy")\n',
    "\n",
]
STOP = ["# Added by `joulediff patch`: ends the measurement and shows its report.\n", "measured.stop()"]


def patch(content: Any, *libraries: str, level: Any = "method", **form: Any) -> tuple[str, str]:
    text = content if isinstance(content, str) else json.dumps(content, **form)
    found, _ = patch_notebook(text, "train.ipynb", PatchRequest(libraries, "train.ipynb", level))
    return text, apply_edits(text, found.edits)


def undo(text: str) -> str:
    return apply_edits(text, unpatch_notebook(text, "train.ipynb").edits)


def sources(text: str) -> list[list[str]]:
    return [each["source"] for each in json.loads(text)["cells"]]


CELLS = (
    {"cell_type": "markdown", "metadata": {"é": 1}, "source": ["np.ones(1)\n"]},
    code("!pip list\n"),
    code(
        "%%time\n",
        "%matplotlib inline\n",
        "import numpy as np\n",
        'x = np.ones(1)  # é "😀" \\\n',
        outputs=[{"é": 1.50}],
    ),
    code("%%bash\n", "f(x)"),
    code(source=["def f(a):\n", "    return np.add(a, 1)\n", "%time f(x)\n", "y = !ls\n", "f(x).sum()"]),
    code(source=[]),
)


@pytest.mark.parametrize("form", [{"indent": 1}, {"indent": 2, "ensure_ascii": False}, {}, {"separators": (",", ":")}])
def test_only_lines_with_calls_change(form: dict[str, Any]) -> None:
    before, after = patch(notebook(*CELLS), **form)
    assert sources(after) == [
        ["np.ones(1)\n"],
        ["!pip list\n"],
        ["%%time\n", *HEADER, *CELLS[2]["source"][1:3], 'x = measured(np.ones)(1)  # é "😀" \\\n'],
        ["%%bash\n", "f(x)"],
        [
            "def f(a):\n",
            "    return measured(np.add)(a, 1)\n",
            "%time f(x)\n",
            "y = !ls\n",
            "measured(measured(f)(x).sum)()",
        ],
        [],
        STOP,
    ]
    kept = [line for line in before.splitlines() if "np." not in line and "f(x).sum" not in line]
    assert not form.get("indent") or set(kept) <= set(after.splitlines())
    assert undo(after) == before


def test_the_last_cell_has_an_id_where_the_format_has_them() -> None:
    for minor, expected in ((5, True), (2, False)):
        _, after = patch(notebook(*CELLS, nbformat_minor=minor))
        assert ("id" in json.loads(after)["cells"][-1]) is expected


def test_a_source_that_is_one_string_stays_one() -> None:
    content = notebook(code(source="import numpy\nnumpy.ones(1)\n"))
    before, after = patch(content)
    assert json.loads(after)["cells"][0]["source"] == "".join(HEADER) + "import numpy\nmeasured(numpy.ones)(1)\n"
    assert undo(after) == before


def test_the_whole_program_needs_the_import_alone() -> None:
    before, after = patch(notebook(*CELLS), level="project")
    changed = [each for each in sources(after) if each not in sources(before)]
    assert len(changed) == 2 and changed[1] == STOP
    assert 'measured.start("train.ipynb")\n' in changed[0]
    assert undo(after) == before


def test_names_are_those_of_all_cells() -> None:
    content = notebook(code("import numpy as np, os\n"), code("def f(): pass\n"), code("f(); os.getcwd(); np.f()"))
    assert sources(patch(content)[1])[2] == ["f(); os.getcwd(); measured(np.f)()"]
    rebound = notebook(
        code("import numpy as np\n"), code("def f(): pass\n"), code("f(); np.f()"), code("%time f = g()")
    )
    assert sources(patch(rebound)[1])[2] == ["measured(f)(); measured(np.f)()"]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([code("import numpy\n", "x = = 1")], "train.ipynb#cell-1, line 2: invalid syntax: x = = 1"),
        ([code("import numpy\n", "x = 1")], "no call in train.ipynb can be one of numpy"),
        ([code("x.f(1)")], "train.ipynb imports none of"),
        ([code("import numpy\n", "from joulediff.patched import measured")], "no call in train.ipynb"),
    ],
)
def test_what_cannot_be_patched_is_refused(cells: list[Any], said: str) -> None:
    with pytest.raises(ProgramError) as raised:
        patch(notebook(*cells))
    assert said in raised.value.what and raised.value.fix


def test_a_notebook_without_python_is_refused() -> None:
    with pytest.raises(ProgramError, match="has no cell of Python code"):
        patch(notebook(code("%%bash\n", "ls"), code("!ls")), level="project")


def test_a_patched_notebook_is_refused_and_a_plain_one_has_no_patch() -> None:
    before, after = patch(notebook(*CELLS))
    with pytest.raises(ProgramError, match="is patched already"):
        patch(after)
    with pytest.raises(ProgramError, match="is not patched"):
        undo(before)


LINES = st.lists(
    st.sampled_from(
        ["np.f(1)\n", "x = np.a(np.b('é😀'))\n", "%time x\n", "\n", "def f(): return np.g()\n", '# \t\\"\n', "!ls\n"]
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=4), st.booleans(), st.sampled_from([None, 1, 4]), st.booleans())
def test_undo_gives_back_each_byte(cells: list[list[str]], is_ascii: bool, indent: int | None, is_list: bool) -> None:
    made = [code(source=lines if is_list else "".join(lines)) for lines in cells]
    content = notebook(code("import numpy as np\n", "np.zeros(1)"), *made)
    before, after = patch(content, ensure_ascii=is_ascii, indent=indent)
    assert undo(after) == before
    assert len(json.loads(after)["cells"]) == len(content["cells"]) + 1


def test_odd_escapes_and_windows_line_ends_of_the_file_stay(tmp_path: Path) -> None:
    source = r'["\u0069mport numpy\n", "numpy.f(\"\/\ud83d\ude00\") \u002e g()"]'
    text = '{"nbformat":4,\r\n "cells" : [ {"source": ' + source + ',\r\n "cell_type":"code"} ]\r\n}'
    (tmp_path / "a.ipynb").write_bytes(text.encode())
    found = patch_program(str(tmp_path / "a.ipynb"), output=str(tmp_path / "b.ipynb"), libraries=(), level="method")
    assert '"measured(measured(numpy.f)(\\"\\/\\ud83d\\ude00\\") \\u002e g)()"' in found.after.text
    (tmp_path / "b.ipynb").write_bytes(found.after.to_bytes())
    assert unpatch_program(str(tmp_path / "b.ipynb")).after.to_bytes() == text.encode()
