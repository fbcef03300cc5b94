"""From Telegram to a handler: poll, inbox, gate, dispatch, parse."""
