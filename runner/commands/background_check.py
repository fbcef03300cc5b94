"""Refuses commands that put their work into the background and end: the job would end at once. Pure."""

from __future__ import annotations

import re

from runner.commands.shell_parser import Piece, UnreadableError, pieces
from runner.errors import UserError

# Commands that do no work themselves: the real work is what comes before them.
_IDLE = frozenset({"disown", "exit", "echo", "printf", "jobs", "true", ":"})
_NEEDLESS = frozenset({"disown", "exit", "!"})  # `&!` is how zsh disowns


def refuse_leaving(command: str) -> None:
    """Raise UserError if this command would leave its work in the background; the error names a better command."""
    better = foreground_of(command)
    if better is not None:
        raise UserError(
            "This command ends at once, and nightshift would then stop what it left in the background. A job goes on"
            f" when you close the terminal, even without & and nohup, so submit this:\n\n{better}"
        )


def foreground_of(command: str) -> str | None:
    """Return a command that does the same work and waits for it; None if this one does, or if none was found."""
    try:
        if not _leaves(pieces(command)):
            return None
        better = _staying(_attached(command))
        return better if better and not _leaves(pieces(better)) else None
    except UnreadableError:
        return None


def _leaves(parts: list[Piece]) -> bool:
    at = _last_background(parts)
    if at is None:
        return _ends_in_setsid(parts)
    names = {part.text for part in parts[at:] if part.role == "command"}
    detached = "disown" in names or any(part.role == "detacher" for part in parts[:at])
    return not names or (detached and names <= _IDLE)


def _last_background(parts: list[Piece]) -> int | None:
    return next((index for index in reversed(range(len(parts))) if parts[index].role == "background"), None)


def _ends_in_setsid(parts: list[Piece]) -> bool:
    """True if the last command is a setsid that does not wait for what it starts.

    Bash replaces itself with its last command (exec). setsid is then the leader of a process group, so it
    has to fork, and ends at once: `bash -c 'setsid sleep 1'` takes 10 ms.
    """
    last, before = _last_command(parts)
    words = [part.text for part in last if part.role == "detacher"]
    waits = any(re.fullmatch(r"--wait|-[a-z]*w[a-z]*", word) for word in words)
    started = before in ("|", "|&") or any(part.text in ("time", "!") for part in last)
    return "setsid" in words and not waits and not started


def _last_command(parts: list[Piece]) -> tuple[list[Piece], str | None]:
    """Return the pieces of the last simple command outside any group, and the separator before it."""
    end = len(parts)
    while end and parts[end - 1].text in ("\n", ";"):
        end -= 1
    start = end
    while start and parts[start - 1].role not in ("separator", "open", "close"):
        start -= 1
    return parts[start:end], parts[start - 1].text if start else None


def _attached(command: str) -> str:
    """Return the command without nohup and setsid, and without disown and exit after its last `&`."""
    parts = pieces(command)
    doomed = {index for index, part in enumerate(parts) if part.role == "detacher"}
    tail = _last_background(parts)
    for index in range(len(parts) if tail is None else tail + 1, len(parts)):
        if parts[index].role in ("command", "prefix") and parts[index].text in _NEEDLESS:
            doomed |= _simple_command(parts, index, doomed)
    return _without(command, parts, doomed)


def _simple_command(parts: list[Piece], start: int, doomed: set[int]) -> set[int]:
    """Return the indices of a command, its arguments, and the separator that is not needed without it."""
    end = start + 1
    while end < len(parts) and parts[end].role in ("argument", "redirection", "target"):
        end += 1
    leads = start - 1 not in doomed and _loose(parts[start - 1])
    follows = end < len(parts) and _loose(parts[end])
    if leads and (not follows or parts[start - 1].text in ("&&", "||")):
        return set(range(start - 1, end))
    return set(range(start, end + follows))


def _loose(part: Piece) -> bool:
    """Return whether a separator cannot stay alone. A newline must stay: the body of a here-document may follow it."""
    return part.role == "separator" and part.text != "\n"


def _without(command: str, parts: list[Piece], doomed: set[int]) -> str:
    texts, at = [], 0
    for index in sorted(doomed):
        texts.append(command[at : parts[index].start])
        at = parts[index + 1].start if index + 1 < len(parts) else parts[index].end
    return "".join([*texts, command[at:]]).strip()


def _staying(command: str) -> str:
    """Return the command in the foreground if its only `&` can be removed, else with a wait at its end."""
    parts = pieces(command)
    at = _last_background(parts)
    if at is None:
        return command
    alone = not parts[at].in_loop and sum(part.role == "background" for part in parts) == 1
    if alone and not any(part.role in ("command", "assignment") for part in parts[at:]):
        stands_alone = at + 1 == len(parts) or parts[at + 1].text in (")", "\n")
        return _unwrapped(command[: parts[at - 1].end] + ("" if stands_alone else ";") + command[parts[at].end :])
    # `wait $!` also returns the exit code of the work; a plain `wait` does not.
    return _with_wait(command, parts[at:], "wait $!" if alone else "wait")


def _with_wait(command: str, tail: list[Piece], wait: str) -> str:
    """Return the command with a wait after the groups around its last `&`, but inside its subshell."""
    anchor, level = tail[0], tail[0].depth
    for part in tail[1:]:
        if part.text == ")" and part.depth < level:
            break
        level = min(level, part.depth)
        anchor = anchor if part.role == "separator" else part
    glue = " " if anchor is tail[0] else "; "
    return command[: anchor.end] + glue + wait + command[anchor.end :]


def _unwrapped(command: str) -> str:
    """Return the text inside a (…) or {…} that encloses the whole command, else the command."""
    parts = pieces(command)
    while parts and parts[-1].text == "\n":
        parts.pop()
    closed = next((index for index, part in enumerate(parts) if part.depth == 0), 0)
    if not closed or closed + 1 < len(parts) or parts[0].text not in ("(", "{"):
        return command.strip()
    end = parts[-2] if parts[-2].text == ";" else parts[-1]
    return command[parts[0].end : end.start].strip()
