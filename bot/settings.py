"""The one list of chat settings: name, type, default and description."""

from __future__ import annotations

import socket
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from bot.text.quiet_hours import quiet_hours
from runner.api.chat import FromEnvironment, Seconds, load_as, refusing
from runner.errors import OperatorError

TELEGRAM = "https://api.telegram.org"


def _ids(value: Any, sign: str, example: str) -> Any:
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split(",")]
    for part in parts:
        digits = part.removeprefix(sign)
        if not (part.startswith(sign) and digits.isascii() and digits.isdigit() and len(digits) <= 17 and int(digits)):
            raise ValueError(f"{part!r} is not an id: write numbers like {example}, with commas between")
    return tuple(int(part) for part in parts)


def _address(value: str) -> str:
    parts = urlsplit(value.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("write an address like https://example.org")
    return value.strip().rstrip("/")


def _proxy(value: str) -> str:
    if urlsplit(value).scheme not in {"http", "https", "socks5", "socks5h"} or not urlsplit(value).hostname:
        raise ValueError("write it like http://proxy:3128 or socks5://127.0.0.1:1080")
    return value


# NoDecode: the validators get the environment's text as it is, not parsed as JSON
PersonIds = Annotated[tuple[int, ...], NoDecode, BeforeValidator(lambda value: _ids(value, "", "123456789"))]
GroupIds = Annotated[tuple[int, ...], NoDecode, BeforeValidator(lambda value: _ids(value, "-", "-1001234567890"))]
QuietHours = Annotated[tuple[int, int] | None, NoDecode, refusing(quiet_hours)]
Address = Annotated[str, BeforeValidator(_address)]


class ChatSettings(FromEnvironment):
    """The bot's settings."""

    home: str
    box: str = Field(default_factory=socket.gethostname)
    token: SecretStr | None = Field(
        None, description="Token of the bot, from @BotFather. Keep this file private: chmod 600."
    )
    token_file: str | None = Field(
        None, description="Instead of the token: a file that holds it, readable only by you."
    )
    api_url: Address = Field(TELEGRAM, description="Address of the Bot API, without /bot…, if you run your own server.")
    proxy: Annotated[str, BeforeValidator(_proxy)] | None = Field(
        None, description="Proxy to reach Telegram, like http://proxy:3128 or socks5://127.0.0.1:1080."
    )
    admins: PersonIds = Field(
        (),
        description="Numeric Telegram ids of people who may do everything, separated by commas. Or use `nightshift"
        " pair`.",
    )
    users: PersonIds = Field(
        (),
        description="Ids of people who may submit jobs and stop their own. Jobs run with the rights of your account.",
    )
    viewers: PersonIds = Field((), description="Ids of people who may look, but change nothing.")
    groups: GroupIds = Field((), description="Ids of groups (negative numbers) where these people may use the bot.")
    submits_per_minute: int = Field(20, ge=1, description="How many jobs one person may submit per minute.")
    queued_per_person: int = Field(500, ge=1, description="How many jobs of one person may wait at once.")
    log_text: bool = Field(
        True, description="Whether messages show output of jobs. Telegram can read what a bot sends."
    )
    quiet_hours: QuietHours = Field(
        None, description="Hours without sound, like 23-7. Each person may choose others with /notify."
    )
    heartbeat_url: Address | None = Field(
        None,
        description="Address to fetch regularly while runner and bot work. If the fetches stop, a monitoring service"
        " there can alert you.",
    )
    heartbeat_every: Seconds = Field(60.0, ge=5, description="How often to fetch that address.")
    chat: Literal["telegram", "page"] = Field(
        "telegram",
        description="Where to chat: telegram, or page (a web page on this machine, without a token).",
    )
    page_port: int = Field(8642, ge=0, le=65535, description="Port of that page, on 127.0.0.1 only.")


def load() -> ChatSettings:
    """Return the settings in force. Raise OperatorError, which says what is wrong and how to fix it."""
    settings = load_as(ChatSettings)
    roles = {"ADMINS": settings.admins, "USERS": settings.users, "VIEWERS": settings.viewers}
    twice = {person for ids in roles.values() for person in ids if sum(person in other for other in roles.values()) > 1}
    if twice:
        raise OperatorError(
            f"{min(twice)} is in more than one of NIGHTSHIFT_ADMINS, USERS and VIEWERS. Leave it in only one."
        )
    return settings
