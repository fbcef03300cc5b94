"""Tokens, methods, commands, members, floods, faults."""

import asyncio
import json

import pytest

from bot.local_chat.bot_api.methods import ApiError
from bot.local_chat.bot_api.world import TOKEN
from bot.local_chat.page.actions import PersonError
from tests.telegram.api import BotApi, Ending
from tests.telegram.control import Control
from tests.telegram.faults import Fault, Faults
from tests.telegram.limits import FloodLimits, Limits
from tests.telegram.objects import ADMINISTRATOR, LEFT
from tests.telegram.testing import Trial


def refused(act):
    with pytest.raises(ApiError) as refusal:
        act()
    return refusal.value.code, refusal.value.description


def answer(api, token, method, **params):
    reply = asyncio.run(api.call(token, method, params))
    return reply.status, json.loads(reply.body).get("description")


CALLS = {
    "right": (TOKEN, "getMe", 200, None),
    "in any case": (TOKEN, "GETme", 200, None),
    "no token": ("", "getMe", 404, "Not Found"),
    "malformed": ("abc", "getMe", 404, "Not Found"),
    "wrong": ("4242:wrong", "getMe", 401, "Unauthorized"),
    "unknown method": (TOKEN, "getYou", 404, "Not Found: method not found"),
}


@pytest.mark.parametrize("case", CALLS)
def test_tokens_and_methods(case):
    token, method, status, description = CALLS[case]
    api = BotApi()
    assert answer(api, token, method) == (status, description)
    assert len(api.world.refusals) == (status != 200)


def test_the_bot_knows_itself():
    me = Trial().ask("getMe")
    assert (me["id"], me["is_bot"], me["username"], me["can_join_groups"]) == (4242, True, "nightshift_bot", True)


def test_after_log_out_nothing_is_answered():
    trial = Trial()
    assert trial.ask("close") is True
    assert trial.ask("logOut") is True
    assert refused(lambda: trial.ask("getMe")) == (400, "Logged out")


def commands(*names, description="does it"):
    return [{"command": name, "description": description} for name in names]


def test_commands_by_scope():
    trial = Trial()
    group = trial.world.add_group(members=[trial.ada])
    chat = {"type": "chat", "chat_id": trial.ada.id}
    scopes = [None, {"type": "all_group_chats"}, chat, {"type": "chat_member", "chat_id": group.id, "user_id": 1001}]
    for number, scope in enumerate(scopes):
        assert trial.ask("setMyCommands", commands=commands(f"c{number}"), scope=scope) is True
        assert trial.ask("getMyCommands", scope=scope) == commands(f"c{number}")
    assert trial.ask("getMyCommands", language_code="de") == []
    menu = trial.world.menu
    assert menu.shown(trial.chat, 1001) == commands("c2")
    assert menu.shown(group, 1001) == commands("c3")
    assert menu.shown(group, 5) == commands("c1")
    assert trial.ask("deleteMyCommands", scope=chat) is True
    assert menu.shown(trial.chat, 1001) == commands("c0")
    told = trial.world.events.after(kind="commands")
    assert told[2].data == {"scope": chat, "commands": commands("c2")}
    trial.ask("setMyCommands", commands=commands("admin"), scope={"type": "all_chat_administrators"})
    trial.ask("deleteMyCommands", scope=scopes[3])
    assert menu.shown(group, 1001) == commands("admin")


COMMANDS = {
    "a hundred": (commands(*(f"c{n}" for n in range(100))), None),
    "with slash": (commands("/status"), None),
    "one more": (commands(*(f"c{n}" for n in range(101))), "BOT_COMMANDS_TOO_MUCH"),
    "capitals": (commands("Status"), "BOT_COMMAND_INVALID"),
    "dash": (commands("a-b"), "BOT_COMMAND_INVALID"),
    "empty": (commands("/"), "command must be non-empty"),
    "32": (commands("x" * 32), None),
    "33": (commands("x" * 33), "command length must not exceed 32"),
    "256": (commands("a", description="x" * 256), None),
    "257": (commands("a", description="x" * 257), "command description length must not exceed 256"),
    "no description": (commands("a", description=" "), "command description must be non-empty"),
    "missing": ([{"command": "a"}], "can't parse BotCommand: Can't find field \"description\""),
    "no list": ({}, "expected an Array of BotCommand"),
    "no JSON": ("[", "can't parse commands JSON object"),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_commands(case):
    given, complaint = COMMANDS[case]
    trial = Trial()
    if complaint is None:
        assert trial.ask("setMyCommands", commands=given) is True
        assert len(trial.ask("getMyCommands")) == len(given)
    else:
        assert refused(lambda: trial.ask("setMyCommands", commands=given)) == (400, f"Bad Request: {complaint}")
        assert trial.ask("getMyCommands") == []


SCOPES = {
    "unknown": ({"type": "x"}, "can't parse BotCommandScope: Unsupported type specified"),
    "no type": ({}, "can't parse BotCommandScope: Can't find field \"type\""),
    "no chat": ({"type": "chat"}, "can't parse BotCommandScope: Can't find field \"chat_id\""),
    "no user": ({"type": "chat_member", "chat_id": 1001}, "can't parse BotCommandScope: Can't find field \"user_id\""),
    "nobody": ({"type": "chat", "chat_id": 5}, "chat not found"),
    "empty chat": ({"type": "chat", "chat_id": ""}, "can't parse BotCommandScope: Empty chat_id specified"),
    "no object": ([], "can't parse BotCommandScope: BotCommandScope must be an Object"),
}


@pytest.mark.parametrize("case", SCOPES)
def test_scopes_refused(case):
    scope, complaint = SCOPES[case]
    trial = Trial()
    told = refused(lambda: trial.ask("setMyCommands", commands=commands("a"), scope=scope))
    assert told == (400, f"Bad Request: {complaint}")


def test_a_scope_needs_a_chat_that_was_started():
    trial = Trial()
    scope = {"type": "chat", "chat_id": trial.world.add_user("Bo").id}
    told = refused(lambda: trial.ask("setMyCommands", commands=[], scope=scope))
    assert told == (400, "Bad Request: chat not found")


def test_languages_are_two_letters():
    trial = Trial()
    told = refused(lambda: trial.ask("setMyCommands", commands=[], language_code="ENG"))
    assert told == (400, "Bad Request: invalid language code specified")


def test_chats_and_members():
    trial = Trial()
    bo = trial.world.add_user("Bo")
    group = trial.world.add_group("Lab", members=[trial.ada], bot_status=ADMINISTRATOR)

    def status(chat_id, user_id):
        return trial.ask("getChatMember", chat_id=chat_id, user_id=user_id)["status"]

    assert trial.ask("getChat", chat_id=group.id)["title"] == "Lab"
    extra = {1001: {"is_anonymous"}, bo.id: set()}
    for user_id, names in extra.items():
        member = trial.ask("getChatMember", chat_id=group.id, user_id=user_id)
        assert set(member) == {"user", "status"} | names
    assert trial.ask("getChatMember", chat_id=group.id, user_id=trial.world.bot.id)["can_manage_chat"] is True
    assert status(group.id, trial.ada.id) == "creator"
    assert status(group.id, bo.id) == "left"
    assert status(group.id, trial.world.bot.id) == "administrator"
    assert status(trial.ada.id, trial.ada.id) == "member"
    assert refused(lambda: status(trial.ada.id, bo.id)) == (400, "Bad Request: member not found")
    assert refused(lambda: status(group.id, 5)) == (400, "Bad Request: PARTICIPANT_ID_INVALID")
    assert refused(lambda: status(group.id, 0)) == (400, "Bad Request: invalid user_id specified")
    assert refused(lambda: trial.ask("getChat", chat_id=bo.id)) == (400, "Bad Request: chat not found")


def test_leaving():
    trial = Trial()
    group = trial.world.add_group(members=[trial.ada])
    assert trial.ask("leaveChat", chat_id=group.id) is True
    assert (group.bot_status, trial.world.events.after()[-1].kind) == (LEFT, "left_chat")
    assert refused(lambda: trial.ask("leaveChat", chat_id=group.id)) == (
        403,
        "Forbidden: bot is not a member of the group chat",
    )
    assert refused(lambda: trial.ask("leaveChat", chat_id=trial.ada.id))[0] == 400


def test_actions():
    trial = Trial()
    assert trial.ask("sendChatAction", chat_id=trial.ada.id, action="upload_document") is True
    assert trial.world.events.after()[-1].data == {"action": "upload_document"}
    assert refused(lambda: trial.ask("sendChatAction", chat_id=trial.ada.id, action="dance")) == (
        400,
        "Bad Request: wrong parameter action in request",
    )


def retry_after(act):
    with pytest.raises(ApiError) as refusal:
        act()
    assert refusal.value.code == 429
    seconds = refusal.value.parameters["retry_after"]
    assert refusal.value.description == f"Too Many Requests: retry after {seconds}"
    return seconds


def test_flood_in_a_private_chat():
    trial = Trial(flood=FloodLimits(chat_burst=3))
    sent = [trial.send(str(number)) for number in range(3)]
    assert retry_after(trial.send) == 1
    changed = {"chat_id": trial.ada.id, "message_id": sent[0]["message_id"], "text": "x"}
    assert retry_after(lambda: trial.ask("editMessageText", **changed)) == 1
    bo = trial.world.add_user("Bo")
    trial.people.start(bo)
    assert trial.send(chat_id=bo.id)
    trial.clock.advance(1)
    assert trial.send("again")
    assert retry_after(trial.send) == 1
    assert [refusal.code for refusal in trial.world.refusals] == [429] * 3


def test_flood_in_a_group_and_overall():
    trial = Trial(flood=FloodLimits(chat_per_s=100, chat_burst=100))
    group = trial.world.add_group(members=[trial.ada])
    for number in range(20):
        trial.send(str(number), chat_id=group.id)
    assert retry_after(lambda: trial.send(chat_id=group.id)) == 3
    for number in range(10):
        trial.send(str(number))
    assert retry_after(trial.send) == 1
    trial.clock.advance(3)
    assert trial.send(chat_id=group.id)
    trial.world.flood.set_limits(None)
    for number in range(50):
        trial.send(str(number), chat_id=group.id)


def test_a_refused_message_costs_nothing():
    trial = Trial(flood=FloodLimits(chat_burst=1))
    for _ in range(5):
        refused(lambda: trial.send("<b>", parse_mode="HTML"))
    assert trial.send()


FAULTS = {
    Fault.TOO_MANY_REQUESTS: (429, Ending.WHOLE, 0),
    Fault.SERVER_ERROR: (500, Ending.WHOLE, 0),
    Fault.BAD_GATEWAY: (502, Ending.WHOLE, 0),
    Fault.HANG_BEFORE: (200, Ending.HANG, 0),
    Fault.HANG_AFTER: (200, Ending.HANG, 1),
    Fault.CUT: (200, Ending.CUT, 1),
    Fault.REFUSED: (200, Ending.RESET, 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault):
    status, ending, done = FAULTS[fault]
    trial = Trial()
    trial.api.faults.script(None, fault, methods=["sendmessage"])
    trial.api.faults.retry_after_s = 7
    trial.send()
    before = len(trial.chat.messages)
    params = {"chat_id": str(trial.ada.id), "text": "x"}
    reply = asyncio.run(trial.api.call(TOKEN, "sendMessage", params))
    assert (reply.status, reply.ending, len(trial.chat.messages) - before) == (status, ending, done)
    assert reply.headers.get("Retry-After") == ("7" if status == 429 else None)
    assert trial.api.faults.applied == {("sendMessage", fault): 1}
    assert trial.api.faults.calls["sendMessage"] == 2
    assert not trial.world.refusals
    assert trial.send()["text"] == "hello"


def test_downloads_fail_too():
    trial = Trial()
    stored = trial.people.send_document(trial.ada, None, "a", b"x").document
    assert stored is not None
    trial.api.faults.script("cut", "500", methods=["download"])

    def download(token=TOKEN, path=stored.path):
        reply = asyncio.run(trial.api.download(token, path))
        return reply.status, reply.ending

    assert download() == (200, Ending.CUT)
    assert download() == (500, Ending.WHOLE)
    assert download() == (200, Ending.WHOLE)
    assert download(path="documents/other")[0] == 404
    for size, status in ((50, 200), (51, 404)):
        small = Trial(limits=Limits(download_bytes=50))
        small.people.send_document(small.ada, None, "a", b"x" * size)
        assert asyncio.run(small.api.download(TOKEN, "documents/file_1")).status == status
    assert download(token="4242:wrong")[0] == 404


def test_chance_is_repeatable_and_near_its_number():
    def run(seed):
        faults = Faults(seed)
        faults.chance(0.2, "500", "cut", methods=["sendMessage"])
        return [faults.next("sendMessage") for _ in range(1000)], [faults.next("getMe") for _ in range(100)]

    first, others = run(1)
    assert (first, others) == run(1)
    assert first != run(2)[0]
    assert 150 < sum(fault is not None for fault in first) < 250
    assert set(first) == {None, Fault.SERVER_ERROR, Fault.CUT}
    assert set(others) == {None}


def test_an_outage_lasts_until_it_is_over():
    faults = Faults()
    faults.chance(1.0)
    faults.outage = True
    assert [faults.next("getUpdates"), faults.next("getMe")] == [Fault.REFUSED] * 2
    faults.outage = False
    assert {faults.next("getMe") for _ in range(200)} == set(Fault)
    faults.clear()
    assert faults.next("getMe") is None


def control(trial, verb, **args):
    return asyncio.run(Control(trial.api, trial.clock).do(verb, args))


def test_control_reaches_people_and_records():
    trial = Trial()
    bo = control(trial, "add_user", first_name="Bo")["id"]
    group = control(trial, "add_group", title="Lab", members=[bo])["id"]
    channel = control(trial, "add_channel", title="News")["id"]
    assert (trial.world.chats[group].members[bo], trial.world.chats[channel].type) == ("creator", "channel")
    sent = control(trial, "send_text", user=bo, chat=None, text="/start")
    assert control(trial, "messages", chat=bo) == [sent]
    tap = control(trial, "tap", user=bo, chat=None, message_id=1, data="x")
    assert control(trial, "pending")[1]["callback_query"]["id"] == tap["id"]
    control(trial, "send_document", user=bo, chat=None, name="a", data="eA==")
    assert trial.world.chats[bo].messages[2].document.data == b"x"
    trial.ask("setMyCommands", commands=commands("a"))
    assert control(trial, "menu", chat=bo, user=bo) == commands("a")
    refused(lambda: trial.ask("sendMessage", chat_id=5, text="x"))
    wanted = {"method": "sendMessage", "params": {"chat_id": "5", "text": "x"}, "code": 400}
    assert control(trial, "refusals") == [wanted | {"description": "Bad Request: chat not found"}]
    control(trial, "migrate", chat=group)
    assert trial.world.chats[group].migrated_to is not None


def test_control_of_faults_floods_and_time():
    trial = Trial()
    control(trial, "script", faults=["500"], methods=["getMe"])
    assert refused(lambda: trial.ask("getMe"))[0] == 500
    control(trial, "script", faults=["502"])
    assert trial.api.faults.next("anything") is Fault.BAD_GATEWAY
    control(trial, "chance", probability=1.0, faults=["429"])
    assert refused(lambda: trial.ask("getMe"))[0] == 429
    told = control(trial, "calls")
    assert told["calls"] == {"getMe": 2, "anything": 1}
    assert told["faults"] == {"getMe 500": 1, "anything 502": 1, "getMe 429": 1}
    control(trial, "outage", on=True)
    assert trial.api.faults.next("getMe") is Fault.REFUSED
    control(trial, "clear_faults")
    control(trial, "flood", chat_burst=1)
    trial.send()
    retry_after(trial.send)
    control(trial, "advance", seconds=1)
    trial.send()
    control(trial, "flood")
    trial.send()
    with pytest.raises(PersonError, match="cannot be put forward"):
        asyncio.run(Control(trial.api).do("advance", {"seconds": 1}))


def test_control_waits_for_events():
    trial = Trial()
    there = Control(trial.api)

    async def scene():
        number = (await asyncio.wait_for(there.do("events", {"wait_s": 50}), 20))[-1]["number"]
        assert await there.do("events", {"after": number, "wait_s": 0.01}) == []
        waiting = asyncio.create_task(there.do("events", {"after": number, "wait_s": 50}))
        await asyncio.sleep(0)
        trial.people.send_text(trial.ada, None, "x")
        return await asyncio.wait_for(waiting, 20)

    events = asyncio.run(scene())
    assert [(event["kind"], event["by_bot"], event["data"]["text"]) for event in events] == [("message", False, "x")]


VERBS = {
    "unknown": ("nonsense", {}, "no such verb: nonsense"),
    "not for outside": ("place", {}, "no such verb: place"),
    "arguments": ("start", {"x": 1}, "unexpected keyword argument 'x'"),
    "nobody": ("start", {"user": 5}, "nobody has the id 5"),
}


@pytest.mark.parametrize("case", VERBS)
def test_control_refuses(case):
    verb, args, complaint = VERBS[case]
    with pytest.raises(PersonError, match=complaint):
        control(Trial(), verb, **args)
