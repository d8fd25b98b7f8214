"""Give the second program the first one's names where the two differ in names only.

Only a name that one side lacks is renamed, to a name that the other side lacks: no meaning changes.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher

from joulediff.pysource.edits.parsed import Parsed, parse_file
from joulediff.pysource.edits.syntax import (
    DEFINITIONS,
    FUNCTIONS,
    IMPORTS,
    Definition,
    body_of,
    labels_of,
    likeness,
    own_nodes,
    parameters,
)
from joulediff.pysource.source_files import SourceFile

# Definitions with other names are versions of one if they share this much of their words.
_LIKE = 0.55
_LIKE_STATEMENT = 0.5
_UNKNOWN = "?"


def rename_to_match(a: Parsed, b: Parsed, entries: tuple[str, str], ignored_a: set[str]) -> Parsed:
    """Return b with the names of a for the entry, for similar definitions, and for their variables."""
    b = _apply(b, _definition_renames(a, b, entries, ignored_a))
    for scope_a, path in list(_scope_paths(a, b, ignored_a)):
        scope_b = _find(b.tree, path)
        if scope_b is None:
            continue
        names = _variable_renames(scope_a, scope_b, b.tree)
        if names:
            b = _apply(b, [(scope_b, old, new) for old, new in names.items()])
    return b


def pair_modules(a: dict[str, Parsed], b: dict[str, Parsed]) -> dict[str, Parsed]:
    """Return the files of b with the modules' names of a for similar files that have other names."""
    alone_a = [module for module in a if module and module not in b]
    alone_b = [module for module in b if module and module not in a]
    scores = []
    for module in alone_a:
        words = labels_of(a[module].tree)
        scores += [(-likeness(words, labels_of(b[other].tree)), module, other) for other in alone_b]
    found = dict(b)
    done: set[str] = set()
    for score, module, other in sorted(scores):
        if -score < _LIKE or module in done or other in done:
            continue
        done |= {module, other}
        found = {name: _rename_module(parsed, other, module) for name, parsed in found.items()}
        found[module] = found.pop(other)
    return found


def _rename_module(parsed: Parsed, old: str, new: str) -> Parsed:
    """Return a file that imports a module by another name."""
    word = re.compile(rf"(?<![\w.]){re.escape(old)}(?!\w)")
    changes: dict[int, tuple[int, str]] = {}
    for each in ast.walk(parsed.tree):
        is_import = isinstance(each, ast.Import) and any(alias.name == old for alias in each.names)
        is_from = isinstance(each, ast.ImportFrom) and each.module == old and not each.level
        is_use = isinstance(each, ast.Name) and each.id == old
        if is_import or is_from or is_use:
            place = word.search(parsed.text, parsed.start(each), parsed.end(each))
            if place is not None:
                changes[place.start()] = (place.end(), new)
    return (replace_spans(parsed, changes) if changes else None) or parsed


def _definition_renames(
    a: Parsed, b: Parsed, entries: tuple[str, str], ignored_a: set[str]
) -> list[tuple[ast.AST, str, str]]:
    top_a = {each.name: each for each in a.tree.body if isinstance(each, DEFINITIONS) and each.name not in ignored_a}
    top_b = {each.name: each for each in b.tree.body if isinstance(each, DEFINITIONS)}
    used_b = identifiers(b.tree)
    pairs: list[tuple[str, str]] = []
    first, second = entries
    if first != second and first in top_a and second in top_b and first not in used_b:
        pairs.append((first, second))
    alone_a = [each for name, each in top_a.items() if name not in top_b and name not in used_b and name != first]
    alone_b = [each for name, each in top_b.items() if name not in top_a and name != second]
    pairs += [(x.name, y.name) for x, y in _pair_similar(alone_a, alone_b)]
    return [(b.tree, new, old) for old, new in pairs]


def _pair_similar(left: list[Definition], right: list[Definition]) -> list[tuple[Definition, Definition]]:
    words_left = [_body_words(each) for each in left]
    words_right = [_body_words(each) for each in right]
    scores = []
    for i, x in enumerate(left):
        for j, y in enumerate(right):
            score = likeness(words_left[i], words_right[j]) if type(x) is type(y) else 0.0
            if score >= _LIKE:
                scores.append((-score, i, j))
    found = []
    done_left: set[int] = set()
    done_right: set[int] = set()
    for _, i, j in sorted(scores):
        if i not in done_left and j not in done_right:
            found.append((left[i], right[j]))
            done_left.add(i)
            done_right.add(j)
    return found


def _body_words(definition: Definition) -> Counter[str]:
    return sum((labels_of(each) for each in body_of(definition)), Counter[str]())


def _scope_paths(a: Parsed, b: Parsed, ignored_a: set[str]) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Yield the functions that both files have, outermost first, then the module."""
    top_a = [each for each in a.tree.body if isinstance(each, DEFINITIONS) and each.name not in ignored_a]
    for each in top_a:
        path: tuple[str, ...] = (each.name,)
        if _find(b.tree, path) is None:
            continue
        if isinstance(each, FUNCTIONS):
            yield each, path
            continue
        for method in each.body:
            if isinstance(method, FUNCTIONS) and _find(b.tree, (*path, method.name)) is not None:
                yield method, (*path, method.name)
    yield a.tree, ()


def paired_scopes(a: Parsed, b: Parsed, ignored_a: set[str]) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield the functions that both files have, then both modules."""
    for scope_a, path in _scope_paths(a, b, ignored_a):
        scope_b = _find(b.tree, path)
        if scope_b is not None:
            yield scope_a, scope_b


def _find(tree: ast.AST, path: tuple[str, ...]) -> ast.AST | None:
    for name in path:
        inside = [each for each in getattr(tree, "body", []) if isinstance(each, DEFINITIONS) and each.name == name]
        if not inside:
            return None
        tree = inside[0]
    return tree


def _variable_renames(scope_a: ast.AST, scope_b: ast.AST, tree_b: ast.AST) -> dict[str, str]:
    """Return new names for variables of b, by what stands in their places in a."""
    used_a, used_b = identifiers(scope_a), identifiers(scope_b)
    only_a = _local_names(scope_a) - used_b
    only_b = _local_names(scope_b) - used_a - _fixed_names(scope_b, tree_b)
    if not only_a or not only_b:
        return {}
    votes = _votes(scope_a, scope_b, only_a, only_b)
    found: dict[str, str] = {}
    for (old, new), count in votes.most_common():
        by_old = sum(number for (name, _), number in votes.items() if name == old)
        by_new = sum(number for (_, name), number in votes.items() if name == new)
        is_clear = 2 * count > by_old and 2 * count > by_new
        if is_clear and old not in found and new not in found.values():
            found[old] = new
    return found


def _votes(scope_a: ast.AST, scope_b: ast.AST, only_a: set[str], only_b: set[str]) -> Counter[tuple[str, str]]:
    """Count how often a variable of b stands where one of a stands."""
    left = [_words(each, only_a) for each in _headers(scope_a)]
    right = [_words(each, only_b) for each in _headers(scope_b)]
    votes: Counter[tuple[str, str]] = Counter()
    shapes_left = [tuple(word for word, _ in each) for each in left]
    shapes_right = [tuple(word for word, _ in each) for each in right]
    for tag, i, i2, j, j2 in SequenceMatcher(None, shapes_left, shapes_right, autojunk=False).get_opcodes():
        if tag == "equal":
            for k in range(i2 - i):
                _vote(votes, left[i + k], right[j + k], 3)
        elif tag == "replace":
            for x, y in _similar_lines(left[i:i2], right[j:j2]):
                _vote(votes, x, y, 1)
    return votes


_Words = list[tuple[str, str]]


def _similar_lines(left: list[_Words], right: list[_Words]) -> Iterator[tuple[_Words, _Words]]:
    start = 0
    if len(left) * len(right) > 2_000:
        return
    for each in left:
        scores = []
        for number, other in enumerate(right[start:], start):
            words = [word for word, _ in each], [word for word, _ in other]
            scores.append((likeness(Counter(words[0]), Counter(words[1])), -number))
        score, number = max(scores, default=(0.0, 0))
        if score >= _LIKE_STATEMENT:
            yield each, right[-number]
            start = -number + 1


def _vote(votes: Counter[tuple[str, str]], left: _Words, right: _Words, weight: int) -> None:
    words = [word for word, _ in left], [word for word, _ in right]
    for i, j, size in SequenceMatcher(None, *words, autojunk=False).get_matching_blocks():
        for k in range(size):
            if left[i + k][1] and right[j + k][1]:
                votes[right[j + k][1], left[i + k][1]] += weight


def _headers(scope: ast.AST) -> list[ast.AST]:
    """Return the statements of a scope and of the functions in it; a compound one stands for its header."""
    return [each for each in _in_order(scope) if isinstance(each, (ast.stmt, ast.arguments))]


def _words(node: ast.AST, hidden: set[str]) -> _Words:
    """Return the words of a statement without the statements in it. Hidden names are given beside `_UNKNOWN`."""
    found: _Words = []
    for each in _in_order(node, within=False):
        name = _name_of(each)
        if name is not None:
            found.append((_UNKNOWN, name) if name in hidden else (name, ""))
        elif isinstance(each, ast.Attribute):
            found.append(("." + each.attr, ""))
        elif isinstance(each, ast.Constant):
            found.append((repr(each.value), ""))
        elif isinstance(each, ast.keyword):
            found.append((f"{each.arg}=", ""))
        elif not isinstance(each, ast.expr_context):
            found.append((type(each).__name__, ""))
    return found


def _in_order(node: ast.AST, *, within: bool = True) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if within or not isinstance(child, (ast.stmt, ast.arguments)):
            yield from _in_order(child, within=within)


def _name_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.arg):
        return node.arg
    return node.name if isinstance(node, DEFINITIONS) else None


def identifiers(tree: ast.AST) -> set[str]:
    """Return all names in a tree, however they are used."""
    found = set()
    for each in ast.walk(tree):
        name = _name_of(each)
        if name is not None:
            found.add(name)
        elif isinstance(each, IMPORTS):
            found |= {alias.asname or alias.name.split(".")[0] for alias in each.names}
        elif isinstance(each, (ast.Global, ast.Nonlocal)):
            found |= set(each.names)
        elif isinstance(each, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and each.name:
            found.add(each.name)
    return found


def _local_names(scope: ast.AST) -> set[str]:
    """Return the variables, parameters and functions of a function and of those in it; of a module only its own."""
    is_module = isinstance(scope, ast.Module)
    nodes = own_nodes(scope) if is_module else ast.walk(scope)
    found = set()
    for each in nodes:
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            found.add(each.id)
        elif isinstance(each, FUNCTIONS) and not is_module and each is not scope:
            found.add(each.name)
        elif not is_module and isinstance(each, ast.arguments):
            found |= {arg.arg for arg in parameters(each)}
    return found


def _fixed_names(scope: ast.AST, tree: ast.AST) -> set[str]:
    """Return the names that cannot be renamed: they are given as keywords, or their place is not in the tree."""
    found = {"self", "cls"}
    for each in ast.walk(tree):
        if isinstance(each, ast.keyword) and each.arg:
            found.add(each.arg)
        elif isinstance(each, (ast.Global, ast.Nonlocal)):
            found |= set(each.names)
    for each in ast.walk(scope):
        if isinstance(each, ast.JoinedStr):
            # Before Python 3.12, a name inside of an f-string has a wrong place.
            found |= {inner.id for inner in ast.walk(each) if isinstance(inner, ast.Name)}
        elif isinstance(each, IMPORTS):
            found |= {alias.asname or alias.name.split(".")[0] for alias in each.names}
        elif isinstance(each, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and each.name:
            found.add(each.name)
    return found


def _apply(parsed: Parsed, renames: Iterable[tuple[ast.AST, str, str]]) -> Parsed:
    """Return the file with names replaced below nodes; unchanged if the result is no valid file."""
    changes: dict[int, tuple[int, str]] = {}
    for scope, old, new in renames:
        for each in ast.walk(scope):
            if _name_of(each) == old:
                start = _place_of_name(parsed, each, old)
                if parsed.text[start : start + len(old)] == old:
                    changes[start] = (start + len(old), new)
    if not changes:
        return parsed
    return replace_spans(parsed, changes) or parsed


def _place_of_name(parsed: Parsed, node: ast.AST, name: str) -> int:
    start = parsed.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
    if isinstance(node, DEFINITIONS):
        keyword = "class " if isinstance(node, ast.ClassDef) else "def "
        return parsed.text.index(name, parsed.text.index(keyword, start) + len(keyword))
    return start


def replace_spans(parsed: Parsed, changes: Mapping[int, tuple[int, str]]) -> Parsed | None:
    """Return the file with spans replaced, given by their start: the end and the new text. None if it is not valid."""
    pieces = []
    position = 0
    for start, (end, new) in sorted(changes.items()):
        pieces += [parsed.text[position:start], new]
        position = end
    text = "".join(pieces) + parsed.text[position:]
    return parse_file(SourceFile(parsed.file.module, parsed.file.path, text))
