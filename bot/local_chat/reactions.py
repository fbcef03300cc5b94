"""The emoji that may stand under a message."""

REACTIONS = frozenset(
    "👍👎❤🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆💔🤨😐🍓🍾💋🖕😈"
    "😴😭🤓👻👀🎃🙈😇😨🤝✍🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾🤷😡"
) | {"❤\u200d🔥", "👨\u200d💻", "🤷\u200d♂", "🤷\u200d♀"}


def plain(emoji: str) -> str:
    """Without the mark that asks for the coloured form; Telegram does not tell the two apart."""
    return emoji.replace("\ufe0f", "")
