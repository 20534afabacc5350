"""Reading the topic of a server, page by page, without a socket: a range of it, or what comes.

A page is as large as messages let it be: some MiB, however many messages that are. In the same breath as for a page it
is asked whether retention took messages that were to be read: that is told, as in a folder.
"""

from __future__ import annotations

from typing import Final

from lamina.client.talking import Ask, Reply, Talk, Word, ask, fine
from lamina.client.topic_talks import PAGE, border_in, messages_in, now_ns, probe, told
from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import END, START, Message, Moment, ending_at, starting_at
from lamina.engines.topics.reading import Range
from lamina.errors import BadTopic, Gap
from lamina.units import MIB

_PAGE_BYTES: Final = 4 * MIB
_FIRST_PAGE: Final = 100


class Portion:
    """How many messages are asked for at once: so many that they are a few MiB."""

    def __init__(self, most: int = PAGE) -> None:
        self._most = most
        self.count = min(_FIRST_PAGE, most)

    def fit(self, reply: Reply) -> None:
        """By the size of those that came."""
        size = sum(len(part) for _, flat in reply or () for part in flat or ())
        if reply:
            self.count = max(1, min(_PAGE_BYTES * len(reply) // max(size, 1), self.count * 4, self._most))

    def is_too_large(self, reply: Reply) -> bool:
        """So many were refused: ask again for fewer."""
        if self.count > 1 and isinstance(reply, BadTopic) and "use COUNT" in reply.message:
            self.count //= 2
            return True
        return False


class RemotePages:
    """What there was of a range when reading began."""

    def __init__(
        self,
        name: bytes,
        since: Moment | None,
        until: Moment | None,
        last: int | None,
        *,
        reverse: bool,
        count: int | None,
    ) -> None:
        """Raises: BadTopic, before anybody is asked."""
        self._name, self._since, self._until = name, since, until
        self._wanted = Range(last=last, count=count, newest_first=reverse)
        self._place(0)
        self._portion = Portion()
        self._floor = ids.FIRST
        self._has_begun = self._is_over = False
        self.gap: Gap | None = None
        """Messages were asked for that are gone."""

    def _place(self, now: int) -> None:
        if self._since is not None and self._since != START:
            self._wanted.start = starting_at(self._since, now)
        if self._until is not None and self._until != END:
            self._wanted.end = ending_at(self._until, now)

    def begin(self) -> Talk[None]:
        """What is published from now on is not meant."""
        if self._has_begun:
            return
        self._place((yield from now_ns(self._since, self._until)))
        wanted, name = self._wanted, self._name
        newest = ("XREVRANGE", name, "+", "-", "COUNT", 1)
        replies = yield Ask([newest, probe(name, EntryId(max(wanted.start - 1, 0)))], may_repeat=True)
        found = messages_in(fine(replies[0]))
        border = border_in(replies[1])
        if border is not None:
            self._floor = border
            if wanted.start > ids.FIRST:
                self.gap = yield from told(name, EntryId(wanted.start - 1), border)
        if found:
            wanted.end = min(wanted.end, found[0].entry_id)
        self._is_over = not found or wanted.left == 0 or wanted.last == 0 or wanted.start > wanted.end
        self._has_begun = True

    def next(self) -> Talk[list[Message]]:
        """Some more; none: that was all. Raises: Gap, once; then it goes on behind it."""
        yield from self.begin()
        if self._is_over:
            return []
        wanted = self._wanted
        if wanted.last is not None:
            wanted.start = yield from self._start_of_last(wanted.last)
            wanted.last = None
        after = EntryId(max(self._floor, wanted.start - 1))
        reply = yield from self._page(after)
        most = self._portion.count if wanted.left is None else min(wanted.left, self._portion.count)
        self._portion.fit(reply)
        page = messages_in(reply)
        self._advance(page, most)
        return page

    def _page(self, after: EntryId) -> Talk[Reply]:
        wanted = self._wanted
        while True:
            most = self._portion.count if wanted.left is None else min(wanted.left, self._portion.count)
            asked = [self._range(wanted.start, wanted.end, most, wanted.newest_first), probe(self._name, after)]
            reply, probed = yield Ask(asked, may_repeat=True)
            border = border_in(probed)
            if border is not None and after < wanted.end:
                self._floor = border
                raise (yield from told(self._name, after, border))
            if not self._portion.is_too_large(reply):
                return fine(reply)

    def _range(self, start: EntryId, end: EntryId, most: int, newest_first: bool) -> list[Word]:
        one, other = ids.show(start), ids.show(end)
        if newest_first:
            return ["XREVRANGE", self._name, other, one, "COUNT", most]
        return ["XRANGE", self._name, one, other, "COUNT", most]

    def _advance(self, page: list[Message], most: int) -> None:
        wanted = self._wanted
        if wanted.left is not None:
            wanted.left -= len(page)
        if len(page) < most or wanted.left == 0:
            self._is_over = True
        elif wanted.newest_first:
            wanted.end = EntryId(page[-1].entry_id - 1)
        else:
            wanted.start = EntryId(page[-1].entry_id + 1)
        self._is_over = self._is_over or wanted.start > wanted.end

    def _start_of_last(self, last: int) -> Talk[EntryId]:
        start, end = self._wanted.start, self._wanted.end
        found = EntryId(end + 1)
        while last and start <= end:
            most = min(last, self._portion.count)
            (reply,) = yield Ask([self._range(start, end, most, newest_first=True)], may_repeat=True)
            if self._portion.is_too_large(reply):
                continue
            page = messages_in(fine(reply))
            self._portion.fit(reply)
            last -= len(page)
            if page:
                found = page[-1].entry_id
                end = EntryId(found - 1)
            if len(page) < most:
                break
        return found


class RemoteTail:
    """What comes behind a place, for ever."""

    def __init__(self, name: bytes, since: Moment | None) -> None:
        """``since``: as for reading; None: from now on. Raises: BadTopic."""
        self._name, self._since = name, since
        if since is not None and since not in (START, END):
            starting_at(since, 0)  # tells what cannot be
        self._after: EntryId | None = None
        self._portion = Portion()

    def next(self, wait_ms: int) -> Talk[list[Message]]:
        """What has come, after waiting at most so long. Raises: Gap, once; then it goes on behind it."""
        after = yield from self.begin()
        while True:
            words: list[Word] = ["XREAD", "COUNT", self._portion.count, *(("BLOCK", wait_ms) if wait_ms else ())]
            words += ["STREAMS", self._name, ids.show(after)]
            (reply,) = yield Ask([words], wait=wait_ms / 1000, may_repeat=True)
            if not self._portion.is_too_large(reply):
                break
        border = border_in(reply)
        if border is not None:
            self._after = border
            raise (yield from told(self._name, after, border))
        entries = reply[0][1] if reply else []
        self._portion.fit(entries)
        page = messages_in(entries)
        if page:
            self._after = page[-1].entry_id
        return page

    def begin(self) -> Talk[EntryId]:
        """What is published from now on is meant. Returns behind which id that is."""
        if self._after is None:
            self._after = yield from self._start()
        return self._after

    def _start(self) -> Talk[EntryId]:
        if self._since == START:
            return ids.FIRST
        if self._since is None or self._since == END:
            reply = yield from ask("XREVRANGE", self._name, "+", "-", "COUNT", 1, may_repeat=True)
            return ids.parse(reply[0][0]) if reply else ids.FIRST
        now = yield from now_ns(self._since)
        return EntryId(max(starting_at(self._since, now) - 1, ids.FIRST))
