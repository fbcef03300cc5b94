"""When what waits will start, by playing the scheduler forward. Pure."""
