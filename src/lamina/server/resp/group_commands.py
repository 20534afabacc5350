"""The commands about groups: XGROUP, and what XINFO tells of them. The others are in group_reading, group_pending."""

from __future__ import annotations

from typing import Final

from lamina.engines import loops
from lamina.engines.topics import group_views as views
from lamina.engines.topics import ids
from lamina.engines.topics.codec import check_counted
from lamina.engines.topics.groups import Groups
from lamina.engines.topics.topic import Topic
from lamina.server.resp import replies
from lamina.server.resp.dispatch import Handler
from lamina.server.resp.group_pending import xautoclaim, xclaim, xpending
from lamina.server.resp.group_reading import xack, xreadgroup
from lamina.server.resp.group_words import integer, rest_on_all
from lamina.server.resp.replies import Map, Value
from lamina.server.resp.session import Args, Refusal, Session

_NO_KEY: Final = (
    b"ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM "
    b"option to create an empty stream automatically."
)
_MOST_WORDS: Final = 8  # of CREATE; an option that comes twice is one too many
_ENDS: Final = {b"-": ids.FIRST, b"+": ids.LAST}  # SETID takes them, CREATE does not


# -- XGROUP ----------------------------------------------------------------------------------------------------------


def create(session: Session, args: Args) -> bytes:
    makes, read = _options(args)
    topic = session.topics.get(args[2])
    if topic is None and not makes:
        raise Refusal(_NO_KEY)
    if len(args) > _MOST_WORDS:
        raise _wrong_words(args)
    last = None if args[4] == b"$" else ids.parse(args[4])
    if topic is None:
        loops.must_wait()  # for the files of both, before either is changed
        topic = session.topics.get_or_make(args[2])
        topic.set_id(ids.FIRST)
    # The group rests on the topic being there, and on the last id that it was made at.
    session.rest_on(topic, topic.newest_position())
    session.rest_on(topic.groups, topic.groups.create(args[3], last, read))
    return replies.OK


def set_id(session: Session, args: Args) -> bytes:
    _, read = _options(args)
    topic, groups = _find(session, args)
    if len(args) >= _MOST_WORDS:
        raise _wrong_words(args)
    last = None if args[4] == b"$" else _ENDS.get(args[4])
    if last is None and args[4] != b"$":
        last = ids.parse(args[4])
    session.rest_on(topic, topic.newest_position())
    session.rest_on(groups, groups.set_id(args[3], last, read))
    return replies.OK


def destroy(session: Session, args: Args) -> bytes:
    topic = _topic(session, args)
    existed, position = topic.groups.destroy(args[3])
    if existed:
        session.house.changed(args[2])
    session.rest_on(topic.groups, position or topic.groups.newest_position())
    return replies.integer(existed)


def create_consumer(session: Session, args: Args) -> bytes:
    _, groups = _find(session, args)
    is_new, position = groups.create_consumer(args[3], args[4])
    session.rest_on(groups, position or groups.newest_position())
    return replies.integer(is_new)


def delete_consumer(session: Session, args: Args) -> bytes:
    _, groups = _find(session, args)
    count, position = groups.delete_consumer(args[3], args[4])
    session.rest_on(groups, position or groups.newest_position())
    return replies.integer(count)


def _options(args: Args) -> tuple[bool, int | None]:
    """MKSTREAM (of CREATE only) and ENTRIESREAD. Raises: Refusal, BadTopic."""
    is_create = args[1].upper() == b"CREATE"
    makes, read, at = False, -1, 5
    while at < len(args):
        option = args[at].upper()
        if option == b"MKSTREAM" and is_create:
            makes = True
        elif option == b"ENTRIESREAD" and at + 1 < len(args):
            at += 1
            read = integer(args[at])
            if read < -1:
                raise Refusal(b"ERR value for ENTRIESREAD must be positive or -1")
            check_counted(read, "ENTRIESREAD", -1)
        else:
            raise _wrong_words(args)
        at += 1
    return makes, None if read < 0 else read


def _wrong_words(args: Args) -> Refusal:
    text = b"ERR unknown subcommand or wrong number of arguments for '%b'. Try XGROUP HELP."
    return Refusal(text % args[1][:128])


def _topic(session: Session, args: Args) -> Topic:
    topic = session.topics.get(args[2])
    if topic is None:
        raise Refusal(_NO_KEY)
    return topic


def _find(session: Session, args: Args) -> tuple[Topic, Groups]:
    topic = _topic(session, args)
    if not topic.groups.has(args[3]):
        raise _no_group(args[3], args[2])
    return topic, topic.groups


def _no_group(group: bytes, key: bytes) -> Refusal:
    return Refusal(b"NOGROUP No such consumer group '%b' for key name '%b'" % (group, key))


# -- XINFO -----------------------------------------------------------------------------------------------------------


def info_groups(session: Session, args: Args) -> bytes:
    topic = _existing(session, args[2])
    rest_on_all(session, topic)
    found: list[Value] = [
        Map(
            [
                (b"name", group.name),
                (b"consumers", group.consumers),
                (b"pending", group.pending),
                (b"last-delivered-id", ids.show(group.last_id)),
                (b"entries-read", group.read),
                (b"lag", group.lag),
            ]
        )
        for group in views.stats(topic.groups)
    ]
    return replies.encode(found, session.version)


def info_consumers(session: Session, args: Args) -> bytes:
    topic = _existing(session, args[2])
    groups = topic.groups
    if not groups.has(args[3]):
        raise _no_group(args[3], args[2])
    rest_on_all(session, topic)
    now = groups.now_ms()
    found: list[Value] = [
        Map([(b"name", one.name), (b"pending", one.pending), (b"idle", max(now - one.seen, 0))])
        for one in views.consumers(groups, args[3])
    ]
    return replies.encode(found, session.version)


def _existing(session: Session, key: bytes) -> Topic:
    topic = session.topics.get(key)
    if topic is None:
        raise Refusal(b"ERR no such key")
    return topic


def groups_in_full(groups: Groups, count: int | None) -> Value:
    """What XINFO STREAM FULL tells of groups: of each the oldest ``count`` pending entries (None: all)."""
    found: list[Value] = []
    for group in views.stats(groups):
        pending = views.pending(groups, group.name, count=count)
        consumers = [_consumer_in_full(groups, group.name, one, count) for one in views.consumers(groups, group.name)]
        pairs: list[tuple[Value, Value]] = [
            (b"name", group.name),
            (b"last-delivered-id", ids.show(group.last_id)),
            (b"entries-read", group.read),
            (b"lag", group.lag),
            (b"pel-count", group.pending),
            (b"pending", [[ids.show(one.id), one.consumer, one.time, one.deliveries] for one in pending]),
            (b"consumers", consumers),
        ]
        found.append(Map(pairs))
    return found


def _consumer_in_full(groups: Groups, group: bytes, one: views.ConsumerStats, count: int | None) -> Value:
    pending = views.pending(groups, group, count=count, consumer=one.name)
    return Map(
        [
            (b"name", one.name),
            (b"seen-time", one.seen),
            (b"pel-count", one.pending),
            (b"pending", [[ids.show(entry.id), entry.time, entry.deliveries] for entry in pending]),
        ]
    )


COMMANDS: dict[bytes, Handler] = {
    b"xgroup|create": create,
    b"xgroup|setid": set_id,
    b"xgroup|destroy": destroy,
    b"xgroup|createconsumer": create_consumer,
    b"xgroup|delconsumer": delete_consumer,
    b"xreadgroup": xreadgroup,
    b"xack": xack,
    b"xpending": xpending,
    b"xclaim": xclaim,
    b"xautoclaim": xautoclaim,
    b"xinfo|groups": info_groups,
    b"xinfo|consumers": info_consumers,
}
