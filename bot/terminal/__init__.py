"""The bot's own commands of the terminal: `nightshift pair`, and what `doctor` checks of the chat."""
