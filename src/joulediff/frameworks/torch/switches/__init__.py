"""Settings of PyTorch: read, changed and put back."""
