"""Who may do what (the gate), and how often (the rate limit)."""
