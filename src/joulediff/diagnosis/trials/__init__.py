"""Kinds of trials, one file each: one thing changed on the expensive side, and measured."""
