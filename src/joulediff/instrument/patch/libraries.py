"""Which libraries a patch measures, and which known ones it does not."""

from __future__ import annotations

from collections.abc import Sequence

from joulediff.frameworks.framework import frameworks
from joulediff.instrument.rewriting.libraries import default_libraries, imported_libraries, packages_of
from joulediff.model.errors import ProgramError


def choose_libraries(source: str, given: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the libraries that were given, or the default ones that a program imports. `name` is its file."""
    wrong = [each for each in given if not each.isidentifier()]
    if wrong:
        raise ProgramError(
            f"{wrong[0]!r} is no name of a library", fix="give the name that is imported, such as --library numpy"
        )
    found = tuple(dict.fromkeys(given)) or imported_libraries(source)
    if not found:
        raise ProgramError(
            f"{name} imports none of {', '.join(default_libraries())}",
            fix="name what is measured with --library NAME, or measure the whole program: --level project",
        )
    return found


def other_libraries(libraries: Sequence[str]) -> frozenset[str]:
    """Return the packages of the default libraries that have nothing to do with the measured ones.

    The libraries of one framework belong together: one is often an attribute of the other.
    """
    described = [tuple(each.apis) for each in frameworks()]
    together = {name: group for group in described for name in group}
    related = {name for library in libraries for name in (library, *together.get(library, ()))}
    packages = packages_of([name for name in default_libraries() if name not in related])
    return frozenset(each for name, members in packages.items() for each in (name, *members))
