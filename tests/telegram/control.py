"""The world from outside its process: verbs with JSON arguments, JSON back."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.api_errors import PersonError
from bot.local_chat.bot_api.limits import FloodLimits
from bot.local_chat.bot_api.objects import Chat, Message, User
from bot.local_chat.bot_api.world import Tap
from bot.timeouts import within

if TYPE_CHECKING:
    from bot.local_chat.bot_api.api import BotApi
    from tests.telegram.clock import Clock

ACTS = frozenset(
    {
        *("start", "send_text", "send_document", "send_photo", "edit", "tap", "react", "inline_query", "raw_update"),
        *("block", "unblock", "join", "leave", "add_bot", "kick_bot", "add_topic", "migrate"),
    }
)


class Control:
    """Everything a test can do to a world in another process."""

    def __init__(self, api: BotApi, clock: Clock | None = None) -> None:
        self._api = api
        self._world = api.world
        self._clock = clock

    async def do(self, verb: str, args: dict[str, Any]) -> Any:
        """Do one thing; raises PersonError with what is wrong."""
        if verb == "events":
            return await self._events(**args)
        act = getattr(self._api.people, verb) if verb in ACTS else getattr(self, f"do_{verb}", None)
        if act is None:
            raise PersonError(f"no such verb: {verb}")
        if "data" in args and verb in {"send_document", "send_photo"}:
            args = args | {"data": base64.b64decode(args["data"])}
        try:
            return _shown(act(**args))
        except TypeError as error:
            raise PersonError(str(error)) from error

    def do_add_user(self, **args: Any) -> User:
        """A new person."""
        return self._world.add_user(**args)

    def do_add_group(self, members: list[int] | None = None, **args: Any) -> Chat:
        """A new group of people given by id."""
        return self._world.add_group(members=[self._api.people.user(member) for member in members or []], **args)

    def do_add_channel(self, **args: Any) -> Chat:
        """A new channel."""
        return self._world.add_channel(**args)

    def do_messages(self, chat: int) -> list[dict[str, Any]]:
        """What is in a chat now."""
        return [message.to_json() for message in self._api.people.place(None, chat).messages.values()]

    def do_menu(self, chat: int, user: int) -> list[dict[str, Any]]:
        """The commands a person is offered."""
        return self._world.commands.shown(self._api.people.place(None, chat), user)

    def do_pending(self) -> list[dict[str, Any]]:
        """Updates the bot has not confirmed."""
        return [update.to_json() for update in self._world.updates.pending()]

    def do_refusals(self) -> list[dict[str, Any]]:
        """What was refused."""
        names = ("method", "params", "code", "description")
        return [{name: getattr(refusal, name) for name in names} for refusal in self._world.refusals]

    def do_calls(self) -> dict[str, Any]:
        """How often each method was called, and which faults came in between."""
        applied = {f"{method} {fault.value}": count for (method, fault), count in self._api.faults.applied.items()}
        return {"calls": dict(self._api.faults.calls), "faults": applied}

    def do_script(self, faults: list[str | None], methods: list[str] | None = None) -> None:
        """The next calls go wrong so."""
        self._api.faults.script(*faults, methods=methods or ())

    def do_chance(self, probability: float, faults: list[str] | None = None, methods: list[str] | None = None) -> None:
        """Calls go wrong now and then."""
        self._api.faults.chance(probability, *(faults or ()), methods=methods or ())

    def do_outage(self, on: bool = True) -> None:
        """Nothing is answered, or things are again."""
        self._api.faults.outage = on

    def do_clear_faults(self) -> None:
        """No more faults."""
        self._api.faults.clear()

    def do_repeat_updates(self, seed: int = 0, at_most: int = 2) -> None:
        """Give each update up to so many times more than once."""
        self._world.updates.repeat(seed, at_most)

    def do_given(self) -> int:
        """How many updates were given in all, the same one as often as it was."""
        return self._world.updates.given

    def do_flood(self, **limits: Any) -> None:
        """Count against these limits; without any, count no more."""
        self._world.flood.set_limits(FloodLimits(**limits) if limits else None)

    def do_advance(self, seconds: float) -> None:
        """Let time pass."""
        if self._clock is None:
            raise PersonError("this world's clock cannot be put forward")
        self._clock.advance(seconds)

    async def _events(self, after: int = 0, wait_s: float = 0.0) -> list[dict[str, Any]]:
        """What happened after that number, waiting for something if there is nothing yet."""
        log = self._world.events
        if not log.after(after) and wait_s > 0:
            happened = asyncio.Event()
            stop = log.watch(lambda _event: happened.set())
            try:
                await within(wait_s, happened.wait())
            except asyncio.TimeoutError:
                pass
            finally:
                stop()
        return [event.to_json() for event in log.after(after)]


def _shown(result: Any) -> Any:
    if isinstance(result, User | Chat | Message):
        return result.to_json()
    if isinstance(result, Tap):
        return {"id": result.id}
    return result
