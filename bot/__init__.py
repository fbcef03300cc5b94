"""The chat side of nightshift. It reaches jobs only through runner.api."""
