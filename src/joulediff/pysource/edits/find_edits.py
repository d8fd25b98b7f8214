"""Find the differences of two programs as edits of the first one's source.

All edits together turn program a into program b, up to names of variables and definitions that nothing uses.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from joulediff.pysource.edits.blocks import Blocks, known_parameters
from joulediff.pysource.edits.couple import find_needs, mark_support, merge_moves, merge_rewritten
from joulediff.pysource.edits.draft import Draft, Scope, merge_drafts
from joulediff.pysource.edits.edit import Edit, Patch, apply_patches
from joulediff.pysource.edits.parsed import Parsed, parse_file
from joulediff.pysource.edits.renames import pair_modules, rename_to_match
from joulediff.pysource.edits.syntax import DEFINITIONS, FUNCTIONS, IMPORTS, Shapes
from joulediff.pysource.edits.temporaries import match_temporaries
from joulediff.pysource.source_files import SourceFile

# Each edit is a possible trial: with more of them, a function that differs is one.
MAX_EDITS = 64
# Above, statements are compared as a whole: it takes under a second for this many lines.
MAX_LINES = 5_000
# Each edit is checked by parsing the changed file: about a second for this many lines in all.
_MOST_CHECKED_LINES = 50_000


def find_edits(
    a: Sequence[SourceFile], b: Sequence[SourceFile], *, entries: tuple[str, str] = ("build", "build")
) -> tuple[Edit, ...]:
    """Return the edits of program a, in the order of its files and lines.

    `entries` are the functions of the two programs' own files that are run. A file that cannot be parsed has no edits.
    """
    try:
        return _find(a, b, entries)
    except RecursionError:
        return ()


def _find(a: Sequence[SourceFile], b: Sequence[SourceFile], entries: tuple[str, str]) -> tuple[Edit, ...]:
    parsed_a = {file.module: parsed for file in a if (parsed := parse_file(file)) is not None}
    parsed_b = {file.module: parsed for file in b if (parsed := parse_file(file)) is not None}
    parsed_b = pair_modules(parsed_a, parsed_b)
    reached_a = _reached(parsed_a, entries[0])
    reached_b = _reached(parsed_b, entries[1])
    shapes = Shapes()
    names: dict[str, list[str]] = {}
    for parsed in (*parsed_a.values(), *parsed_b.values()):
        for name, found in known_parameters(parsed.tree).items():
            names[name] = max(names.get(name, []), found, key=len)
    drafts: list[Draft] = []
    for module, left in parsed_a.items():
        right = parsed_b.get(module)
        if right is not None:
            drafts += _compare_files(left, right, shapes, entries, (reached_a, reached_b), names)
    drafts += _new_files(parsed_a, a, parsed_b)
    modules: set[str] = set()
    for parsed in (*parsed_a.values(), *parsed_b.values()):
        modules |= parsed.imported_names
    drafts = merge_rewritten(merge_moves(drafts, shapes), modules)
    _name_keys(drafts, modules)
    if len(drafts) > MAX_EDITS:
        drafts = _merge_functions(drafts)
    return _to_edits(drafts, a, [parsed.tree for parsed in parsed_a.values()])


def _compare_files(
    a: Parsed,
    b: Parsed,
    shapes: Shapes,
    entries: tuple[str, str],
    reached: tuple[set[str] | None, set[str] | None],
    parameters_of: Mapping[str, Sequence[str]],
) -> list[Draft]:
    reached_a, reached_b = reached
    is_own = a.file.module == ""
    names = entries if is_own else ("", "")
    ignored: set[str] = set()
    if is_own and a.text == b.text and names[0] != names[1] and reached_a is not None and reached_b is not None:
        # Both programs are in one file: each is the definitions that its entry reaches.
        ignored = {name for name in _top_names(a.tree) if name in reached_b - reached_a}
        aliases = {name for each in a.tree.body if _is_alias(each) for name in _names_of(each)}
        a = _without(a, aliases - reached_a)
        b = _without(b, (reached_a | aliases) - reached_b)
    elif a.text == b.text:
        return []
    elif reached_a is not None:
        ignored = {name for name in _top_names(a.tree) if name not in reached_a}
    is_large = max(len(a.line_starts), len(b.line_starts)) > MAX_LINES
    path_b = b.file.path
    wanted = None if reached_b is None else {names[0] if name == names[1] else name for name in reached_b}
    if not is_large:
        before, original = _top_names(b.tree), b
        b = rename_to_match(a, b, names, ignored)
        b = match_temporaries(a, b, ignored).show_as(original)
        renamed = dict(zip(before, _top_names(b.tree), strict=True))
        wanted = None if reached_b is None else {renamed.get(name, name) for name in reached_b}
    for only_statements in (False, True):
        if is_large and not only_statements:
            continue
        blocks = Blocks(
            a,
            b,
            shapes,
            ignored_a=ignored,
            reached_b=wanted,
            only_statements=only_statements,
            parameters_of=parameters_of,
        )
        drafts = blocks.compare()
        if not _are_valid(a, drafts):
            continue
        for draft in drafts:
            draft.path, draft.path_b = a.file.path, path_b
        return drafts
    return []


def _are_valid(a: Parsed, drafts: Sequence[Draft]) -> bool:
    """Return whether the file stays valid with each draft alone, and with all of them."""
    every = [patch for draft in drafts for patch in draft.patches]
    spans = sorted((patch.start, patch.end) for patch in every)
    if any(start < end for (_, end), (start, _) in pairwise(spans)):
        return False
    checked = [draft.patches for draft in drafts]
    if len(checked) * len(a.line_starts) > _MOST_CHECKED_LINES:
        checked = []
    return all(parse_file(apply_patches(a.file, patches)) is not None for patches in [*checked, every])


def _reached(files: dict[str, Parsed], entry: str) -> set[str] | None:
    """Return the names that the entry uses, directly or through definitions of any file; None without an entry."""
    definitions: dict[str, list[ast.AST]] = defaultdict(list)
    waiting: list[ast.AST] = []
    for module, parsed in files.items():
        for each in parsed.tree.body:
            if isinstance(each, DEFINITIONS):
                definitions[each.name].append(each)
            elif _is_alias(each):
                for name in _names_of(each):
                    definitions[name].append(each)
            elif not isinstance(each, ast.If) or module:
                waiting.append(each)
    own = files.get("")
    if own is None or entry not in _top_names(own.tree):
        return None
    found = {entry}
    waiting += definitions[entry]
    while waiting:
        for name in _mentioned(waiting.pop()):
            if name not in found:
                found.add(name)
                waiting += definitions[name]
    return found


def _mentioned(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, IMPORTS):
            yield from (alias.name for alias in each.names)


def _is_alias(statement: ast.stmt) -> bool:
    """Return whether a statement gives a definition another name, such as `build = plain`."""
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name)


def _names_of(statement: ast.stmt) -> list[str]:
    """Return the names that a definition or an alias of one sets."""
    if isinstance(statement, DEFINITIONS):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [name for target in targets for name in _mentioned(target)]


def _top_names(tree: ast.Module) -> list[str]:
    return [each.name for each in tree.body if isinstance(each, DEFINITIONS)]


def _without(parsed: Parsed, names: set[str]) -> Parsed:
    """Return the file without top-level definitions and aliases of them. Lines keep their numbers."""
    text = parsed.text
    for each in parsed.tree.body:
        if (isinstance(each, DEFINITIONS) or _is_alias(each)) and {*_names_of(each)} & names:
            start, end = parsed.start(each), parsed.end(each)
            blank = "".join(char if char in "\r\n" else " " for char in text[start:end])
            # A blank line may not be indented where a statement follows it on the same line.
            text = text[:start] + "pass" + blank[4:] + text[end:]
    return parse_file(SourceFile(parsed.file.module, parsed.file.path, text)) or parsed


def _new_files(parsed_a: dict[str, Parsed], a: Sequence[SourceFile], parsed_b: dict[str, Parsed]) -> list[Draft]:
    """Draft the files that only b has; an edit that imports one needs it."""
    known = {file.module for file in a}
    found = []
    for module, parsed in parsed_b.items():
        if module in known or not parsed_a:
            continue
        patch = Patch(parsed.file.path, 0, 0, parsed.text, 0, module)
        scope = Scope("", parsed.tree, parsed.tree)
        draft = Draft("support", module, "", None, module, 1, 1, 1, scope, [patch], context="import")
        draft.path = draft.path_b = parsed.file.path
        found.append(draft)
    return found


def _name_keys(drafts: Iterable[Draft], modules: set[str]) -> None:
    """Name a method by its own name: the variable before it differs from program to program."""
    for draft in drafts:
        root, *rest = draft.key.replace("()", "").split(".")
        if rest and draft.key == draft.call and (root not in modules or "()" in draft.key):
            draft.key = rest[-1]


def _merge_functions(drafts: list[Draft]) -> list[Draft]:
    """Return one draft for each function that differs; those outside of functions and support stay."""
    groups: dict[tuple[str, str], list[Draft]] = defaultdict(list)
    found = []
    for draft in drafts:
        functions = [each for each in draft.scope.chain() if isinstance(each.node_a, FUNCTIONS)]
        if functions and draft.kind != "support":
            groups[draft.path, functions[-1].name].append(draft)
        else:
            found.append(draft)
    found += [merge_drafts(group) for group in groups.values()]
    if len(found) <= MAX_EDITS:
        return found
    files: dict[str, list[Draft]] = defaultdict(list)
    for draft in found:
        files[draft.path].append(draft)
    return [merge_drafts(group) for group in files.values()]


def _to_edits(drafts: list[Draft], files: Sequence[SourceFile], trees: Sequence[ast.AST]) -> tuple[Edit, ...]:
    order = {file.path: number for number, file in enumerate(files)}
    drafts = sorted(
        drafts,
        key=lambda each: (
            order.get(each.path, len(order)),
            each.line,
            each.patches[0].start,
            each.patches[0].rank,
        ),
    )
    needs = find_needs(drafts, trees)
    mark_support(drafts, needs)
    edits = [_to_edit(draft, tuple(sorted(need))) for draft, need in zip(drafts, needs, strict=True)]
    edits = _need_new_files(edits, drafts)
    return tuple(edits)


def _need_new_files(edits: list[Edit], drafts: Sequence[Draft]) -> list[Edit]:
    modules = {edit.key: index for index, edit in enumerate(edits) if edit.patches[0].module}
    found = []
    for edit, draft in zip(edits, drafts, strict=True):
        imports = {name for node in draft.nodes_b for name in _imported_modules(node)}
        extra = {index for module, index in modules.items() if module in imports}
        found.append(replace(edit, needs=tuple(sorted({*edit.needs, *extra}))))
    return found


def _imported_modules(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            yield from (alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom):
            yield each.module or ""
            yield from (f"{each.module}.{alias.name}" if each.module else alias.name for alias in each.names)


def _to_edit(draft: Draft, needs: tuple[int, ...]) -> Edit:
    functions = [each.name for each in draft.scope.chain() if isinstance(each.node_a, FUNCTIONS)]
    return Edit(
        kind=draft.kind,
        path=draft.path,
        line=draft.line,
        end_line=draft.end_line,
        path_b=draft.path_b,
        line_b=draft.line_b,
        key=draft.key,
        call=draft.call,
        value_a=draft.value_a,
        value_b=draft.value_b,
        function=functions[0] if functions else "",
        needs=needs,
        context=draft.context,
        patches=tuple(draft.patches),
    )
