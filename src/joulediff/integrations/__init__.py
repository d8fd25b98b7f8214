"""joulediff inside other tools: a pytest plugin, and magics for notebooks."""
