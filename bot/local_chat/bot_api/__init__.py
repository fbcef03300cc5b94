"""The part of the Bot API that the page needs, in memory. The bot's calls come as `LocalRequest` passes them on.

It trusts the bot: tests/telegram extends it to an API that refuses everything Telegram refuses, and tests run the bot
against that one.
"""
