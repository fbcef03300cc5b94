"""How page and server prove to each other that they know the link's secret. Neither ever sends it.

    page    {"nonce": N}
    server  {"type": "proof", "nonce": M, "session": S, "proof": HMAC(key, "server port N M")}
    page    {"proof": HMAC(key, "page port N M")}            only to a server whose proof is right

The key is HMAC(secret, "key S"). A session lasts as long as one socket listens on the port without a break. Another
program can have had the port only between two sessions, so what a browser keeps from one must be useless in the next.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Any

NONCE = re.compile(r"[0-9a-f]{32}")


class Keys:
    """The keys derived from the secret for one session."""

    def __init__(self, secret: str, session: str) -> None:
        self.session = session
        self._key = _mac(secret.encode(), f"key {session}")
        # for what a page keeps over a reload; not derived from the key, because the browser stores that
        self.seal = _mac(secret.encode(), f"seal {session}").hex()

    def meet(self, port: int, nonce: object) -> Meeting | None:
        """Answer a page's nonce, or return None if it is not a valid nonce."""
        if not isinstance(nonce, str) or not NONCE.fullmatch(nonce):
            return None
        return Meeting(self, f"{port} {nonce}")

    def proof(self, text: str) -> str:
        """Return the proof for this text: it shows that we know the secret."""
        return _mac(self._key, text).hex()


class Meeting:
    """One connection: both nonces, and the proofs over them."""

    def __init__(self, keys: Keys, port_and_nonce: str) -> None:
        self.keys, self._nonce = keys, secrets.token_hex(16)
        self._meeting = f"{port_and_nonce} {self._nonce}"
        self.file_key = keys.proof(f"files {self._meeting}")  # sent as a header with files while the connection lasts

    def challenge(self) -> dict[str, Any]:
        """Return the server's frame, with its proof."""
        proof = self.keys.proof(f"server {self._meeting}")
        return {"type": "proof", "nonce": self._nonce, "session": self.keys.session, "proof": proof}

    def is_proven(self, proof: object) -> bool:
        """Return whether this is the page's proof. Compares in constant time."""
        return isinstance(proof, str) and same(proof, self.keys.proof(f"page {self._meeting}"))


def same(text: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(text.encode(errors="replace"), expected.encode())


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
