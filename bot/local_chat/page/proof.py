"""How page and server prove to each other that they know the link's secret, which neither of them ever sends.

    page    {"nonce": N}
    server  {"type": "proof", "nonce": M, "session": S, "proof": HMAC(key, "server port N M")}
    page    {"proof": HMAC(key, "page port N M")}            only to a server whose proof is right

The key is HMAC(secret, "key S"). A session lasts as long as one socket listens on the port without a break. Another
program can have had the port only between two sessions, so nothing a browser keeps may be worth anything in the next.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Any

NONCE = re.compile(r"[0-9a-f]{32}")


class Keys:
    """What follows from the secret in one session."""

    def __init__(self, secret: str, session: str) -> None:
        self.session = session
        self._key = _mac(secret.encode(), f"key {session}")
        # for what a page keeps over a reload; it does not follow from the key, which the browser stores
        self.seal = _mac(secret.encode(), f"seal {session}").hex()

    def meet(self, port: int, nonce: object) -> Meeting | None:
        """Answer a page's nonce; None if it is none."""
        if not isinstance(nonce, str) or not NONCE.fullmatch(nonce):
            return None
        return Meeting(self, f"{port} {nonce}")

    def proof(self, text: str) -> str:
        """Show that we know the secret."""
        return _mac(self._key, text).hex()


class Meeting:
    """One connection: both nonces, and the proofs over them."""

    def __init__(self, keys: Keys, said: str) -> None:
        self.keys, self._nonce = keys, secrets.token_hex(16)
        self._said = f"{said} {self._nonce}"
        self.file_key = keys.proof(f"files {self._said}")  # goes as a header with files while the connection lasts

    def challenge(self) -> dict[str, Any]:
        """The server's frame, with its proof."""
        proof = self.keys.proof(f"server {self._said}")
        return {"type": "proof", "nonce": self._nonce, "session": self.keys.session, "proof": proof}

    def is_proven(self, proof: object) -> bool:
        """Whether this is the page's proof, found out in constant time."""
        return isinstance(proof, str) and same(proof, self.keys.proof(f"page {self._said}"))


def same(given: str, right: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), right.encode())


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
