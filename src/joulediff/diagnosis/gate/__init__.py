"""Whether one program uses more energy than another one by more than a limit."""
