"""All knowledge of frameworks: one folder for each, described as `framework.Framework`."""
