"""Compares two runs of scripts whose API calls were measured."""
