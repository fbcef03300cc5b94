"""The interface of the queue: the terminal and the bot reach jobs only through it."""

from runner.api.queue import Queue
from runner.api.specs import job_spec
