"""What joulediff knows about TensorFlow. Nothing here runs unless the program imported it itself."""
