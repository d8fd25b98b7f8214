"""Traces the lines of a function and the values that they read. Knows no framework."""
