"""May this machine measure now? Conditions, idle power, and repeats until the answer is narrow."""
