"""Find the places at which two versions of an expression differ: arguments, values, called functions.

A place is the smallest part that a person would change: never part of a name or of a constant.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from joulediff.pysource.edits.edit import EditContext, EditKind
from joulediff.pysource.edits.naming import main_call, operators_of
from joulediff.pysource.edits.parsed import Parsed
from joulediff.pysource.edits.syntax import Shapes, called, dotted, labels_of, likeness, target_name

# Nodes whose text can be put anywhere without parentheses.
_ATOMS = (
    ast.Name,
    ast.Constant,
    ast.Attribute,
    ast.Call,
    ast.Subscript,
    ast.List,
    ast.Dict,
    ast.Set,
    ast.ListComp,
    ast.DictComp,
    ast.SetComp,
    ast.JoinedStr,
)
_NO_PARENTHESES = (ast.Starred, ast.Slice, ast.keyword, ast.arg)
# Two arguments with half of their words in common are versions of one.
_LIKE = 0.5
# An argument with its name, or with its position if it has none.
_Named: TypeAlias = tuple[str, ast.expr | ast.keyword]


@dataclass(frozen=True)
class Place:
    """One place that differs. `start` and `end` are offsets in a's text, `text` replaces what is between them."""

    kind: EditKind
    key: str
    call: str
    node_a: ast.AST | None
    node_b: ast.AST | None
    value_a: str | None
    value_b: str | None
    start: int
    end: int
    text: str
    line_b: int
    rank: int = 0
    context: EditContext = ""


@dataclass(frozen=True)
class Role:
    """What an expression is for: the kind of edit, the key and the call to report if it is replaced as a whole."""

    kind: EditKind
    key: str
    call: str = ""


class Expressions:
    """Compares expressions of two files."""

    def __init__(self, a: Parsed, b: Parsed, shapes: Shapes, parameters_of: Mapping[str, Sequence[str]]) -> None:
        self.a = a
        self.b = b
        self.shapes = shapes
        self.parameters_of = parameters_of

    def compare(self, x: ast.AST, y: ast.AST, role: Role) -> list[Place] | None:
        """Return the places that differ; None if they cannot be told apart within `x`."""
        if self.same(x, y):
            return []
        if isinstance(x, ast.Call) and isinstance(y, ast.Call):
            return self._compare_calls(x, y, role)
        wrapped = self._wrapped(x, y)
        if wrapped is not None:
            return [wrapped]
        if isinstance(x, (ast.JoinedStr, ast.Constant, ast.Name)) or type(x) is not type(y):
            return self._replaced(x, y, role)
        if isinstance(x, ast.Attribute) and isinstance(y, ast.Attribute) and _is_plain(x) and _is_plain(y):
            return self._replaced(x, y, role)
        if isinstance(x, ast.Dict) and isinstance(y, ast.Dict):
            return self._compare_dicts(x, y, role)
        return self._compare_parts(x, y, role)

    def same(self, x: ast.AST, y: ast.AST) -> bool:
        """Return whether two nodes are equal."""
        return self.shapes.of(x) == self.shapes.of(y)

    def _replaced(self, x: ast.AST, y: ast.AST, role: Role) -> list[Place] | None:
        if not hasattr(x, "lineno") or not hasattr(y, "lineno"):
            return None
        if isinstance(x, ast.GeneratorExp) or isinstance(y, ast.GeneratorExp):
            # As the only argument of a call, its parentheses are those of the call.
            return None
        role = self._role_of_replacement(x, y, role)
        return [self._place(x, y, role, self.a.start(x), self.a.end(x), self.text_for(y))]

    def _place(self, x: ast.AST | None, y: ast.AST | None, role: Role, start: int, end: int, text: str) -> Place:
        value_a = None if x is None else self.a.value_of(x)
        value_b = None if y is None else self.b.value_of(y)
        line_b = getattr(y, "lineno", 0)
        return Place(role.kind, role.key, role.call, x, y, value_a, value_b, start, end, text, line_b)

    def text_for(self, y: ast.AST) -> str:
        """Return the text of a node of b that can stand for any expression of a."""
        text = self.b.text_of(y)
        if isinstance(y, _NO_PARENTHESES) or any(isinstance(each, ast.Slice) for each in ast.iter_child_nodes(y)):
            return text
        if isinstance(y, _ATOMS) and "\n" not in text and "\r" not in text:
            return text
        return f"({text})"

    def _role_of_replacement(self, x: ast.AST, y: ast.AST, role: Role) -> Role:
        is_argument = role.kind == "argument"
        if (called(x) and called(y)) or ((called(x) or called(y)) and not is_argument):
            name = main_call(x, y) or main_call(y, x) or called(x) or called(y)
            return Role("call", name, name)
        if is_argument:
            return role
        symbols = operators_of(x) or operators_of(y)
        if symbols:
            return Role("code", symbols[0], role.call)
        return role if role.key else Role(role.kind, target_name(x) or dotted(y) or self.a.value_of(x), role.call)

    def _wrapped(self, x: ast.AST, y: ast.AST) -> Place | None:
        """Return the place where one side calls a function on what the other side has."""
        for outer, inner in ((x, y), (y, x)):
            if isinstance(inner, (ast.Constant, ast.Starred)):
                continue
            name = self._call_on(outer, inner)
            if name:
                new = Role("call", name, name)
                return self._place(x, y, new, self.a.start(x), self.a.end(x), self.text_for(y))
        return None

    def _call_on(self, outer: ast.AST, inner: ast.AST) -> str:
        """Return the function that is called on `inner` within a chain of calls; "" if none is."""
        if not isinstance(outer, ast.Call):
            return ""
        receivers = [outer.func.value] if isinstance(outer.func, ast.Attribute) else []
        parts = [*receivers, *outer.args]
        if any(self.same(part, inner) for part in parts):
            return called(outer)
        return next((name for part in parts if (name := self._call_on(part, inner))), "")

    def _compare_parts(self, x: ast.AST, y: ast.AST, role: Role) -> list[Place] | None:
        pairs: list[tuple[ast.AST, ast.AST]] = []
        for (name, left), (_, right) in zip(ast.iter_fields(x), ast.iter_fields(y), strict=True):
            if name in ("ctx", "type_comment", "kind"):
                continue
            lefts = left if isinstance(left, list) else [left]
            rights = right if isinstance(right, list) else [right]
            if len(lefts) != len(rights):
                return self._replaced(x, y, role)
            for each, other in zip(lefts, rights, strict=True):
                if isinstance(each, ast.AST) and isinstance(other, ast.AST):
                    pairs.append((each, other))
                elif each != other:
                    return self._replaced(x, y, role)
        values = [pair for pair in pairs if not isinstance(pair[0], (ast.operator, ast.unaryop, ast.cmpop, ast.boolop))]
        changed = [pair for pair in pairs if not self.same(*pair)]
        if (len(values) > 1 and len(changed) == len(values)) or any(pair not in values for pair in changed):
            return self._replaced(x, y, role)
        return self._all_places(x, y, changed, role)

    def _all_places(
        self, x: ast.AST, y: ast.AST, pairs: list[tuple[ast.AST, ast.AST]], role: Role
    ) -> list[Place] | None:
        found: list[Place] = []
        for left, right in pairs:
            places = self.compare(left, right, role)
            if places is None:
                return self._replaced(x, y, role)
            found += places
        return found

    def _compare_dicts(self, x: ast.Dict, y: ast.Dict, role: Role) -> list[Place] | None:
        keys_a = [None if key is None else self.shapes.of(key) for key in x.keys]
        keys_b = [None if key is None else self.shapes.of(key) for key in y.keys]
        if keys_a != keys_b:
            alone = [key for key in x.keys if key and self.shapes.of(key) not in keys_b]
            alone += [key for key in y.keys if key and self.shapes.of(key) not in keys_a]
            if len(alone) == 1 and isinstance(alone[0], ast.Constant):
                role = Role("value", str(alone[0].value), role.call)
            return self._replaced(x, y, role)
        found: list[Place] = []
        for key, left, right in zip(x.keys, x.values, y.values, strict=True):
            inner = Role("value", str(key.value), role.call) if isinstance(key, ast.Constant) else role
            places = self.compare(left, right, inner)
            if places is None:
                return self._replaced(x, y, role)
            found += places
        return found

    def _compare_calls(self, x: ast.Call, y: ast.Call, role: Role) -> list[Place] | None:
        receiver: list[Place] | None = []
        if not self.same(x.func, y.func):
            wrapped = self._wrapped(x, y)
            if wrapped is not None:
                return [wrapped]
            is_chain = isinstance(x.func, ast.Attribute) and isinstance(y.func, ast.Attribute)
            if is_chain and x.func.attr == y.func.attr and not (_is_plain(x.func) and _is_plain(y.func)):  # type: ignore[attr-defined]
                receiver = self.compare(x.func.value, y.func.value, role)  # type: ignore[attr-defined]
            elif self._same_arguments(x, y):
                name = called(x)
                new = Role("call", name, name)
                return [
                    self._place(x.func, y.func, new, self.a.start(x.func), self.a.end(x.func), self.text_for(y.func))
                ]
            else:
                return self._replaced(x, y, role)
        arguments = None if receiver is None else self.compare_arguments(x, y)
        if receiver is None or arguments is None:
            return self._replaced(x, y, role)
        return receiver + arguments

    def _same_arguments(self, x: ast.Call, y: ast.Call) -> bool:
        left = sorted(self.shapes.of(each) for each in x.keywords)
        right = sorted(self.shapes.of(each) for each in y.keywords)
        return left == right and [self.shapes.of(e) for e in x.args] == [self.shapes.of(e) for e in y.args]

    def compare_arguments(self, x: ast.Call, y: ast.Call) -> list[Place] | None:
        """Return the places at which the arguments of two calls of one function differ; None if they cannot be told."""
        name = dotted(x.func)
        names = self.parameters_of.get(name, ())
        has_stars = any(isinstance(each, ast.Starred) for each in (*x.args, *y.args))
        if has_stars and len(x.args) != len(y.args):
            return None
        found: list[Place] = []
        matched = self._match_positions(x.args, y.args)
        for index, (left, right) in enumerate(matched):
            key = _name_at(names, index) if not has_stars else f"argument {index + 1}"
            if len(x.args) == len(y.args) == 1 and not x.keywords and not names and not isinstance(left, ast.Starred):
                # `set_option(1)`: the function says what its only argument is.
                key = name
            places = self.compare(left, right, Role("argument", key, name))
            if places is None:
                return None
            found += places
        keys_a = {each.arg: each for each in x.keywords if each.arg}
        keys_b = {each.arg: each for each in y.keywords if each.arg}
        stars_a = [each for each in x.keywords if not each.arg]
        stars_b = [each for each in y.keywords if not each.arg]
        if len(stars_a) != len(stars_b):
            return None
        pairs = [(left.value, right.value, "**") for left, right in zip(stars_a, stars_b, strict=True)]
        pairs += [(keys_a[key].value, keys_b[key].value, key) for key in keys_a if key in keys_b]
        lefts, rights = [left for left, _ in matched], [right for _, right in matched]
        only_a: list[_Named] = [(_name_at(names, i), each) for i, each in enumerate(x.args) if each not in lefts]
        only_a += [(key, each) for key, each in keys_a.items() if key not in keys_b]
        only_b: list[_Named] = [(_name_at(names, i), each) for i, each in enumerate(y.args) if each not in rights]
        only_b += [(key, each) for key, each in keys_b.items() if key not in keys_a]
        for one, other in self._pair_positions(only_a, only_b):
            only_a.remove(one)
            only_b.remove(other)
            key = other[0] if isinstance(other[1], ast.keyword) else one[0]
            pairs.append((_value(one[1]), _value(other[1]), key))
        for left, right, key in pairs:
            places = self.compare(left, right, Role("argument", key, name))
            if places is None:
                return None
            found += places
        before = {each: left for left, right in matched for each in y.args[y.args.index(right) + 1 :]}
        changes = self._only_in_one(x, only_a, only_b, name, before)
        return None if changes is None else found + changes

    def _match_positions(self, left: list[ast.expr], right: list[ast.expr]) -> list[tuple[ast.expr, ast.expr]]:
        """Pair positional arguments: by likeness if each of the shorter list has a counterpart, else by position."""
        by_position = list(zip(left, right, strict=False))
        short, long = (left, right) if len(left) <= len(right) else (right, left)
        if len(left) == len(right) or not short:
            return by_position
        found: list[tuple[ast.expr, ast.expr]] = []
        start = 0
        for each in short:
            rest = long[start : len(long) - (len(short) - len(found) - 1)]
            scores = [1.0 if self.same(each, other) else self._likeness(each, other) for other in rest]
            best = max(scores, default=0.0)
            if best < _LIKE:
                return by_position
            start += scores.index(best) + 1
            other = long[start - 1]
            found.append((each, other) if short is left else (other, each))
        return found

    def _likeness(self, x: ast.AST, y: ast.AST) -> float:
        return likeness(labels_of(x), labels_of(y))

    def _pair_positions(self, only_a: list[_Named], only_b: list[_Named]) -> list[tuple[_Named, _Named]]:
        """Pair arguments that one side gives by position and the other by name."""
        found: list[tuple[_Named, _Named]] = []
        for left in only_a:
            others = [
                right
                for right in only_b
                if isinstance(left[1], ast.keyword) != isinstance(right[1], ast.keyword)
                and right not in [each for _, each in found]
            ]
            best = [right for right in others if right[0] == left[0] or self.same(_value(left[1]), _value(right[1]))]
            if not best and len(only_a) == len(only_b) == 1:
                best = others
            if best:
                found.append((left, best[0]))
        return found

    def _only_in_one(
        self,
        x: ast.Call,
        only_a: list[_Named],
        only_b: list[_Named],
        call: str,
        before: Mapping[ast.expr, ast.expr],
    ) -> list[Place] | None:
        order: list[ast.expr | ast.keyword] = sorted([*x.args, *x.keywords], key=self.a.start)
        gone = [each for _, each in only_a]
        if only_b and order and len(gone) == len(order):
            return None
        if any(isinstance(each, ast.GeneratorExp) for each in order):
            return None
        spans = [self._argument_span(x, each) for each in order]
        leading = 0
        while leading < len(order) and order[leading] in gone:
            leading += 1
        found = []
        for key, each in only_a:
            index = order.index(each)
            start, end = spans[index]
            if index < leading:
                end = spans[index + 1][0] if index + 1 < len(order) else end
            else:
                start = spans[index - 1][1]
            role = Role("argument", _name_of_argument(key, each), call)
            found.append(replace(self._place(each, None, role, start, end, ""), value_a=self.a.value_of(_value(each))))
        for rank, (key, each) in enumerate(only_b):
            role = Role("argument", _name_of_argument(key, each), call)
            new = self.text_for(each)
            if isinstance(each, ast.keyword):
                new = f"{each.arg}={self.text_for(each.value)}"
            anchor = before.get(each) if isinstance(each, ast.expr) else None
            if not order:
                at, text = self.a.end(x) - 1, new if rank == 0 else f", {new}"
            elif isinstance(each, ast.keyword):
                at, text = spans[-1][1], f", {new}"
            elif anchor is not None:
                at, text = spans[order.index(anchor)][1], f", {new}"
            else:
                at, text = spans[0][0], f"{new}, "
            place = self._place(None, each, role, at, at, text)
            found.append(replace(place, value_b=self.b.value_of(_value(each)), rank=rank))
        return found

    def _argument_span(self, call: ast.Call, argument: ast.expr | ast.keyword) -> tuple[int, int]:
        """Return the span of an argument with the parentheses around it."""
        text = self.a.text
        first = text.index("(", self.a.end(call.func)) + 1
        last = self.a.end(call) - 1
        start, end = self.a.start(argument), self.a.end(argument)
        while True:
            before = len(text[first:start].rstrip()) + first
            after = end + len(text[end:last]) - len(text[end:last].lstrip())
            if before > first and after < last and text[before - 1] == "(" and text[after] == ")":
                start, end = before - 1, after + 1
            else:
                return start, end


def _value(argument: ast.expr | ast.keyword) -> ast.expr:
    return argument.value if isinstance(argument, ast.keyword) else argument


def _name_of_argument(key: str, argument: ast.expr | ast.keyword) -> str:
    """Return a name for an argument without one: the function that makes it, such as a layer, or the variable."""
    if " " not in key:
        return key
    variable = dotted(argument) if isinstance(argument, ast.Name | ast.Attribute) and _is_plain(argument) else ""
    return called(argument) or variable.rpartition(".")[2] or key


def _name_at(names: Sequence[str], index: int) -> str:
    return names[index] if index < len(names) else f"argument {index + 1}"


def _is_plain(node: ast.AST) -> bool:
    """Return whether a node is a dotted name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
