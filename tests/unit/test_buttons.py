"""The registry of buttons is complete."""

from __future__ import annotations

from bot.handlers.button_taps import HANDLERS
from bot.text.buttons import BY_ACTION, ButtonKind, Right

# as older versions stored them: a button from before an upgrade must still work
STORED = {
    "status", "gpus", "queue", "details", "log", "log again", "fit", "group", "group csv", "kill group", "rerun failed",
    "document", "rerun", "kill", "killed", "keep", "extend", "kill now", "back", "dismiss", "edit", "front", "down",
    "up", "hold", "release", "lines", "script", "resume", "release all", "drain", "noise", "revoke", "revoked",
    "people", "cancel links", "cancel when empty",
}  # fmt: skip


def test_every_kind_of_button_has_a_handler():
    assert set(HANDLERS) == set(ButtonKind)


def test_every_stored_action_is_still_known():
    assert set(BY_ACTION) >= STORED


def test_what_changes_a_job_needs_a_right_and_an_unfinished_job():
    of_owners = {kind for kind in ButtonKind if kind.value.right is Right.OWNER}
    assert of_owners == {kind for kind in ButtonKind if kind.value.while_unfinished}
    assert {"kill", "keep", "extend", "edit", "hold"} <= {kind.value.action for kind in of_owners}
