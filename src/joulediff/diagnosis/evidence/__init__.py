"""Kinds of evidence, one file each: what points to the cause of a difference."""
