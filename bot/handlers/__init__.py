"""What each command does, one file per family."""
