"""All knowledge of frameworks, one folder each, behind the protocols in this folder."""
