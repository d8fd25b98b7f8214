"""Reports for a terminal. Every line fits the given width."""
