"""Which links Telegram accepts, and how it normalises them."""

from __future__ import annotations

import ipaddress
import re

SCHEME = re.compile(r"([^:/?#@\[\]]*)://")
OWN_SCHEME = re.compile(r"(tg|ton|tonsite):(?://)?", re.IGNORECASE)
USER_LINK = re.compile(r"tg:(?://)?user\?(?:.*&)?id=(\d+)", re.IGNORECASE)
PLAIN = r"[A-Za-z0-9._!$,~*'();&+=\-]|[^\x00-\x7f]|%[0-9A-Fa-f]{2}"
HOST = re.compile(f"(?:{PLAIN})*")
USERINFO = re.compile(f"(?:{PLAIN}|:)*")
SPACE = re.compile(r"[\x00-\x20]")


class LinkError(ValueError):
    """Says why a text is not a valid link."""


def linked_user(link: str) -> int | None:
    """Return the id of the person that a link like tg://user?id=1 points to, or None."""
    match = USER_LINK.fullmatch(link.partition("#")[0])
    return int(match[1]) if match else None


def checked(link: str) -> str:
    """Return the link as Telegram stores it. Raise LinkError if it is not valid."""
    own = OWN_SCHEME.match(link)
    if own is None:
        return _web(link)
    rest = link[own.end() :]
    host, tail = _split_host(rest)
    if not host:
        raise LinkError("URL host is empty")
    if not re.fullmatch(r"[A-Za-z0-9_\-.]+" if own[1].lower() == "tonsite" else r"[A-Za-z0-9_\-]+", host):
        raise LinkError("Unallowed characters in URL host")
    return f"{own[1].lower()}://{host}{tail}"


def valid(link: str) -> str | None:
    """Return the link as Telegram stores it, or None if it is not valid."""
    try:
        return checked(link)
    except LinkError:
        return None


def _web(link: str) -> str:
    scheme = SCHEME.match(link)
    if scheme and scheme[1].lower() not in {"http", "https"}:
        raise LinkError("Unsupported URL protocol")
    authority, tail = _split_host(link[scheme.end() :] if scheme else link)
    userinfo, at, host_port = authority.rpartition("@")
    host, port = _split_port(host_port)
    _check_host(host, userinfo)
    tail = SPACE.sub(lambda match: f"%{ord(match[0]):02X}", tail.rstrip(" \t\r\n\v\0"))
    if not tail.startswith("/"):
        tail = f"/{tail}"
    protocol = scheme[1].lower() if scheme else "http"
    return f"{protocol}://{userinfo}{at}{host.lower()}{port}{tail}"


def _split_host(text: str) -> tuple[str, str]:
    end = min((at for at in map(text.find, "/?#") if at >= 0), default=len(text))
    return text[:end], text[end:]


def _split_port(text: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or "]" in port:
        return text, ""
    digits = port.lstrip("0")
    if not digits.isdecimal() or int(digits) > 65535:
        raise LinkError("Wrong port number specified in the URL")
    return host, f":{digits}"


def _check_host(host: str, userinfo: str) -> None:
    if not host:
        raise LinkError("URL host is empty")
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise LinkError("Wrong IPv6 address specified in the URL") from None
        return
    for part, pattern, name in ((host, HOST, "host"), (userinfo, USERINFO, "userinfo")):
        if not pattern.fullmatch(part):
            raise LinkError(f"Disallowed character in URL {name}")
    if "." not in host or host == ".":
        raise LinkError("Wrong HTTP URL")
