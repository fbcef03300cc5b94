"""What the runner keeps an eye on: idle and hung jobs, time limits, the disk, failures in a row, an empty queue."""
