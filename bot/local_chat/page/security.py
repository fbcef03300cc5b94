"""Who may talk to the page's server: a browser on this machine, at the page's own address, with the link's secret.

Other web sites in the same browser can reach loopback too. The Host header (DNS rebinding) and the Origin header give
them away, and they do not know the secret. No CORS header is ever sent.

Another program may have used the port before, with pages at the same address, and may have left a service worker in
the browser. When the browser asks for a newer one, it gets one that removes itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.local_chat.page.listening_socket import HOST
from bot.local_chat.page.proof import same

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

    from bot.local_chat.page.proof import Keys, Meeting

KEY_HEADER = "X-Nightshift-Key"
LAST_WORKER = """
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(leave()));
async function leave() {
  await self.registration.unregister();
  for (const page of await self.clients.matchAll({ type: "window" })) page.navigate(page.url);
}
"""


class Doorkeeper:
    """Knows the page's address, its keys, and the connections that have proven that they know the secret."""

    def __init__(self, keys: Keys, port: int) -> None:
        self._port = port
        self._host = f"{HOST}:{port}"  # not localhost: that may be ::1, where another program can listen beside us
        self._headers = _headers(self._host)
        self._file_keys: set[str] = set()
        self.change(keys)

    def change(self, keys: Keys) -> None:
        """Use these keys from now on. Everything proven with the old ones is void."""
        self.keys = keys
        self._file_keys.clear()

    def meet(self, nonce: object) -> Meeting | None:
        """Start the handshake with a page that sent this nonce. None if the nonce is invalid."""
        return self.keys.meet(self._port, nonce)

    def let_in(self, meeting: Meeting, proof: object) -> bool:
        """Return whether the page has proven itself. If so, this connection's key works for files."""
        is_in = meeting.keys is self.keys and meeting.is_proven(proof)
        if is_in:
            self._file_keys.add(meeting.file_key)
        return is_in

    def let_go(self, meeting: Meeting) -> None:
        """Forget the connection's key for files."""
        self._file_keys.discard(meeting.file_key)

    def check_key(self, request: web.Request) -> None:
        """Raise HTTPUnauthorized unless the request carries the key of an open connection."""
        key = request.headers.get(KEY_HEADER, "")
        if not any(same(key, file_key) for file_key in self._file_keys):
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
