"""CUDA graphs that the program captures itself: their operators at capture, and again at each recorded replay."""
