"""The step, or operators of it, run in other ways than the program does."""
