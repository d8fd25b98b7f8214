"""Settings of PyTorch: one table, and the modules that read, change, track, group and find them."""
