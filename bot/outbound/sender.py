"""Sends messages to Telegram: each chat in order, alerts before edits, until each is delivered or undeliverable."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from telegram import (
    BotCommand,
    BotCommandScopeChat,
    BotCommandScopeDefault,
    CopyTextButton,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    ReplyParameters,
)
from telegram.constants import ChatAction, ParseMode
from telegram.error import InvalidToken, TelegramError

from bot.outbound.documents import document_for, no_file
from bot.outbound.pace import CardPace
from bot.outbound.retry_policy import AS_WORDS, SIMPLER_FORMS, Then, Verdict, after_failure, in_words
from bot.pictures import plots
from bot.store.outbox import LANES
from bot.text.html import CAPTION_UNITS, MESSAGE_UNITS, escape, italic, shorten, visible_units
from bot.waiting import cancel_all, patiently, within
from runner.api.chat import clock
from runner.errors import NightshiftError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from telegram import Bot
    from telegram import Message as SentMessage

    from bot.chat import Chat
    from bot.store.outbox import Message

log = logging.getLogger(__name__)

EDIT_TRIES = 4  # before we conclude that this server does not have the method
LATE = timedelta(minutes=10)
ACTION_S = 4.0  # Telegram shows what the bot does for five seconds
REPEAT = "sent again: the first may have arrived"
NO_PREVIEW = LinkPreviewOptions(is_disabled=True)
_SPEAKS = {"sendMessage", "sendPhoto"}
_CAN_BE_SIMPLER = {*_SPEAKS, "sendDocument"}


class Sender:
    """Sends waiting messages. Each chat has one task, and one more for files, so that a large file delays no alert."""

    def __init__(self, chat: Chat, bot: Bot, on_doubt: Callable[[], None]) -> None:
        self._chat, self._bot, self._on_doubt = chat, bot, on_doubt
        self._wake = asyncio.Event()
        self._busy: dict[tuple[int, bool], asyncio.Task[None]] = {}
        self._quiet_until: dict[int, float] = {}  # per chat, if Telegram asked us to wait; by the monotonic clock
        self.pace = CardPace()
        self.on_sent: Callable[[Message], None] = lambda _: None
        self.on_rest: Callable[[], None] = lambda: None  # called whenever a chat has got all that was due

    def wake(self) -> None:
        """Wake the sender: there may be something to send."""
        self._wake.set()

    @property
    def busy(self) -> bool:
        """Return whether something is being sent."""
        return bool(self._busy)

    def is_behind(self, chat: int) -> bool:
        """Return whether something for this chat is being sent or should be."""
        return (chat, False) in self._busy or bool(self._chat.outbox.due(chat))

    def card_wait_s(self, chat: int) -> float:
        """Return in how many seconds a card may be sent or changed in this chat; 0 or less: now."""
        return max(self.pace.free_at(chat), self._quiet_until.get(chat, 0.0)) - clock.monotonic()

    def leave_alone(self, chat: int, wait_s: float) -> None:
        """Send nothing to this chat for a while, and fewer cards after that: Telegram asked for it."""
        self._quiet_until[chat] = clock.monotonic() + wait_s
        self.pace.slow_down(chat)

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                self._wake.clear()
                wait_s = await patiently(self._start_lanes)
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(wait_s, self._wake.wait())
        finally:
            await cancel_all(self._busy.values())

    async def settled(self) -> None:
        """Wait until everything that can be sent now has been tried."""
        while self._busy:
            await asyncio.wait(self._busy.values())

    def _start_lanes(self) -> float | None:
        """Start a task for each chat with something due. Return the seconds until more is due; None if nothing is."""
        now = clock.monotonic()
        self._quiet_until = {chat: until for chat, until in self._quiet_until.items() if until > now}
        waits: list[float | None] = []
        for message in self._chat.outbox.due(now=now):
            lane = (message.chat, message.lane == "file")
            if message.lane == "card" and (wait_s := self.card_wait_s(message.chat)) > 0:
                waits.append(wait_s)
            elif lane not in self._busy and message.chat not in self._quiet_until:
                task = asyncio.get_running_loop().create_task(self._lane(*lane))
                self._busy[lane] = task
                task.add_done_callback(partial(self._lane_ended, lane))
        waits += [*(until - now for until in self._quiet_until.values()), self._chat.outbox.next_try_in(now)]
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    def _lane_ended(self, lane: tuple[int, bool], task: asyncio.Task[None]) -> None:
        del self._busy[lane]
        if not task.cancelled() and (problem := task.exception()) is not None:
            trace = None if isinstance(problem, NightshiftError) else problem  # the message of our own errors is enough
            log.error("sending to chat %s broke off: %s", lane[0], problem, exc_info=trace)
        self._wake.set()
        self.on_rest()

    async def _lane(self, chat: int, files: bool) -> None:
        """Send everything that is due in one chat, its files or the rest, one after the other."""
        while (message := await patiently(self._next, chat, files)) is not None:
            await self._send(message)

    def _next(self, chat: int, files: bool) -> Message | None:
        if chat in self._quiet_until and self._quiet_until[chat] > clock.monotonic():
            return None
        due = [message for message in self._chat.outbox.due(chat) if (message.lane == "file") == files]
        if self.card_wait_s(chat) > 0:
            due = [message for message in due if message.lane != "card"]
        return min(due, key=lambda message: LANES.index(message.lane), default=None)

    async def _send(self, message: Message) -> None:
        """Try once to send a message, and store the result before the task sends its next one."""
        outbox = self._chat.outbox
        if message.expires_at and message.expires_at < clock.now():
            await patiently(outbox.done, message.id)
            return
        if message.person is not None and not self._chat.gate.may_reach(message.person, message.chat):
            await patiently(outbox.mark_undeliverable, message.id, "no longer allowed")
            return
        await self._picture(message)  # drawing takes time, so it is done before the try is recorded
        await patiently(outbox.begin, message.id)
        self.pace.note_call(message.chat)
        try:
            sent = await _CALLS[message.method](self, message)
        except TelegramError as problem:
            await patiently(self._failed, message, _verdict(message, problem))
        except Exception:  # a broken message must not block those behind it
            log.exception("message %s cannot be sent", message.id)
            await patiently(self._failed, message, Verdict(Then.PARK, why="refused: it cannot be sent"))
        else:
            number = sent.message_id if sent else message.body.get("message_id")  # an edit names its message
            await patiently(outbox.done, message.id, number)
            await patiently(self.on_sent, message)

    def _failed(self, message: Message, verdict: Verdict) -> None:
        outbox, then = self._chat.outbox, verdict.then
        if then in AS_WORDS and (words := in_words(message, verdict)) is not None:
            log.warning("the file of message %s was refused, words are sent: %s", message.id, verdict.why)
            outbox.again(message.id, 0.0, arrived_perhaps=message.begun, body=words)
        elif then is Then.DONE:
            outbox.done(message.id)
        elif then is Then.PARK:
            self._park(message, verdict.why)
        elif then is Then.MOVE:
            self._move(message, verdict.chat or 0)
        elif then in SIMPLER_FORMS:
            self._simplify(message, verdict)
        else:
            self._later(message, verdict)
        if then is Then.DOUBT:
            self._on_doubt()

    def _move(self, message: Message, became: int) -> None:
        self._chat.outbox.again(message.id, 0.0, arrived_perhaps=message.begun)
        if not follow(self._chat, message.chat, became):
            self._park(message, "unreachable: the group has become another one")

    def _simplify(self, message: Message, verdict: Verdict) -> None:
        """Send a refused message again in a simpler form. If there is none, it is undeliverable."""
        body = SIMPLER_FORMS[verdict.then](message.body)
        if body == message.body or message.method not in _CAN_BE_SIMPLER:
            self._park(message, f"refused: {verdict.why}")
            return
        log.error("message %s was refused as it was: %s", message.id, verdict.why)
        self._chat.outbox.again(message.id, 0.0, arrived_perhaps=message.begun, body=body)

    def _later(self, message: Message, verdict: Verdict) -> None:
        perhaps = verdict.then is Then.PERHAPS or message.begun
        if message.tries == 0:
            log.warning("message %s to chat %s is tried again: %s", message.id, message.chat, shorten(verdict.why, 300))
        self._chat.outbox.again(message.id, verdict.after_s, arrived_perhaps=perhaps)
        if verdict.then is Then.WAIT:
            self.leave_alone(message.chat, verdict.after_s)

    def _park(self, message: Message, why: str) -> None:
        """Mark a message as undeliverable, and drop it if it is an edit, a card or an answer to a button.

        A notice that cannot be delivered in a group goes to the person in private.
        """
        if message.lane in {"edit", "answer", "card"}:
            self._chat.outbox.done(message.id)
            if message.method == "setMessageReaction" and message.job_id is not None:
                self._chat.outbox.hurry(message.job_id)
            return
        log.warning("a message to chat %s cannot be delivered: %s", message.chat, why)
        if message.notice_id is None or message.chat > 0 or message.person is None:
            self._chat.outbox.mark_undeliverable(message.id, why)
            return
        with self._chat.transaction():
            self._chat.outbox.mark_undeliverable(message.id, f"told in private: {why}")
            body = SIMPLER_FORMS[Then.LOOSE](message.body)
            self._chat.outbox.add(
                message.person, message.method, body, person=message.person, job_id=message.job_id,
                notice_id=message.notice_id, at=message.created_at,
            )  # fmt: skip

    async def _send_text(self, message: Message) -> SentMessage:
        return await self._bot.send_message(
            message.chat, _text(message), parse_mode=None if message.body.get("plain") else ParseMode.HTML,
            reply_markup=keyboard_of(message.body), link_preview_options=NO_PREVIEW, **_placed(message.body),
        )  # fmt: skip

    async def _picture(self, message: Message) -> bytes | None:
        plot = message.body.get("plot")
        return await plots.drawn(plot, self._chat.settings.home) if plot else None

    async def _send_picture(self, message: Message) -> SentMessage:
        """Send a picture with its caption; if it cannot be drawn, send the message's text."""
        picture = await self._picture(message)
        if picture is None:
            return await self._send_text(message)
        caption = _with_notes(message, message.body["caption"], CAPTION_UNITS)
        return await self._bot.send_photo(
            message.chat, picture, caption=caption, parse_mode=ParseMode.HTML, reply_markup=keyboard_of(message.body),
            filename="plot.png", write_timeout=60, read_timeout=30, **_placed(message.body),
        )  # fmt: skip

    async def _send_document(self, message: Message) -> SentMessage:
        """Send a file; if there is none, or Telegram refused it, send a text that says so."""
        async with self._acting(message, ChatAction.UPLOAD_DOCUMENT):
            document = await document_for(self._chat, message.body)
        if document is None:
            return await self._bot.send_message(
                message.chat, self._chat.presentable(escape(no_file(message.body))), parse_mode=ParseMode.HTML,
                link_preview_options=NO_PREVIEW, **_placed(message.body),
            )  # fmt: skip
        caption = ". ".join(part for part in (document.caption, _notes(message)) if part) or None
        return await self._bot.send_document(
            message.chat, document.content, filename=document.name, caption=caption,
            write_timeout=120, read_timeout=60, **_placed(message.body),
        )  # fmt: skip

    @contextlib.asynccontextmanager
    async def _acting(self, message: Message, action: ChatAction) -> AsyncIterator[None]:
        """Show in the chat that the bot is busy. Nothing is lost if Telegram refuses that."""
        acting = asyncio.ensure_future(self._act(message.chat, action, message.body.get("topic")))
        try:
            yield
        finally:
            await cancel_all([acting])

    async def _act(self, chat: int, action: ChatAction, topic: int | None) -> None:
        with contextlib.suppress(TelegramError):
            while True:
                await self._bot.send_chat_action(chat, action, message_thread_id=topic)
                await asyncio.sleep(ACTION_S)

    async def _edit_text(self, message: Message) -> None:
        await self._bot.edit_message_text(
            _text(message), message.chat, message.body["message_id"],
            parse_mode=None if message.body.get("plain") else ParseMode.HTML,
            reply_markup=keyboard_of(message.body), link_preview_options=NO_PREVIEW,
        )  # fmt: skip

    async def _edit_caption(self, message: Message) -> None:
        await self._bot.edit_message_caption(
            message.chat, message.body["message_id"], caption=message.body["caption"], parse_mode=ParseMode.HTML,
            reply_markup=keyboard_of(message.body),
        )  # fmt: skip

    async def _edit_keyboard(self, message: Message) -> None:
        await self._bot.edit_message_reply_markup(
            message.chat, message.body["message_id"], reply_markup=keyboard_of(message.body)
        )

    async def _answer(self, message: Message) -> None:
        body = message.body
        await self._bot.answer_callback_query(body["query"], body["text"] or None, show_alert=body["alert"])

    async def _react(self, message: Message) -> None:
        await self._bot.set_message_reaction(message.chat, message.body["message_id"], message.body["emoji"])

    async def _set_menu(self, message: Message) -> None:
        scope = BotCommandScopeChat(message.chat) if message.chat else BotCommandScopeDefault()
        await self._bot.set_my_commands([BotCommand(*command) for command in message.body["commands"]], scope=scope)

    async def _leave(self, message: Message) -> None:
        await self._bot.leave_chat(message.chat)


_CALLS: dict[str, Callable[[Sender, Message], Awaitable[SentMessage | None]]] = {
    "sendMessage": Sender._send_text,
    "sendPhoto": Sender._send_picture,
    "sendDocument": Sender._send_document,
    "editMessageText": Sender._edit_text,
    "editMessageCaption": Sender._edit_caption,
    "editMessageReplyMarkup": Sender._edit_keyboard,
    "answerCallbackQuery": Sender._answer,
    "setMessageReaction": Sender._react,
    "setMyCommands": Sender._set_menu,
    "leaveChat": Sender._leave,
}


def follow(chat: Chat, old: int, new: int) -> bool:
    """Send to its new id what is for a group that became a supergroup. Return False if the group is not served."""
    if not chat.gate.serves(old):
        return False
    with chat.transaction():
        is_old_news = chat.people.successors().get(old) == new  # it comes in a refusal, and in a message in the group
        chat.people.note_successor(old, new)
        chat.outbox.move(old, new)
        chat.threads.move(old, new)
        chat.cards.move(old, new)
        if is_old_news:
            return True
        chat.queue.audit.add("bot", "group moved", {"from": old, "to": new})
        chat.tell_admins(
            f"A group I serve became a supergroup: its id is now <code>{new}</code> instead of <code>{old}</code>. "
            "I follow it there; put the new id into NIGHTSHIFT_GROUPS when you next edit the settings."
        )
    return True


def _text(message: Message) -> str:
    return _with_notes(message, message.body["text"], MESSAGE_UNITS)


def _with_notes(message: Message, text: str, limit: int) -> str:
    """Return the text, with a note if it comes late or may come twice and the note fits."""
    notes = _notes(message)
    if message.method not in _SPEAKS or not notes:
        return text
    added = "\n" + (notes if message.body.get("plain") else italic(notes))
    return text + added if visible_units(text + added) <= limit else text


def _notes(message: Message) -> str:
    late = clock.now() - message.created_at > LATE
    notes = [f"from {message.created_at.astimezone():%a %H:%M}"] if late else []
    return "; ".join([*notes, REPEAT] if message.begun else notes)


def _placed(body: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that say where in the chat a message goes, and whether it makes a sound."""
    placed: dict[str, Any] = {"disable_notification": bool(body.get("silent")), "message_thread_id": body.get("topic")}
    if body.get("reply_to"):
        placed["reply_parameters"] = ReplyParameters(body["reply_to"], allow_sending_without_reply=True)
    return placed


def keyboard_of(body: Mapping[str, Any]) -> InlineKeyboardMarkup | None:
    """Return the buttons of a message for Telegram; None if it has none."""
    rows = body.get("keyboard")
    return InlineKeyboardMarkup([[_button(button) for button in row] for row in rows]) if rows else None


def _button(button: dict[str, str]) -> InlineKeyboardButton:
    copied = CopyTextButton(button["copy"]) if "copy" in button else None
    return InlineKeyboardButton(
        button["text"], callback_data=button.get("data"), url=button.get("url"), style=button.get("style"),
        copy_text=copied,
    )  # fmt: skip


def _verdict(message: Message, problem: TelegramError) -> Verdict:
    """Return what to do after a failure. Give up an edit whose method the server lacks, so that it blocks no others."""
    if message.lane == "edit" and isinstance(problem, InvalidToken) and message.tries >= EDIT_TRIES:
        return Verdict(Then.PARK, why="refused: there is no such method")
    return after_failure(problem, message.tries + 1)
