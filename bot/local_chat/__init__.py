"""A strict Bot API in memory, and the chat page that uses it. Tests use it too.

The core in `bot_api` knows no transport. `world` holds users, chats and messages, `people` is what persons do, `api` is
what a bot may call. `in_process_request` serves a bot inside this process; tests/telegram serves it over HTTP.
"""
