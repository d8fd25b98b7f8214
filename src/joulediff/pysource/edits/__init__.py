"""Finds the differences of two programs as small edits of the first one's source. Each edit can be applied alone."""
