"""Energy of parts of a program while it runs: a block of code, or every call of a function."""
