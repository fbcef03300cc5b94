"""HTTP to the Bot API, without trust in its answers: bodies are limited, and their shape is checked before use."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
from telegram.error import TelegramError
from telegram.request import HTTPXRequest

from bot.outbound.retry_policy import NOT_JSON, SHORTEST_WAIT_S
from bot.store.outbox import LONGEST_WAIT_S
from bot.waiting import within

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_BODY = 8 << 20  # twice what fifty of the largest updates need
LONGEST_REFUSAL = 2000  # the beginning of an error says why, and it goes into the log
BODY_WITHIN_S = 60.0
LARGEST_NUMBER = 1 << 53


class Client(httpx.AsyncClient):
    """An HTTP client that limits the size of a body and the time to read it."""

    async def send(self, request: httpx.Request, **how: Any) -> httpx.Response:
        """Send a request and read its answer. Raise ReadError if it is too long, ReadTimeout if it takes too long."""
        response = await super().send(request, **{**how, "stream": True})
        try:
            body = await within(BODY_WITHIN_S, _body(response))
        except asyncio.TimeoutError:
            raise httpx.ReadTimeout(f"the answer took more than {BODY_WITHIN_S:.0f} s", request=request) from None
        finally:
            await response.aclose()
        return httpx.Response(response.status_code, content=body, request=request)


async def _body(response: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > LONGEST_BODY:
            raise httpx.ReadError(f"the answer is longer than {LONGEST_BODY >> 20} MiB")
    return bytes(body)


class Transport(HTTPXRequest):
    """python-telegram-bot's transport, with checks: the original trusts the shape of every answer."""

    def _build_client(self) -> httpx.AsyncClient:
        return Client(**self._client_kwargs)

    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        """Make a request. The body of an error is cut to its beginning."""
        code, body = await super().do_request(*args, **kwargs)
        return code, body if httpx.codes.is_success(code) else body[:LONGEST_REFUSAL]

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Parse an answer. Description and parameters of the wrong type are left out; `result` is not checked yet."""
        try:
            answer = json.loads(payload.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            raise TelegramError(NOT_JSON) from None
        if not isinstance(answer, dict):
            raise TelegramError(NOT_JSON)
        description = answer.get("description")
        return {
            "result": answer.get("result"),  # `result_of` checks it
            "description": description if isinstance(description, str) else None,
            "parameters": _parameters(answer.get("parameters")),
        }


def _parameters(sent: Any) -> dict[str, Any]:
    """Return the parameters of a refusal that we can act on."""
    usable: dict[str, Any] = {}
    if not isinstance(sent, dict):
        return usable
    if "retry_after" in sent:
        usable["retry_after"] = _wait_s(sent["retry_after"])
    new_chat = sent.get("migrate_to_chat_id")
    if isinstance(new_chat, int) and _number(-new_chat) is not None:
        usable["migrate_to_chat_id"] = new_chat
    return usable


def _wait_s(seconds: Any) -> float:
    """Return how many seconds to wait: at least the shortest wait, also for nonsense, and at most the longest."""
    if not isinstance(seconds, int | float) or not seconds > SHORTEST_WAIT_S:  # so that NaN counts as too short
        return SHORTEST_WAIT_S
    return float(min(seconds, LONGEST_WAIT_S))


def _number(value: Any) -> int | None:
    is_one = isinstance(value, int) and not isinstance(value, bool) and 0 < value < LARGEST_NUMBER
    return value if is_one else None


# -- results -------------------------------------------------------------------------------------------


def result_of(method: str, result: Any) -> Any:
    """Return the parts of a result that we use. Raise TelegramError for any other shape; the call may still be done."""
    judge: Callable[[Any], Any] = _RESULTS.get(method, _done)
    usable = judge(result)
    if usable is None:
        raise TelegramError(NOT_JSON)
    return usable


def update_number(update: Any) -> int | None:
    """Return the number that confirms an update, or None if it has none."""
    return _number(update.get("update_id")) if isinstance(update, dict) else None


def _done(result: Any) -> bool | None:
    """Return True for any valid result: we use nothing of what an edit returns."""
    return True if result is True or isinstance(result, dict) else None


def _of_type(kind: type) -> Callable[[Any], Any]:
    return lambda result: result if isinstance(result, kind) else None


def _sent(result: Any) -> dict[str, Any] | None:
    """Return a sent message reduced to its number, which is all we use."""
    number = _number(result.get("message_id")) if isinstance(result, dict) else None
    return {"message_id": number, "date": 0, "chat": {"id": 0, "type": "private"}} if number is not None else None


def _me(result: Any) -> dict[str, Any] | None:
    if not isinstance(result, dict) or result.get("is_bot") is not True or _number(result.get("id")) is None:
        return None
    names = {name: str(result.get(name) or "") for name in ("first_name", "username")}
    return {"id": result["id"], "is_bot": True, **names}


_RESULTS: dict[str, Callable[[Any], Any]] = {
    "getMe": _me,
    "getUpdates": _of_type(list),
    "getFile": _of_type(dict),
    "sendMessage": _sent,
    "sendPhoto": _sent,
    "sendDocument": _sent,
}
