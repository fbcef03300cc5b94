"""All about jobs: the queue, the runner that works through it, and the calls that others may use (runner.api)."""
