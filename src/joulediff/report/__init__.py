"""Records turned into text and JSON. Works on a machine with no device and no framework."""
