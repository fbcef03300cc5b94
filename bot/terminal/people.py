"""`nightshift pair`: who may use the bot. It makes links that work once, and takes roles back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bot import settings, token
from runner.api.chat import BOT_BELL, BOT_LOCK, PAIRING_S, People, clock, holder, printable, ring, short_time
from runner.errors import UserError
from runner.terminal.session import counted, open_queue, print_json, say
from runner.text.table import Row, print_table

if TYPE_CHECKING:
    from bot.settings import ChatSettings
    from runner.api import Queue

ROLES = {
    "admin": "may do everything, to all jobs and to the queue",
    "user": "may submit jobs, with the rights of your account, and stop their own",
    "viewer": "may look",
}
USERNAME = "bot username"  # key in the box table; the bot writes it once it has connected to Telegram
SERVED = "bot chat"  # likewise: which chat the running bot serves


@click.command("pair")
@click.option("--role", type=click.Choice(list(ROLES)), help="Default: admin for the first, then user.")
@click.option("--list", "listing", is_flag=True, help="Who may use the bot, and as what.")
@click.option("--revoke", metavar="ID", type=int, help="Take back a role that was given by pairing.")
@click.option("--cancel", is_flag=True, help="Make every link that is still out there useless.")
@click.option("--json", "as_json", is_flag=True, help="With --list: for programs.")
def pair(role: str | None, listing: bool, revoke: int | None, cancel: bool, as_json: bool) -> None:
    """Let somebody use the bot: prints a link that works once, within ten minutes."""
    if sum((role is not None, listing, revoke is not None, cancel)) > 1:
        raise UserError("--role, --list, --revoke and --cancel are for one at a time.")
    if as_json and not listing:
        raise UserError("--json goes with --list.")
    found = settings.load()
    with open_queue() as queue:
        people = People(queue.store)
        if listing:
            _list(found, people, as_json)
        elif revoke is not None:
            _revoke(queue, people, found, revoke)
        elif cancel:
            _cancel(queue, people)
        else:
            _refuse_on_page(found, queue)
            _invite(queue, people, role or ("user" if has_admin(found, people) else "admin"))
            _say_if_off(found)


def is_page(found: ChatSettings, queue: Queue) -> bool:
    """Return whether the chat is the page. A running bot may have other settings than this terminal; its own count."""
    up = holder(found.home, BOT_LOCK) is not None
    return ((queue.box.get(SERVED) if up else None) or found.chat) == "page"


def _refuse_on_page(found: ChatSettings, queue: Queue) -> None:
    if is_page(found, queue):
        raise UserError(
            "The chat is a page on this machine: anyone with its link may do everything there."
            " `nightshift page` prints the link, and `nightshift page --new-link` replaces it."
        )


def has_admin(found: ChatSettings, people: People) -> bool:
    """Return whether there is an admin, in the settings or by pairing."""
    return bool(found.admins) or any(person.role == "admin" for person in people.paired())


def _invite(queue: Queue, people: People, role: str) -> None:
    with queue.store.transaction():
        code = people.invite(role, queue.actor)
        queue.audit.add(queue.actor, "pair", {"role": role})
    ring(queue.home, BOT_BELL)
    username = queue.box.get(USERNAME)
    minutes = f"{PAIRING_S / 60:.0f} minutes"
    if username:
        print(f"Open this on the phone within {minutes}, and press Start:\n\n  https://t.me/{username}?start={code}\n")
    else:
        print(f"Open your bot in Telegram and send it this within {minutes}:\n\n  /start {code}\n")
    print(f"The first person to do so becomes {role} and {ROLES[role]}. It works once, and is shown only now.")


def _say_if_off(found: ChatSettings) -> None:
    """Say so if no bot is running to answer the link."""
    if holder(found.home, BOT_LOCK) is not None:
        return
    if token.source(found) is None:
        say(token.HOW_TO_GET_ONE.format(home=found.home))
    say("the bot is not up. Start it: nightshift up --detach")


def rows(found: ChatSettings, people: People) -> list[dict[str, Any]]:
    """Return everybody who may use the bot. If a person has two roles, the one from the settings counts."""
    listed = {"admin": found.admins, "user": found.users, "viewer": found.viewers}
    configured = {person: role for role, ids in listed.items() for person in ids}
    from_settings = [
        {"id": person, "name": people.get(person).name, "role": role, "by": f"NIGHTSHIFT_{role.upper()}S", "at": None}
        for person, role in configured.items()
    ]
    paired = [
        {"id": person.id, "name": person.name, "role": person.role, "by": person.paired_by, "at": person.paired_at}
        for person in people.paired()
        if person.id not in configured
    ]
    return from_settings + paired


def _list(found: ChatSettings, people: People, as_json: bool) -> None:
    known = rows(found, people)
    if as_json:
        print_json(known)
        return
    if known:
        print_table(["ID", "NAME", "ROLE", "SINCE", "BY"], [_row(person) for person in known], cut=(1, 4), right=(0,))
    else:
        print("Nobody may use the bot yet. Let somebody: nightshift pair")
    if waiting := people.invitations():
        print(f"{counted(waiting, 'link')} still good. To make {'it' if waiting == 1 else 'them'} useless: --cancel")


def _row(person: dict[str, Any]) -> Row:
    since = clock.moment(person["at"])
    at = short_time(since, clock.now()) if since else "settings"
    name, by = (printable(person[key] or "–") for key in ("name", "by"))
    return Row([str(person["id"]), name, person["role"], at, by])


def _revoke(queue: Queue, people: People, found: ChatSettings, person: int) -> None:
    by = next((row["by"] for row in rows(found, people) if row["id"] == person and row["at"] is None), None)
    role = people.get(person).role
    if role is None:
        raise UserError(
            f"{person} stands in {by}: take it out there, then nightshift down && nightshift up --detach."
            if by
            else f"{person} has no role by pairing. `nightshift pair --list` tells who has."
        )
    with queue.store.transaction():
        people.revoke(person)
        queue.audit.add(queue.actor, "unpair", {"person": person, "role": role})
    ring(queue.home, BOT_BELL)
    print(f"{person} is no longer {role}.")
    if by:
        say(f"{person} also stands in {by}, and that still counts")
    elif not has_admin(found, people):
        say("nobody is admin now. Make one: nightshift pair")


def _cancel(queue: Queue, people: People) -> None:
    with queue.store.transaction():
        count = people.forget_invitations()
        queue.audit.add(queue.actor, "cancel pairing", {"links": count})
    print(f"{counted(count, 'link')} made useless." if count else "There was no link out there.")
