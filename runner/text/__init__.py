"""Words and tables that the terminal and the chat share."""
