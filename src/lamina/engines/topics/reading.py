"""Messages of a range, page by page: how much is read never decides how much memory it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import Message
from lamina.engines.topics.topic import Entry, Topic
from lamina.errors import BadTopic, Gap, LaminaError

PAGE: Final = 1000


class Range:
    """What was asked for."""

    def __init__(
        self,
        start: EntryId = ids.FIRST,
        end: EntryId = ids.LAST,
        *,
        last: int | None = None,
        count: int | None = None,
        newest_first: bool = False,
    ) -> None:
        for what, number in (("last", last), ("count", count)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
                raise BadTopic(f"{what} of {number!r} cannot be", hint="0 or more")
        if last is not None and count is not None:
            raise BadTopic("give last or count, not both")
        self.start, self.end, self.newest_first = start, end, newest_first
        self.last = None if newest_first else last
        self.left = last if newest_first and last is not None else count

    def place(self) -> tuple[EntryId, EntryId, int | None]:
        return self.start, self.end, self.left


class Pages:
    """What there was of a range when reading began. Blocks while it reads files. Threads: one at a time."""

    def __init__(self, find: Callable[[], Topic | None], wanted: Range) -> None:
        """``find`` gives the topic, which may be deleted meanwhile."""
        self._find = find
        self._wanted = wanted
        topic = find()
        self._is_over = topic is None or wanted.left == 0 or wanted.last == 0
        self._before = wanted.place()
        self._floor = ids.FIRST
        self.gap: Gap | None = None
        if topic is not None:
            with topic.lock:
                wanted.end = min(wanted.end, topic.state.last_id)
                self._floor = topic.state.trimmed_to
                if wanted.start > ids.FIRST:
                    self.gap = gap_behind(topic, EntryId(wanted.start - 1))

    def next(self) -> tuple[Topic, list[Entry], int] | None:
        """Some more, and the position to wait for; None: that was all. Raises: Gap, once; then it goes on behind it."""
        topic = None if self._is_over else self._find()
        if topic is None:
            self._is_over = True
            return None
        wanted = self._wanted
        self._before = wanted.place()
        with topic.lock:
            self._check_gap(topic)
            if wanted.last is not None:
                wanted.start, wanted.last = self._start_of_last(topic, wanted.last), None
            most = PAGE if wanted.left is None else min(wanted.left, PAGE)
            entries, position = topic.read(wanted.start, wanted.end, most, newest_first=wanted.newest_first)
        self._advance(entries, most)
        return (topic, entries, position) if entries else None

    def step_back(self) -> None:
        """What came last could not be shown: it is to come once more."""
        self._wanted.start, self._wanted.end, self._wanted.left = self._before
        self._is_over = False

    def _advance(self, entries: list[Entry], most: int) -> None:
        wanted = self._wanted
        if wanted.left is not None:
            wanted.left -= len(entries)
        if len(entries) < most or wanted.left == 0:
            self._is_over = True
        elif wanted.newest_first:
            wanted.end = EntryId(entries[-1][0] - 1)
        else:
            wanted.start = EntryId(entries[-1][0] + 1)
        self._is_over = self._is_over or wanted.start > wanted.end

    def _check_gap(self, topic: Topic) -> None:
        """What was there when reading began, and went before it was read, is told."""
        after = EntryId(max(self._floor, self._wanted.start - 1))
        self._floor = max(self._floor, topic.state.trimmed_to)
        if after < self._wanted.end and (gap := gap_behind(topic, after)) is not None:
            raise gap

    def _start_of_last(self, topic: Topic, last: int) -> EntryId:
        start, end = self._wanted.start, self._wanted.end
        found = EntryId(end + 1)
        while last and start <= end:
            most = min(last, PAGE)
            entries, _ = topic.read(start, end, most, newest_first=True)
            last -= len(entries)
            if entries:
                found = entries[-1][0]
                end = EntryId(found - 1)
            if len(entries) < most:
                break
        return found


def gap_behind(topic: Topic, after: EntryId) -> Gap | None:
    """What was removed behind ``after``, told as an error; None: nothing was."""
    with topic.lock:
        until = topic.state.trimmed_to
        return make_gap(topic, after, until) if until > after else None


def make_gap(topic: Topic, after: EntryId, until: EntryId) -> Gap:
    first = topic.first_id()
    resumes_at = None if first is None else ids.show(first).decode()
    return Gap(
        ids.show(after).decode(),
        ids.show(until).decode(),
        why="they were removed before they were read",
        hint=f"ask for the next message to go on, {resumes_at or 'there is none yet'}",
        resumes_at=resumes_at,
    )


class Reading(Iterator[Message]):
    """Iterates over messages. Each is as safe as the policy promises when it comes."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._page: Iterator[Entry] = iter(())

    @property
    def gap(self) -> Gap | None:
        """Messages were asked for that are gone: reading began with the oldest there is. None: all were there."""
        return self._pages.gap

    def __next__(self) -> Message:
        """Raises: Gap if messages are removed before they are read, once; the next call goes on behind them."""
        while True:
            for entry in self._page:
                return Message(*entry)
            page = self._pages.next()
            if page is None:
                raise StopIteration
            topic, entries, position = page
            try:
                topic.settle(position)
            except LaminaError:
                self._pages.step_back()
                raise
            self._page = iter(entries)
