"""The simulated driver: GPUs, their load and their faults, kept in a folder of text files."""
