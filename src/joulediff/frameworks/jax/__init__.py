"""What joulediff knows about JAX. Nothing here runs unless the program imported jax itself."""
