"""Reads how far a job is from what it prints, and estimates when it will be done. Pure."""
