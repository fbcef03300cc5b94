"""Many jobs from one command: their values, the metric to compare them by, and their results."""
