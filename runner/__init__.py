"""Everything about jobs: the queue, the runner that drives it, and what others may call (runner.api)."""
