"""What joulediff knows about PyTorch. Nothing here runs unless the program imported torch itself."""
