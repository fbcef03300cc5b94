"""A world in a process of its own, driven from a test: `with WorldProcess() as world: world.do("add_user")`."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

from bot.local_chat.page.actions import PersonError


class WorldProcess:
    """Starts `python -m tests.telegram.serve` and uses its control channel. The process ends with this object."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.token = ""
        self.control_url = ""
        self.pid = 0

    def __enter__(self) -> WorldProcess:
        command = [sys.executable, "-m", "tests.telegram.serve", *self._arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        address = json.loads(self._process.stdout.readline())
        self.url, self.token, self.control_url = address["url"], address["token"], address["control"]
        return self

    def __exit__(self, *_exception: object) -> None:
        assert self._process is not None
        self._process.communicate(timeout=10)

    def do(self, verb: str, **args: Any) -> Any:
        """Call one verb of the control channel. Raise PersonError if it is refused."""
        body = json.dumps(args).encode()
        request = urllib.request.Request(f"{self.control_url}/{verb}", data=body)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as response:
                return json.load(response)["result"]
        except urllib.error.HTTPError as error:
            with error:
                raise PersonError(error.read().decode()) from None
