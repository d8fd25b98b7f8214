"""All knowledge of the frameworks, one folder each. A framework is imported here only, and only if the program did."""
