"""How the runner finds batch sizes: what it asks of a supervisor, by program, and which jobs are of one kind."""
