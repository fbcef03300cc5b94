"""People: who may use the box, which notices each of them gets and when, and the audit of who did what."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bot.access.gate import actor_of
from bot.commands import ROLES
from bot.store.people import PAIRING_S
from bot.text.buttons import ButtonKind, Press
from bot.text.html import bold, code, escape, fit, printable, shorten
from bot.text.job_words import counted
from bot.text.quiet_hours import quiet_hours
from bot.text.zones import box_zone, zone_name
from runner.api.chat import clock, short_time
from runner.errors import UserError

if TYPE_CHECKING:
    from datetime import datetime

    from bot.inbound.turn import Turn

MOST_ROWS = 60
MOST_REVOKES = 20
NOISE = {
    "more": "a message when a job starts, too",
    "all": "a card for each job, its end, and what went wrong",
    "ends": "ends and failures, no cards of jobs from the terminal",
    "failures": "only what went wrong",
    "none": "nothing; look with /status",
}
_STORED_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00")


async def pair(turn: Turn, rest: str) -> None:
    """Make a link that gives one person a role. Without a role, list the people who have one."""
    if turn.chat.settings.chat == "page":
        raise UserError(
            "Nobody needs to be let in here: anyone with the link to this page may do everything. On the box,"
            " `nightshift page` prints the link, and `nightshift page --new-link` replaces it."
        )
    if not turn.caller.private:
        raise UserError("Send /pair to me in private: in a group, the first person to tap the link would get in.")
    word = rest.strip().lower()
    if not word:
        turn.reply(*everybody(turn))
        return
    if word not in ROLES:
        raise UserError("For a link, send `/pair user`, `/pair viewer` or `/pair admin`. /pair alone lists everybody.")
    with turn.effect():
        code_ = turn.chat.people.invite(word, turn.caller.actor)
        turn.queue.audit.add(turn.caller.actor, "pair", {"role": word})
        rights = "" if word == "viewer" else ", with the shell rights of the account the runner runs under"
        link = f"https://t.me/{turn.chat.username}?start={code_}"
        turn.reply(
            f"The first person to open this within {PAIRING_S / 60:.0f} minutes becomes {bold(word)} of "
            f"{bold(turn.chat.settings.box)}{rights}:\n{escape(link)}\nTo cancel it, send /pair."
        )


def everybody(turn: Turn) -> tuple[str, list[list[Press]]]:
    """Return who has which role, with buttons to revoke roles that were given by pairing."""
    gate, people = turn.chat.gate, turn.chat.people
    lines, rows = [bold("Who may use this box")], []
    for person_id, role in sorted(gate.everybody().items(), key=lambda person: (-person[1], person[0])):
        fixed = gate.is_from_settings(person_id)
        name = people.get(person_id).name or "not met yet"
        lines.append(f"{escape(name)} {code(str(person_id))} · {role.word}{' · by settings' if fixed else ''}")
        if not fixed and person_id != turn.caller.id:
            label = f"Revoke {shorten(printable(name), 24)}"
            rows.append([Press(ButtonKind.REVOKE, data={"person": person_id}, text=label)])
    rows = rows[:MOST_REVOKES]
    if waiting := people.invitations():
        lines.append(counted(waiting, "open link"))
        rows.append([Press(ButtonKind.CANCEL_LINKS)])
    lines.append("Let in another: `/pair user`, `/pair viewer` or `/pair admin`")
    return fit(["\n".join(lines)]), rows


def revoke(turn: Turn, person_id: int) -> str:
    """Revoke a role that was given by pairing, and return a sentence about it. Call it inside `effect`."""
    if person_id == turn.caller.id:
        raise UserError("You cannot revoke your own role. Ask another admin, or on the box: `nightshift pair --revoke`")
    name = turn.chat.name_of(actor_of(person_id))
    if not turn.chat.people.revoke(person_id):
        return f"{name} has no role that was given by pairing."
    turn.queue.audit.add(turn.caller.actor, "revoke", {"person": person_id})
    turn.chat.set_menu(person_id)
    turn.chat.tell_admins(f"🚪 {escape(turn.caller.name)} revoked {escape(name)}'s role.", but=turn.caller.id)
    return f"{name} may no longer use this box."


def cancel_links(turn: Turn) -> str:
    """Cancel all open links and return a sentence about it. Inside `effect`."""
    count = turn.chat.people.forget_invitations()
    turn.queue.audit.add(turn.caller.actor, "cancel links", {"count": count})
    return f"{counted(count, 'open link')} cancelled."


# -- notices ---------------------------------------------------------------------------------------


async def notify(turn: Turn, rest: str) -> None:
    """Set which notices the caller gets and when they come without a sound; then show both."""
    rest, _, zone = (part.strip() for part in rest.partition("zone"))
    noise, hours = (part.strip() for part in rest.lower().partition("quiet")[::2])
    noise = {"normal": "all", "less": "ends"}.get(noise, noise)
    if noise and noise not in NOISE:
        raise UserError(
            f"Send `/notify more`, {', '.join([*NOISE][1:])}; or `/notify quiet 23-7`, `/notify quiet off`;"
            " or `/notify zone Europe/Berlin`"
        )
    quiet = quiet_hours(hours) if hours else None
    name = zone_name(zone) if zone else None
    with turn.effect():
        if noise:
            set_noise(turn, noise)
        if hours:
            turn.chat.people.set_quiet(turn.caller.id, quiet or ())
            turn.queue.audit.add(turn.caller.actor, "notify", {"quiet": hours})
        if zone:
            turn.chat.people.set_zone(turn.caller.id, name)
            turn.queue.audit.add(turn.caller.actor, "notify", {"zone": name or "off"})
        turn.reply(*notify_view(turn))


def set_noise(turn: Turn, noise: str) -> None:
    """Store which notices the caller gets."""
    turn.chat.people.set_noise(turn.caller.id, noise)
    turn.queue.audit.add(turn.caller.actor, "notify", {"noise": noise})


def notify_view(turn: Turn) -> tuple[str, list[list[Press]]]:
    """Return which notices the caller gets now, and buttons to change it."""
    person = turn.chat.people.get(turn.caller.id)
    hours = person.quiet if person.quiet is not None else turn.chat.settings.quiet_hours
    whose = f"in {person.zone}" if person.zone else f"by the box's clock ({box_zone()})"
    quiet = "never" if not hours else f"{_clock(hours[0])} to {_clock(hours[1])}"
    choices = [
        Press(ButtonKind.NOISE, data={"noise": word}, text=f"{'● ' if word == person.noise else ''}{word}")
        for word in NOISE
    ]
    return (
        f"You get {bold(NOISE[person.noise])}.\nWithout a sound: {quiet} (`/notify quiet 23-7`).\n"
        f"Times that you type count {whose} (`/notify zone Europe/Berlin`)."
    ), [choices[:3], choices[3:]]


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


# -- the audit -------------------------------------------------------------------------------------


def _shown(value: object, now: datetime) -> str:
    """Return a value of the audit as text, a time in its short form."""
    at = clock.moment(str(value)) if _STORED_TIME.fullmatch(str(value)) else None
    return short_time(at, now) if at else str(value)


async def audit(turn: Turn, rest: str) -> None:
    """Show the latest actions, and whether the audit's chain is unbroken."""
    word = rest.strip() or "20"
    if not (word.isascii() and word.isdigit()) or not 0 < int(word[:4]) <= MOST_ROWS:
        raise UserError(f"Send /audit, or /audit with a number up to {MOST_ROWS}, like `/audit {MOST_ROWS}`.")
    now, lines = clock.now(), []
    for row in turn.chat.queue.audit.rows(int(word)):
        what = ", ".join(f"{key} {_shown(value, now)}" for key, value in row["data"].items() if value is not None)
        action = f"{row['action']} ({what})" if what else row["action"]
        lines.append(f"{_shown(row['at'], now)} {turn.chat.name_of(row['actor'])}: {action}")
    broken = turn.chat.queue.audit.first_broken()
    whole = "the chain is whole" if broken is None else f"🚨 the chain is broken at row {broken}"
    turn.reply(fit([bold(whole) + "\n", escape("\n".join(lines))]))
