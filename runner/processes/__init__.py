"""Our own processes: how they start, wake, wait and lock, and what they need of Linux."""
