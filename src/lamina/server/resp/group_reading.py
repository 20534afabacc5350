"""XREADGROUP: new entries for a consumer, or what it was given before. And XACK."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from lamina.engines import loops
from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.server.resp import replies
from lamina.server.resp.gap import gap
from lamina.server.resp.group_words import SYNTAX, find_group, integer, rest_on_all, rest_on_shown, show_entries
from lamina.server.resp.session import Args, Refusal, Session, Wait

_WHERE: Final = b" in XREADGROUP with GROUP option"
_MEANINGLESS: Final = (
    b"ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by "
    b"specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set."
)
# Redis 7.0 says XREAD and $ here, whichever command it is.
_UNBALANCED: Final = b"ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
_NO_TIME: Final = b"ERR timeout is not an integer or out of range"
_MOST_AFTER_WAITING: Final = 1000  # entries for who did not say how many


@dataclass(slots=True)
class _Asked:
    """The words of an XREADGROUP."""

    group: bytes | None = None
    consumer: bytes = b""
    count: int | None = None
    block_ms: int | None = None
    noack: bool = False
    keys: list[bytes] | None = None
    texts: list[bytes] | None = None


def xreadgroup(session: Session, args: Args) -> bytes | Wait:
    asked = parse(args)
    group = asked.group
    if asked.keys is None or asked.texts is None:
        raise Refusal(SYNTAX)
    if group is None:
        raise Refusal(b"ERR Missing GROUP option for XREADGROUP")
    wanted: list[tuple[bytes, EntryId | None]] = []
    for key, text in zip(asked.keys, asked.texts, strict=True):
        find_group(session, key, group, _WHERE)
        wanted.append((key, _start(text)))
    for key, start in wanted:  # before anything is given out: the error comes without entries
        topic, _ = find_group(session, key, group, _WHERE)
        if start is None and (told := _tell_gap(session, topic, key, group)) is not None:
            return told
    nothing = replies.null_array(session.version)
    may_wait = asked.block_ms is not None and not session.is_in_exec
    seconds = asked.block_ms / 1000 if asked.block_ms else None
    keys = asked.keys

    def wait(*, is_due: bool) -> Wait:
        return Wait(keys, seconds, lambda: _attempt(session, keys, group, asked), nothing, is_due=is_due)

    session.asks_for_new = may_wait
    asks_for_new = all(start is None for _, start in wanted)
    if may_wait and asks_for_new and session.house.has_due() and any(_has_news(session, key, group) for key in keys):
        return wait(is_due=True)  # as in XREAD
    with ExitStack() as held:
        if len(wanted) > 1 and loops.is_at_once():
            _take_what_is_at_hand(session, wanted, group, asked, held)
        found = _read(session, wanted, group, asked)
    if found:
        return replies.by_key(found, session.version)
    return wait(is_due=False) if may_wait else nothing


def _has_news(session: Session, key: bytes, group: bytes) -> bool:
    topic, groups = find_group(session, key, group, _WHERE)
    return groups.get(group).last_id < topic.state.last_id


def _take_what_is_at_hand(
    session: Session, wanted: list[tuple[bytes, EntryId | None]], group: bytes, asked: _Asked, held: ExitStack
) -> None:
    """Take the locks of all topics on a loop. Raises: MustWait if any of them could have to wait: once entries of the
    first were given out, the command cannot begin anew.
    """
    for key, start in wanted:
        topic, groups = find_group(session, key, group, _WHERE)
        held.enter_context(topic.lock)
        if groups.refusal is not None or groups.journal.is_careful:
            loops.must_wait()
        groups.prepare(group, asked.consumer, start, asked.count)
    held.enter_context(loops.may_wait())  # nothing will


def _read(session: Session, wanted: list[tuple[bytes, EntryId | None]], group: bytes, asked: _Asked) -> list[bytes]:
    found: list[bytes] = []
    for key, start in wanted:
        topic, groups = find_group(session, key, group, _WHERE)
        if start is not None:
            shown = groups.history(group, asked.consumer, start, asked.count)
        else:
            shown = groups.deliver(group, asked.consumer, asked.count, noack=asked.noack)
        if shown.records or start is not None:
            rest_on_shown(session, topic, shown)
            found.append(replies.bulk(key) + show_entries(shown, session.version))
        else:
            rest_on_all(session, topic)
    return found


def _tell_gap(session: Session, topic: Topic, key: bytes, group: bytes) -> bytes | None:
    """An error, once, if retention took entries that the group has not read; then it goes on behind them."""
    groups = topic.groups
    with topic.lock:
        border = groups.overtaken(group)
        if border is None:
            return None
        told = gap(session, topic, key, groups.get(group).last_id, b"the group goes on behind them")
        session.rest_on(groups, groups.set_id(group, border))
    return told


def _attempt(session: Session, keys: list[bytes], group: bytes, asked: _Asked) -> bytes | None:
    """Entries of the first topic that has some, for one who waited."""
    for key in keys:
        topic = session.topics.get(key)
        if topic is None:
            raise Refusal(b"UNBLOCKED the stream key no longer exists")
        if not topic.groups.has(group):
            raise Refusal(b"NOGROUP the consumer group this client was blocked on no longer exists")
        if (told := _tell_gap(session, topic, key, group)) is not None:
            return told
        most = asked.count or _MOST_AFTER_WAITING
        shown = topic.groups.deliver(group, asked.consumer, most, noack=asked.noack)
        if shown.records:
            rest_on_shown(session, topic, shown)
            return replies.by_key([replies.bulk(key) + show_entries(shown, session.version)], session.version)
    return None


def _start(text: bytes) -> EntryId | None:
    """None: new entries."""
    if text == b">":
        return None
    if text == b"$":
        raise Refusal(_MEANINGLESS)
    start = ids.parse(text)
    return None if start == ids.LAST else start  # in Redis the largest id is what > stands for


def parse(args: Args) -> _Asked:
    """Its words, of which guard.py looks at the keys. Raises: Refusal."""
    asked = _Asked()
    at = 1
    while at < len(args):
        option, more = args[at].upper(), len(args) - at - 1
        if option == b"BLOCK" and more:
            at += 1
            asked.block_ms = integer(args[at], _NO_TIME)
            if asked.block_ms < 0:
                raise Refusal(b"ERR timeout is negative")
        elif option == b"COUNT" and more:
            at += 1
            count = integer(args[at])
            asked.count = count if count > 0 else None
        elif option == b"GROUP" and more >= 2:
            asked.group = args[at + 1]
            asked.consumer = args[at + 2]
            at += 2
        elif option == b"NOACK":
            asked.noack = True
        elif option == b"STREAMS" and more:
            if more % 2:
                raise Refusal(_UNBALANCED)
            half = at + 1 + more // 2
            asked.keys, asked.texts = args[at + 1 : half], args[half:]
            break
        else:
            raise Refusal(SYNTAX)
        at += 1
    return asked


def xack(session: Session, args: Args) -> bytes:
    topic = session.topics.get(args[1])
    if topic is None:
        return replies.integer(0)
    if not topic.groups.has(args[2]):
        rest_on_all(session, topic)
        return replies.integer(0)
    count, position = topic.groups.ack(args[2], [ids.parse(text) for text in args[3:]])
    session.rest_on(topic.groups, position or topic.groups.newest_position())
    return replies.integer(count)
