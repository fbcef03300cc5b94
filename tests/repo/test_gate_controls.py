"""Each control of the gate holds something: taken out, a test of the gate turns red."""

import inspect
import itertools
import shutil
from typing import NamedTuple

import pytest

from bot.commands import BY_NAME, Role
from runner.api import Queue
from tests.fault import test_secrets as secret
from tests.integration import test_chat_editing as editing
from tests.integration import test_chat_gate as whole
from tests.integration import test_chat_groups as groups
from tests.integration import test_chat_sweeps as sweeps
from tests.integration import test_pairing as pairing
from tests.integration import test_time_limit as limits
from tests.mutants import conditions, replaced, without
from tests.unit import test_gate as alone

GATE = (
    *("Gate.judge", "Gate._message", "Gate._person", "Gate._candidate", "Gate._membership"),
    *("Gate.serves", "Gate.role_in", "Gate.role_of", "_is_somebody", "person_of"),
)
ACTORS = ("ada", "tg:x", "tg:²", "TG:5", "xtg:5")


def suite():
    """The gate's own tests, the slow one last."""
    found = [test for name, test in vars(alone).items() if name.startswith("test_")]
    plain = [test for test in found if set(inspect.signature(test).parameters) <= {"tmp_path"}]
    numbers = [lambda tmp_path, n=n: alone.test_no_person_has_such_a_number(n, tmp_path) for n in (0, -1, -1001)]
    actors = [lambda tmp_path, a=a: alone.test_somebody_at_a_terminal_is_nobody_of_the_chat(a) for a in ACTORS]
    slow = alone.test_everybody_everywhere_with_every_kind_of_update
    return [*(test for test in plain if test is not slow), *numbers, *actors, slow]


def turns_red(test, folder, like=None):
    """Whether a test fails in this new folder; `like` is a state folder that is made already."""
    shutil.copytree(like, folder) if like else folder.mkdir(mode=0o700)
    try:
        test(folder) if inspect.signature(test).parameters else test()
    except Exception:  # whatever it is, `make test` would not pass
        return True
    return False


def test_no_condition_of_the_gate_is_idle(tmp_path):
    idle, numbers, tests, looked = [], itertools.count(), suite(), 0
    fresh = tmp_path / "fresh"
    fresh.mkdir(mode=0o700)
    with Queue(str(fresh), actor="test", begin=True):
        pass
    for path in GATE:
        for words, mutant in conditions("bot.access.gate", path):
            looked += 1
            with replaced("bot.access.gate", path, mutant):
                red = next((test for test in tests if turns_red(test, tmp_path / f"{next(numbers)}", fresh)), None)
            if red is None:
                idle.append(words)
            elif red is not tests[-1]:  # what saw this one may well see the next
                tests.remove(red)
                tests.insert(0, red)
    assert idle == []
    assert looked > 40


class Control(NamedTuple):
    """What is taken out of where, and the test that must then turn red."""

    module: str
    path: str
    text: str
    instead: str
    test: object


def voided(module, path, text, test):
    """The condition is never true."""
    return Control(module, path, text, "False", test)


REQUIRE = ("turn.require(Role.ADMIN)", "pass")
BUTTON_ROLE = ("bot.handlers.button_taps", "_require", "turn.require(NEEDED_ROLE[right])", "pass")
BUTTON_OWNER = ("bot.handlers.button_taps", "_require", "turn.require_owner(turn.job(job_id(button)))", "pass")
CONTROLS = {
    # -- three lines: what is fetched is judged, what was kept is judged again, and who acts once more
    "the poller's line": voided(
        "bot.inbound.poll", "Poller._admitted", "isinstance(verdict, Denied)",
        whole.test_who_is_not_let_in_leaves_no_trace_and_hears_nothing,
    ),
    "groups are left": voided(
        "bot.inbound.poll", "Poller._admitted", "stored and isinstance(verdict, Added)",
        groups.test_a_group_that_is_not_named_is_left_without_a_word,
    ),
    "only who may is told why": Control(
        "bot.inbound.poll", "Poller._admitted", "is None", "is Ellipsis",
        groups.test_a_strangers_invitations_leave_no_rows,
    ),
    "the door": Control(
        "bot.inbound.dispatch", "let_in", "isinstance(verdict, Caller)", "True", whole.test_each_line_holds_by_itself
    ),
    "who acts is asked once more": Control(
        "bot.inbound.turn", "Turn.effect", "role is None or ", "", whole.test_each_line_holds_by_itself
    ),
    # -- roles, at the action
    "a role is asked for at all": voided(
        "bot.inbound.turn", "Turn.require", "self.caller.role < role", whole.test_what_only_an_admin_may
    ),
    "a command asks for its role": Control(
        "bot.inbound.routing", "_handle", "turn.require(BY_NAME[name].role)", "pass", whole.test_what_only_an_admin_may
    ),
    "a role counts as it is in the transaction": Control(
        "bot.inbound.turn", "Turn.effect", "self.require(self.role)", "pass",
        whole.test_a_role_lowered_while_the_message_was_being_worked_on_counts,
    ),
    "to rerun by a button": Control(*BUTTON_ROLE, "button rerun"),
    "to drain by a button": Control(*BUTTON_ROLE, "button drain"),
    "to resume": Control(
        "bot.access.button_rights", "role_to_resume", "Role.ADMIN if", "Role.USER if", whole.test_what_only_an_admin_may
    ),
    "to revoke": Control(*BUTTON_ROLE, "button revoked"),
    "to cancel links": Control(*BUTTON_ROLE, "button cancel links"),
    "to choose the default": Control("bot.handlers.view", "workspaces", *REQUIRE, whole.test_what_only_an_admin_may),
    "to stop an idle box's command": Control(*BUTTON_ROLE, "button cancel when empty"),
    "to change a job": Control(
        "bot.inbound.turn", "Turn.require_owner", "self.require(Role.USER)", "pass", "button kill"
    ),
    "to change another's job": voided(
        "bot.inbound.turn", "Turn.require_owner", "not self.may_change(job)",
        whole.test_a_button_for_a_job_of_another_is_for_its_owner_and_admins,
    ),
    "to stop a job, when it is done": Control(
        "bot.handlers.kill", "stop_jobs", "turn.own_jobs(numbers)", "[turn.job(one) for one in numbers]",
        whole.test_a_button_for_a_job_of_another_is_for_its_owner_and_admins,
    ),
    "to be asked about a job": Control(
        "bot.handlers.kill", "_meant", "turn.own_jobs(", "(lambda ones: [turn.job(one) for one in ones])(",
        whole.test_only_owners_and_admins_are_asked_about_a_job,
    ),
    "to extend a job": Control(
        "bot.handlers.limits", "extend", "turn.own_jobs(numbers)", "[turn.job(one) for one in numbers]",
        limits.test_extend_by_a_command_and_who_may,
    ),
    "to extend a job by a button": Control(
        *BUTTON_OWNER,
        whole.test_a_button_for_a_job_of_another_is_for_its_owner_and_admins,
    ),
    "to edit or move another's job": Control(
        "bot.inbound.turn", "Turn.own_jobs", "self.require_owner(job)", "pass",
        editing.test_only_owners_and_admins_edit_and_move,
    ),
    "to stop everyone's jobs": Control("bot.handlers.kill", "_chosen", *REQUIRE, whole.test_what_only_an_admin_may),
    "words mean one's own jobs": Control(
        "bot.handlers.kill", "_chosen", "None if anybodys else turn.caller.actor", "None",
        editing.test_kill_by_state_and_group_asks_with_a_count,
    ),
    "to be told how a job is edited": Control(
        *BUTTON_OWNER,
        whole.test_a_button_for_a_job_of_another_is_for_its_owner_and_admins,
    ),
    "to stop or repeat a group's jobs of another": Control(
        "bot.handlers.groups", "_own", "turn.is_admin or member.owner == turn.caller.actor", "True",
        sweeps.test_users_act_on_their_own_jobs_of_a_group_admins_on_all,
    ),
    "to stop or repeat a group": Control(
        "bot.handlers.groups", "_own", "turn.require(Role.USER)", "pass", "button kill group"
    ),
    "to change another's group": voided(
        "bot.handlers.groups", "_require_owner_of_group", "owner != turn.caller.actor and not turn.is_admin",
        sweeps.test_users_act_on_their_own_jobs_of_a_group_admins_on_all,
    ),
    # -- buttons
    "a button is one person's": Control(
        "bot.handlers.button_taps", "tapped", " or button.person != turn.caller.id", "",
        whole.test_anothers_button_is_no_button,
    ),
    "a question has its time": Control(
        "bot.handlers.button_taps", "tapped", "button.expired or ", "",
        whole.test_a_question_is_good_once_and_for_five_minutes
    ),
    "a question has one answer": Control(
        "bot.handlers.button_taps", "tapped", "question.used", "False",
        whole.test_a_used_question_is_used_also_for_its_other_answer,
    ),
    "a button is used up": Control(
        "bot.inbound.turn", "Turn.effect", "self.chat.buttons.use(nonce)", "pass",
        whole.test_two_taps_at_once_count_once
    ),
    # -- what goes out
    "nothing is sent to who may not": Control(
        "bot.outbound.sender", "Sender._send", "not self._chat.gate.may_reach(message.person, message.chat)", "False",
        pairing.test_what_waits_to_be_sent_to_somebody_revoked_is_not_sent,
    ),
    "notices go to who may": Control(
        "bot.outbound.recipients", "_submitter", "chat.gate.may_reach(thread.person, thread.chat)", "True",
        pairing.test_notices_of_somebody_revoked_go_to_the_admins,
    ),
    "only a served group is followed": voided(
        "bot.outbound.sender", "follow", "not chat.gate.serves(old)",
        groups.test_a_message_to_a_group_that_moved_and_is_not_served_is_parked,
    ),
    "nothing secret is said": Control(
        "bot.chat", "Chat.presentable", "self.redactor.text(html)", "html", secret.test_no_secret_leaves_in_the_chat
    ),
    "no secret of a job is shown": Control(
        "bot.text.log_pages", "_lines", "low = max(begin - CONTEXT, stretch[0])",
        "low = max(begin - CONTEXT, stretch[0]); redactor = redactor.__class__(())",
        secret.test_no_secret_leaves_in_the_chat,
    ),
    "no secret of a job is told": Control(
        "bot.outbound.notifier", "_excerpt", "excerpt.presentable(output.tail(log_excerpt.LOG_BYTES), redactor)",
        "excerpt.clean(output.tail(log_excerpt.LOG_BYTES))", secret.test_no_secret_leaves_in_the_chat,
    ),
    "no secret is in a sweep's values": Control(
        "bot.chat", "Chat.shown", "redactor.ends(value)", "value", sweeps.test_no_secret_leaves_with_the_results
    ),
    "no secret is in a file": Control(
        "bot.outbound.documents", "_document", 'b"".join(redactor.stream(output.parts()))',
        'b"".join(output.parts())', secret.test_no_secret_leaves_in_the_chat,
    ),
    # -- pairing
    "links are made in private": voided(
        "bot.handlers.people", "pair", "not turn.caller.private", groups.test_a_link_is_not_made_in_a_group
    ),
    "a link is good once": Control(
        "bot.store.people", "People.accept",
        'self._store.execute("DELETE FROM pairings WHERE digest = ?", (_digest(code),))', "pass",
        pairing.test_a_link_lets_one_person_in,
    ),
    "a link has its time": Control(
        "bot.store.people", "People.invitation", "AND expires_at > ?", "AND ? != ''",
        pairing.test_a_link_is_good_for_ten_minutes,
    ),
    "a revoked person's menu goes": Control(
        "bot.handlers.people", "revoke", "turn.chat.set_menu(person_id)", "pass",
        pairing.test_revoking_takes_effect_at_once,
    ),
}  # fmt: skip
NAMED = {
    **{
        f"button {action}": lambda folder, action=action: whole.test_a_button_gives_no_right_that_its_presser_has_lost(
            action, folder
        )
        for action in (
            "rerun",
            "drain",
            "revoke",
            "revoked",
            "people",
            "cancel links",
            "cancel when empty",
            "kill",
            "kill group",
        )
    },
}


def guard_of(control):
    return NAMED[control.test] if isinstance(control.test, str) else control.test


@pytest.mark.parametrize("name", CONTROLS)
def test_without_this_control_a_test_turns_red(name, tmp_path):
    control = CONTROLS[name]
    with without(control.module, control.path, control.text, control.instead):
        assert turns_red(guard_of(control), tmp_path / "without")


# only the list of commands guards these; the others ask once more at the action
LISTED = ("submit", "batch", "sweep", "rerun", "keep", "extend", "pause", "drain", "pair", "audit")


@pytest.mark.parametrize("name", LISTED)
def test_a_command_open_to_everybody_turns_a_test_red(name, tmp_path, monkeypatch):
    monkeypatch.setitem(BY_NAME, name, BY_NAME[name]._replace(role=Role.VIEWER))
    assert turns_red(lambda folder: whole.test_what_each_command_takes(name, folder), tmp_path / "without")
