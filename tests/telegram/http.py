"""The Bot API over real HTTP on loopback, for bots in other processes and for tests of the wire.

    async with HttpServer(BotApi()) as server:
        bot = Bot(token, base_url=server.base_url, base_file_url=server.base_file_url)

`python -m tests.telegram.serve` does it in a process of its own.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import socket
from typing import TYPE_CHECKING, Any

from aiohttp import web

from bot.local_chat.bot_api.files import Upload
from bot.local_chat.bot_api.methods import ApiError
from bot.local_chat.page.actions import PersonError
from tests.telegram.api import BotApi, Ending, Reply, error_reply
from tests.telegram.api_errors import bad_request

if TYPE_CHECKING:
    from tests.telegram.control import Control

HOST = "127.0.0.1"
FORM_BYTES = 1024 * 1024
HANG_S = 60 * 60.0


class HttpServer:
    """Serves one BotApi while it is entered. With `control` it also serves the verbs of a test, behind a secret."""

    def __init__(self, api: BotApi, *, port: int = 0, control: Control | None = None) -> None:
        self.api = api
        self._port = port
        self._control = control
        self._secret = secrets.token_urlsafe(24)
        self._runner = web.AppRunner(self._app(), handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        self._site: web.SockSite | None = None

    @property
    def url(self) -> str:
        """The root address, for the setting of the API's address."""
        return f"http://{HOST}:{self._port}"

    @property
    def base_url(self) -> str:
        """The address of the same name in python-telegram-bot."""
        return f"{self.url}/bot"

    @property
    def base_file_url(self) -> str:
        """The address of the same name in python-telegram-bot."""
        return f"{self.url}/file/bot"

    @property
    def control_url(self) -> str:
        """The address for verbs. Anyone who knows it can act as everybody."""
        return f"{self.url}/control/{self._secret}"

    async def __aenter__(self) -> HttpServer:
        await self._runner.setup()
        await self.open_listener()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._runner.cleanup()

    async def open_listener(self) -> None:
        """Accept connections, on the same port as before."""
        listener = socket.create_server((HOST, self._port))
        self._port = listener.getsockname()[1]
        self._site = web.SockSite(self._runner, listener)
        await self._site.start()

    async def close_listener(self) -> None:
        """Refuse new connections and drop the open ones, like a host that is off."""
        if self._site is not None:
            await self._site.stop()
            self._site = None
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            connection.force_close()

    def _app(self) -> web.Application:
        limit = self.api.world.limits.upload_bytes + FORM_BYTES
        app = web.Application(client_max_size=limit)
        app.router.add_route("*", "/bot{token:[^/]+}/{method:[^/]+}", self._method)
        app.router.add_get("/file/bot{token:[^/]+}/{path:.+}", self._file)
        app.router.add_post("/control/{secret}/{verb}", self._verb)
        app.router.add_route("*", "/{anything:.*}", self._nothing)
        return app

    async def _method(self, request: web.Request) -> web.StreamResponse:
        token, method = request.match_info["token"], request.match_info["method"]
        try:
            params, files = await _arguments(request)
        except ApiError as error:
            self.api.world.refuse(method, dict(request.query), error)
            return await _write(request, error_reply(error))
        return await _write(request, await self.api.call(token, method, params, files))

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return await _write(request, await self.api.download(request.match_info["token"], request.match_info["path"]))

    async def _nothing(self, request: web.Request) -> web.StreamResponse:
        return await _write(request, error_reply(ApiError(404, "Not Found")))

    async def _verb(self, request: web.Request) -> web.StreamResponse:
        if self._control is None or not hmac.compare_digest(request.match_info["secret"], self._secret):
            return await self._nothing(request)
        try:
            args = json.loads(await request.read() or b"{}")
            result = await self._control.do(request.match_info["verb"], args)
        except (PersonError, ValueError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response({"result": result})


async def _arguments(request: web.Request) -> tuple[dict[str, str], dict[str, Upload]]:
    """Return the parameters and files of a request: from the address, a form, JSON or parts."""
    params: dict[str, str] = {}
    files: dict[str, Upload] = {}
    try:
        if request.content_type == "application/json":
            params |= _from_json(await request.read())
        elif request.can_read_body:
            for name, value in (await request.post()).items():
                _sort_in(name, value, params, files)
    except web.HTTPRequestEntityTooLarge:
        raise ApiError(413, "Request Entity Too Large") from None
    except ValueError:
        raise bad_request("strings must be encoded in UTF-8") from None
    return params | dict(request.query), files


def _from_json(body: bytes) -> dict[str, str]:
    """Return the fields of a JSON object as a form would have them. Anything else counts as empty."""
    try:
        values = json.loads(body)
    except ValueError:
        return {}
    if not isinstance(values, dict):
        return {}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}


def _sort_in(name: str, value: Any, params: dict[str, str], files: dict[str, Upload]) -> None:
    if isinstance(value, web.FileField):
        with value.file:
            files[name] = Upload(value.filename, value.file.read(), value.content_type)
    else:
        params[name] = value if isinstance(value, str) else bytes(value).decode()


async def _write(request: web.Request, reply: Reply) -> web.StreamResponse:
    if reply.ending is Ending.WHOLE:
        headers = {"Content-Type": reply.content_type, **reply.headers}
        return web.Response(status=reply.status, body=reply.body, headers=headers)
    if reply.ending is Ending.HANG:
        await asyncio.sleep(HANG_S)
    response = web.StreamResponse(status=reply.status)
    assert request.transport is not None
    if reply.ending is Ending.CUT:
        response.content_length = len(reply.body)
        await response.prepare(request)
        await response.write(reply.body[: len(reply.body) // 2])
    else:
        response.force_close()
    request.transport.close()
    return response
