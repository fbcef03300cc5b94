"""One small process per attempt: starts the job, drains its output, ends its whole tree, records its end.

It never opens the database or the network, and everything others learn of it is in the run directory.
"""
