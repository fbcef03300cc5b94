"""The chat without Telegram: the part of the Bot API that the bot calls, in memory, and the page that shows the chat.

`bot_api/world` holds people, chats and messages, `bot_api/methods` is what a bot may call, and
`bot_api/in_process_request` passes on the calls of a bot in this process.
"""
