"""One run in rows, tables and sentences."""
