"""The runner: one loop, the attempts that are running, and where the next ones go."""
