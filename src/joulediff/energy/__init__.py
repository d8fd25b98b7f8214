"""Energy per operator: measured by replay, else attributed, and compared with the metered energy of the step."""
