"""Figures about the layout of the source tree, computed from its syntax: before and after a refactoring.

    python benchmarks/house.py [OTHER_CHECKOUT] [--list] [--json FILE]

Prints one line for each figure, with a column for the other checkout if one is given. `--list` names what was counted.
Every figure leaves out `cases/library`: those files are programs that the tool looks at. The rules:

- files, lines: `*.py` under `src`.
- modules with one importer: a module M counts if exactly one other module has `from M import ...`, `import M` or
  `from PACKAGE import M`. A package is counted by the imports from its `__init__`.
- of them, alone: without the entries of a list, which are four or more such modules of one folder with the same
  importer (meters, kinds of evidence, commands). There one file for each entry is meant.
- folders over 15 files: folders that hold more than 15 `*.py` files themselves.
- forms of an energy with an uncertainty: classes other than `Energy` with a float field of joules (`joules` or
  `*_j`) and beside it both ends of an interval (`low` and `high`) or a half width (`half`, `doubt`, `sigma`, `err`,
  `error`, `margin`), each with or without `_j`; and classes that map names to such a class (`dict[str, PerStep]`).
  An array is a curve and a prefixed end (`delta_low_j`) belongs to a difference: neither counts.
- rules for equal signatures: functions that read the same sum (`sum_x`, `sum_abs`, ...) of two signatures, or at
  least three sums of one signature, which makes the numbers that are compared.
- files that unpack joules between the meters and a printed row: modules that read, set or declare a field of an
  energy value (`joules`, `energy_j`, `low_j`, `high_j`, `half_j`, `doubt_j`). A module that only passes an `Energy` on
  does not count.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "joulediff"
PROGRAMS = "cases/library/"
MOST_FILES = 15
LIST_ENTRIES = 4
SUMS = ("sum_x", "sum_abs", "sum_x2", "sum_x3", "sum_x4")
SUMS_OF_ONE = 3
JOULE_FIELDS = ("joules", "energy_j", "low_j", "high_j", "half_j", "doubt_j")
WIDTHS = ("half", "doubt", "sigma", "err", "error", "margin")


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    nodes: tuple[ast.AST, ...]
    lines: int


Tree = dict[str, Module]


def read_tree(root: Path) -> Tree:
    """Return the modules of the checkout at `root` by their dotted names."""
    source = root / "src"
    modules = {}
    for path in sorted((source / PACKAGE).rglob("*.py")):
        if path.relative_to(source / PACKAGE).as_posix().startswith(PROGRAMS):
            continue
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, path.relative_to(source), tuple(ast.walk(ast.parse(text))), len(text.splitlines()))
    if not modules:
        raise SystemExit(f"{root}: there is no package src/{PACKAGE}; give the root of a checkout")
    return modules


def find_imports(tree: Tree) -> dict[str, set[str]]:
    """Return the modules of the package that each module imports."""
    return {name: set(_imports_of(module, tree)) - {name} for name, module in tree.items()}


def _imports_of(module: Module, tree: Tree) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in tree)
        elif isinstance(node, ast.ImportFrom):
            base = _base_of(node, module)
            for alias in node.names:
                target = f"{base}.{alias.name}"
                if target in tree:
                    yield target
                elif base in tree:
                    yield base


def _base_of(node: ast.ImportFrom, module: Module) -> str:
    folder = module.path.parent.parts
    above = folder[: len(folder) - node.level + 1] if node.level else ()
    return ".".join([*above, *([node.module] if node.module else [])])


def find_single_importers(tree: Tree) -> list[str]:
    counts = Counter(target for targets in find_imports(tree).values() for target in targets)
    return [name for name in tree if counts[name] == 1]


def find_lone_importers(tree: Tree) -> list[str]:
    single = set(find_single_importers(tree))
    lists = Counter(
        (importer, tree[target].path.parent)
        for importer, targets in find_imports(tree).items()
        for target in targets & single
    )
    entries = {
        target
        for importer, targets in find_imports(tree).items()
        for target in targets & single
        if lists[importer, tree[target].path.parent] >= LIST_ENTRIES
    }
    return sorted(single - entries)


def find_large_folders(tree: Tree) -> list[str]:
    counts = Counter(module.path.parent.as_posix() for module in tree.values())
    return [f"{folder} ({count})" for folder, count in sorted(counts.items()) if count > MOST_FILES]


def find_energy_forms(tree: Tree) -> list[str]:
    fields = {f"{module}.{name}": found for module, name, found in _classes(tree) if name != "Energy"}
    forms = [name for name, found in fields.items() if _is_energy_form(found)]
    short = {name.rpartition(".")[2] for name in forms}
    maps = [name for name, found in fields.items() if name not in forms and _maps_to(found, short)]
    return sorted(forms + maps)


def _classes(tree: Tree) -> Iterator[tuple[str, str, dict[str, str]]]:
    for module in tree.values():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                found = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                yield module.name, node.name, {ast.unparse(each.target): ast.unparse(each.annotation) for each in found}


def _is_energy_form(fields: Mapping[str, str]) -> bool:
    numbers = {name for name, annotation in fields.items() if re.search(r"\bfloat\b", annotation)}
    if not any(name == "joules" or name.endswith("_j") for name in numbers):
        return False
    bare = {name.removesuffix("_j") for name in numbers if name.endswith("_j") or name in ("low", "high", *WIDTHS)}
    return {"low", "high"} <= bare or not bare.isdisjoint(WIDTHS)


def _maps_to(fields: Mapping[str, str], forms: set[str]) -> bool:
    maps = [annotation for annotation in fields.values() if re.match(r"(dict|Mapping)\[str, ", annotation)]
    return any(not forms.isdisjoint(re.findall(r"\w+", annotation)) for annotation in maps)


def find_signature_rules(tree: Tree) -> list[str]:
    return sorted(
        f"{module.name}.{node.name}"
        for module in tree.values()
        for node in module.nodes
        if isinstance(node, ast.FunctionDef) and _compares_signatures(node)
    )


def _compares_signatures(function: ast.FunctionDef) -> bool:
    owners: dict[str, set[str]] = defaultdict(set)
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr in SUMS:
            owners[node.attr].add(ast.unparse(node.value))
    return len(owners) >= SUMS_OF_ONE or any(len(names) > 1 for names in owners.values())


def find_joule_files(tree: Tree) -> list[str]:
    return sorted(name for name, module in tree.items() if _unpacks_joules(module))


def _unpacks_joules(module: Module) -> bool:
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr in JOULE_FIELDS:
            return True
        if isinstance(node, ast.keyword) and node.arg in JOULE_FIELDS:
            return True
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in JOULE_FIELDS:
            return True
    return False


COUNTS: dict[str, Callable[[Tree], list[str]]] = {
    "modules with one importer": find_single_importers,
    "  of them, alone": find_lone_importers,
    f"folders over {MOST_FILES} files": find_large_folders,
    "forms of an energy with an uncertainty": find_energy_forms,
    "rules for equal signatures": find_signature_rules,
    "files that unpack joules, meter to row": find_joule_files,
}


def count(tree: Tree) -> dict[str, int]:
    """Return every figure of a tree."""
    sizes = {"files": len(tree), "lines": sum(module.lines for module in tree.values())}
    return sizes | {title: len(find(tree)) for title, find in COUNTS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", nargs="?", type=Path, help="the root of another checkout, printed first")
    parser.add_argument("--list", action="store_true", help="name what was counted in each tree")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    roots = {"this": ROOT} if arguments.other is None else {"other": arguments.other, "this": ROOT}
    trees = {column: read_tree(root) for column, root in roots.items()}
    figures = {column: count(tree) for column, tree in trees.items()}
    print(f"{'':42}" + "".join(f"{column:>10}" for column in figures))
    for title in figures["this"]:
        print(f"{title:42}" + "".join(f"{found[title]:10,}" for found in figures.values()))
    if arguments.list:
        for title, find in COUNTS.items():
            for column, tree in trees.items():
                print(f"\n{title}, {column} tree:", *find(tree), sep="\n  ")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
