"""Controls a world from outside its process: each verb takes JSON arguments and returns JSON."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.world import Tap
from bot.local_chat.page.actions import PersonError
from bot.waiting import within
from tests.telegram.limits import FloodLimits
from tests.telegram.objects import Chat, Message, User

if TYPE_CHECKING:
    from tests.telegram.api import BotApi
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
        """Do one thing. Raise PersonError with what is wrong."""
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
        """Add a person."""
        return self._world.add_user(**args)

    def do_add_group(self, members: list[int] | None = None, **args: Any) -> Chat:
        """Add a group of people given by id."""
        return self._world.add_group(members=[self._api.people.user(member) for member in members or []], **args)

    def do_add_channel(self, **args: Any) -> Chat:
        """Add a channel."""
        return self._world.add_channel(**args)

    def do_messages(self, chat: int) -> list[dict[str, Any]]:
        """Return the messages of a chat."""
        return [message.to_json() for message in self._api.people.place(None, chat).messages.values()]

    def do_menu(self, chat: int, user: int) -> list[dict[str, Any]]:
        """Return the commands a person is offered."""
        return self._world.menu.shown(self._api.people.place(None, chat), user)

    def do_pending(self) -> list[dict[str, Any]]:
        """Return the updates that the bot has not confirmed."""
        return self._world.updates.pending()

    def do_refusals(self) -> list[dict[str, Any]]:
        """Return the calls that were refused."""
        names = ("method", "params", "code", "description")
        return [{name: getattr(refusal, name) for name in names} for refusal in self._world.refusals]

    def do_calls(self) -> dict[str, Any]:
        """Return how often each method was called, and which faults were injected."""
        applied = {f"{method} {fault.value}": count for (method, fault), count in self._api.faults.applied.items()}
        return {"calls": dict(self._api.faults.calls), "faults": applied}

    def do_script(self, faults: list[str | None], methods: list[str] | None = None) -> None:
        """Make the next calls go wrong in these ways."""
        self._api.faults.script(*faults, methods=methods or ())

    def do_chance(self, probability: float, faults: list[str] | None = None, methods: list[str] | None = None) -> None:
        """Make calls go wrong by chance."""
        self._api.faults.chance(probability, *(faults or ()), methods=methods or ())

    def do_outage(self, on: bool = True) -> None:
        """Answer nothing, or answer again."""
        self._api.faults.outage = on

    def do_clear_faults(self) -> None:
        """Stop all faults."""
        self._api.faults.clear()

    def do_repeat_updates(self, seed: int = 0, at_most: int = 2) -> None:
        """Deliver each update again up to this many times."""
        self._world.updates.repeat(seed, at_most)

    def do_given(self) -> int:
        """Return how many updates were delivered, repeats included."""
        return self._world.updates.given

    def do_flood(self, **limits: Any) -> None:
        """Apply these flood limits. Without any, stop counting."""
        self._world.flood.set_limits(FloodLimits(**limits) if limits else None)

    def do_advance(self, seconds: float) -> None:
        """Let time pass."""
        if self._clock is None:
            raise PersonError("this world's clock cannot be put forward")
        self._clock.advance(seconds)

    async def _events(self, after: int = 0, wait_s: float = 0.0) -> list[dict[str, Any]]:
        """Return the events after that number. If there are none yet, wait for one."""
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
        return [asdict(event) for event in log.after(after)]


def _shown(result: Any) -> Any:
    if isinstance(result, User | Chat | Message):
        return result.to_json()
    if isinstance(result, Tap):
        return {"id": result.id}
    return result
