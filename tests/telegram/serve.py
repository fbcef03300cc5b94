"""A world of its own behind HTTP, as a process: prints one JSON line (url, token, control), ends when stdin does."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import threading

from bot.local_chat.bot_api.world import TOKEN
from tests.telegram.api import BotApi
from tests.telegram.clock import Clock
from tests.telegram.control import Control
from tests.telegram.http import HttpServer
from tests.telegram.world import World


async def serve(port: int, token: str) -> None:
    """Serve a fresh world until stdin ends or somebody stops the process."""
    clock = Clock()
    api = BotApi(World(token=token, clock=clock))
    async with HttpServer(api, port=port, control=Control(api, clock)) as server:
        print(json.dumps({"url": server.url, "token": token, "control": server.control_url}), flush=True)
        await _end()


async def _end() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)

    def wait_for_stdin() -> None:
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait_for_stdin, daemon=True).start()
    await ended.wait()


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default=TOKEN)
    options = parser.parse_args()
    asyncio.run(serve(options.port, options.token))


if __name__ == "__main__":
    main()
