"""The bot's parts and how they are wired together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

from telegram.error import InvalidToken

from bot.chat import Chat
from bot.handlers import button_taps, job_picker, submit, unknown
from bot.handlers.by_command import HANDLERS
from bot.inbound.dispatch import Dispatcher
from bot.inbound.heartbeat import beat
from bot.inbound.poll import POLL_S, Poller
from bot.inbound.routing import Routes, answer
from bot.outbound.card_editor import CardEditor
from bot.outbound.live_log_editor import LiveLogEditor
from bot.outbound.no_runner import RunnerWatch
from bot.outbound.notifier import Notifier
from bot.outbound.sender import Sender
from bot.outbound.telegram_client import NOT_KNOWN, TelegramClient
from bot.secrets import quiet_log
from bot.waiting import ThreadPerCall, cancel_all, within
from runner.api.chat import BOT_BELL, BOT_LOCK, Doorbell, descendants, held
from runner.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.settings import ChatSettings

log = logging.getLogger(__name__)

LAST_WORDS_S = 3.0
LOOK_AT_FILE_S = 1.0

ROUTES = Routes(
    commands=HANDLERS, which_job=job_picker.offer, file=submit.attached, unknown_command=unknown.command,
    words=unknown.words, other=unknown.anything, tap=button_taps.tapped,
)  # fmt: skip
NOBODY_COULD_USE_IT = (
    "Nobody could use this bot: name yourself in NIGHTSHIFT_ADMINS, or run `nightshift pair` on this box first and"
    " open the link it prints within ten minutes."
)


def main(settings: ChatSettings, token: str | None, *, take_over: bool = False) -> None:
    """Run the bot in this process until it is asked to stop."""
    quiet_log.install(token or "")
    os.umask(0o077)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_run(settings, token, take_over))
    finally:
        for pid in descendants(os.getpid()):  # left by a call that hangs in its thread, like a git waiting for a pipe
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def _run(settings: ChatSettings, token: str | None, take_over: bool) -> None:
    async with contextlib.AsyncExitStack() as stack:
        os.makedirs(settings.home, mode=0o700, exist_ok=True)
        stack.enter_context(held(settings.home, BOT_LOCK))
        bot = await _bot(stack, settings, token)
        stack.callback(bot.chat.close)
        if not bot.chat.gate.admins() and not bot.chat.people.invitations():
            raise OperatorError(NOBODY_COULD_USE_IT)
        await bot.run(stack, take_over=take_over)


async def _bot(stack: contextlib.AsyncExitStack, settings: ChatSettings, token: str | None) -> Bot:
    """Return a bot that talks to Telegram, or to the page on this machine."""
    if settings.chat == "page":
        from bot.local_chat.embedded import open_page

        local = await open_page(stack, settings)
        local.status.chat = chat = Chat(local.settings)
        return Bot(chat, local.client, local.changed)
    if token is None:
        raise OperatorError("There is no NIGHTSHIFT_TOKEN: make a bot with @BotFather, and copy its token.")
    return Bot(Chat(settings, token), TelegramClient(token, settings))


class Bot:
    """One bot: it handles updates, turns notices into messages and sends them, over one connection to the queue."""

    def __init__(
        self,
        chat: Chat,
        client: TelegramClient,
        on_change: Callable[[], None] = lambda: None,
        *,
        poll_s: float = POLL_S,
    ) -> None:
        self.chat, self.client, self._on_change = chat, client, on_change
        self.sender = Sender(chat, client.bot, self._doubt)
        chat.wake_sender = self.sender.wake
        self.card_editor = CardEditor(chat, self.sender, client.bot)
        self.notifier = Notifier(chat, self.card_editor.news)
        self.runner_watch = RunnerWatch(chat, self.notifier.wake)
        self.live_logs = LiveLogEditor(chat)
        chat.wake_live_logs = self.live_logs.wake
        self.dispatcher = Dispatcher(chat, client.bot, partial(answer, chat, ROUTES))
        self.poller = Poller(chat, client, self.dispatcher.wake, poll_s=poll_s)
        self._asking: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPerCall())
        self._ended: asyncio.Future[None] = loop.create_future()

    async def run(self, stack: contextlib.AsyncExitStack, *, take_over: bool = False) -> None:
        """Run until a signal, or until an error that only the operator can fix."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.leave)
        bell = Doorbell(self.chat.settings.home, BOT_BELL)
        stack.callback(bell.close)
        loop.add_reader(bell.fileno(), self._rung, bell)
        stack.callback(loop.remove_reader, bell.fileno())
        await self._first(self.connect(take_over=take_over))
        if self._ended.done():
            return self._ended.result()
        log.info("bot pid %s up as @%s: state in %s", os.getpid(), self.chat.username, self.chat.settings.home)
        await self.serve()
        return None

    async def connect(self, *, take_over: bool = False) -> None:
        """Learn the bot's own id and name, and tell the queue which bot this is."""
        await self.client.connect(take_over=take_over)
        me = self.client.bot.bot
        self.chat.username = me.username or ""
        with self.chat.transaction():
            self.chat.meet(me.id, self.chat.username)

    async def serve(self) -> None:
        """Run all parts at once until the bot is asked to leave or one of them fails."""
        parts = (
            *(self.poller, self.dispatcher, self.notifier, self.sender),
            *(self.card_editor, self.live_logs, self.runner_watch),
        )
        tasks = [asyncio.ensure_future(work) for work in (*(part.run() for part in parts), self._look_at_file())]
        beating = asyncio.ensure_future(beat(self.chat, self.poller))
        try:
            await asyncio.wait([self._ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
            with contextlib.suppress(asyncio.TimeoutError):
                await within(LAST_WORDS_S, self.sender.settled())
        finally:
            besides = [beating, *([self._asking] if self._asking else [])]
            ends = await cancel_all([*tasks, *besides])
            await self.client.close()
        for end in ends:
            if isinstance(end, InvalidToken):
                raise OperatorError(NOT_KNOWN)
            if isinstance(end, Exception):
                raise end
        if self._ended.done():
            self._ended.result()

    async def _look_at_file(self) -> None:
        """Raise QueueLostError if the queue's file is gone. Looks every second, even when nothing happens."""
        while True:
            self.chat.queue.store.refuse_lost()
            await asyncio.sleep(LOOK_AT_FILE_S)

    def leave(self) -> None:
        """Ask the bot to stop in an orderly way."""
        if not self._ended.done():
            self._ended.set_result(None)

    def _doubt(self) -> None:
        """Ask Telegram, once at a time, whether the token still works: a call was refused as if it did not."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask_about_token())

    async def _ask_about_token(self) -> None:
        if await self.client.is_unknown() and not self._ended.done():
            self._ended.set_exception(OperatorError(NOT_KNOWN))

    async def _first(self, doing: Any) -> None:
        """Await this, but cancel it if the bot is asked to leave first."""
        task = asyncio.ensure_future(doing)
        await asyncio.wait([task, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        else:
            await cancel_all([task])
            await self.client.close()

    def _rung(self, bell: Doorbell) -> None:
        bell.clear()
        self.notifier.wake()
        self._on_change()
