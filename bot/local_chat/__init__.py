"""A strict Bot API in memory: the embedded chat talks to it, and so do the tests.

The core knows no transport. `world` holds users, chats and messages, `people` is what persons do, `api` is what a
bot may call; `request` serves a bot inside this process, `http` the same over real sockets.
"""
