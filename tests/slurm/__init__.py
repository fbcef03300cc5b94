"""A real Slurm cluster for tests: `cluster` brings it up, the tests in `inside` run within it."""
