"""From notices to messages to Telegram: notifier, sender, retry policy."""
