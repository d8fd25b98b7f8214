"""Whether to show tracebacks: `-vv` anywhere on the command line."""

from __future__ import annotations

from contextvars import ContextVar

is_verbose: ContextVar[bool] = ContextVar("is_verbose", default=False)
