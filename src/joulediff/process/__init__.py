"""A program in a process and an environment of its own."""
