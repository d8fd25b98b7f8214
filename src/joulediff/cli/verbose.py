"""Whether a command was told to show tracebacks: `-vv`, wherever it stands among the words."""

from __future__ import annotations

from contextvars import ContextVar

is_verbose: ContextVar[bool] = ContextVar("is_verbose", default=False)
