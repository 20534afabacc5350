"""XPENDING, XCLAIM and XAUTOCLAIM: entries that were delivered and not acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lamina.engines.topics import group_views as views
from lamina.engines.topics import ids
from lamina.engines.topics.group_claims import ClaimOptions
from lamina.engines.topics.groups import Shown
from lamina.engines.topics.ids import EntryId
from lamina.errors import BadTopic
from lamina.server.resp import replies
from lamina.server.resp.entry_replies import show_id, show_ids, show_pending
from lamina.server.resp.group_words import SYNTAX, find_group, integer, rest_on_all, rest_on_shown, show_entries
from lamina.server.resp.replies import NULL_ARRAY
from lamina.server.resp.session import Args, Refusal, Session

_MOST: Final = ((1 << 63) - 1) // 16  # what XAUTOCLAIM may be asked for


def xpending(session: Session, args: Args) -> bytes:
    if len(args) == 3:
        return _summary(session, args)
    if not 6 <= len(args) <= 9:
        raise Refusal(SYNTAX)
    at, min_idle = 3, 0
    if args[3].upper() == b"IDLE":
        min_idle = integer(args[4])
        if len(args) < 8:
            raise Refusal(SYNTAX)
        at = 5
    count = max(integer(args[at + 2]), 0)
    start, end = ids.parse_start(args[at]), ids.parse_end(args[at + 1])
    consumer = args[at + 3] if len(args) > at + 3 else None
    topic, groups = find_group(session, args[1], args[2])
    found = views.pending(groups, args[2], start, end, count, consumer=consumer, min_idle=max(min_idle, 0))
    rest_on_all(session, topic)
    return show_pending(found, groups.now_ms())


def _summary(session: Session, args: Args) -> bytes:
    topic, groups = find_group(session, args[1], args[2])
    found = views.summary(groups, args[2])
    rest_on_all(session, topic)
    if found.first is None or found.last is None:
        return replies.encode([0, None, None, NULL_ARRAY], session.version)
    consumers = [[name, b"%d" % count] for name, count in found.consumers]
    return replies.encode([found.total, ids.show(found.first), ids.show(found.last), consumers], session.version)


def xclaim(session: Session, args: Args) -> bytes:
    topic, groups = find_group(session, args[1], args[2])
    min_idle = max(integer(args[4], b"ERR Invalid min-idle-time argument for XCLAIM"), 0)
    wanted = _leading_ids(args[5:])
    options = _claim_options(args, 5 + len(wanted), min_idle, groups.now_ms())
    shown = groups.claim(args[2], args[3], wanted, options)
    rest_on_shown(session, topic, shown)
    return _claimed(shown, session.version, just_ids=options.just_ids)


def _leading_ids(texts: Sequence[bytes]) -> list[EntryId]:
    """Words up to the first that is no id: that one has to be an option."""
    found: list[EntryId] = []
    for text in texts:
        try:
            found.append(ids.parse(text))
        except BadTopic:
            break
    return found


def _claim_options(args: Args, at: int, min_idle: int, now: int) -> ClaimOptions:
    time: int | None = None
    count: int | None = None
    last_id: EntryId | None = None
    force = just_ids = False
    while at < len(args):
        option, has_value = args[at].upper(), at + 1 < len(args)
        if option == b"FORCE":
            force = True
        elif option == b"JUSTID":
            just_ids = True
        elif has_value and option in (b"IDLE", b"TIME", b"RETRYCOUNT"):
            at += 1
            value = integer(args[at], b"ERR Invalid %b option argument for XCLAIM" % option)
            if option == b"RETRYCOUNT":
                count = value
            else:
                time = now - value if option == b"IDLE" else value
        elif has_value and option == b"LASTID":
            at += 1
            last_id = ids.parse(args[at])
        else:
            raise Refusal(b"ERR Unrecognized XCLAIM option '%b'" % args[at])
        at += 1
    # A count below 0 is as none, a time that cannot be is now: Redis takes them so.
    count = None if count is None or count < 0 else count
    return ClaimOptions(min_idle=min_idle, time=time, count=count, force=force, just_ids=just_ids, last_id=last_id)


def xautoclaim(session: Session, args: Args) -> bytes:
    min_idle = max(integer(args[4], b"ERR Invalid min-idle-time argument for XAUTOCLAIM"), 0)
    start = ids.parse_start(args[5])
    count, just_ids, at = 100, False, 6
    while at < len(args):
        option = args[at].upper()
        if option == b"COUNT" and at + 1 < len(args):
            at += 1
            problem = b"ERR COUNT must be > 0"
            count = integer(args[at], problem)
            if not 1 <= count <= _MOST:
                raise Refusal(problem)
        elif option == b"JUSTID":
            just_ids = True
        else:
            raise Refusal(SYNTAX)
        at += 1
    topic, groups = find_group(session, args[1], args[2])
    shown = groups.autoclaim(args[2], args[3], min_idle, start, count, just_ids=just_ids)
    rest_on_shown(session, topic, shown)
    return replies.array(
        [show_id(shown.next_id), _claimed(shown, session.version, just_ids=just_ids), _ids(shown.gone)]
    )


def _claimed(shown: Shown, version: int, *, just_ids: bool) -> bytes:
    return _ids([id for id, _ in shown.records]) if just_ids else show_entries(shown, version)


def _ids(found: Sequence[EntryId]) -> bytes:
    return b"*%d\r\n%b" % (len(found), show_ids(found))
