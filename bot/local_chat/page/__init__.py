"""The chat as a page in a browser on this machine: its server, its files, its history."""
