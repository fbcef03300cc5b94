"""Pictures for the chat, each drawn in a process of its own."""
