"""Which job starts when and where: the choice, the quotas, and requests that can never be met. Pure."""
