"""The runner: one loop, the attempts under way, and where the next ones go."""
