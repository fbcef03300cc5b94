"""Who may talk to the page's server: a browser on this machine, on the page's own address, with the link's secret.

Other web sites in the same browser reach loopback too. They are told apart by the Host header (DNS rebinding) and the
Origin header, and they do not know the secret. No CORS header is ever sent.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

SECRET_HEADER = "X-Nightshift-Secret"  # noqa: S105 - a header's name
NAMES = ("127.0.0.1", "localhost")


class Doorkeeper:
    """Knows the page's addresses and its secret."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._hosts: frozenset[str] = frozenset()
        self._headers: dict[str, str] = {}

    def guard(self, port: int) -> None:
        """Let in what comes to this port by one of this machine's own names."""
        self._hosts = frozenset(f"{name}:{port}" for name in NAMES)
        self._headers = _headers(sorted(self._hosts))

    def knows(self, secret: object) -> bool:
        """Whether this is the link's secret, found out in constant time."""
        return isinstance(secret, str) and hmac.compare_digest(secret.encode(errors="replace"), self._secret)

    def check_secret(self, request: web.Request) -> None:
        """Refuse a request that does not carry the secret in its header."""
        if not self.knows(request.headers.get(SECRET_HEADER)):
            raise web.HTTPUnauthorized(text="The secret of the link is missing or wrong.")

    @property
    def middleware(self) -> Middleware:
        """Checks where every request comes from, and puts the protective headers on every answer."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                self._check_source(request)
                return await handler(request)
            except web.HTTPException as refusal:
                refusal.headers["Cache-Control"] = "no-store"
                raise

        return guarded

    async def add_headers(self, _request: web.Request, response: web.StreamResponse) -> None:
        """A hook for every answer, errors included."""
        response.headers.update(self._headers)

    def _check_source(self, request: web.Request) -> None:
        if request.headers.get("Host", "") not in self._hosts:
            here = " or ".join(f"http://{host}" for host in sorted(self._hosts))
            raise web.HTTPForbidden(
                text=f"This page answers only as {here}. Through ssh -L use the same port number on both sides."
            )
        origin = request.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            raise web.HTTPForbidden(text="Not for other sites.")


def _headers(hosts: list[str]) -> dict[str, str]:
    sockets = " ".join(f"ws://{host}" for host in hosts)  # 'self' does not cover them in every browser
    policy = (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        f"connect-src 'self' {sockets}",
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
