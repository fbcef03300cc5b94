"""The chat face of nightshift; it reaches jobs through runner.api alone."""
