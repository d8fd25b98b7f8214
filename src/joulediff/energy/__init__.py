"""Joules per operator: measured by replay, attributed where that cannot be, and held against the meter."""
