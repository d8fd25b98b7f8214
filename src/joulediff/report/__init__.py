"""Reports: runs, matches and diffs as text and JSON. Needs no device and no framework."""
