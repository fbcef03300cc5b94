"""The database: tables, queries, and the copy of the queue."""
