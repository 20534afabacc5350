"""XINFO STREAM, short and FULL. What it tells of groups is in group_commands."""

from __future__ import annotations

from typing import Final

from lamina.engines.topics import ids
from lamina.engines.topics.topic import Entry, Topic
from lamina.server.resp import replies
from lamina.server.resp.group_commands import groups_in_full
from lamina.server.resp.group_words import integer, rest_on_all
from lamina.server.resp.replies import Map, Value
from lamina.server.resp.session import Args, Refusal, Session

_SHOWN: Final = 10  # entries, and pending ones of each list, for who did not say how many
_NODE: Final = 100  # entries


def info_stream(session: Session, args: Args) -> bytes:
    topic = session.topics.get(args[2])
    if topic is None:
        raise Refusal(b"ERR no such key")
    is_full, count = _parse(args)
    with topic.lock:  # all of it at the same moment
        rest_on_all(session, topic)
        pairs = _facts(topic)
        pairs += _in_full(topic, count or None) if is_full else _in_short(topic)
    return replies.encode(Map(pairs), session.version)


def _parse(args: Args) -> tuple[bool, int]:
    """Whether FULL was asked for, and COUNT; 0: all. Raises: Refusal."""
    options = [option.upper() for option in args[3:]]
    if not options:
        return False, 0
    if options[0] != b"FULL" or len(options) not in (1, 3) or (len(options) == 3 and options[1] != b"COUNT"):
        text = b"ERR unknown subcommand or wrong number of arguments for '%b'. Try XINFO HELP."
        raise Refusal(text % args[1][:128])
    count = integer(args[5]) if len(options) == 3 else _SHOWN
    return True, count if count >= 0 else _SHOWN


def _facts(topic: Topic) -> list[tuple[Value, Value]]:
    state = topic.state
    nodes = -(-state.length // _NODE)  # there is no tree: so many a Redis would have, about
    return [
        (b"length", state.length),
        (b"radix-tree-keys", nodes),
        (b"radix-tree-nodes", nodes + 1),
        (b"last-generated-id", ids.show(state.last_id)),
        (b"max-deleted-entry-id", ids.show(state.max_deleted)),
        (b"entries-added", state.added),
        (b"recorded-first-entry-id", ids.show(topic.first_id() or ids.FIRST)),
    ]


def _in_short(topic: Topic) -> list[tuple[Value, Value]]:
    first, _ = topic.read(ids.FIRST, ids.LAST, 1)
    last, _ = topic.read(ids.FIRST, ids.LAST, 1, newest_first=True)
    return [
        (b"groups", len(topic.groups.state.groups)),
        (b"first-entry", _entry(first[0]) if first else None),
        (b"last-entry", _entry(last[0]) if last else None),
    ]


def _in_full(topic: Topic, count: int | None) -> list[tuple[Value, Value]]:
    entries, _ = topic.read(ids.FIRST, ids.LAST, count)
    return [(b"entries", [_entry(entry) for entry in entries]), (b"groups", groups_in_full(topic.groups, count))]


def _entry(entry: Entry) -> Value:
    return [ids.show(entry[0]), entry[1]]
