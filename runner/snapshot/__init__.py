"""Code as submitted: which files belong to it, and the copies that jobs run from."""
