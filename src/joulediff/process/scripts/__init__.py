"""A script that runs as it is in a process of its own, with its library calls measured."""
