"""Programs whose correspondence is known by construction: each node of a program can be written in several ways."""
