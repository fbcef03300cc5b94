"""The chat as a page in a browser on this machine.

    async with Page(world, person, listener=listen(8765), secret=secret, status=status) as page:
        print(page.url)

The link's secret comes after the #, which browsers do not send. Page and server prove to each other that they know it
(`security`). Files are sent with a key that is valid for one connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from aiohttp import web

from bot.local_chat.bot_api.files import Upload
from bot.local_chat.page.actions import PersonActions, PersonError
from bot.local_chat.page.listening_socket import HOST
from bot.local_chat.page.security import Doorkeeper
from bot.local_chat.page.stream import OpenPage, Stream, read_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.local_chat.bot_api.objects import ApiUser, JsonObject
    from bot.local_chat.bot_api.world import LocalWorld
    from bot.local_chat.page.listening_socket import Listener

STATIC = os.path.join(os.path.dirname(__file__), "static")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
GREETING_S = 10.0
HEARTBEAT_S = 20.0
FRAME_BYTES = 64 * 1024
FORM_BYTES = 64 * 1024
WRONG_SECRET = 4401


class Page:
    """The chat in a browser on this machine. Anyone who has the link acts as its one person."""

    def __init__(
        self, world: LocalWorld, person: ApiUser, *, listener: Listener, secret: str, status: Callable[[], JsonObject]
    ) -> None:
        self._world = world
        self._listener = listener
        self._secret = secret
        self._door = Doorkeeper(listener, secret)
        self._actions = PersonActions(world, person)
        self._stream = Stream(world, person, self._actions, status)
        self._runner = web.AppRunner(self._app(), shutdown_timeout=1.0, access_log=None)
        self._feeding: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The link to the chat. It stays the same after a restart with the same port and secret."""
        return f"http://{HOST}:{self._listener.port}/#{self._secret}"

    def use_secret(self, secret: str) -> bool:
        """Switch to this secret and return True if it is new. The old link stops working and open pages are cut off."""
        if secret == self._secret:
            return False
        self._secret = secret
        self._door.change(secret)
        self._stream.cut_off()
        return True

    def status_changed(self) -> None:
        """Refresh the status on open pages."""
        self._stream.status_changed()

    async def __aenter__(self) -> Page:
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener.socket).start()
        self._feeding = asyncio.create_task(self._stream.run())
        return self

    async def __aexit__(self, *_exception: object) -> None:
        assert self._feeding is not None
        self._feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._feeding
        await self._runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(
            middlewares=[self._door.middleware], client_max_size=self._world.limits.download_bytes + FORM_BYTES
        )
        app.on_response_prepare.append(self._door.add_headers)
        app.on_shutdown.append(self._close_pages)
        app.router.add_get("/", self._index)
        app.router.add_get("/static/{session}/{name}", self._static)
        app.router.add_post("/clean", self._clean)
        app.router.add_get("/chat", self._chat)
        app.router.add_post("/file", self._take_file)
        app.router.add_get("/file/{file_id}", self._give_file)
        return app

    async def _close_pages(self, _app: web.Application) -> None:
        await self._stream.close()

    async def _index(self, _request: web.Request) -> web.StreamResponse:
        # the session in the path: another program cannot have put these addresses into the browser's cache
        session = f"/static/{self._listener.session}/".encode()
        return _answer("index.html", _static_file("index.html").replace(b"/static/", session))

    async def _static(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        return _answer(name, _static_file(name))

    async def _clean(self, _request: web.Request) -> web.StreamResponse:
        """Make the browser clear its cache and storage for this address. A page that is not let in asks for this."""
        return web.Response(headers={"Clear-Site-Data": '"cache", "storage"', "Cache-Control": "no-store"})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        connection = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=FRAME_BYTES)
        await connection.prepare(request)
        meeting = self._door.meet((await read_frame(connection, GREETING_S)).get("nonce"))
        if meeting is not None:
            await connection.send_json(meeting.challenge())
            greeting = await read_frame(connection, GREETING_S)
            if request.transport is not None and self._door.let_in(meeting, greeting.get("proof")):
                try:
                    await self._stream.serve(OpenPage(connection, request.transport), greeting, meeting.keys.seal)
                finally:
                    self._door.let_go(meeting)
                return connection
        await connection.close(code=WRONG_SECRET)
        return connection

    async def _take_file(self, request: web.Request) -> web.StreamResponse:
        self._door.check_key(request)
        form = await request.post()
        file = form.get("file")
        if not isinstance(file, web.FileField):
            raise web.HTTPBadRequest(text="The request has no file.")
        with file.file:
            upload = Upload(file.filename or "file", file.file.read(), file.content_type or "application/octet-stream")
        reply_to = str(form.get("reply_to", ""))
        try:
            message_id = self._actions.send_document(
                str(form.get("id", "")), upload, str(form.get("caption", "")), int(reply_to) if reply_to else None
            )
        except (PersonError, ValueError) as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        return web.json_response({"message_id": message_id}, headers={"Cache-Control": "no-store"})

    async def _give_file(self, request: web.Request) -> web.StreamResponse:
        self._door.check_key(request)
        stored = self._world.files.get(request.match_info["file_id"])
        if stored is None:
            raise web.HTTPNotFound(text="This file is no longer available.")
        # never a type that a browser shows by itself: the page's script knows which files are pictures
        headers = {"Cache-Control": "no-store", "Content-Disposition": "attachment"}
        return web.Response(body=stored.data, content_type="application/octet-stream", headers=headers)


def _static_file(name: str) -> bytes:
    """Return one of the page's own files. It is read each time: the files are few, small and local."""
    if name not in os.listdir(STATIC):
        raise web.HTTPNotFound(text="There is no such file.")
    with open(os.path.join(STATIC, name), "rb") as file:
        return file.read()


def _answer(name: str, content: bytes) -> web.Response:
    kind = TYPES[os.path.splitext(name)[1]]
    return web.Response(body=content, content_type=kind, charset="utf-8", headers={"Cache-Control": "no-store"})
