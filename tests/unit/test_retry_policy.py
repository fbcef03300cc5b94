"""What becomes of a message after each way a call can fail."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import httpx
import pytest
from telegram import error
from telegram.request import BaseRequest

from bot.local_chat.bot_api.methods import ApiError
from bot.outbound import retry_policy
from bot.outbound.retry_policy import Then, after_failure, pause_s
from tests.telegram.api import GATEWAY_PAGE, error_reply
from tests.telegram.api_errors import bad_request, conflict, forbidden, migrated, too_many_requests


@pytest.fixture(autouse=True)
def as_in_the_bot(monkeypatch):
    monkeypatch.setenv("PTB_TIMEDELTA", "true")  # bot.outbound.telegram_client does


def raised_by_ptb(status: int, body: bytes) -> error.TelegramError:
    """What python-telegram-bot makes of an answer."""

    class Canned(BaseRequest):
        read_timeout = 5.0

        async def initialize(self):
            pass

        async def shutdown(self):
            pass

        async def do_request(self, *args, **kwargs):
            return status, body

    with pytest.raises(error.TelegramError) as caught:
        asyncio.run(Canned().post("http://local/bot1:x/sendMessage"))
    return caught.value


def raised_by_httpx(problem: httpx.HTTPError) -> error.TelegramError:
    """What python-telegram-bot's own transport makes of a connection that fails."""
    if isinstance(problem, httpx.PoolTimeout):
        found = error.TimedOut("Pool timeout: All connections are occupied. Request was *not* sent to Telegram.")
    elif isinstance(problem, httpx.TimeoutException):
        found = error.TimedOut()
    else:
        found = error.NetworkError(f"httpx.{type(problem).__name__}: {problem}")
    found.__cause__ = problem
    return found


ANSWERS = [
    (too_many_requests(7), Then.WAIT),
    (ApiError(429, "Too Many Requests: retry later"), Then.AGAIN),
    (ApiError(500, "Internal Server Error"), Then.AGAIN),
    (ApiError(503, "Service Unavailable"), Then.AGAIN),
    (ApiError(504, "Gateway Timeout"), Then.PERHAPS),
    (ApiError(413, "Request Entity Too Large"), Then.PARK),
    (ApiError(401, "Unauthorized"), Then.DOUBT),
    (ApiError(404, "Not Found"), Then.DOUBT),
    (conflict("terminated by other getUpdates request"), Then.AGAIN),
    (migrated(-1001), Then.MOVE),
    (forbidden("bot was blocked by the user"), Then.PARK),
    (forbidden("bot was kicked from the supergroup chat"), Then.PARK),
    (forbidden("user is deactivated"), Then.PARK),
    (bad_request("message is not modified: specified new message content …"), Then.DONE),
    (bad_request("query is too old and response timeout expired or query ID is invalid"), Then.DONE),
    (bad_request("message to edit not found"), Then.DONE),
    (bad_request("message can't be edited"), Then.DONE),
    (bad_request('can\'t parse entities: Unsupported start tag "q" at byte offset 0'), Then.PLAIN),
    (bad_request("message to be replied not found"), Then.LOOSE),
    (bad_request("message thread not found"), Then.LOOSE),
    (bad_request("TOPIC_CLOSED"), Then.LOOSE),
    (bad_request("chat not found"), Then.PARK),
    (bad_request("not enough rights to send text messages to the chat"), Then.PARK),
    (bad_request("CHAT_WRITE_FORBIDDEN"), Then.PARK),
    (bad_request("group chat was deactivated"), Then.PARK),
    (bad_request("need administrator rights in the channel chat"), Then.PARK),
    (bad_request("BUTTON_DATA_INVALID"), Then.BARE),
    (bad_request("message is too long"), Then.BARE),
    (bad_request("something new that nobody has heard of"), Then.BARE),
]


@pytest.mark.parametrize(("answer", "then"), ANSWERS, ids=[str(answer) for answer, _ in ANSWERS])
def test_every_refusal_has_its_reaction(answer, then):
    problem = raised_by_ptb(answer.code, error_reply(answer).body)
    verdict = after_failure(problem, 1)
    assert verdict.then is then
    assert (verdict.after_s > 0) == (then in {Then.AGAIN, Then.PERHAPS, Then.WAIT, Then.DOUBT})


@pytest.mark.parametrize(
    ("status", "body", "then"),
    [
        (502, GATEWAY_PAGE, Then.AGAIN),
        (520, b"<html>Cloudflare</html>", Then.PERHAPS),
        (413, b"<html>413 Request Entity Too Large</html>", Then.PARK),
    ],
)
def test_a_page_instead_of_json(status, body, then):
    assert after_failure(raised_by_ptb(status, body), 1).then is then


def test_an_answer_that_cannot_be_read_may_mean_done():
    assert after_failure(error.TelegramError("Invalid server response"), 1).then is Then.PERHAPS


@pytest.mark.parametrize(
    ("problem", "then"),
    [
        (httpx.ConnectError("All connection attempts failed"), Then.AGAIN),
        (httpx.ConnectError("[Errno -2] Name or service not known"), Then.AGAIN),
        (httpx.ProxyError("403 Forbidden"), Then.AGAIN),
        (httpx.ConnectTimeout(""), Then.AGAIN),
        (httpx.PoolTimeout(""), Then.AGAIN),
        (httpx.ReadTimeout(""), Then.PERHAPS),
        (httpx.WriteTimeout(""), Then.PERHAPS),
        (httpx.ReadError(""), Then.PERHAPS),
        (httpx.WriteError(""), Then.PERHAPS),
        (httpx.RemoteProtocolError("Server disconnected without sending a response."), Then.PERHAPS),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else one.name,
)
def test_connections_that_fail(problem, then):
    assert after_failure(raised_by_httpx(problem), 1).then is then


@pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")
@pytest.mark.parametrize("timedeltas", ["true", "false"])
def test_the_wait_asked_for_is_kept_in_both_of_its_forms(timedeltas, monkeypatch):
    monkeypatch.setenv("PTB_TIMEDELTA", timedeltas)
    whole = raised_by_ptb(429, json.dumps({"ok": False, "parameters": {"retry_after": 37}}).encode())
    assert after_failure(whole, 5).after_s == 37
    told = error.RetryAfter(timedelta(minutes=2))
    assert after_failure(told, 1).after_s == 120


def test_the_new_id_of_a_group_is_told():
    assert after_failure(error.ChatMigrated(-1005), 1).chat == -1005


def test_pauses_grow_to_a_limit_and_longer_where_each_try_may_be_a_copy():
    sure = [after_failure(error.NetworkError("httpx.ConnectError: x"), tries).after_s for tries in range(1, 12)]
    unsure = [after_failure(error.TimedOut(), tries).after_s for tries in range(1, 12)]
    assert sure == sorted(sure)
    assert sure[:3] == [1, 2, 4]
    assert sure[-1] == retry_policy.LONGEST_PAUSE_S
    assert unsure[-1] == retry_policy.LONGEST_UNSURE_S > sure[-1]
    assert pause_s(10**6) == retry_policy.LONGEST_PAUSE_S
    assert after_failure(error.TimedOut(), 0).after_s == 1


def test_what_people_are_told_is_telegrams_own_word():
    assert after_failure(error.Forbidden("Forbidden: bot was blocked by the user"), 1).why == (
        "unreachable: bot was blocked by the user"
    )


def test_what_is_no_failure_of_telegrams_is_not_judged():
    with pytest.raises(ZeroDivisionError):
        after_failure(ZeroDivisionError(), 1)


def test_every_exception_there_is_is_judged():
    made = {
        error.ChatMigrated: lambda: error.ChatMigrated(-1),
        error.RetryAfter: lambda: error.RetryAfter(1),
        error.InvalidToken: error.InvalidToken,
        error.TimedOut: error.TimedOut,
        error.PassportDecryptionError: lambda: error.PassportDecryptionError("x"),
    }
    kinds = [kind for kind in vars(error).values() if isinstance(kind, type) and issubclass(kind, error.TelegramError)]
    assert len(kinds) >= 10
    for kind in kinds:
        verdict = after_failure(made.get(kind, lambda kind=kind: kind("something"))(), 3)
        assert isinstance(verdict.then, Then)
