"""Results that a notebook shows as HTML.

The report of a result is made in a room above this one, which `set_html` is given once, when joulediff is imported.
"""

from __future__ import annotations

from collections.abc import Callable

_make_html: Callable[[object], str] | None = None


def set_html(make_html: Callable[[object], str]) -> None:
    """Set the function that returns the HTML of a result."""
    global _make_html
    _make_html = make_html


class Displayed:
    """A result with a report."""

    __slots__ = ()

    def _to_shown(self) -> object | None:
        """Return the record that the report is made of; None if there is nothing to report yet."""
        return self

    def _repr_html_(self) -> str | None:
        record = self._to_shown()
        return None if _make_html is None or record is None else _make_html(record)


def record_of(result: object) -> object | None:
    """Return the record that the report of a result is made of."""
    return result._to_shown() if isinstance(result, Displayed) else result  # noqa: SLF001
