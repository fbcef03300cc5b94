"""Our own processes: how they start, wake, wait and lock, and the Linux calls they need."""
