import asyncio
import contextlib
import gc
import io
import logging
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import httpx
import pytest
import telegram

from bot.secrets import quiet_log

NUMBER, REST = "123456789", "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1"
TOKEN = f"{NUMBER}:{REST}"
QUOTED = f"{NUMBER}%3A{REST}"
URL = f"https://api.telegram.org/bot{TOKEN}/getMe"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the log holds, with quiet_log in place; all is put back afterwards."""
    root = logging.getLogger()
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook, logging.raiseExceptions, warnings.showwarning
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in quiet_log.TALKATIVE}
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter(quiet_log.FORMAT))
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG)
    quiet_log.install(TOKEN)
    yield text
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    sys.excepthook, threading.excepthook, sys.unraisablehook, logging.raiseExceptions, warnings.showwarning = hooks
    if logging.lastResort:
        logging.lastResort.filters.clear()


def clean(written: io.StringIO) -> str:
    text = written.getvalue()
    assert text
    assert REST not in text
    assert "[redacted]" in text
    return text


def ask_with_httpx() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json={}))
    with httpx.Client(transport=transport) as client:
        client.get(URL)


def test_httpx_is_quiet(written: io.StringIO) -> None:
    ask_with_httpx()
    assert written.getvalue() == ""
    assert all(logging.getLogger(name).getEffectiveLevel() >= logging.WARNING for name in quiet_log.TALKATIVE)


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_httpx_made_to_talk_tells_nothing(written: io.StringIO, level: int) -> None:
    for name in quiet_log.TALKATIVE:
        logging.getLogger(name).setLevel(level)
    ask_with_httpx()
    assert "HTTP Request: GET https://api.telegram.org/bot[redacted]/getMe" in clean(written)


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL])
@pytest.mark.parametrize(
    ("message", "args"),
    [
        ("%r", (telegram.Bot(TOKEN),)),
        ("%s", (telegram.error.InvalidToken(f"The token `{TOKEN}` was rejected by the server."),)),
        (f"at {URL}", ()),
        ("%s and %s", (TOKEN, QUOTED)),
        ("%(token)s", ({"token": TOKEN},)),
        (f"too many %s %s {TOKEN}", ("one",)),
        ("too few", (TOKEN,)),
        (telegram.error.InvalidToken(TOKEN), ()),
        ("%s", (TOKEN.encode(),)),
    ],
)
def test_no_message_shows_it(written: io.StringIO, level: int, message: object, args: tuple[object, ...]) -> None:
    logging.getLogger("telegram.ext.deep.child").setLevel(logging.DEBUG)
    logging.getLogger("telegram.ext.deep.child").log(level, message, *args)
    clean(written)


def raise_with_cause() -> None:
    try:
        try:
            raise OSError(f"no route to {URL}")
        except OSError as error:
            raise telegram.error.InvalidToken(f"The token `{TOKEN}` was rejected") from error
    except telegram.error.InvalidToken as error:
        raise RuntimeError(f"while asking {QUOTED}") from error


def test_no_traceback_shows_it(written: io.StringIO) -> None:
    try:
        raise_with_cause()
    except RuntimeError:
        logging.getLogger("x").exception("asking failed", stack_info=True)
    text = clean(written)
    assert text.count("[redacted]") == 3
    assert "direct cause" in text
    assert "Stack (most recent call last)" in text


def test_a_formatter_of_its_own_has_nothing_to_tell(written: io.StringIO) -> None:
    seen: list[logging.LogRecord] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    logging.getLogger().addHandler(Keeping())
    quiet_log.install(TOKEN)
    try:
        raise_with_cause()
    except RuntimeError:
        logging.getLogger("x").exception("asking %s failed", TOKEN)
    assert REST not in repr(seen[0].__dict__)


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError(TOKEN)

    __repr__ = __str__


def test_an_object_that_cannot_be_shown_does_not_break_the_log(written: io.StringIO) -> None:
    logging.getLogger("x").error("%s", Hostile())
    assert "cannot be shown" in written.getvalue()
    assert REST not in written.getvalue()


def test_uncaught(written: io.StringIO) -> None:
    try:
        raise_with_cause()
    except RuntimeError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    assert "RuntimeError" in clean(written)


def test_uncaught_in_a_thread(written: io.StringIO) -> None:
    thread = threading.Thread(target=raise_with_cause, name=f"asks {TOKEN}")
    thread.start()
    thread.join()
    assert "RuntimeError" in clean(written)


def test_unraisable(written: io.StringIO) -> None:
    class Dying:
        def __repr__(self) -> str:
            return f"<Dying {TOKEN}>"

        def __del__(self) -> None:
            raise_with_cause()

    dying = Dying()
    del dying
    gc.collect()
    assert "RuntimeError" in clean(written)


def test_asyncio(written: io.StringIO) -> None:
    async def fail() -> None:
        raise_with_cause()

    async def main() -> None:
        task = asyncio.create_task(fail(), name=f"asks {TOKEN}")
        await asyncio.sleep(0)
        del task
        gc.collect()
        asyncio.get_running_loop().call_soon(raise_with_cause)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main(), debug=True)
    text = clean(written)
    assert "never retrieved" in text
    assert "Exception in callback" in text


def test_warnings_are_logged(written: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn(f"old way to pass {TOKEN}", stacklevel=1)
    assert "old way to pass" in clean(written)


def test_installing_twice_is_the_same_as_once(written: io.StringIO) -> None:
    quiet_log.install(TOKEN)
    quiet_log.install("")
    for handler in logging.getLogger().handlers:
        assert len(handler.filters) == 1
    logging.getLogger("x").error("%s", TOKEN)
    clean(written)


SCRIPT = """
import sys
from bot.secrets import quiet_log
quiet_log.install({token!r})
raise RuntimeError("asking https://api.telegram.org/bot" + {token!r}) from OSError({quoted!r})
"""


def test_a_process_that_dies_does_not_tell_it_either() -> None:
    script = SCRIPT.format(token=TOKEN, quoted=QUOTED)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert REST not in done.stderr + done.stdout
    assert done.stderr.count("[redacted]") == 2
    assert " CRITICAL bot.secrets.quiet_log: " in done.stderr


def test_an_interrupt_is_told_in_one_line(written: io.StringIO) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert written.getvalue().count("\n") == 1
