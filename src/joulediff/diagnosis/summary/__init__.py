"""The result of a diagnosis as a diff: its rows, ledgers and findings, and what no finding explains."""
