"""How the runner finds batch sizes: what it tells supervisors, and what it keeps of the results."""
