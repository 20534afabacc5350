"""Following a topic: what came since the last look, the newest of it where it is too much, and how much was left out.

Nothing is kept between two looks but a place: who follows for long, or looks seldom, costs no more memory.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import parse_id
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.errors import BadOption
from lamina.server.http.ops.topics_common import id_text
from lamina.server.http.ops.topics_entries import TopicEntry, preview_of
from lamina.server.http.ops.topics_reading import newest
from lamina.units import KIB

AT_ONCE: Final = 25
"""Messages of one look, at most."""
AT_FIRST: Final = 25
SINCE: Final = 200
"""Of the first look, where it was said since when."""
_BYTES: Final = 512 * KIB  # that are read for one look; at least one message is
_PREVIEW: Final = 256
_FIELDS: Final = 12
_CURSOR: Final = re.compile(r"(\d{1,20}-\d{1,20})@(\d{1,19})", re.ASCII).fullmatch


class Cursor(NamedTuple):
    """How far somebody has followed."""

    after: EntryId
    added: int
    """Messages that had ever been published then."""

    def __str__(self) -> str:
        return f"{id_text(self.after)}@{self.added}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Raises: BadOption, BadTopic."""
        found = _CURSOR(text)
        if found is None:
            raise BadOption(f"{text[:80]!r} is no place in a topic", hint="leave it out, or give the last one you got")
        return cls(parse_id(found[1]), int(found[2]))


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found."""

    rows: list[TopicEntry]
    """In order."""
    skipped: int | None
    """Messages that came and are not among them; none: some, nobody counted how many."""
    length: int
    """Messages that are there now."""
    added: int
    """Messages that were ever published."""
    is_anew: bool
    """There was another topic of that name before, or none."""
    cursor: str


class Follower:
    """Of one who follows. Blocks, while files are read. Threads: one at a time."""

    def __init__(self, topics: Topics, name: bytes, since: EntryId | None = None, cursor: Cursor | None = None) -> None:
        """``cursor``: goes on there. ``since``: the first look has what came from this id on; None: a few."""
        self._topics, self._name = topics, name
        self._topic: Topic | None = None
        self._since = since
        self._cursor = cursor

    def look(self) -> Batch | None:
        """What is new; None: nothing is. Raises: Corruption, DiskError, what kept messages out of the log."""
        topic = self._topics.get(self._name)
        if topic is None:
            return self._gone()
        is_another = self._topic is not None and topic is not self._topic
        self._topic = topic
        with topic.lock:
            last, added, length = topic.state.last_id, topic.state.added, topic.state.length
        if is_another or (self._cursor is not None and added < self._cursor.added):
            self._cursor = Cursor(ids.FIRST, 0)
            is_another = True
        before = self._cursor
        self._cursor = Cursor(last, added)
        if before is None:
            rows, skipped = self._first(topic, last)
        elif added > before.added:
            rows = self._read(topic, EntryId(before.after + 1), last, AT_ONCE)
            skipped = max(added - before.added - len(rows), 0)
        elif is_another:
            rows, skipped = [], 0
        else:
            return None
        return Batch(
            rows=rows, skipped=skipped, length=length, added=added, is_anew=is_another, cursor=str(self._cursor)
        )

    def _gone(self) -> Batch | None:
        """There is no such topic, or not any more: what is made under its name is followed from its beginning."""
        was_there, self._topic = self._topic is not None, None
        is_first, self._cursor = self._cursor is None, Cursor(ids.FIRST, 0)
        if not was_there and not is_first:
            return None
        return Batch(rows=[], skipped=0, length=0, added=0, is_anew=was_there, cursor=str(self._cursor))

    def _first(self, topic: Topic, last: EntryId) -> tuple[list[TopicEntry], int | None]:
        if self._since is None:
            return self._read(topic, ids.FIRST, last, AT_FIRST), 0
        rows = self._read(topic, self._since, last, SINCE + 1)
        return (rows[-SINCE:], None) if len(rows) > SINCE else (rows, 0)

    def _read(self, topic: Topic, start: EntryId, end: EntryId, most: int) -> list[TopicEntry]:
        records, position = newest(topic, start, end, most, _BYTES)
        topic.settle(position)
        return [preview_of(record, _PREVIEW, _FIELDS) for record in records]
