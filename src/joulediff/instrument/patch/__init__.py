"""Writes the measuring of a script's library calls into its source, where it can be read, and takes it out again."""
