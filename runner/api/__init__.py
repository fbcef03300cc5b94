"""What others may call: the terminal and the chat reach jobs through here alone."""

from runner.api.queue import Queue, job_spec

__all__ = ["Queue", "job_spec"]
