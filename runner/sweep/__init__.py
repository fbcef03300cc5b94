"""Many jobs from one command: their values, the number they are compared by, and what came of them."""
