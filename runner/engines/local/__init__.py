"""Runs attempts on this host."""
