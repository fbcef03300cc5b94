"""The chat without Telegram: the part of the Bot API that the bot calls, in memory, and the page that shows the chat.

`bot_api` knows no transport: `world` holds people, chats and messages, `methods` is what a bot may call, and
`in_process_request` passes on the calls of a bot in this process. tests/telegram extends it to a strict Bot API.
"""
