"""Predicts when queued jobs start, by simulating the scheduler. Pure."""
