"""The runner's watchdogs: idle and hung jobs, time limits, the disk, failures in a row, an empty queue, the backup."""
