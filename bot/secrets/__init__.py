"""Keeps secrets on the box: the bot's token, and whatever looks like a secret in messages and logs."""
