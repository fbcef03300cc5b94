"""Runs attempts on a cluster, through Slurm."""
