"""The bot's own terminal commands, `nightshift pair` and `nightshift page`, and what `doctor` checks about the chat."""
