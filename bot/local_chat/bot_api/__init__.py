"""The strict Bot API in memory: its rules, its world of people and chats, its methods."""
