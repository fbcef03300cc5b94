"""A page's side of the handshake, for clients that are not a browser."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

import aiohttp


def mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


async def prove(socket: aiohttp.ClientWebSocketResponse, secret: str, port: int, **seen: Any) -> str:
    """Have the server prove itself, then prove that we know the secret; the connection's key for files."""
    nonce = secrets.token_hex(16)
    await socket.send_json({"nonce": nonce})
    challenge = await socket.receive_json(timeout=40)
    key = mac(secret.encode(errors="replace"), f"key {challenge['session']}")
    said = f"{port} {nonce} {challenge['nonce']}"
    await socket.send_json({"proof": mac(key, f"page {said}").hex(), **seen})
    assert set(challenge) == {"type", "nonce", "session", "proof"}
    return mac(key, f"files {said}").hex()


async def is_let_in(link: str) -> bool:
    """Whether this link opens the chat."""
    root, _, secret = link.partition("/#")
    async with aiohttp.ClientSession() as client, client.ws_connect(f"{root}/chat") as socket:
        await prove(socket, secret, int(root.rpartition(":")[2]))
        frame = await socket.receive(timeout=40)
        return frame.type is aiohttp.WSMsgType.TEXT and frame.json()["type"] == "hello"
