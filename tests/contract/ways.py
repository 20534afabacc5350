"""The ways in which a program has Lamina: in the process or behind a server, for threads or for coroutines.

Each gives an object with ``jobs``, ``topics``, ``topic(name)``, ``queues``, ``queue(id, key)`` and ``store``; in the
ways for coroutines they look like those for threads (blocking.py).
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import lamina
from contract.blocking import Blocking, LoopThread
from integration.workq_server import HOST, LAMINA, START_S, Server

WAYS = ("embedded", "embedded-aio", "remote", "remote-aio")


class AllDoors(Server):
    """``lamina serve`` with every door on a port that was free."""

    workq: int
    resp: int

    def __init__(self, folder: Path, *flags: object, workq: int = 0, resp: int = 0) -> None:
        super().__init__()
        words = ["serve", "--data", folder, "--workq", f"{HOST}:{workq}", "--resp", f"{HOST}:{resp}"]
        self._words = [str(LAMINA), *map(str, [*words, "--sync", "os", *flags])]

    def __enter__(self) -> AllDoors:
        self._said = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            preexec_fn=self._prepare,
            env={**os.environ, "LAMINA_HTTP_LISTEN": "off"},
        )
        try:
            said = self._wait_for_line()
            self.workq = self.port = _port("workq", said)
            self.resp = _port("resp", said)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_for_line(self) -> str:
        assert self._process.stdout is not None
        said, end = "", time.monotonic() + START_S
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._process.stdout], [], [], left)[0]:
                break
            more = os.read(self._process.stdout.fileno(), 4096).decode(errors="replace")
            said += more
            if "resp on" in said and "workq on" in said and said.endswith("\n"):
                return said
            if not more:
                break
        raise AssertionError(f"the server did not start: {said!r} {self.complaints()}")

    @property
    def url(self) -> str:
        return f"lamina://{HOST}:{self.resp}?workq={self.workq}"


def _port(door: str, said: str) -> int:
    found = re.search(rf"{door} on {re.escape(HOST)}:(\d+)", said)
    assert found is not None, said
    return int(found[1])


def connected(server: AllDoors) -> lamina.Remote:
    """What ``lamina.connect`` gives."""
    return lamina.connect(server.url)


class ForCoroutines:
    """The ``.aio`` twins of an object, blocking."""

    def __init__(self, lm: Any, thread: LoopThread) -> None:
        self._lm, self._thread = lm, thread

    @property
    def jobs(self) -> Any:
        return self._twin(self._lm.jobs)

    @property
    def topics(self) -> Any:
        return self._twin(self._lm.topics)

    def topic(self, *arguments: Any, **named: Any) -> Any:
        return self._twin(self._lm.topic(*arguments, **named))

    @property
    def queues(self) -> Any:
        return self._twin(self._lm.queues)

    def queue(self, *arguments: Any, **named: Any) -> Any:
        return self._twin(self._lm.queue(*arguments, **named))

    @property
    def store(self) -> Any:
        return self._twin(self._lm.store)

    def _twin(self, api: Any) -> Any:
        if not hasattr(api, "aio"):  # what has nothing to wait for has no twin
            return api
        return Blocking(self._thread.call(lambda: api.aio), self._thread)
