"""Energy per call of an ordinary script: rewrites its calls in memory, runs it, and joins call times with meters."""
