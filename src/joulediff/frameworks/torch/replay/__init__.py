"""Operators run again alone, with their real inputs."""
