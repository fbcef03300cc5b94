"""The part of the Bot API that the page needs, in memory. It trusts the bot.

tests/telegram extends it to an API that refuses everything Telegram refuses, and tests run the bot against that one.
"""
