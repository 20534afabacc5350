"""Message files that the state of a queue does not name: which nobody needs, as the lines or their content prove.

A crash leaves one that was received or cleaned and not yet removed: an earlier line names it. Or one that was just
begun: what is in it is in the named files too, if it was made by cleaning; else it holds what nobody was promised yet.
A state that is older than its files, since queue.log was cut or brought back, looks the same: so nothing is removed
without proof.
"""

from __future__ import annotations

from typing import NamedTuple

from lamina.engines.queues.journal.extents import extents
from lamina.engines.queues.journal.home import Home
from lamina.engines.queues.journal.records import name_of
from lamina.engines.queues.journal.state_line import Parsed
from lamina.log.files import join
from lamina.log.naming import show_file_time
from lamina.log.scan import HEADER_SIZE


class Content(NamedTuple):
    """What a message file holds."""

    times: dict[bytes, int]
    """When each of its whole messages was written, by id."""
    is_readable: bool
    """There is nothing else in it."""

    @property
    def ids(self) -> frozenset[bytes]:
        return frozenset(self.times)

    @property
    def last_ns(self) -> int:
        return max(self.times.values(), default=0)

    def first_ns(self, besides: frozenset[bytes] = frozenset()) -> int:
        """Of those that are not ``besides``; 0 if there are none."""
        return min((time for id, time in self.times.items() if id not in besides), default=0)


class Unnamed:
    """Of one folder. Raises: OSError, DiskError."""

    def __init__(self, home: Home, folder: str, there: set[str]) -> None:
        self._home, self._folder, self._there = home, folder, there

    def sort_out(
        self, ids: set[str], named: set[str], lines: list[Parsed]
    ) -> tuple[dict[str, str], list[str], dict[str, Content]]:
        """Files that can go, with the proof in words; those with nothing new but torn bytes; and the others."""
        before = {id for line in lines for id in (line.state.read_file, line.state.write_file)}
        waiting = self.ids_in(named)
        gone: dict[str, str] = {}
        torn: list[str] = []
        rest: dict[str, Content] = {}
        for id in sorted(ids):
            if id in before:
                gone[id] = "all of it was received"
                continue
            content = self.content(id)
            if content.is_readable and content.ids <= waiting:
                gone[id] = "all that is in it is in another file"
            elif content.ids <= waiting:
                torn.append(id)
            else:
                rest[id] = content
        return gone, torn, rest

    def ids_in(self, files: set[str]) -> frozenset[bytes]:
        return frozenset[bytes]().union(*(self.content(id).ids for id in files & self._there))

    def content(self, id: str) -> Content:
        if id not in self._there:
            return Content({}, is_readable=True)
        file = self._home.files.open(join(self._folder, name_of(id)))
        try:
            held, size = extents(file), file.size()
            whole = [each for each in held if each.message is not None]
        finally:
            file.close()
        end = held[-1].end + HEADER_SIZE if held else HEADER_SIZE
        is_readable = len(whole) == len(held) and size <= end
        return Content({each.message.id: each.time_ns for each in whole if each.message is not None}, is_readable)

    def set_aside(self, id: str) -> str:
        """Give the file a name by which nobody takes it for one of the queue's. Returns the name."""
        taken, moment = set(self._home.files.list(self._folder)), self._home.clock.now_ns()
        while (kept := f"{name_of(id)}.torn-{show_file_time(moment)}") in taken:
            moment += 1
        self._home.files.rename(join(self._folder, name_of(id)), join(self._folder, kept))
        self._there.discard(id)
        return kept
