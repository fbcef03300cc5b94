"""Upgrading: a state folder that an older release has written, and that release itself from the history."""
