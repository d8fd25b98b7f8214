"""Kinds of evidence for the cause of a difference, one file each."""
