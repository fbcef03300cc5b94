"""The tables of the chat: updates, messages, buttons, threads and people. They are in the same file as the queue."""
