"""Rewrites the calls of a program's source, and decides when one runs whether its callee is of a watched library."""
