"""Records that travel between the rooms: data only. Imports nothing else of this package."""
