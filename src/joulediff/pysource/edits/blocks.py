"""Walk two versions of a file block by block and draft an edit for each difference.

A difference that cannot be changed alone inside a statement becomes an edit of the whole statement (`_TooFine`).
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from joulediff.pysource.edits.align import Aligner, Step
from joulediff.pysource.edits.draft import Draft, Scope, merge_drafts
from joulediff.pysource.edits.edit import EditContext, EditKind, Patch
from joulediff.pysource.edits.expressions import Expressions, Place, Role
from joulediff.pysource.edits.naming import function_of, name_block, name_rewritten, name_statement
from joulediff.pysource.edits.parsed import Parsed, shorten
from joulediff.pysource.edits.syntax import (
    DEFINITIONS,
    FUNCTIONS,
    IMPORTS,
    Definition,
    FunctionNode,
    Shapes,
    body_of,
    called,
    dotted,
    has_docstring,
    is_text,
    names_bound_by,
    parameters,
    read_names,
    target_name,
    targets_of,
)

# More places than this in one statement are one rewritten statement.
_MOST_PLACES = 3
_REWRITTEN = 0.6


class _TooFine(Exception):
    """A difference has no place of its own in the text; the statement around it must be replaced."""


@dataclass(frozen=True)
class _Group:
    """The drafts of neighbouring statements."""

    drafts: list[Draft]
    steps: tuple[Step, ...]


class Blocks:
    """Compares the blocks of two files."""

    def __init__(
        self,
        a: Parsed,
        b: Parsed,
        shapes: Shapes,
        *,
        ignored_a: set[str],
        reached_b: set[str] | None,
        only_statements: bool,
        parameters_of: Mapping[str, Sequence[str]],
    ) -> None:
        self.a = a
        self.b = b
        self._shapes = shapes
        self._ignored_a = ignored_a
        self._reached_b = reached_b
        self._only_statements = only_statements
        self._modules = a.imported_names | b.imported_names
        self._aligner = Aligner(shapes, self._modules)
        self._expressions = Expressions(a, b, shapes, parameters_of)

    def compare(self) -> list[Draft]:
        """Return a draft for each difference of the files."""
        scope = Scope("", self.a.tree, self.b.tree)
        try:
            return self._block(self.a.tree.body, self.b.tree.body, scope)
        except _TooFine:
            return []

    # Blocks

    def _block(self, all_left: list[ast.stmt], all_right: list[ast.stmt], scope: Scope) -> list[Draft]:
        left = [each for each in all_left if self._counts(each, scope)]
        right = [each for each in all_right if self._counts(each, scope)]
        if has_docstring(scope.node_a) and all_left is getattr(scope.node_a, "body", None):
            left = [each for each in left if each is not all_left[0]]
        placed: dict[ast.stmt, ast.stmt] = {}
        found: list[Draft] = []
        steps = self._pair_definitions(left, right, scope)
        plain_left = [each for each in left if not isinstance(each, (*DEFINITIONS, *IMPORTS))]
        plain_right = [each for each in right if not isinstance(each, (*DEFINITIONS, *IMPORTS))]
        steps += self._aligner.align(plain_left, plain_right)
        for step in steps:
            for each in step.right:
                if step.left:
                    placed[each] = step.left[-1]
        found += self._imports(all_left, left, right, scope)
        groups: list[_Group] = []
        for step in steps:
            is_new = not step.left
            drafts = self._added(step, scope, all_left, all_right, placed) if is_new else self._step(step, scope)
            self._add_to_groups(groups, step, drafts, all_left, all_right)
        found += [draft for group in groups for draft in group.drafts]
        for draft in found:
            draft.block = draft.block or all_left
        return found

    def _add_to_groups(
        self,
        groups: list[_Group],
        step: Step,
        drafts: list[Draft],
        all_left: list[ast.stmt],
        all_right: list[ast.stmt],
    ) -> None:
        """Make one edit of neighbouring statements if one computes what the next one uses in its changed part."""
        new = _Group(drafts, (step,))
        last = groups[-1] if groups else None
        if last is None or not last.drafts or not drafts or not self._is_one_change(last, new):
            groups.append(new)
            return
        one, other = last.steps[-1], step
        if _are_apart(one.left, other.left, all_left) or _are_apart(one.right, other.right, all_right):
            groups.append(new)
            return
        main = last.drafts[0]
        steps = (*last.steps, step)
        left = tuple(each for one in steps for each in one.left)
        right = tuple(each for one in steps for each in one.right)
        if left and right and self._is_run(left):
            merged = self._replaced(Step("replace", left, right), main.scope)
        else:
            merged = merge_drafts([*last.drafts, *drafts])
        groups[-1] = _Group([merged], steps)

    def _is_one_change(self, last: _Group, new: _Group) -> bool:
        drafts = [*last.drafts, *new.drafts]
        statements = [each for step in (*last.steps, *new.steps) for each in (*step.left, *step.right)]
        if any(hasattr(each, "body") for each in statements) or len(last.drafts) != 1 or len(new.drafts) != 1:
            return False
        if any(draft.kind not in ("call", "code", "left_out", "added", "value") for draft in drafts):
            return False
        if all(draft.kind == "value" for draft in drafts):
            return False
        before = [each for step in last.steps for each in (*step.left, *step.right)]
        binds = {name for name, _ in names_bound_by(list(before))}
        if len(before) == 1:
            # `x = f(x)` before a change of x is a change of its own: either can be made alone.
            binds -= {name for name in binds if all(name in read_names([each]) for each in before)}
        uses = {name for draft in new.drafts for name in read_names([*draft.nodes_a, *draft.nodes_b])}
        return bool(binds & uses)

    def _counts(self, statement: ast.stmt, scope: Scope) -> bool:
        if isinstance(statement, ast.Pass) or is_text(statement):
            return False
        return scope.parent is not None or not _is_main_guard(statement)

    def _pair_definitions(self, left: list[ast.stmt], right: list[ast.stmt], scope: Scope) -> list[Step]:
        names: dict[str, list[Definition]] = defaultdict(list)
        at_top = scope.parent is None
        for each in left:
            if isinstance(each, DEFINITIONS) and not (at_top and each.name in self._ignored_a):
                names[each.name].append(each)
        steps = []
        for other in right:
            if not isinstance(other, DEFINITIONS):
                continue
            if at_top and self._reached_b is not None and other.name not in self._reached_b:
                continue
            same = names[other.name]
            if same and isinstance(same[0], FUNCTIONS) == isinstance(other, FUNCTIONS):
                steps.append(Step("pair", (same.pop(0),), (other,)))
            elif not (at_top and self._is_known(other, left)):
                unused = [each for each in left if at_top and isinstance(each, DEFINITIONS) and each.name == other.name]
                steps.append(Step("replace", tuple(unused[:1]), (other,)))
        if isinstance(scope.node_a, ast.ClassDef):
            steps += [Step("replace", (each,), ()) for rest in names.values() for each in rest]
        return steps

    def _is_known(self, definition: Definition, left: list[ast.stmt]) -> bool:
        number = self._shapes.of(definition)
        return any(self._shapes.of(each) == number for each in left)

    def _step(self, step: Step, scope: Scope) -> list[Draft]:
        if step.kind == "pair":
            return self._pair(step.left[0], step.right[0], scope)
        if step.kind == "unwrap":
            return self._unwrap(step, scope)
        if step.kind == "wrap":
            return self._wrap(step, scope)
        return [self._replaced(step, scope)]

    # Statements

    def _pair(self, x: ast.stmt, y: ast.stmt, scope: Scope) -> list[Draft]:
        if self.a.text_of(x) == self.b.text_of(y) or self._shapes.of(x) == self._shapes.of(y):
            return []
        if isinstance(x, DEFINITIONS) and isinstance(y, DEFINITIONS):
            return self._definition(x, y, scope)
        replaced = Step("replace", (x,), (y,))
        if type(x) is not type(y):
            return [self._replaced(replaced, scope)]
        try:
            if hasattr(x, "body"):
                return self._compound(x, y, scope)
            return self._simple(x, y, scope)
        except _TooFine:
            return [self._replaced(replaced, scope)]

    def _compound(self, x: ast.stmt, y: ast.stmt, scope: Scope) -> list[Draft]:
        found: list[Draft] = []
        places: list[Place] = []
        for (name, left), (_, right) in zip(ast.iter_fields(x), ast.iter_fields(y), strict=True):
            if name in ("body", "orelse", "finalbody", "type_comment"):
                continue
            if name in ("handlers", "cases"):
                found += self._parts(left, right, scope)
                continue
            lefts = left if isinstance(left, list) else [left]
            rights = right if isinstance(right, list) else [right]
            if len(lefts) != len(rights):
                raise _TooFine
            for each, other in zip(lefts, rights, strict=True):
                places += self._header_places(each, other, x)
        is_with = isinstance(x, (ast.With, ast.AsyncWith))
        found += [self._of_place(place, scope, "with" if is_with else "") for place in places]
        for name in ("body", "orelse", "finalbody"):
            left, right = getattr(x, name, []), getattr(y, name, [])
            if bool(left) != bool(right) or self._is_elif(left, self.a) != self._is_elif(right, self.b):
                raise _TooFine
            if left and self._is_elif(left, self.a):
                found += self._compound(left[0], right[0], scope)
            elif left:
                found += self._block(left, right, scope)
        return found

    def _parts(self, left: list[ast.AST], right: list[ast.AST], scope: Scope) -> list[Draft]:
        """Compare the handlers of an exception or the cases of a match."""
        if len(left) != len(right):
            raise _TooFine
        found = []
        for x, y in zip(left, right, strict=True):
            for (name, one), (_, other) in zip(ast.iter_fields(x), ast.iter_fields(y), strict=True):
                if name == "body":
                    found += self._block(one, other, scope)
                elif isinstance(one, ast.AST) and isinstance(other, ast.AST):
                    if self._shapes.of(one) != self._shapes.of(other):
                        raise _TooFine
                elif one != other:
                    raise _TooFine
        return found

    def _header_places(self, x: object, y: object, statement: ast.stmt) -> list[Place]:
        if not isinstance(x, ast.AST) or not isinstance(y, ast.AST):
            if x != y:
                raise _TooFine
            return []
        places = self._expressions.compare(x, y, Role("value", type(statement).__name__.lower()))
        if places is None or (self._only_statements and places):
            raise _TooFine
        return places

    @staticmethod
    def _is_elif(block: list[ast.stmt], parsed: Parsed) -> bool:
        return len(block) == 1 and isinstance(block[0], ast.If) and parsed.text_of(block[0]).startswith("elif")

    def _simple(self, x: ast.stmt, y: ast.stmt, scope: Scope) -> list[Draft]:
        if self._only_statements:
            raise _TooFine
        places = self._places(x, y)
        if places is None:
            raise _TooFine
        if len(places) > 1:
            changed = sum(max(len(place.value_a or ""), len(place.value_b or "")) for place in places)
            longest = max(len(self.a.text_of(x)), len(self.b.text_of(y)))
            if len(places) > _MOST_PLACES or changed > _REWRITTEN * longest:
                raise _TooFine
        return [self._of_place(place, scope, "") for place in places]

    def _places(self, x: ast.stmt, y: ast.stmt) -> list[Place] | None:
        compare = self._expressions.compare
        if isinstance(x, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and isinstance(y, type(x)):
            left, right = targets_of(x), targets_of(y)
            if [self._shapes.of(each) for each in left] != [self._shapes.of(each) for each in right]:
                return None
            if isinstance(x, ast.AugAssign) and type(x.op) is not type(getattr(y, "op", None)):
                return None
            if x.value is None or y.value is None:
                return None
            key = target_name(left[0]) if left else ""
            return compare(x.value, y.value, Role("value", key))
        if isinstance(x, ast.Expr) and isinstance(y, ast.Expr):
            return compare(x.value, y.value, Role("value", ""))
        if isinstance(x, ast.Return) and isinstance(y, ast.Return) and x.value and y.value:
            return compare(x.value, y.value, Role("value", "return"))
        return None

    def _of_place(self, place: Place, scope: Scope, context: EditContext) -> Draft:
        patch = Patch(self.a.file.path, place.start, place.end, place.text, place.rank)
        line = place.node_a.lineno if place.node_a else self.a.line_at(place.start)  # type: ignore[attr-defined]
        end_line = getattr(place.node_a, "end_lineno", None) or line
        draft = Draft(
            place.kind,
            place.key,
            place.call,
            place.value_a,
            place.value_b,
            line,
            end_line,
            place.line_b or None,
            scope,
            [patch],
            context=context or place.context,
        )
        draft.nodes_a = [place.node_a] if place.node_a else []
        draft.nodes_b = [place.node_b] if place.node_b else []
        return draft

    def _replaced(self, step: Step, scope: Scope) -> Draft:
        """Draft the replacement of statements by others, or by nothing."""
        first, last = step.left[0], step.left[-1]
        path = self.a.file.path
        patches = [Patch(path, self.a.start(each), self.a.end(each), "pass") for each in step.left]
        if step.right:
            text = self._new_text(step.right, first)
            patches[0] = Patch(path, self.a.start(first), self.a.end(first), text)
            if len(step.left) > 1 and self._is_run(step.left):
                patches = [Patch(path, self.a.start(first), self.a.end(last), text)]
        kind, key, call = self._name(step)
        value_a = shorten("; ".join(self.a.value_of(each) for each in step.left))
        value_b = shorten("; ".join(self.b.value_of(each) for each in step.right)) if step.right else None
        line_b = step.right[0].lineno if step.right else None
        end_line = last.end_lineno or last.lineno
        context = _context_of(step.left[0])
        draft = Draft(
            kind, key, call, value_a, value_b, first.lineno, end_line, line_b, scope, patches, context=context
        )
        draft.nodes_a, draft.nodes_b = list(step.left), list(step.right)
        draft.statement = first if len(step.left) == 1 and not step.right else None
        return draft

    def _is_run(self, statements: Sequence[ast.stmt]) -> bool:
        """Return whether only blanks, comments and the statements themselves are between the first and the last."""
        for one, other in pairwise(statements):
            between = self.a.text[self.a.end(one) : self.a.start(other)]
            for line in between.splitlines():
                if line.strip() and not line.strip().startswith("#") and line.strip() != ";":
                    return False
        return True

    def _new_text(self, right: Sequence[ast.stmt], at: ast.stmt) -> str:
        """Return the text of statements of b for the place of a statement of a."""
        indent = self.a.indent(at)
        newline = self.a.newline
        if indent is None:
            if any(hasattr(each, "body") for each in right):
                raise _TooFine
            return "; ".join(self.b.text_of(each) for each in right)
        follows = self.a.text[self.a.end(at) : self.a.line_end(self.a.end(at))].strip()
        if follows.startswith(";") and follows != ";" and any(hasattr(each, "body") for each in right):
            raise _TooFine
        pieces = [self.b.block_text(each, each, indent, newline) for each in right]
        return f"{newline}{indent}".join(pieces)

    def _name(self, step: Step) -> tuple[EditKind, str, str]:
        """Return the kind, key and call of replaced, left out or added statements."""
        main = (step.left or step.right)[0]
        # Statements that go or come together are named by their result.
        key, call = name_statement(main if step.left and step.right else (step.left or step.right)[-1])
        kind: EditKind
        if not step.right:
            kind = "left_out"
        elif not step.left:
            kind = "support" if isinstance(main, DEFINITIONS) else "added"
        elif isinstance(main, DEFINITIONS) and main.name in self._ignored_a:
            kind = "support"
        elif len(step.left) == len(step.right) == 1 and call and called(step.right[0]):
            return "call", call, call
        else:
            kind = "code"
            key = name_rewritten(step.left, step.right, self._modules) or key
        return kind, key, call

    # Added statements

    def _added(
        self,
        step: Step,
        scope: Scope,
        all_left: list[ast.stmt],
        all_right: list[ast.stmt],
        placed: dict[ast.stmt, ast.stmt],
    ) -> list[Draft]:
        first = step.right[0]
        drafts = []
        kind, key, call = self._name(step)
        patches = []
        for each in step.right:
            earlier = [placed[other] for other in all_right[: all_right.index(each)] if other in placed]
            patches.append(self._insertion(each, earlier[-1] if earlier else None, all_left, scope))
        line = self.a.line_at(patches[0].start)
        value_b = shorten("; ".join(self.b.value_of(each) for each in step.right))
        context = _context_of(first)
        draft = Draft(kind, key, call, None, value_b, line, line, first.lineno, scope, patches, context=context)
        draft.nodes_b = list(step.right)
        draft.statement = first if len(step.right) == 1 else None
        drafts.append(draft)
        if isinstance(first, FUNCTIONS) and isinstance(scope.node_a, ast.ClassDef):
            draft.kind = "added"
        return drafts

    def _insertion(self, new: ast.stmt, before: ast.stmt | None, block: list[ast.stmt], scope: Scope) -> Patch:
        """Return the patch that inserts a statement behind another one of a block, or at the block's start."""
        path, newline = self.a.file.path, self.a.newline
        if not block:
            text = self.b.block_text(new, new, "", newline)
            return Patch(path, len(self.a.text), len(self.a.text), text + newline, new.lineno)
        indent = self.a.indent(block[0])
        if indent is None:
            raise _TooFine
        text = self.b.block_text(new, new, indent, newline)
        is_body = block is getattr(scope.node_a, "body", None)
        if before is None and is_body:
            before = _last_leading(block, scope)
        if before is None:
            at = self.a.line_start(self.a.start(block[0]))
            at += len(self.a.text[at:]) - len(self.a.text[at:].removeprefix("\ufeff"))
            return Patch(path, at, at, f"{indent}{text}{newline}", new.lineno)
        end = self.a.end(before)
        at = self.a.line_end(end)
        follows = self.a.text[end:at].strip()
        if follows in ("", ";") or follows.startswith("#"):
            return Patch(path, at, at, f"{newline}{indent}{text}", new.lineno)
        after = block[block.index(before) + 1 :]
        if not after or hasattr(before, "body"):
            raise _TooFine
        at = self.a.start(after[0])
        return Patch(path, at, at, f"{newline}{indent}{text}{newline}{indent}", new.lineno)

    # Blocks around statements

    def _unwrap(self, step: Step, scope: Scope) -> list[Draft]:
        outer = step.left[0]
        body = body_of(outer)
        start = self.a.start(outer)
        colon = _header_end(self.a, outer)
        if colon is None or self.a.indent(body[0]) is None:
            return [self._replaced(Step("replace", step.left, step.right), scope)]
        try:
            found = self._block(body, list(step.right), scope)
        except _TooFine:
            return [self._replaced(Step("replace", step.left, step.right), scope)]
        if isinstance(outer, ast.If) and isinstance(outer.test, ast.Constant) and outer.test.value is True:
            return found
        # A condition that always holds keeps the lines and the indentation of the block.
        patch = Patch(self.a.file.path, start, colon + 1, "if True:")
        key, call = name_block(outer)
        header = shorten(self.a.text[start:colon])
        end_line = self.a.line_at(colon)
        draft = Draft("left_out", key, call, header, None, outer.lineno, end_line, step.right[0].lineno, scope, [patch])
        draft.nodes_a = _header_nodes(outer)
        draft.context = _context_of(outer)
        return [draft, *found]

    def _wrap(self, step: Step, scope: Scope) -> list[Draft]:
        outer = step.right[0]
        first, last = step.left[0], step.left[-1]
        whole = Step("replace", step.left, step.right)
        colon = _header_end(self.b, outer)
        indent = self.a.indent(first)
        if colon is None or indent is None or not self._is_run(step.left):
            return [self._replaced(whole, scope)]
        try:
            found = self._block(list(step.left), body_of(outer), scope)
        except _TooFine:
            return [self._replaced(whole, scope)]
        patches = [patch for draft in found for patch in draft.patches]
        if any(not self._is_inside_line(patch) for patch in patches):
            return [self._replaced(whole, scope)]
        path = self.a.file.path
        start = self.a.line_start(self.a.start(first))
        header = self.b.text[self.b.start(outer) : colon + 1]
        unit = "\t" if "\t" in indent else "    "
        added = [Patch(path, start, start, f"{indent}{header}{self.a.newline}", 0)]
        for offset in self.a.logical_line_starts(start, self.a.end(last)):
            added.append(Patch(path, offset, offset, unit, 1))
        key, call = name_block(outer)
        end_line = last.end_lineno or last.lineno
        value_b = shorten(header.removesuffix(":"))
        draft = Draft("added", key, call, None, value_b, first.lineno, end_line, outer.lineno, scope, added)
        draft.nodes_b = _header_nodes(outer)
        draft.context = _context_of(outer)
        return [draft, *found]

    def _is_inside_line(self, patch: Patch) -> bool:
        same_line = self.a.line_at(patch.start) == self.a.line_at(patch.end)
        return same_line and "\n" not in patch.text and patch.start > self.a.line_start(patch.start)

    # Definitions

    def _definition(self, x: Definition, y: Definition, scope: Scope) -> list[Draft]:
        try:
            inner = scope.inner(x, y)
            found = self._decorators(x, y, scope)
            if isinstance(x, FUNCTIONS) and isinstance(y, FUNCTIONS):
                found += self._signature(x, y, inner)
            elif isinstance(x, ast.ClassDef) and isinstance(y, ast.ClassDef):
                found += self._bases(x, y, scope)
            return found + self._block(x.body, y.body, inner)
        except _TooFine:
            return [self._replaced(Step("replace", (x,), (y,)), scope)]

    def _decorators(self, x: Definition, y: Definition, scope: Scope) -> list[Draft]:
        left = [each for each in x.decorator_list if not self._is_in(each, y.decorator_list)]
        right = [each for each in y.decorator_list if not self._is_in(each, x.decorator_list)]
        found = []
        for each in list(left):
            others = [other for other in right if dotted(function_of(other)) == dotted(function_of(each))]
            if not others and len(left) == len(right) == 1:
                others = right
            places = self._expressions.compare(each, others[0], Role("value", "")) if others else None
            if places is not None:
                left.remove(each)
                right = [other for other in right if other is not others[0]]
                found += [self._of_place(place, scope, "decorator") for place in places]
        path = self.a.file.path
        for each in left:
            start, end = self._decorator_span(each, x)
            name = dotted(function_of(each))
            value = self.a.value_of(each)
            patch = Patch(path, start, end, "")
            line = each.lineno
            draft = Draft("left_out", name, name, value, None, line, line, y.lineno, scope, [patch], [each])
            found.append(draft)
        indent = self.a.indent(x)
        if right and indent is None:
            raise _TooFine
        for each in right:
            name = dotted(function_of(each))
            value = self.b.value_of(each)
            later = [
                e for e in y.decorator_list[y.decorator_list.index(each) + 1 :] if self._is_in(e, x.decorator_list)
            ]
            follower = [e for e in x.decorator_list if later and self._shapes.of(e) == self._shapes.of(later[0])]
            at = self._decorator_span(follower[0], x)[0] if follower else self._definition_start(x)
            patch = Patch(path, at, at, f"@{self.b.text_of(each)}{self.a.newline}{indent}", each.lineno)
            draft = Draft("added", name, name, None, value, x.lineno, x.lineno, each.lineno, scope, [patch], [], [each])
            found.append(draft)
        for draft in found:
            draft.context = "decorator"
        return found

    def _is_in(self, node: ast.expr, others: Iterable[ast.expr]) -> bool:
        return any(self._shapes.of(node) == self._shapes.of(other) for other in others)

    def _definition_start(self, node: Definition) -> int:
        return self.a.offset(node.lineno, node.col_offset)

    def _decorator_span(self, decorator: ast.expr, node: Definition) -> tuple[int, int]:
        starts = [self.a.text.rfind("@", 0, self.a.start(each)) for each in node.decorator_list]
        starts.append(self._definition_start(node))
        index = node.decorator_list.index(decorator)
        return starts[index], starts[index + 1]

    def _signature(self, x: FunctionNode, y: FunctionNode, scope: Scope) -> list[Draft]:
        if self._shapes.of(x.args) == self._shapes.of(y.args):
            return []
        left, right = _signature_of(x.args), _signature_of(y.args)
        if left == right and not self._only_statements:
            found: list[Draft] = []
            for (name, one), (_, other) in zip(_defaults_of(x.args), _defaults_of(y.args), strict=True):
                places = self._expressions.compare(one, other, Role("value", name))
                if places is None:
                    raise _TooFine
                found += [self._of_place(place, scope, "") for place in places]
            return found
        span_a, span_b = _parentheses(self.a, x), _parentheses(self.b, y)
        if span_a is None or span_b is None:
            raise _TooFine
        text_a, text_b = self.a.text[slice(*span_a)], self.b.text[slice(*span_b)]
        patch = Patch(self.a.file.path, *span_a, text_b)
        line, end_line = x.lineno, self.a.line_at(span_a[1])
        draft = Draft("code", x.name, "", shorten(text_a), shorten(text_b), line, end_line, y.lineno, scope, [patch])
        draft.nodes_a, draft.nodes_b = [x.args], [y.args]
        draft.signature_of = x.name
        return [draft]

    def _bases(self, x: ast.ClassDef, y: ast.ClassDef, scope: Scope) -> list[Draft]:
        left = [*x.bases, *x.keywords]
        right = [*y.bases, *y.keywords]
        if [self._shapes.of(each) for each in left] == [self._shapes.of(each) for each in right]:
            return []
        colon_a, colon_b = _header_end(self.a, x), _header_end(self.b, y)
        if colon_a is None or colon_b is None:
            raise _TooFine
        start = self._definition_start(x)
        text_a, text_b = self.a.text[start:colon_a], self.b.text[self.b.offset(y.lineno, y.col_offset) : colon_b]
        patch = Patch(self.a.file.path, start, colon_a, text_b)
        line = x.lineno
        draft = Draft("code", x.name, "", shorten(text_a), shorten(text_b), line, line, y.lineno, scope, [patch])
        draft.nodes_a, draft.nodes_b = list(left), list(right)
        return [draft]

    # Imports

    def _imports(
        self,
        all_left: list[ast.stmt],
        left: list[ast.stmt],
        right: list[ast.stmt],
        scope: Scope,
    ) -> list[Draft]:
        """Draft imports that only b has, and those that only a has and nothing reads."""
        have = {binding for each in left if isinstance(each, IMPORTS) for binding in _bindings(each)}
        want = {binding for each in right if isinstance(each, IMPORTS) for binding in _bindings(each)}
        bound = {binding[0]: binding[1] for binding in have}
        imports = [each for each in left if isinstance(each, IMPORTS)]
        found: list[Draft] = []
        for each in right:
            if not isinstance(each, IMPORTS) or _is_future(each):
                continue
            new = [alias for alias, binding in zip(each.names, _bindings(each), strict=True) if binding not in have]
            if not new:
                continue
            found.append(self._import(each, new, bound, imports, all_left, scope))
        reads = read_names([scope.node_a])
        for each in imports:
            bindings = list(_bindings(each))
            is_used = any(name.split(".")[0] in reads for name, _ in bindings) or "*" in dict(bindings)
            if is_used or _is_future(each) or any(binding in want for binding in bindings):
                continue
            if {name for name, _ in bindings} & {name for name, _ in want}:
                continue
            found.append(self._replaced(Step("replace", (each,), ()), scope))
        for draft in found:
            draft.context = "import"
        return found

    def _import(
        self,
        statement: ast.Import | ast.ImportFrom,
        new: list[ast.alias],
        bound: dict[str, str],
        imports: list[ast.Import | ast.ImportFrom],
        block: list[ast.stmt],
        scope: Scope,
    ) -> Draft:
        clause = ", ".join(alias.name + (f" as {alias.asname}" if alias.asname else "") for alias in new)
        if isinstance(statement, ast.ImportFrom):
            text = f"from {'.' * statement.level}{statement.module or ''} import {clause}"
        else:
            text = f"import {clause}"
        patch = self._insertion(statement, imports[-1] if imports else None, block, scope)
        old = self.b.block_text(statement, statement, self.a.indent(block[0]) or "" if block else "", self.a.newline)
        patch = Patch(patch.path, patch.start, patch.end, patch.text.replace(old, text), patch.rank)
        line = self.a.line_at(patch.start)
        key = ", ".join(alias.asname or alias.name for alias in new)
        draft = Draft("support", key, "", None, text, line, line, statement.lineno, scope, [patch])
        draft.nodes_b = [statement]
        other = [bound[name] for name, _ in _bindings(statement) if name in bound and name in key.split(", ")]
        if other:
            # The same name means something else: what it means is the difference.
            draft.kind, draft.value_a = "code", other[0]
            same = [each for each in imports if any(name in key.split(", ") for name, _ in _bindings(each))]
            draft.line = draft.end_line = same[0].lineno
            draft.nodes_a = list(same)
        return draft


def _are_apart(one: Sequence[ast.stmt], other: Sequence[ast.stmt], block: list[ast.stmt]) -> bool:
    """Return whether other statements of a block stand between two runs of it."""
    if not one or not other:
        return False
    between = block[block.index(one[-1]) + 1 : block.index(other[0])]
    return any(not isinstance(each, ast.Pass) and not is_text(each) for each in between)


def _last_leading(block: list[ast.stmt], scope: Scope) -> ast.stmt | None:
    """Return the last of the documentation string and the imports that a body starts with."""
    found = block[0] if has_docstring(scope.node_a) else None
    for each in block:
        if isinstance(each, IMPORTS):
            found = each
        elif each is not found:
            break
    return found


def _bindings(statement: ast.Import | ast.ImportFrom) -> list[tuple[str, str]]:
    """Return the name and the origin of what an import binds."""
    if isinstance(statement, ast.Import):
        return [(alias.asname or alias.name, alias.name) for alias in statement.names]
    module = "." * statement.level + (statement.module or "")
    return [(alias.asname or alias.name, f"{module}.{alias.name}") for alias in statement.names]


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in read_names([statement.test])


def _context_of(statement: ast.AST) -> Literal["", "with", "import"]:
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return "with"
    return "import" if isinstance(statement, IMPORTS) else ""


def _header_nodes(statement: ast.stmt) -> list[ast.AST]:
    return [each for each in ast.iter_child_nodes(statement) if not isinstance(each, ast.stmt)]


def _header_end(parsed: Parsed, statement: ast.stmt) -> int | None:
    """Return the offset of the colon that ends a statement's header."""
    start = parsed.start(statement)
    if isinstance(statement, DEFINITIONS):
        start = parsed.offset(statement.lineno, statement.col_offset)
    first = getattr(statement, "body", [])[0]
    text = parsed.text[start : parsed.start(first)]
    found = None
    for symbol, offset, depth in _tokens(text):
        if symbol == ":" and depth == 0:
            found = start + offset
            # A lambda in a header has a colon too: the last one counts.
    return found


def _parentheses(parsed: Parsed, function: FunctionNode) -> tuple[int, int] | None:
    """Return the span between the parentheses of a function's parameters."""
    start = parsed.offset(function.lineno, function.col_offset)
    first = None
    for symbol, offset, depth in _tokens(parsed.text[start : parsed.end(function)]):
        if symbol == "(" and depth == 1 and first is None:
            first = start + offset + 1
        elif symbol == ")" and depth == 0 and first is not None:
            return first, start + offset
    return None


def _tokens(text: str) -> Iterable[tuple[str, int, int]]:
    """Yield the operators of a text with their offset and the depth of brackets behind them."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    depth = 0
    lines = io.StringIO(text)
    try:
        for token in tokenize.generate_tokens(lines.readline):
            if token.type != tokenize.OP:
                continue
            if token.string in "([{":
                depth += 1
            elif token.string in ")]}":
                depth -= 1
            yield token.string, starts[token.start[0] - 1] + token.start[1], depth
    except (tokenize.TokenError, SyntaxError):
        return


def _signature_of(arguments: ast.arguments) -> tuple[object, ...]:
    names = [each.arg for each in parameters(arguments)]
    defaults = [default is not None for default in arguments.kw_defaults]
    counts = (len(arguments.posonlyargs), len(arguments.args), len(arguments.kwonlyargs))
    stars = (arguments.vararg is not None, arguments.kwarg is not None)
    return (names, counts, stars, len(arguments.defaults), defaults)


def _defaults_of(arguments: ast.arguments) -> list[tuple[str, ast.expr]]:
    plain = [*arguments.posonlyargs, *arguments.args]
    with_default = plain[len(plain) - len(arguments.defaults) :]
    found = [(each.arg, default) for each, default in zip(with_default, arguments.defaults, strict=True)]
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            found.append((each.arg, default))
    return found


def known_parameters(tree: ast.Module) -> dict[str, list[str]]:
    """Return the names of the parameters of the functions and classes of a file."""
    found = {}
    for each in tree.body:
        if isinstance(each, FUNCTIONS):
            found[each.name] = _positional_names(each)
        elif isinstance(each, ast.ClassDef):
            for method in each.body:
                if isinstance(method, FUNCTIONS):
                    # The object comes first.
                    names = _positional_names(method)[1:]
                    found[each.name if method.name == "__init__" else f"self.{method.name}"] = names
    return found


def _positional_names(function: FunctionNode) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
