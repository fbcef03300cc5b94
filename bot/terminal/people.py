"""`nightshift pair`: who may use the bot. It makes links that work once, and takes roles back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from bot import settings, token
from bot.store.people import PAIRING_S, People
from runner.api.chat import BOT_BELL, BOT_LOCK, BoxKey, clock, holder, printable, ring, short_time
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


@click.command("pair")
@click.option(
    "--role", type=click.Choice(list(ROLES)), help="Role to give. Default: admin if there is none yet, else user."
)
@click.option("--list", "listing", is_flag=True, help="List who may use the bot, and their roles.")
@click.option("--revoke", metavar="ID", type=int, help="Take back a role that was given by pairing.")
@click.option("--cancel", is_flag=True, help="Cancel every link that was not used yet.")
@click.option("--json", "as_json", is_flag=True, help="With --list: print JSON.")
def pair(role: str | None, listing: bool, revoke: int | None, cancel: bool, as_json: bool) -> None:
    """Let somebody use the bot: prints a link that works once, within ten minutes."""
    if sum((role is not None, listing, revoke is not None, cancel)) > 1:
        raise UserError("Use only one of --role, --list, --revoke and --cancel.")
    if as_json and not listing:
        raise UserError("--json works only with --list.")
    config = settings.load()
    with open_queue() as queue:
        people = People(queue.store)
        if listing:
            _list(config, people, as_json)
        elif revoke is not None:
            _revoke(queue, people, config, revoke)
        elif cancel:
            _cancel(queue, people)
        else:
            _refuse_on_page(config, queue)
            _invite(queue, people, role or ("user" if has_admin(config, people) else "admin"))
            _say_if_off(config)


def is_page(config: ChatSettings, queue: Queue) -> bool:
    """Return whether the chat is the page. A running bot may have other settings than this terminal; its own count."""
    up = holder(config.home, BOT_LOCK) is not None
    return ((queue.box.get(BoxKey.BOT_CHAT) if up else None) or config.chat) == "page"


def _refuse_on_page(config: ChatSettings, queue: Queue) -> None:
    if is_page(config, queue):
        raise UserError(
            "The chat is a page on this machine: anyone with its link may do everything there."
            " `nightshift page` prints the link, and `nightshift page --new-link` replaces it."
        )


def has_admin(config: ChatSettings, people: People) -> bool:
    """Return whether there is an admin, in the settings or by pairing."""
    return bool(config.admins) or any(person.role == "admin" for person in people.paired())


def invitation(queue: Queue, people: People, role: str) -> str:
    """Make a code that lets one person in, and tell the bot about it. Return it."""
    with queue.store.transaction():
        code = people.invite(role, queue.actor)
        queue.audit.add(queue.actor, "pair", {"role": role})
    ring(queue.home, BOT_BELL)
    return code


def link_of(username: str, code: str) -> str:
    """Return the link that opens the bot on a phone with this code."""
    return f"https://t.me/{username}?start={code}"


def _invite(queue: Queue, people: People, role: str) -> None:
    code = invitation(queue, people, role)
    username = queue.box.get(BoxKey.BOT_USERNAME)
    minutes = f"{PAIRING_S / 60:.0f} minutes"
    if username:
        print(f"Open this on the phone within {minutes}, and press Start:\n\n  {link_of(username, code)}\n")
    else:
        print(f"Open your bot in Telegram and send it this within {minutes}:\n\n  /start {code}\n")
    print(f"The first person to do so becomes {role} and {ROLES[role]}. It works once, and is shown only now.")


def _say_if_off(config: ChatSettings) -> None:
    """Say so if no bot is running to answer the link."""
    if holder(config.home, BOT_LOCK) is not None:
        return
    if token.source(config) is None:
        say(token.HOW_TO_GET_ONE.format(home=config.home))
    say("the bot is not up. Start it: nightshift up --detach")


class PersonEntry(NamedTuple):
    """One person who may use the bot, as `pair --list` shows them. `at` is None if the role is from the settings."""

    id: int
    name: str | None
    role: str
    by: str | None
    at: str | None


def everybody(config: ChatSettings, people: People) -> list[PersonEntry]:
    """Return everybody who may use the bot. If a person has two roles, the one from the settings counts."""
    listed = {"admin": config.admins, "user": config.users, "viewer": config.viewers}
    configured = {person: role for role, ids in listed.items() for person in ids}
    paired = [person for person in people.paired() if person.id not in configured]
    entries = [
        PersonEntry(person, people.get(person).name, role, f"NIGHTSHIFT_{role.upper()}S", None)
        for person, role in configured.items()
    ]
    return entries + [PersonEntry(who.id, who.name, who.role or "", who.paired_by, who.paired_at) for who in paired]


def _list(config: ChatSettings, people: People, as_json: bool) -> None:
    listed = everybody(config, people)
    if as_json:
        print_json([person._asdict() for person in listed])
        return
    if listed:
        print_table(["ID", "NAME", "ROLE", "SINCE", "BY"], [_row(person) for person in listed], cut=(1, 4), right=(0,))
    else:
        print("Nobody may use the bot yet. To let somebody in: nightshift pair")
    if waiting := people.invitations():
        print(f"{counted(waiting, 'link')} can still be used. To cancel {'it' if waiting == 1 else 'them'}: --cancel")


def _row(person: PersonEntry) -> Row:
    since = clock.moment(person.at)
    at = short_time(since, clock.now()) if since else "settings"
    return Row([str(person.id), printable(person.name or "–"), person.role, at, printable(person.by or "–")])


def _revoke(queue: Queue, people: People, config: ChatSettings, person: int) -> None:
    by = next((entry.by for entry in everybody(config, people) if entry.id == person and entry.at is None), None)
    role = people.get(person).role
    if role is None:
        raise UserError(
            f"{person} has this role from {by}. Remove it there, then: nightshift down && nightshift up --detach"
            if by
            else f"{person} has no role by pairing. `nightshift pair --list` shows who has one."
        )
    with queue.store.transaction():
        people.revoke(person)
        queue.audit.add(queue.actor, "unpair", {"person": person, "role": role})
    ring(queue.home, BOT_BELL)
    print(f"{person} is no longer {role}.")
    if by:
        say(f"{person} is also in {by}, and that still counts")
    elif not has_admin(config, people):
        say("nobody is admin now. Make one: nightshift pair")


def _cancel(queue: Queue, people: People) -> None:
    with queue.store.transaction():
        count = people.forget_invitations()
        queue.audit.add(queue.actor, "cancel pairing", {"links": count})
    print(f"{counted(count, 'link')} cancelled." if count else "There was no link to cancel.")
