"""The commands that a recorded program answers, in one table from which both ends of the pipe are made.

A row is read from the method of `LiveProgram` with that name: its parameters are the arguments of the command, their
types and the type of the result say how each is encoded and checked. A new command is one method there, and the method
of `LocalProgram` that does it. Runs travel beside the JSON text in their own encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Signature, isfunction, signature
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from joulediff.archive.codec import Document, from_plain, to_plain
from joulediff.archive.snapshot import from_wire, to_wire
from joulediff.frameworks.jobs import LiveProgram
from joulediff.model.errors import JoulediffError
from joulediff.model.run import Run

# Commands of a recording under way, in this order: build the step, measure it, measure it again, measure it apart from
# the recording, record the rest.
BUILD, START, AGAIN, APART, GO_ON = "build", "start", "again", "apart", "go on"
END = "end"

_PIPE = Document(within="")
_Program = TypeVar("_Program", bound=LiveProgram)


@dataclass(frozen=True, slots=True)
class Payload:
    """A command or a result: data that JSON can hold, and the runs it refers to by their place."""

    content: Any
    runs: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Verb:
    """One command: its name, its arguments and their types, and the type of its result."""

    name: str
    signature: Signature
    types: Mapping[str, Any]
    result: Any

    def to_command(self, *args: Any, **options: Any) -> Payload:
        """Return the command for a call with these arguments."""
        bound = self.signature.bind(*args, **options)
        bound.apply_defaults()
        runs: list[bytes] = []
        content = {name: _encode(self.types[name], value, runs) for name, value in bound.arguments.items()}
        return Payload({"do": self.name, **content}, runs)

    def do(self, program: LiveProgram, command: Payload) -> Payload:
        """Return the result of a command, done on a program."""
        missing = self.types.keys() - command.content.keys()
        if missing:
            raise JoulediffError(f"{self.name} needs {min(missing)}")
        given = command.content
        arguments = {name: _decode(hint, given[name], name, command.runs) for name, hint in self.types.items()}
        found = getattr(program, self.name)(**arguments)
        runs: list[bytes] = []
        return Payload(_encode(self.result, found, runs), runs)

    def read(self, answer: Payload) -> Any:
        """Return the result in an answer; raises ArchiveError for one of another type."""
        return _decode(self.result, answer.content, self.name, answer.runs)


def _row(name: str) -> Verb:
    method = getattr(LiveProgram, name)
    types = get_type_hints(method)
    result = types.pop("return")
    parameters = [each for each in signature(method).parameters.values() if each.name != "self"]
    return Verb(name, Signature(parameters), types, result)


VERBS: Mapping[str, Verb] = {
    name: _row(name) for name, each in vars(LiveProgram).items() if isfunction(each) and not name.startswith("_")
}


def asks_for_every_verb(kind: type[_Program]) -> type[_Program]:
    """Give a class the methods of `LiveProgram`: each sends its command with `ask`."""
    for verb in VERBS.values():
        setattr(kind, verb.name, _asking(verb))
    return kind


def _asking(verb: Verb) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        return verb.read(self.ask(verb.to_command(*args, **options)))

    declared = getattr(LiveProgram, verb.name)
    method.__name__, method.__doc__ = verb.name, declared.__doc__
    method.__signature__ = signature(declared)  # type: ignore[attr-defined]
    return method


def _encode(hint: Any, value: Any, runs: list[bytes]) -> Any:
    if hint is Run:
        runs.append(to_wire(value))
        return len(runs) - 1
    if _is_pair(hint):
        return [_encode(each, part, runs) for each, part in zip(get_args(hint), value, strict=True)]
    return str(value) if hint is Path else to_plain(value)


def _decode(hint: Any, plain: Any, place: str, runs: Sequence[bytes]) -> Any:
    if hint is Run:
        at = from_plain(int, plain, place, _PIPE)
        if not 0 <= at < len(runs):
            raise JoulediffError(f"{place} refers to run {at} of {len(runs)}")
        return from_wire(runs[at])
    if _is_pair(hint):
        types = get_args(hint)
        if not isinstance(plain, list) or len(plain) != len(types):
            raise JoulediffError(f"{place} has not {len(types)} parts")
        return tuple(_decode(each, part, place, runs) for each, part in zip(types, plain, strict=True))
    if hint is Path:
        if not isinstance(plain, str):  # a name of a file may hold half a surrogate pair, which no other text may
            raise JoulediffError(f"{place} is no path")
        return Path(plain)
    if hint is type(None):
        return from_plain(bool | None, plain, place, _PIPE)
    return from_plain(hint, plain, place, _PIPE)


def _is_pair(hint: Any) -> bool:
    return get_origin(hint) is tuple and Run in get_args(hint)
