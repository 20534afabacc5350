"""Publishing to a running server: XADD over its RESP door, many at once, while others publish, too.

Each entry has one field more, ``lamina.origin``: the publication, and the number of the entry in it. By that an attempt
finds what one before it has published. An attempt that broke off may have left commands on their way: its connection
goes by the name of the query's place and is closed before anything is looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from lamina.client.endpoint import Endpoint
from lamina.client.lines import hold
from lamina.client.resp import RespClient
from lamina.client.talking import Reply, Word
from lamina.client.topic_reading import RemotePages
from lamina.client.topic_talks import stats
from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import Message
from lamina.errors import Gap, LaminaError, StorageError
from lamina.pipeline.sinking.publications import Chunk, Seen
from lamina.pipeline.sinking.publishing import Numbered
from lamina.pipeline.sinking.sink_parts import mark_of
from lamina.units import MIB

ORIGIN: Final = b"lamina.origin"
_AT_ONCE: Final = 1000
_BYTES_AT_ONCE: Final = MIB
_SYNC_MS: Final = 30_000


class ServerOutlet:
    """The topics of a server. Threads: one at a time."""

    def __init__(self, server: RespClient, place: str) -> None:
        """``place``: where it is known what was published; who publishes from there does so alone."""
        self._server = server
        self._name = f"lamina-publish-{mark_of(place)}".encode()
        self._server.ask("CLIENT", "SETNAME", self._name)

    def look(self, topics: Iterable[bytes]) -> dict[bytes, Seen]:
        found = {}
        for name in topics:
            now = hold(stats(name), self._server)
            last = ids.FIRST if now.last_id is None else ids.parse(now.last_id.encode())
            found[name] = Seen(last, now.added, now.length)
        return found

    def find(self, entries: Numbered, chunk: Chunk, staged: str) -> set[int]:
        self._close_others()
        wanted: dict[bytes, dict[bytes, int]] = {}
        for number, (name, _, _) in entries:
            wanted.setdefault(name, {})[origin(staged, number)] = number
        found = set[int]()
        for name, numbers in wanted.items():
            behind = ids.show(EntryId(chunk.seen[name].last + 1)).decode()
            for message in self._read(name, behind):
                number = numbers.pop(message.fields.get(ORIGIN, b""), -1)
                if number >= 0:
                    found.add(number)
                    if not numbers:
                        break
        return found

    def _read(self, name: bytes, since: str) -> Iterator[Message]:
        pages = RemotePages(name, since, None, None, reverse=False, count=None)
        while True:
            try:
                page = hold(pages.next(), self._server)
            except Gap:  # what retention has taken meanwhile cannot be found any more
                continue
            if not page:
                return
            yield from page

    def _close_others(self) -> None:
        """Connections of attempts before: what they sent and the server has not read yet must not come later."""
        me = self._server.ask("CLIENT", "ID")
        for line in self._server.ask("CLIENT", "LIST").splitlines():
            facts = dict(fact.split(b"=", 1) for fact in line.split() if b"=" in fact)
            if facts.get(b"name") == self._name and int(facts[b"id"]) != me:
                self._server.ask("CLIENT", "KILL", "ID", facts[b"id"])

    def add(self, entries: Numbered, chunk: Chunk, staged: str) -> None:
        commands: list[list[Word]] = []
        size = 0
        for number, (name, _, flat) in entries:
            commands.append(["XADD", name, "*", *flat, ORIGIN, origin(staged, number)])
            size += sum(map(len, flat))
            if len(commands) >= _AT_ONCE or size >= _BYTES_AT_ONCE:
                self._ask_all(commands)
                commands, size = [], 0
        self._ask_all(commands)
        synced, _ = self._server.ask("WAITAOF", 1, 0, _SYNC_MS, wait=_SYNC_MS / 1000)
        if synced != 1:
            hint = "its disk is slow; the next attempt goes on from here"
            raise StorageError(f"{self._server}: what was published is not safe against a power cut yet", hint=hint)

    def _ask_all(self, commands: Sequence[Sequence[Word]]) -> list[Reply]:
        """Raises: the first refusal."""
        replies = self._server.ask_all(commands)
        for reply in replies:
            if isinstance(reply, LaminaError):
                raise reply
        return replies


class _Attempt(RespClient):
    """Is not renewed by itself: who was hung up on is over, and another connection would not have the name."""

    def _was_hung_up(self) -> bool:
        return False


def origin(staged: str, number: int) -> bytes:
    """What tells an entry from all others."""
    return f"{staged.rpartition('-')[2]}-{number}".encode()


@contextmanager
def opened(address: tuple[str, int], password: str | None, place: str) -> Iterator[ServerOutlet]:
    """Raises: Disconnected, WireError."""
    host, port = address
    with _Attempt(endpoint=Endpoint(host, port, token=password, retry_s=0)) as server:
        yield ServerOutlet(server, place)
