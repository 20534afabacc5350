"""What is said to a server about its topics, in the commands of Redis Streams, and what its answers mean.

Talks (talking.py): no socket, no clock. Answers are those that the topics of a folder give. Names are bytes, as they
are on the wire. topic_reading.py has reading, topic_feed.py the messages of a group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from lamina.client.talking import Ask, Reply, Talk, Word, ask, fine
from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import END, START, Message, Moment, Publishable, show_name, starting_at, to_flat
from lamina.engines.topics.views import ConsumerView, GroupView, Reset, TopicView, show_id
from lamina.errors import BadTopic, Disconnected, Gap, GroupExists, LaminaError, NoGroup, WireError
from lamina.log.frame import MAX_PAYLOAD
from lamina.units import MIB

if TYPE_CHECKING:
    from lamina.engines.topics.why import WhyReport

PAGE: Final = 1000
_AT_ONCE: Final = 1000
_BYTES_AT_ONCE: Final = MIB


# -- all topics --------------------------------------------------------------------------------------------------------


def names() -> Talk[list[str]]:
    """Of all topics, sorted."""
    found, cursor = set[bytes](), b"0"
    while True:
        reply = yield from ask("SCAN", cursor, "COUNT", PAGE, "TYPE", "stream", may_repeat=True)
        cursor, some = reply
        found.update(some)
        if cursor == b"0":
            return [show_name(name) for name in sorted(found)]


def delete(name: bytes) -> Talk[bool]:
    """Whether there was one. Not repeated: a topic that was made anew meanwhile would go."""
    reply = yield from ask("DEL", name)
    return bool(reply)


# -- publishing --------------------------------------------------------------------------------------------------------


def publish(name: bytes, flat: list[bytes], id: str | None) -> Talk[str]:
    """Raises: BadTopic, StorageError; Disconnected, which says whether it was sent."""
    try:
        reply: bytes = yield from ask("XADD", name, id or "*", *flat)
    except Disconnected as problem:
        raise _untold(problem, [], 1) from problem
    return reply.decode()


def publish_many(name: bytes, messages: Iterable[Publishable]) -> Talk[list[str]]:
    """Some at a time, however many there are; returns their ids.

    Raises: what is wrong with a message, when those before it are published; the first refusal, with ``published`` in
        its facts: the ids of all that are; Disconnected, with ``published`` too, and how many were sent and not
        answered: ``unacknowledged``. What is in neither was not sent.
    """
    published: list[str] = []
    for commands, problem in _batches(name, messages):
        try:
            replies = (yield Ask(commands)) if commands else []
        except Disconnected as broken:
            raise _untold(broken, published, len(commands)) from broken
        published += [reply.decode() for reply in replies if isinstance(reply, bytes)]
        for reply in replies:
            if isinstance(reply, LaminaError):
                reply.facts["published"] = published
                raise reply
        if problem is not None:
            raise problem
    return published


def _batches(name: bytes, messages: Iterable[Publishable]) -> Iterator[tuple[list[list[Word]], Exception | None]]:
    """Commands to send at once, and what came up behind them."""
    commands: list[list[Word]] = []
    size = 0
    try:
        for message in messages:
            flat = to_flat(message, MAX_PAYLOAD)
            commands.append(["XADD", name, "*", *flat])
            size += sum(map(len, flat))
            if len(commands) >= _AT_ONCE or size >= _BYTES_AT_ONCE:
                yield commands, None
                commands, size = [], 0
    except Exception as problem:
        yield commands, problem
    else:
        yield commands, None


def _untold(problem: Disconnected, published: list[str], sent: int) -> Disconnected:
    """What is known of messages when the connection broke."""
    was_sent = bool(problem.facts.get("sent", True))
    count = sent if was_sent else 0
    hint = f"whether the last {count} were published is not known" if count > 1 else problem.hint
    facts = {**problem.facts, "published": published, "unacknowledged": count}
    return Disconnected(problem.message, hint=hint, **facts)


# -- gaps --------------------------------------------------------------------------------------------------------------


def probe(name: bytes, after: EntryId) -> list[Word]:
    """The command whose answer is a Gap if retention took messages behind ``after``; else it says nothing of use.

    0 would mean a reader that begins, which is not told.
    """
    return ["XREAD", "COUNT", 1, "STREAMS", name, ids.show(EntryId(max(after, 1)))]


def border_in(reply: Reply) -> EntryId | None:
    """Up to which id messages were taken, as the answer to a probe says; None: they were not."""
    if isinstance(reply, Gap):
        return ids.parse(str(reply.until).encode())
    fine(reply)
    return None


def removed_to(name: bytes) -> Talk[EntryId]:
    """Up to this id retention has taken messages away; 0: it never has."""
    return (yield from _looked_at(name, ids.FIRST, ids.LAST, 1))[0]


def _looked_at(name: bytes, start: EntryId, end: EntryId, most: int) -> Talk[tuple[EntryId, list[bytes]]]:
    """Up to which id retention took messages, and ids of those that are there: the first ones, none if there is none.

    The messages themselves do not come here, and are not counted as read.
    """
    words = ("XINFO", "STREAM", name, "IDS", ids.show(start), ids.show(end), most)
    (reply,) = yield Ask([words], may_repeat=True)
    if _is_missing(reply):
        return ids.FIRST, []
    border, found = fine(reply)
    return ids.parse(border), found


def told(name: bytes, after: EntryId, until: EntryId) -> Talk[Gap]:
    """The error for who has read up to ``after``, as an embedded topic has it."""
    behind = ids.show(EntryId(until + 1))
    reply = yield from ask("XRANGE", name, behind, "+", "COUNT", 1, may_repeat=True)
    resumes_at = messages_in(reply)[0].id if reply else None
    return Gap(
        show_id(after),
        show_id(until),
        why="they were removed before they were read",
        hint=f"ask for the next message to go on, {resumes_at or 'there is none yet'}",
        resumes_at=resumes_at,
    )


# -- groups ------------------------------------------------------------------------------------------------------------


def ensure_group(name: bytes, group: bytes, since: Moment | None) -> Talk[None]:
    """Make the group, and its topic, unless they are there."""
    at: Word = "$" if since is None else ids.show((yield from _last_before(name, since)))
    try:
        yield from ask("XGROUP", "CREATE", name, group, at, "MKSTREAM", may_repeat=True)
    except GroupExists:
        return


def delete_group(name: bytes, group: bytes) -> Talk[bool]:
    (reply,) = yield Ask([("XGROUP", "DESTROY", name, group)])
    if isinstance(reply, BadTopic) and "requires the key to exist" in reply.message:
        return False
    return bool(fine(reply))


def ack(name: bytes, group: bytes, acked: list[EntryId]) -> Talk[int]:
    """How many of them were pending. Asked again when the connection broke. Raises: NoGroup."""
    if not acked:
        return 0
    reply = yield from ask("XACK", name, group, *map(ids.show, acked), may_repeat=True)
    count = int(reply)
    if not count:  # the answer is the same where there is no such group
        yield from ask("XPENDING", name, group, may_repeat=True)
    return count


def groups(name: bytes) -> Talk[list[GroupView]]:
    (reply,) = yield Ask([("XINFO", "GROUPS", name)], may_repeat=True)
    if _is_missing(reply):
        return []
    found = []
    for facts in map(_facts, fine(reply)):
        try:
            found.append((yield from _group(name, facts)))
        except NoGroup:  # deleted meanwhile
            continue
    return found


def _group(name: bytes, facts: dict[str, Any]) -> Talk[GroupView]:
    group = facts["name"]
    asked = [("XINFO", "CONSUMERS", name, group), ("XPENDING", name, group)]
    replies = yield Ask(asked, may_repeat=True)
    if _is_missing(replies[0]):
        raise NoGroup(f"the topic {show_name(name)!r} was deleted")
    consumers, pending = map(fine, replies)
    oldest = pending[1]
    return GroupView(
        show_name(group),
        facts["pending"],
        facts["last-delivered-id"].decode(),
        facts.get("lag"),
        None if oldest is None else oldest.decode(),
        tuple(ConsumerView(show_name(one["name"]), one["pending"], one["idle"]) for one in map(_facts, consumers)),
    )


def reset(name: bytes, group: str, raw_group: bytes, to: Moment, *, dry_run: bool) -> Talk[Reset]:
    """Raises: NoGroup, BadTopic."""
    (reply,) = yield Ask([("XINFO", "GROUPS", name)], may_repeat=True)
    if _is_missing(reply):
        raise NoGroup(f"there is no topic {show_name(name)!r}")
    known = next((facts for facts in map(_facts, fine(reply)) if facts["name"] == raw_group), None)
    if known is None:
        raise NoGroup(f"there is no group {group!r} of the topic {show_name(name)!r}")
    at, last = ids.parse(known["last-delivered-id"]), (yield from _last_before(name, to))
    again = skipped = 0
    if last < at:
        again = yield from _count(name, last, at)
    else:
        skipped = yield from _count(name, at, last)
    if not dry_run:
        yield from ask("XGROUP", "SETID", name, raw_group, ids.show(last), may_repeat=True)
    return Reset(show_name(name), group, show_id(at), show_id(last), again, skipped, known["pending"], last)


def _last_before(name: bytes, moment: Moment) -> Talk[EntryId]:
    """The id behind which a group goes on to begin at ``moment``. Raises: BadTopic."""
    if moment == START:
        return (yield from removed_to(name))
    if moment == END:
        view = yield from stats(name)
        return ids.FIRST if view.last_id is None else ids.parse(view.last_id.encode())
    now = yield from now_ns(moment)
    return EntryId(max(starting_at(moment, now) - 1, ids.FIRST))


def _count(name: bytes, after: EntryId, until: EntryId) -> Talk[int]:
    """Messages behind one id and up to another."""
    total = 0
    while after < until:
        _, page = yield from _looked_at(name, EntryId(after + 1), until, PAGE)
        if not page:
            break
        total += len(page)
        after = ids.parse(page[-1])
    return total


# -- facts -------------------------------------------------------------------------------------------------------------


def now_ns(*moments: Moment | None) -> Talk[int]:
    """The time, for moments that are meant from now: the server's, as ids are by its clock. 0 where none is."""
    if not any(isinstance(moment, timedelta) for moment in moments):
        return 0
    seconds, micros = yield from ask("TIME", may_repeat=True)
    return int(seconds) * 1_000_000_000 + int(micros) * 1000


def stats(name: bytes) -> Talk[TopicView]:
    """How much there is; all zero for a topic that does not exist."""
    (reply,) = yield Ask([("XINFO", "STREAM", name)], may_repeat=True)
    if _is_missing(reply):
        return TopicView(show_name(name), 0, 0, None, None, 0)
    facts = _facts(fine(reply))
    first, last = facts["first-entry"], facts["last-generated-id"].decode()
    return TopicView(
        show_name(name),
        facts["length"],
        facts.get("entries-added", facts["length"]),
        None if first is None else first[0].decode(),
        None if last == "0-0" else last,
        facts["groups"],
    )


def why(name: bytes, retention: str | None) -> Talk[WhyReport]:
    """Why it is as large as it is, by these limits or by those the server has for it. Raises: BadTopic."""
    from lamina.engines.topics.why import HolderReport, LimitReport, LogConsumerReport, WhyReport

    reply = yield from ask("L.WHY", name, *(() if retention is None else (retention,)), may_repeat=True)
    if reply is None:
        raise BadTopic(f"there is no topic {show_name(name)}")
    facts = json.loads(reply)
    limits = [LimitReport(**limit) for limit in facts.pop("limits")]
    holders = [HolderReport(**one) for one in facts.pop("holders")]
    consumers = [LogConsumerReport(**one) for one in facts.pop("log_consumers", ())]
    return WhyReport(limits=limits, holders=holders, log_consumers=consumers, **facts)


def messages_in(reply: Reply) -> list[Message]:
    """Entries that have fields."""
    return [Message(ids.parse(id), flat) for id, flat in reply or () if flat is not None]


def _is_missing(reply: Reply) -> bool:
    return isinstance(reply, BadTopic) and "no such key" in reply.message


def _facts(reply: Reply) -> dict[str, Any]:
    """A list of names and values, in turn."""
    if not isinstance(reply, list) or len(reply) % 2:
        raise WireError("no reply of a server of topics", hint="is it one?")
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
