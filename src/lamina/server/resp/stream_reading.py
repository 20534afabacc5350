"""What reads a topic: XLEN, XRANGE, XREVRANGE and XREAD."""

from __future__ import annotations

import sys
from functools import partial
from typing import Final, NamedTuple

from lamina.engines.topics import ids
from lamina.engines.topics.entries import entry_id
from lamina.engines.topics.finding import MOST_NEW
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.walk import Walk
from lamina.server.resp import replies
from lamina.server.resp.entry_replies import show_all
from lamina.server.resp.gap import gap
from lamina.server.resp.group_words import SYNTAX, integer
from lamina.server.resp.session import Args, Large, Refusal, Session, Wait
from lamina.units import MIB

_UNBALANCED: Final = b"ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
_OF_GROUPS: Final = b"ERR The %b option is only supported by XREADGROUP. You called XREAD instead."
_NEW_OF_GROUP: Final = (
    b"ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."
)
_NO_TIME: Final = b"ERR timeout is not an integer or out of range"
_MOST_KEPT: Final = 1 << 20  # bytes of entries that are kept for others who wait for the same
_MOST_AFTER_WAITING: Final = 1000  # entries for who did not say how many
_LARGE: Final = MIB  # an answer of more is made a piece at a time


def xlen(session: Session, args: Args) -> bytes:
    topic = session.topics.get(args[1])
    if topic is None:
        return replies.integer(0)
    session.rest_on(topic, topic.newest_position())
    return replies.integer(topic.state.length)


# -- XRANGE, XREVRANGE -----------------------------------------------------------------------------------------------


def xrange(session: Session, args: Args) -> bytes | Large:
    return _range(session, args, args[2], args[3], newest_first=False)


def xrevrange(session: Session, args: Args) -> bytes | Large:
    return _range(session, args, args[3], args[2], newest_first=True)


def _range(session: Session, args: Args, first: bytes, last: bytes, *, newest_first: bool) -> bytes | Large:
    start, end = ids.parse_start(first), ids.parse_end(last)
    count: int | None = None
    for at in range(4, len(args), 2):
        if args[at].upper() != b"COUNT" or at + 1 == len(args):
            raise Refusal(SYNTAX)
        count = max(integer(args[at + 1]), 0)
    topic = session.topics.get(args[1])
    if topic is None:
        return replies.EMPTY_ARRAY
    if count == 0:
        session.rest_on(topic, topic.newest_position())
        return replies.null_array(session.version)
    enough = sys.maxsize if session.is_in_exec else _LARGE
    records, position, is_all = topic.first(start, end, count, newest_first=newest_first, enough=enough)
    if not is_all:
        return Large(topic, Walk(topic, start, end, count, newest_first=newest_first))
    topic.counts.read += len(records)
    session.rest_on(topic, position if records else topic.newest_position())
    return show_all(records)


# -- XREAD -----------------------------------------------------------------------------------------------------------


class _Asked(NamedTuple):
    """What is wanted of one topic."""

    key: bytes
    start: EntryId
    """The first id that is asked for."""
    goes_on: bool
    """Behind an id it has seen. Who begins was not overtaken."""


def xread(session: Session, args: Args) -> bytes | Wait:
    count, block_ms, keys, texts = parse(args)
    wanted = [_asked(session, key, text) for key, text in zip(keys, texts, strict=True)]
    nothing = replies.null_array(session.version)
    may_wait = block_ms is not None and not session.is_in_exec

    def wait(*, is_due: bool) -> Wait:
        seconds = block_ms / 1000 if block_ms else None
        most = count or _MOST_AFTER_WAITING
        attempt, is_alone = partial(_attempt, session, wanted, most), len(keys) > 1
        return Wait(keys, seconds, attempt, nothing, is_shared=not is_alone, is_due=is_due)

    session.asks_for_new = may_wait
    if may_wait and session.house.has_due() and any(_has_news(session, asked) for asked in wanted):
        # Hundreds who come back at once for the next entry would leave no time to publish it.
        return wait(is_due=True)
    found: list[bytes] = []
    read: list[tuple[Topic, int]] = []
    for asked in wanted:
        topic = session.topics.get(asked.key)
        if topic is None:
            continue
        records, position, _ = topic.first(asked.start, ids.LAST, count, enough=MOST_NEW)
        # Behind reading: retention has a thread of its own, and may have come in between.
        if (told := _tell_gap(session, topic, asked)) is not None:
            return told
        session.rest_on(topic, position if records else topic.newest_position())
        if records:
            found.append(replies.bulk(asked.key) + show_all(records))
            read.append((topic, len(records)))
    for topic, number in read:  # once nothing can come in the way any more
        topic.counts.read += number
    if found:
        return replies.by_key(found, session.version)
    return wait(is_due=False) if may_wait else nothing


def _has_news(session: Session, asked: _Asked) -> bool:
    topic = session.topics.get(asked.key)
    return topic is not None and asked.start <= topic.state.last_id


def _attempt(session: Session, wanted: list[_Asked], most: int) -> bytes | None:
    """Entries of the first topic that has some, for one who waited; or the error of the first that overtook it."""
    answer: bytes | None = None
    for asked in wanted:
        topic = session.topics.get(asked.key)
        if topic is None:
            continue
        with topic.lock:
            if (told := _tell_gap(session, topic, asked)) is not None:
                return told
            if answer is not None:
                continue
            shown, position = _shown(session, topic, asked.start, most)
        if shown:
            session.rest_on(topic, position)
            answer = replies.by_key([replies.bulk(asked.key) + shown], session.version)
    return answer


def _tell_gap(session: Session, topic: Topic, asked: _Asked) -> bytes | None:
    """An error if retention took entries behind the id that was asked for. Nothing is kept of it: the client knows."""
    if not asked.goes_on or asked.start > topic.state.let_go_to:
        return None
    with topic.lock:
        border = topic.state.let_go_to
        return gap(session, topic, asked.key, EntryId(asked.start - 1), b"read on from %b" % ids.show(border))


def _shown(session: Session, topic: Topic, start: EntryId, most: int) -> tuple[bytes, int]:
    """Entries and the position they rest on; nothing if there are none. Made once for all who ask for the same."""
    house = session.house
    asked = topic, topic.rebuilds, topic.newest_position(), start, most
    known, shown, position = house.shown
    if known != asked:
        records, position, _ = topic.first(start, ids.LAST, most, enough=MOST_NEW)
        topic.counts.read += len(records)
        shown = show_all(records) if records else b""
        if len(shown) <= _MOST_KEPT:
            house.shown = asked, shown, position
    return shown, position


def _asked(session: Session, key: bytes, text: bytes) -> _Asked:
    """Raises: Refusal; BadTopic."""
    topic = session.topics.get(key)
    if text == b">":
        raise Refusal(_NEW_OF_GROUP)
    if text == b"+" and topic is not None:  # since Redis 7.4: the newest entry
        newest, _ = topic.looked_at(ids.FIRST, ids.LAST, 1, newest_first=True)
        if newest:
            return _Asked(key, entry_id(newest[0]) or ids.FIRST, goes_on=False)
    if text in (b"$", b"+"):
        last = ids.FIRST if topic is None else topic.state.last_id
        return _Asked(key, EntryId(last + 1), goes_on=last != ids.FIRST)  # overtaken while it waits, it is told
    last = ids.parse(text)
    return _Asked(key, EntryId(last + 1), goes_on=last != ids.FIRST)


def parse(args: Args) -> tuple[int | None, int | None, list[bytes], list[bytes]]:
    """COUNT, the milliseconds of BLOCK, keys, and as many ids: guard.py looks at the keys. Raises: Refusal."""
    count: int | None = None
    block_ms: int | None = None
    at = 1
    while at < len(args):
        option, more = args[at].upper(), len(args) - at - 1
        if option == b"BLOCK" and more:
            at += 1
            block_ms = integer(args[at], _NO_TIME)
            if block_ms < 0:
                raise Refusal(b"ERR timeout is negative")
        elif option == b"COUNT" and more:
            at += 1
            count = max(integer(args[at]), 0) or None
        elif option == b"STREAMS" and more:
            if more % 2:
                raise Refusal(_UNBALANCED)
            half = at + 1 + more // 2
            return count, block_ms, args[at + 1 : half], args[half:]
        elif (option == b"GROUP" and more >= 2) or option == b"NOACK":
            raise Refusal(_OF_GROUPS % option)
        else:
            break
        at += 1
    raise Refusal(SYNTAX)
