"""One small process per attempt: starts the job, drains its output, ends its process tree, records how it ended.

It never opens the database or the network. Everything others need to know about it is in the run directory.
"""
