"""How updates reach the bot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.telegram.api_errors import bad_request, conflict
from tests.telegram.updates import DEFAULT, WEBHOOK_SET

if TYPE_CHECKING:
    from bot.local_chat.bot_api.objects import JsonObject
    from tests.telegram.params import Params
    from tests.telegram.world import World

WEBHOOK_ACTIVE = "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"


async def get_updates(world: World, params: Params) -> list[JsonObject]:
    """Confirm updates before the offset and return those that follow, waiting for them if asked to."""
    if world.webhook.url:
        raise conflict(WEBHOOK_ACTIVE)
    offset = params.integer("offset")
    limit = min(max(params.integer("limit", 100), 1), 100)
    timeout_s = min(max(params.integer("timeout"), 0), world.limits.long_poll_s)
    _allow(world, params)
    if world.limits.repeated_poll:
        limit, timeout_s = _slowed(world, offset, limit, timeout_s)
    return await world.updates.get(offset, limit, timeout_s)


def set_webhook(world: World, params: Params) -> bool:
    """Record a webhook, which ends polling."""
    url = params.text("url")
    if not url:
        return delete_webhook(world, params)
    if not url.startswith("https://"):
        raise bad_request("bad webhook: An HTTPS URL must be provided for webhook")
    _allow(world, params)
    _drop(world, params)
    world.webhook.url = url
    world.updates.end_poll(WEBHOOK_SET)
    return True


def delete_webhook(world: World, params: Params) -> bool:
    """Remove the webhook."""
    _drop(world, params)
    world.webhook.url = ""
    return True


def get_webhook_info(world: World, _params: Params) -> JsonObject:
    """Return the webhook and the number of waiting updates."""
    info: JsonObject = {
        "url": world.webhook.url,
        "has_custom_certificate": False,
        "pending_update_count": len(world.updates.pending()),
    }
    if world.updates.allowed != DEFAULT:
        info["allowed_updates"] = sorted(world.updates.allowed)
    return info


def _allow(world: World, params: Params) -> None:
    """Remember which updates are wanted. A value that cannot be read changes nothing."""
    try:
        kinds = json.loads(params.text("allowed_updates") or "null")
    except ValueError:
        return
    if isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds):
        world.updates.allow([kind.lower() for kind in kinds])


def _drop(world: World, params: Params) -> None:
    if params.boolean("drop_pending_updates"):
        world.updates.clear()


def _slowed(world: World, offset: int, limit: int, timeout_s: float) -> tuple[int, float]:
    """Return the limit and time-out for a poll. A quick repeat of the last offset waits longer and gets less."""
    now, last = world.clock(), world.last_poll
    if offset == last.offset:
        timeout_s = max(timeout_s, 3.0) if now < last.at + 3.0 else timeout_s
        limit = 1 if now < last.at + 0.5 else limit
    last.offset, last.at = offset, now
    return limit, timeout_s
