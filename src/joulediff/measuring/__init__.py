"""Joules, seconds and watts of a callable, with an interval, for each domain."""
