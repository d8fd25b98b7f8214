"""Patches the code cells of a notebook. All of the file outside of their changed lines stays as it is.

The import goes into the first cell of Python code. A last cell ends the measurement, so that its report is shown.
"""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from joulediff.instrument.notebook.magics import PlainCell, to_plain
from joulediff.instrument.notebook.read import Cell, Notebook, Token, parse_notebook, raw_offsets
from joulediff.instrument.patch.edits import TextEdit
from joulediff.instrument.patch.header import choose_name, find_header, header_lines
from joulediff.instrument.patch.libraries import choose_libraries, other_libraries
from joulediff.instrument.patch.own_names import find_own_names
from joulediff.instrument.patch.source import (
    PatchRequest,
    SourceEdits,
    find_header_place,
    nothing_to_measure,
    unwrap_calls,
    wrap_calls,
)
from joulediff.model.errors import ProgramError

_LAST_ID = "joulediff-stop"
# Cell magics whose cells hold no Python, and bind no name.
_NO_PYTHON = re.compile(
    r"%%(?:bash|sh|script|html|HTML|javascript|js|latex|markdown|svg|writefile|perl|ruby|cmd|file)\b"
)


@dataclass(frozen=True, slots=True)
class _Code:
    """A cell with its Python code."""

    cell: Cell
    name: str
    plain: PlainCell
    tree: ast.Module

    @property
    def has_statements(self) -> bool:
        """Whether there is more in the cell than magics."""
        return len(self.tree.body) > len(self.plain.magics)


def patch_notebook(text: str, path: str, request: PatchRequest) -> tuple[SourceEdits, PatchRequest]:
    """Return the changes of the file's text, and the request with the libraries that were chosen."""
    notebook = parse_notebook(text, path)
    if any(find_header(cell.source) is not None for cell in notebook.cells):
        raise ProgramError(
            f"{path} is patched already", fix=f"run it, or take the patch out: joulediff patch --undo {path} -o FILE"
        )
    codes = [_read(cell, notebook.name_cell(cell)) for cell in notebook.cells]
    trees = [each.tree for each in codes]
    if request.level == "method":
        chosen = choose_libraries("\n".join(each.plain.source for each in codes), request.libraries, path)
        request = replace(request, libraries=chosen, other=other_libraries(chosen))
    own = find_own_names(trees, other=request.other, local=request.local, magics=[*_binding_magics(codes)])
    wrapper = choose_name(own.every)
    first = next((each for each in codes if each.has_statements), None)
    if first is None:
        raise ProgramError(f"{path} has no cell of Python code", fix="give a notebook with Python code")
    edits, calls = [], 0
    for code in codes:
        begin = find_header_place(code.plain.source, code.tree, code.name) if code is first else 0
        is_wrapped = request.level == "method"
        found = (
            wrap_calls(code.plain.source, code.name, own, wrapper, begin=begin) if is_wrapped else SourceEdits((), 0)
        )
        edits += [each for edit in found.edits for each in _to_file(notebook, code.cell, edit)]
        calls += found.calls
        if code is first:
            lines = header_lines(wrapper, request.program, request.libraries if request.level == "method" else ())
            edits.insert(0, _insert_lines(notebook, code.cell, begin, [line + "\n" for line in lines]))
    if request.level == "method" and not calls:
        raise nothing_to_measure(path, request.libraries)
    edits.append(_add_last_cell(notebook, wrapper))
    return SourceEdits(tuple(edits), calls), request


def unpatch_notebook(text: str, path: str) -> SourceEdits:
    """Return the changes that take the patch out of the file's text."""
    from joulediff.instrument.patch.program import not_patched

    notebook = parse_notebook(text, path)
    headers = [(cell, header) for cell in notebook.cells if (header := find_header(cell.source)) is not None]
    if not headers:
        raise not_patched(path)
    first, header = headers[0]
    edits, calls = [], 0
    for cell in notebook.cells:
        code = _read(cell, notebook.name_cell(cell))
        found = unwrap_calls(code.plain.source, code.name, header.name)
        edits += [each for edit in found.edits for each in _to_file(notebook, cell, edit)]
        calls += found.calls
    edits += _remove(notebook, first, header.start, header.end)
    edits += _remove_last_cell(notebook, header.name)
    return SourceEdits(tuple(edits), calls)


def _read(cell: Cell, name: str) -> _Code:
    plain = to_plain(cell.source, name)
    return _Code(cell, name, plain, ast.parse(plain.source, name))


def _binding_magics(codes: Sequence[_Code]) -> Iterator[str]:
    """Yield the texts of magics that may bind names of the program: all but shell lines, and those that set up."""
    for code in codes:
        yield from (m.text for m in code.plain.magics if not m.is_harmless and "!" not in m.text)
        magic = code.plain.cell_magic
        if magic is not None and not code.tree.body and _NO_PYTHON.match(magic.text) is None:
            yield code.cell.source.lstrip()


def _to_file(notebook: Notebook, cell: Cell, edit: TextEdit) -> Iterator[TextEdit]:
    """Yield a change of a cell's source as changes of the file: of the strings that hold it."""
    if edit.start == edit.end:
        token, at = _place(cell, edit.start)
        offset = raw_offsets(notebook.text, token)[at]
        yield TextEdit(offset, offset, json.dumps(edit.text)[1:-1])
    else:
        yield from _remove(notebook, cell, edit.start, edit.end)


def _place(cell: Cell, offset: int) -> tuple[Token, int]:
    """Return the string that holds the character of the source at `offset`, and its place in it."""
    begins = _begins(cell)
    index = bisect_right(begins, offset) - 1
    while not cell.tokens[index].value and index > 0:
        index -= 1
    return cell.tokens[index], offset - begins[index]


def _begins(cell: Cell) -> list[int]:
    begins, at = [], 0
    for token in cell.tokens:
        begins.append(at)
        at += len(token.value)
    return begins


def _insert_lines(notebook: Notebook, cell: Cell, begin: int, lines: Sequence[str]) -> TextEdit:
    """Return the change that adds whole lines to a cell: as strings of their own, where each line is one."""
    token, at = _place(cell, begin)
    if at or not cell.is_list:
        offset = raw_offsets(notebook.text, token)[at]
        return TextEdit(offset, offset, json.dumps("".join(lines))[1:-1])
    between = _space_before(notebook.text, cell.tokens[min(1, len(cell.tokens) - 1)].start)
    added = "".join(f"{json.dumps(line)},{between}" for line in lines)
    return TextEdit(token.start, token.start, added)


def _space_before(text: str, at: int) -> str:
    start = at
    while start > 0 and text[start - 1] in " \t\r\n":
        start -= 1
    return text[start:at]


def _remove(notebook: Notebook, cell: Cell, start: int, end: int) -> Iterator[TextEdit]:
    """Yield the changes that remove characters of a cell; a string that loses all of them goes with its comma."""
    for begin, token in zip(_begins(cell), cell.tokens, strict=True):
        first, last = max(start, begin), min(end, begin + len(token.value))
        if first >= last:
            continue
        if cell.is_list and last - first == len(token.value) and token is not cell.tokens[-1]:
            following = cell.tokens[cell.tokens.index(token) + 1]
            yield TextEdit(token.start, following.start, "")
        else:
            offsets = raw_offsets(notebook.text, token)
            yield TextEdit(offsets[first - begin], offsets[last - begin], "")


def _last_source(wrapper: str) -> list[str]:
    return ["# Added by `joulediff patch`: ends the measurement and shows its report.\n", f"{wrapper}.stop()"]


def _add_last_cell(notebook: Notebook, wrapper: str) -> TextEdit:
    cells = notebook.cell_spans
    start, end = cells[-1]
    content: dict[str, object] = {
        "cell_type": "code",
        "execution_count": None,
        **({"id": _LAST_ID} if notebook.has_ids else {}),
        "metadata": {},
        "outputs": [],
        "source": _last_source(wrapper),
    }
    between = _space_before(notebook.text, start)
    indent = between.rpartition("\n")[2]
    is_indented = "\n" in between
    shown = json.dumps(content, indent=1) if is_indented else json.dumps(content)
    return TextEdit(end, end, f",{between}{shown.replace(chr(10), chr(10) + indent)}")


def _remove_last_cell(notebook: Notebook, wrapper: str) -> Iterator[TextEdit]:
    last = notebook.cells[-1]
    if last.source == "".join(_last_source(wrapper)) and len(notebook.cell_spans) > 1:
        yield TextEdit(notebook.cell_spans[-2][1], notebook.cell_spans[-1][1], "")
