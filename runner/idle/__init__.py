"""The rules for idle and hung jobs. Pure."""
