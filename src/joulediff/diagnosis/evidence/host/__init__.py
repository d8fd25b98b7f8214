"""Evidence on the host: idle time of the device, lines of Python, and busy waiting."""
