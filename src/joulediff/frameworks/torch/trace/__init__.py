"""The traced pass: kernels and host waits, joined to operators."""
