"""A step at several sizes as tables, sentences and plots in characters."""
