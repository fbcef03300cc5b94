"""The simulated driver: GPUs, their load and their faults, in a folder of text files."""
