"""The Bot API itself: takes a token, a method and its parameters; returns an answer, or a fault in its place."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.files import Upload
from bot.local_chat.bot_api.methods import ApiError, ApiReply, LocalBotApi
from tests.telegram.api_errors import too_many_requests
from tests.telegram.faults import Fault, Faults
from tests.telegram.methods import BY_LOWER_NAME
from tests.telegram.params import Params
from tests.telegram.people import People
from tests.telegram.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_SHAPE = re.compile(r"[1-9]\d{0,16}:\S{1,64}")
GATEWAY_PAGE = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n</html>\r\n"


class Ending(Enum):
    """How an answer reaches the caller."""

    WHOLE = "as it is"
    CUT = "it breaks off in the middle"
    HANG = "it never comes"
    RESET = "the connection is closed instead"


@dataclass(frozen=True, slots=True)
class Reply(ApiReply):
    """An HTTP answer, and how it reaches the caller."""

    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    ending: Ending = Ending.WHOLE


AFTERWARDS = {Fault.HANG_AFTER: Ending.HANG, Fault.CUT: Ending.CUT}


class BotApi(LocalBotApi):
    """One world with its people, its faults and all methods a bot may call, as strict as Telegram."""

    world: World

    def __init__(self, world: World | None = None, faults: Faults | None = None) -> None:
        super().__init__(world or World())
        self.people = People(self.world)
        self.faults = faults or Faults()

    async def call(
        self, token: str, method: str, params: Mapping[str, str], files: Mapping[str, Upload] | None = None
    ) -> Reply:
        """Do what the bot asks, unless a fault is due."""
        name, _ = BY_LOWER_NAME.get(method.lower(), (method, None))
        fault = self.faults.next(name)
        if fault is not None and fault not in AFTERWARDS:
            return self._instead(fault)
        try:
            result = await self._run(token, method, Params(params, files))
        except ApiError as error:
            self.world.refuse(name, dict(params), error)
            reply = error_reply(error)
        else:
            reply = Reply(body=json.dumps({"ok": True, "result": result}).encode())
        return replace(reply, ending=AFTERWARDS[fault]) if fault is not None else reply

    async def download(self, token: str, path: str) -> Reply:
        """Return a file's content."""
        fault = self.faults.next("download")
        if fault is not None and fault not in AFTERWARDS:
            return self._instead(fault)
        stored = self.world.files.at(path)
        if token != self.world.token or stored is None or len(stored.data) > self.world.limits.download_bytes:
            return error_reply(ApiError(404, "Not Found"))
        ending = AFTERWARDS[fault] if fault is not None else Ending.WHOLE
        return Reply(body=stored.data, content_type="application/octet-stream", ending=ending)

    async def _run(self, token: str, method: str, params: Params) -> Any:
        if not TOKEN_SHAPE.fullmatch(token):
            raise ApiError(404, "Not Found")
        if token != self.world.token:
            raise ApiError(401, "Unauthorized")
        if self.world.logged_out:
            raise ApiError(400, "Logged out")
        named_method = BY_LOWER_NAME.get(method.lower())
        if named_method is None:
            raise ApiError(404, "Not Found: method not found")
        if sum(len(upload.data) for upload in params.files.values()) > self.world.limits.upload_bytes:
            raise ApiError(413, "Request Entity Too Large")
        result = named_method[1](self.world, params)
        return await result if inspect.isawaitable(result) else result

    def _instead(self, fault: Fault) -> Reply:
        """Return the answer to a call that a fault replaced."""
        if fault is Fault.TOO_MANY_REQUESTS:
            return error_reply(too_many_requests(self.faults.retry_after_s))
        if fault is Fault.SERVER_ERROR:
            return error_reply(ApiError(500, "Internal Server Error"))
        if fault is Fault.BAD_GATEWAY:
            return Reply(502, GATEWAY_PAGE, "text/html")
        return Reply(ending=Ending.RESET if fault is Fault.REFUSED else Ending.HANG)


def error_reply(error: ApiError) -> Reply:
    """Return a refusal as an HTTP answer."""
    body: dict[str, Any] = {"ok": False, "error_code": error.code, "description": error.description}
    headers = {}
    if error.parameters:
        body["parameters"] = error.parameters
    if "retry_after" in error.parameters:
        headers["Retry-After"] = str(error.parameters["retry_after"])
    return Reply(error.code, json.dumps(body).encode(), headers=headers)
