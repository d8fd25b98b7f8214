"""Pairs of programs that do the same job, one of which wastes energy for a known reason.

Each module has two builders, `wasteful` and `lean`, and says in `EXPECTED` what a diff must find first. A line is
marked in the source with `# <- here`.
"""
