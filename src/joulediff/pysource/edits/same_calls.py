"""Finds calls of one library function to which the two programs pass other literals, wherever the calls stand.

Code that was split, merged or written anew has no counterpart that it could be compared with statement by statement; a
call in it may have one. Calls are compared in order if both programs have the same number of them. Else an argument
must be the same in all calls of each program.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from joulediff.pysource.edits.edit import Edit, Patch, apply_patches
from joulediff.pysource.edits.expressions import Expressions, Place
from joulediff.pysource.edits.naming import function_at
from joulediff.pysource.edits.parsed import Parsed, parse_file
from joulediff.pysource.edits.syntax import DEFINITIONS, Shapes, dotted
from joulediff.pysource.source_files import SourceFile

# Functions whose arguments are texts for people, or sizes of the program's own data.
_NEVER = frozenset(
    ("print", "range", "getLogger", "debug", "info", "warning", "error", "add_argument", "join", "format")
)
# Arguments that belong to the layout of the tensors that a call is given.
_OF_DATA = frozenset(("dim", "axis", "keepdim", "keepdims"))

_Found = tuple[Parsed, ast.Call]


def find_call_edits(a: Sequence[SourceFile], b: Sequence[SourceFile], known: Iterable[Edit] = ()) -> tuple[Edit, ...]:
    """Return an edit of program a for each argument that its calls pass otherwise than those of program b.

    Arguments that `known` edits change are left out. Each edit is checked by parsing the changed file.
    """
    try:
        return tuple(_find(a, b, {(edit.path, edit.line, edit.key) for edit in known}))
    except RecursionError:
        return ()


def _find(a: Sequence[SourceFile], b: Sequence[SourceFile], known: set[tuple[str, int, str]]) -> Iterator[Edit]:
    left, right = _calls(a), _calls(b)
    shapes = Shapes()
    for name, mine in left.items():
        others = right.get(name, [])
        if not others or name in _NEVER:
            continue
        is_in_order = len(mine) == len(others)
        places: dict[tuple[str, str], list[tuple[Parsed, Parsed, ast.Call, Place]]] = defaultdict(list)
        partners = others if is_in_order else [others[0]] * len(mine)
        for (file, call), (other, its) in zip(mine, partners, strict=True):
            for place in Expressions(file, other, shapes, {}).compare_arguments(call, its) or ():
                if _is_chosen(place) and (is_in_order or _is_alike(place.key, mine, others)):
                    places[file.file.path, place.key].append((file, other, call, place))
        for (path, key), found in places.items():
            file, other, call, place = found[0]
            patches = tuple(Patch(path, each.start, each.end, each.text, each.rank) for *_, each in found)
            if (path, call.lineno, key) in known or parse_file(apply_patches(file.file, patches)) is None:
                continue
            yield Edit(
                kind="argument",
                path=path,
                line=call.lineno,
                end_line=call.end_lineno or call.lineno,
                path_b=other.file.path,
                line_b=place.line_b or None,
                key=key,
                call=dotted(call.func),
                value_a=place.value_a,
                value_b=place.value_b,
                function=function_at(file.text, call.lineno),
                needs=(),
                context="",
                patches=patches,
            )


def _calls(files: Sequence[SourceFile]) -> dict[str, list[_Found]]:
    """Return the calls of functions that no file defines, by the last part of their names, in order."""
    parsed = [each for file in files if (each := parse_file(file)) is not None]
    own = {node.name for each in parsed for node in ast.walk(each.tree) if isinstance(node, DEFINITIONS)}
    found: dict[str, list[_Found]] = defaultdict(list)
    for each in parsed:
        calls = [node for node in ast.walk(each.tree) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
            name = dotted(call.func).rpartition(".")[2]
            if name and name not in own:
                found[name].append((each, call))
    return found


def _is_chosen(place: Place) -> bool:
    """Return whether a place is an argument by keyword that a person sets to another literal, or leaves out."""
    if place.kind != "argument" or " " in place.key or place.key in _OF_DATA:
        return False
    return _is_literal(place.node_a) and _is_literal(place.node_b) and place.value_a != place.value_b


def _is_alike(keyword: str, *programs: Sequence[_Found]) -> bool:
    """Return whether each program passes one value by a keyword in all of its calls, or in none of them."""
    return all(len({_text_of(keyword, call) for _, call in calls}) == 1 for calls in programs)


def _text_of(keyword: str, call: ast.Call) -> str | None:
    return next((ast.dump(each.value) for each in call.keywords if each.arg == keyword), None)


def _is_literal(node: ast.AST | None) -> bool:
    """Return whether an argument is a constant, a member of a module, or not given."""
    node = node.value if isinstance(node, ast.keyword) else node
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    if isinstance(node, ast.Tuple | ast.List):
        return all(map(_is_literal, node.elts))
    return node is None or isinstance(node, ast.Constant)
