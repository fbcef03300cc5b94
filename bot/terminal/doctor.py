"""The doctor's checks of the chat: the token, who may use the bot, whether Telegram answers, undeliverable messages."""

from __future__ import annotations

import json
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bot import settings, token
from bot.store.outbox import Outbox
from bot.store.people import People
from bot.terminal.people import everybody, has_admin, is_page
from runner.api.chat import BOT_LOCK, KEEPER_LOCK, clock, holder
from runner.errors import NightshiftError
from runner.terminal.checks import FAIL, INFO, OK, WARN, Finding
from runner.terminal.session import counted, open_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.settings import ChatSettings
    from runner.api import Queue

ANSWERS_WITHIN_S = 5.0
LONGEST_ANSWER = 64 << 10
UNDELIVERABLE_FOR = timedelta(days=7)
REFUSED = 401


def examine() -> Iterator[Finding]:
    """Yield all findings about the chat."""
    try:
        config = settings.load()
    except NightshiftError as error:
        yield Finding(FAIL, "chat settings", str(error), "correct it in the environment or in .env of the state folder")
        return
    if _is_page(config):
        yield _page(config)
    else:
        try:
            place, secret = token.source(config), token.find(config)
        except NightshiftError as error:
            yield Finding(FAIL, "token", str(error), "see above")
            return
        if place and secret:
            yield Finding(OK, "token", f"from {place.place}")
            yield from _telegram(config, secret)
        elif holder(config.home, BOT_LOCK) is not None:
            yield Finding(INFO, "token", "the bot has one that this terminal does not know")
        else:
            yield Finding(INFO, "chat", "off: no NIGHTSHIFT_TOKEN", "docs/telegram.md, or NIGHTSHIFT_CHAT=page")
            return
    with open_queue() as queue:
        yield from _people(config, queue)
        yield from _undeliverable(queue)
    yield _bot(config)


def _is_page(config: ChatSettings) -> bool:
    if holder(config.home, BOT_LOCK) is None:  # the settings decide, and there may be no queue yet
        return config.chat == "page"
    with open_queue() as queue:
        return is_page(config, queue)


def _telegram(config: ChatSettings, secret: str) -> Iterator[Finding]:
    me = ask_telegram(config, secret, "getMe")
    if isinstance(me, Finding):
        yield me
        return
    if me.get("is_bot") is not True:
        yield Finding(WARN, "Telegram", "answers, but does not say which bot this is", "check NIGHTSHIFT_API_URL")
        return
    yield Finding(OK, "Telegram", f"answers; the bot is @{me.get('username', '?')}")
    webhook = ask_telegram(config, secret, "getWebhookInfo")
    if isinstance(webhook, dict) and (url := webhook.get("url")):
        where = urlsplit(str(url)).hostname or "elsewhere"
        yield Finding(
            FAIL,
            "webhook",
            f"another program gets this bot's messages, at {where}",
            "give nightshift a bot of its own (@BotFather), or: nightshift bot --take-over",
        )


def ask_telegram(config: ChatSettings, secret: str, method: str) -> dict[str, Any] | Finding:
    """Call one method of the Bot API. The URL holds the token, so a failure is reported only by its type."""
    import httpx

    try:
        url = f"{config.api_url}/bot{secret}/{method}"
        with httpx.Client(proxy=config.proxy, timeout=ANSWERS_WITHIN_S) as client, client.stream("GET", url) as answer:
            reply = json.loads(next(answer.iter_bytes(LONGEST_ANSWER), b""))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError, ImportError) as error:
        where = urlsplit(config.api_url).hostname
        through = f" through {urlsplit(config.proxy).hostname}" if config.proxy else ""
        return Finding(
            WARN,
            "Telegram",
            f"{where} does not answer{through} within {ANSWERS_WITHIN_S:.0f} s ({type(error).__name__})",
            "check the network; behind a firewall NIGHTSHIFT_PROXY; the bot keeps trying",
        )
    if answer.status_code in (REFUSED, 404):
        return Finding(
            FAIL, "Telegram", "does not know this token", "@BotFather shows the right one: /mybots, API Token"
        )
    result = reply.get("result") if isinstance(reply, dict) else None
    if not isinstance(result, dict):
        return Finding(WARN, "Telegram", f"answers with an error ({answer.status_code})", "look again in a while")
    return result


def _people(config: ChatSettings, queue: Queue) -> Iterator[Finding]:
    people = People(queue.store)
    listed, waiting = everybody(config, people), people.invitations()
    if is_page(config, queue):
        return
    if has_admin(config, people):
        counts = {role: sum(person.role == role for person in listed) for role in ("admin", "user", "viewer")}
        words = ", ".join(counted(count, role) for role, count in counts.items() if count)
        yield Finding(OK, "people", words + (f"; {counted(waiting, 'link')} not used yet" if waiting else ""))
    elif waiting:
        yield Finding(
            WARN, "people", "nobody is admin yet; a link is out", "open the link that `nightshift pair` showed"
        )
    else:
        yield Finding(FAIL, "people", "nobody is admin: nobody could run this box by chat", "nightshift pair")


def _bot(config: ChatSettings) -> Finding:
    if (pid := holder(config.home, BOT_LOCK)) is not None:
        return Finding(OK, "bot", f"up (pid {pid})")
    return Finding(WARN, "bot", "not up", "nightshift up --detach; why it is not: nightshift.log in the state folder")


def _page(config: ChatSettings) -> Finding:
    if holder(config.home, BOT_LOCK) is not None:
        return Finding(OK, "page", "`nightshift page` prints its link")
    if holder(config.home, KEEPER_LOCK) is not None:
        return Finding(OK, "page", "`nightshift up` holds its port")
    try:
        socket.create_server(("127.0.0.1", config.page_port)).close()
    except OSError as error:
        why = f"port {config.page_port} cannot be used: {error.strerror}"
        return Finding(FAIL, "page", why, "NIGHTSHIFT_PAGE_PORT=another")
    return Finding(OK, "page", f"port {config.page_port} is free")


def _undeliverable(queue: Queue) -> Iterator[Finding]:
    since = clock.text(clock.now() - UNDELIVERABLE_FOR)
    for why, count in Outbox(queue.store).undeliverable(since):
        fix = "they open the bot and press Start" if why.startswith("unreachable") else None
        yield Finding(WARN, "messages", f"{counted(count, 'message')} of the last week not delivered: {why}", fix)
