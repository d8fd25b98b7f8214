"""Matching: the regions of two runs that compute the same."""
