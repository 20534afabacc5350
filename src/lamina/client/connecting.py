"""A server, spoken to as if it were a folder: what ``lamina.connect`` gives.

    with lamina.connect("lamina://127.0.0.1") as lm:
        lm.topic("orders").publish({"item": "tea"})
        lm.jobs.add("mail", b"hello")

The names, arguments, results and errors are those of ``lamina.open``; one suite of tests holds both to it. One error is
more: ``Disconnected``, when the server is not there, or went away and nobody knows whether it did what was asked.
Nothing is sent before the first command, so a module may connect when it is imported.
"""

from __future__ import annotations

import os
import ssl
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar, overload
from urllib.parse import parse_qs, unquote, urlsplit

from lamina.client.endpoint import Endpoint
from lamina.client.lines import Lines
from lamina.client.lines_aio import AsyncLines
from lamina.errors import BadOption

if TYPE_CHECKING:
    from lamina.client.jobs import RemoteJobs
    from lamina.client.queues import RemoteQueue, RemoteQueues
    from lamina.client.remote_topics import RemoteTopic, RemoteTopics
    from lamina.client.store import RemoteStore
    from lamina.engines.queues.views import Key
    from lamina.engines.topics.typed import TypedTopic
    from lamina.tasks.book import TaskBook

T = TypeVar("T")

PLAIN, SAFE = "lamina", "laminas"
_RESP_PORT: Final = 6380
_WORKQ_PORT: Final = 9922
_LONGEST_S: Final = 86_400
_ENCODED: Final = "in a token write %2F for /, %3F for ?, %23 for #; or give it as token= or LAMINA_TOKEN"
_EXAMPLE: Final = "such as lamina://127.0.0.1:6380 or laminas://user:token@host"


class Remote:
    """A server. Threads: safe from any thread; ``.aio`` of each part is for coroutines of any loop."""

    def __init__(self, resp: Endpoint, workq: Endpoint) -> None:
        """Use ``lamina.connect``."""
        self._resp, self._workq = resp, workq
        self._lines, self._async_lines = Lines(resp), AsyncLines(resp)
        self._lock = threading.Lock()
        self._jobs: RemoteJobs | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._resp}>"

    @property
    def jobs(self) -> RemoteJobs:
        """The jobs, over the workq door."""
        if self._jobs is None:
            from lamina.client.jobs import RemoteJobs

            with self._lock:
                self._jobs = self._jobs or RemoteJobs(self._workq)
            if self._is_closed:
                self._jobs.close()
        return self._jobs

    @property
    def topics(self) -> RemoteTopics:
        """The topics, over the RESP door."""
        from lamina.client.remote_topics import RemoteTopics

        return RemoteTopics(self._lines, self._async_lines)

    @overload
    def topic(self, name: str) -> RemoteTopic: ...

    @overload
    def topic(self, name: str, kind: type[T]) -> TypedTopic[T]: ...

    def topic(self, name: str, kind: type[T] | None = None) -> RemoteTopic | TypedTopic[T]:
        """One topic; with a ``kind`` (a msgspec.Struct, a dataclass, a TypedDict) its messages are of that kind.

        Raises: BadName.
        """
        plain = self.topics.topic(name)
        if kind is None:
            return plain
        from lamina.engines.topics.typed import TypedTopic

        return TypedTopic(plain, kind)

    @property
    def queues(self) -> RemoteQueues:
        """The queues, over the RESP door."""
        from lamina.client.queues import RemoteQueues

        return RemoteQueues(self._lines, self._async_lines)

    def queue(self, id: str, key: Key | None = None) -> RemoteQueue:
        """One end of a queue."""
        return self.queues.queue(id, key)

    @property
    def store(self) -> RemoteStore:
        """The store, over the RESP door."""
        from lamina.client.store import RemoteStore

        return RemoteStore(self._lines, self._async_lines)

    @cached_property
    def task(self) -> TaskBook:
        """``@lm.task(...)`` turns a typed function into a job; ``lamina worker`` does them."""
        from lamina.tasks.book import TaskBook

        return TaskBook(lambda: self.jobs)

    @property
    def tasks(self) -> TaskBook:
        """All functions that were made tasks, by name."""
        return self.task

    def close(self) -> None:
        """Hang up. Who waits in another thread gets Disconnected."""
        self._is_closed = True
        self._lines.close()
        self._async_lines.close()
        if self._jobs is not None:
            self._jobs.close()

    async def aclose(self) -> None:
        """Hang up on the connections of the running loop, and wait until that is done; then as ``close``."""
        await self._async_lines.closed()
        if self._jobs is not None:
            await self._jobs.aio.closed()
        self.close()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    async def __aenter__(self) -> Remote:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.aclose()


def connect(
    url: str | None = None,
    *,
    user: str | None = None,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float = 30,
    retry_s: float = 10,
) -> Remote:
    """A server, by ``lamina://[USER:TOKEN@]HOST[:PORT][?workq=PORT]``; without a url by LAMINA_URL, or on this machine.

    ``laminas://`` is with TLS: the certificate has to be one that this machine trusts, or that ``tls`` does. PORT is
    that of the RESP door, ``workq`` that of jobs; Unix sockets are ``?resp=unix:PATH`` and ``?workq=unix:PATH``.
    ``token``, or LAMINA_TOKEN, keeps the token out of the url; without a user it is the password of the server.
    ``retry_s``: how long a command that may be repeated is tried again when the connection breaks.
    Raises: BadOption. Nothing is sent yet.
    """
    url = url or os.environ.get("LAMINA_URL") or f"{PLAIN}://127.0.0.1"
    otherwise = os.environ.get("LAMINA_TOKEN")
    return Remote(*doors(url, user=user, token=token, otherwise=otherwise, tls=tls, timeout=timeout, retry_s=retry_s))


def doors(
    url: str,
    *,
    user: str | None,
    token: str | None,
    otherwise: str | None,
    tls: ssl.SSLContext | None,
    timeout: float,
    retry_s: float,
) -> tuple[Endpoint, Endpoint]:
    """The RESP door and the workq door of that server; ``otherwise`` is the token if no other is given.

    Raises: BadOption.
    """
    try:
        parts = urlsplit(url)
        port = _RESP_PORT if parts.port is None else parts.port
    except ValueError:  # it says more than this: perhaps the token
        raise BadOption("that is no address of a server", hint=f"{_EXAMPLE}; {_ENCODED}") from None
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":  # the token was cut in two
        raise BadOption("that is no address of a server", hint=_ENCODED)
    shown = f"{parts.scheme}://{parts.hostname or ''}"  # never the token
    if not 0 < timeout <= _LONGEST_S or not retry_s >= 0:
        hint = f"timeout: more than 0, and {_LONGEST_S} at most; retry_s: 0 or more"
        raise BadOption(f"{shown}: a timeout of {timeout!r} s, tries for {retry_s!r} s: that cannot be", hint=hint)
    try:
        asked = {name: values[-1] for name, values in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()}
    except ValueError as error:
        raise BadOption(f"{shown} is no address of a server: {error}", hint=_EXAMPLE) from None
    if parts.scheme not in (PLAIN, SAFE) or not parts.hostname or parts.path not in ("", "/"):
        raise BadOption(f"{shown} is no address of a server", hint=_EXAMPLE)
    if unknown := asked.keys() - {"resp", "workq"}:
        raise BadOption(f"{shown}: {min(unknown)!r} means nothing in the address of a server", hint="resp or workq")
    if parts.scheme == SAFE and tls is None:
        tls = ssl.create_default_context()
    resp = Endpoint(
        parts.hostname,
        port,
        user=user or (unquote(parts.username) if parts.username else None),
        token=token or (unquote(parts.password) if parts.password else None) or otherwise,
        tls=tls,
        timeout=timeout,
        retry_s=retry_s,
    )
    try:
        return resp.at(asked.get("resp", port)), resp.at(asked.get("workq", _WORKQ_PORT))
    except ValueError:
        raise BadOption(f"{shown}: a port is a number, or unix:PATH", hint=_EXAMPLE) from None
