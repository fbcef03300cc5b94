"""Code as submitted: what belongs to it, and the copies that jobs run from."""
