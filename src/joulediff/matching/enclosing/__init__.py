"""Operators whose tensors differ in both runs, compared by the calls that they belong to."""
