"""Who may talk to the page's server: a browser on this machine, at the page's own address, with the link's secret.

Other web sites in the same browser can reach loopback too. The Host header (DNS rebinding) and the Origin header give
them away, and they do not know the secret. No CORS header is ever sent.

Page and server prove to each other that they know the secret. Neither ever sends it:

    page    {"nonce": N}
    server  {"type": "proof", "nonce": M, "session": S, "proof": HMAC(key, "server port N M")}
    page    {"proof": HMAC(key, "page port N M")}            only to a server whose proof is right

The key is HMAC(secret, "key S"). A session lasts as long as one socket listens on the port without a break. Another
program can have had the port only between two sessions, so what a browser keeps from one must be useless in the next.
Such a program may also have left a service worker in the browser. When the browser asks for a newer one, it gets one
that removes itself.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Any

from aiohttp import web

from bot.local_chat.page.listening_socket import HOST

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

    from bot.local_chat.page.listening_socket import Listener

NONCE = re.compile(r"[0-9a-f]{32}")
KEY_HEADER = "X-Nightshift-Key"
LAST_WORKER = """
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(leave()));
async function leave() {
  await self.registration.unregister();
  for (const page of await self.clients.matchAll({ type: "window" })) page.navigate(page.url);
}
"""


class Keys:
    """The keys derived from the secret for one session."""

    def __init__(self, secret: str, session: str) -> None:
        self.session = session
        self._key = _mac(secret.encode(), f"key {session}")
        # for what a page keeps over a reload; not derived from the key, because the browser stores that
        self.seal = _mac(secret.encode(), f"seal {session}").hex()

    def proof(self, text: str) -> str:
        """Return the proof for this text: it shows that we know the secret."""
        return _mac(self._key, text).hex()


class Meeting:
    """One connection: both nonces, and the proofs over them."""

    def __init__(self, keys: Keys, port: int, page_nonce: str) -> None:
        self.keys, self._nonce = keys, secrets.token_hex(16)
        self._meeting = f"{port} {page_nonce} {self._nonce}"
        self.file_key = keys.proof(f"files {self._meeting}")  # sent as a header with files while the connection lasts

    def challenge(self) -> dict[str, Any]:
        """Return the server's frame, with its proof."""
        proof = self.keys.proof(f"server {self._meeting}")
        return {"type": "proof", "nonce": self._nonce, "session": self.keys.session, "proof": proof}

    def is_proven(self, proof: object) -> bool:
        """Return whether this is the page's proof."""
        return isinstance(proof, str) and _same(proof, self.keys.proof(f"page {self._meeting}"))


class Doorkeeper:
    """Knows the page's address, its keys, and the connections that have proven that they know the secret."""

    def __init__(self, listener: Listener, secret: str) -> None:
        self._session, self._port = listener.session, listener.port
        # not localhost: that may be ::1, where another program can listen beside us
        self._host = f"{HOST}:{self._port}"
        self._headers = _headers(self._host)
        self._file_keys: set[str] = set()
        self.change(secret)

    def change(self, secret: str) -> None:
        """Use this secret from now on. Everything proven with the old one is void."""
        self._keys = Keys(secret, self._session)
        self._file_keys.clear()

    def meet(self, nonce: object) -> Meeting | None:
        """Start the handshake with a page that sent this nonce. None if the nonce is invalid."""
        is_valid = isinstance(nonce, str) and NONCE.fullmatch(nonce)
        return Meeting(self._keys, self._port, str(nonce)) if is_valid else None

    def let_in(self, meeting: Meeting, proof: object) -> bool:
        """Return whether the page has proven itself. If so, this connection's key works for files."""
        is_in = meeting.keys is self._keys and meeting.is_proven(proof)
        if is_in:
            self._file_keys.add(meeting.file_key)
        return is_in

    def let_go(self, meeting: Meeting) -> None:
        """Forget the connection's key for files."""
        self._file_keys.discard(meeting.file_key)

    def check_key(self, request: web.Request) -> None:
        """Raise HTTPUnauthorized unless the request carries the key of an open connection."""
        key = request.headers.get(KEY_HEADER, "")
        if not any(_same(key, file_key) for file_key in self._file_keys):
            raise web.HTTPUnauthorized(text="The page is not connected. Reload it.")

    @property
    def middleware(self) -> Middleware:
        """Checks where every request comes from, answers for old service workers, and keeps refusals out of caches."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                self._check_source(request)
                return _last_worker() if request.headers.get("Service-Worker") else await handler(request)
            except web.HTTPException as refusal:
                refusal.headers["Cache-Control"] = "no-store"
                raise

        return guarded

    async def add_headers(self, _request: web.Request, response: web.StreamResponse) -> None:
        """Add the protective headers to every answer, errors included."""
        response.headers.update(self._headers)

    def _check_source(self, request: web.Request) -> None:
        here = f"http://{self._host}"
        if request.headers.get("Host", "") != self._host:
            raise web.HTTPForbidden(
                text=f"This page answers only as {here}. Through ssh -L use the same port number on both sides."
            )
        if request.headers.get("Origin", here) != here:
            raise web.HTTPForbidden(text="Other sites may not use this page.")


def _last_worker() -> web.Response:
    headers = {"Cache-Control": "no-store", "Service-Worker-Allowed": "/"}
    return web.Response(text=LAST_WORKER, content_type="text/javascript", headers=headers)


def _headers(host: str) -> dict[str, str]:
    policy = (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        f"connect-src 'self' ws://{host}",  # 'self' does not cover WebSockets in every browser
        "worker-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return {
        "Content-Security-Policy": "; ".join(policy),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }


def _same(text: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(text.encode(errors="replace"), expected.encode())


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
