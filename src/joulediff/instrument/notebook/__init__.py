"""Reads a Jupyter notebook, and runs its code cells in order as one program."""
