"""Why one run costs more than another: the causes behind two matched parts, by evidence."""
