"""The one list of chat commands: name, role, usage, help and example."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Role(IntEnum):
    """What a person may do. Each role includes the ones before it."""

    VIEWER = 1
    USER = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """The role's name in lower case."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """The role with its article, like "an admin"."""
        return f"an {self.word}" if self is Role.ADMIN else f"a {self.word}"


ROLES = {role.word: role for role in Role}


class Command(NamedTuple):
    """One chat command, as the menu and the help show it."""

    name: str
    role: Role
    usage: str
    help: str
    example: str = ""


V, U, A = Role.VIEWER, Role.USER, Role.ADMIN

COMMANDS: tuple[Command, ...] = (
    Command("submit", U, "[options] COMMAND", "queue a job", "/submit python train.py --lr 3e-4"),
    Command("status", V, "[12]", "the box at a glance, or one job", "/status 12"),
    Command("queue", V, "", "waiting jobs: move, hold or kill them"),
    Command("gpus", V, "", "load, memory and jobs of each GPU"),
    Command("log", V, "12 [lines]", "a job's output", "/log 12"),
    Command("fit", V, "12", "how a job's batch was found, as a picture", "/fit 12"),
    Command("kill", U, "12 [13 …] | GROUP | all | queued", "stop jobs; asks first", "/kill 12"),
    Command("edit", U, "12 [options] [COMMAND]", "change a waiting job", "/edit 12 --time 4h"),
    Command("move", U, "12 first|sooner|later|last|after 14", "move a waiting job", "/move 12 after 14"),
    Command("hold", U, "12 [13 …]", "keep a job from starting", "/hold 12"),
    Command("release", U, "12 [13 …]", "let a held job start", "/release 12"),
    Command("keep", U, "12 [2h]", "do not stop a job for being idle", "/keep 12 2h"),
    Command("extend", U, "12 2h", "extend a job's time limit", "/extend 12 2h"),
    Command("rerun", U, "12 [changes] | GROUP failed", "run a job again", "/rerun 12 --lr 1e-3"),
    Command("save", U, "12 as nano", "save a job as a preset", "/save 12 as nano"),
    Command("preset", U, "[nano lr=3e-4]", "jobs you saved: queue one, perhaps changed", "/preset nano lr=3e-4"),
    Command("batch", U, "lines", "one job per line", "/batch\npython a.py\npython b.py"),
    Command(
        "sweep",
        U,
        "[options] COMMAND ; lr=1e-3,5e-4",
        "one job per combination",
        "/sweep python train.py --lr {lr} --bs {bs} ; lr=1e-3,5e-4 bs=32,64",
    ),
    Command("group", V, "[NAME]", "a sweep or group: progress, best results", "/group sweep-1"),
    Command("pause", A, "", "start nothing more"),
    Command("resume", U, "", "start jobs again after a pause or a drain"),
    Command("drain", A, "", "let running jobs finish, start no more"),
    Command("ws", V, "[NAME]", "workspaces: where jobs run"),
    Command(
        "notify",
        V,
        "[all|ends|failures|none] [quiet 23-7] [zone Europe/Berlin]",
        "which messages you get, quiet hours, time zone",
    ),
    Command("whoami", V, "", "your id and role on this box"),
    Command("pair", A, "[user|viewer|admin]", "let people in, or remove them"),
    Command("audit", A, "[20]", "who did what"),
    Command("help", V, "[submit]", "all commands, or one of them", "/help submit"),
    Command("start", V, "", "begin"),
)
BY_NAME = {command.name: command for command in COMMANDS}
HIDDEN = {"start"}
ALIASES = {  # what people try, and the command they mean
    **dict.fromkeys(("jobs", "ls", "ps", "show"), "status"),
    **dict.fromkeys(("stop", "cancel"), "kill"),
    **dict.fromkeys(("logs", "tail"), "log"),
    "run": "submit",
    "retry": "rerun",
    "presets": "preset",
}


def menu(role: Role) -> list[Command]:
    """Return the commands that this role may use, without the hidden ones."""
    return [command for command in COMMANDS if command.role <= role and command.name not in HIDDEN]
