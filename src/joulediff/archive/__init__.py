"""A run in one file, `.jd`, and as bytes between two processes.

Both forms hold the same tables (`snapshot`) and pass the same checks (`check`); neither is trusted.
"""
