"""XINFO STREAM: short, FULL, and IDS, which Redis does not have. What it tells of groups is in group_commands.

Who asks about a topic does not read it: what is shown of its entries is not counted as read.
"""

from __future__ import annotations

from typing import Final

from lamina.engines.topics import codec, entries, ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Entry, Topic
from lamina.errors import Corruption
from lamina.server.resp import replies
from lamina.server.resp.group_commands import groups_in_full
from lamina.server.resp.group_words import SYNTAX, integer, rest_on_all
from lamina.server.resp.replies import Map, Value
from lamina.server.resp.session import Args, Refusal, Session
from lamina.units import MIB

_SHOWN: Final = 10  # entries, and pending ones of each list, for who did not say how many
_NODE: Final = 100  # entries
_OF_IDS: Final = 7  # words
_MOST_IDS: Final = 1000
_PIECE: Final = 32  # entries that are read before it is looked how large they were
_ENOUGH: Final = 4 * MIB  # of entries that are looked at for their ids: all clients wait meanwhile


def info_stream(session: Session, args: Args) -> bytes:
    topic = session.topics.get(args[2])
    if topic is None:
        raise Refusal(b"ERR no such key")
    if len(args) == _OF_IDS and args[3].upper() == b"IDS":
        return _ids(session, topic, args)
    is_full, count = _parse(args)
    with topic.lock:  # all of it at the same moment
        rest_on_all(session, topic)
        pairs = _facts(topic)
        pairs += _in_full(topic, count or None) if is_full else _in_short(topic)
    return replies.encode(Map(pairs), session.version)


def _ids(session: Session, topic: Topic, args: Args) -> bytes:
    """XINFO STREAM key IDS start end n: the id up to which retention took entries (0-0: it never has), and the ids of
    the first entries from start to end. At most n, and maybe fewer; none: there is no more.
    """
    start, end, most = ids.parse_start(args[4]), ids.parse_end(args[5]), integer(args[6])
    if most < 1:
        raise Refusal(SYNTAX)
    with topic.lock:
        session.rest_on(topic, topic.newest_position())
        found = _first_ids(topic, start, end, min(most, _MOST_IDS))
        return replies.encode([ids.show(topic.state.let_go_to), [ids.show(id) for id in found]], session.version)


def _first_ids(topic: Topic, start: EntryId, end: EntryId, most: int) -> list[EntryId]:
    """Looked for in pieces, which grow while entries are small, but not far: large ones may come behind them."""
    found: list[EntryId] = []
    size, piece = 0, 1
    while len(found) < most and size < _ENOUGH:
        wanted = min(piece, most - len(found))
        records, _ = topic.looked_at(start, end, wanted)
        found += [id for id in map(entries.entry_id, records) if id is not None]
        if len(records) < wanted:
            break
        size, piece, start = size + sum(map(len, records)), min(piece * 2, _PIECE), EntryId(found[-1] + 1)
    return found


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
    first, last = _looked_at(topic, 1), _looked_at(topic, 1, newest_first=True)
    return [
        (b"groups", len(topic.groups.state.groups)),
        (b"first-entry", _entry(first[0]) if first else None),
        (b"last-entry", _entry(last[0]) if last else None),
    ]


def _in_full(topic: Topic, count: int | None) -> list[tuple[Value, Value]]:
    found = _looked_at(topic, count)
    return [(b"entries", [_entry(entry) for entry in found]), (b"groups", groups_in_full(topic.groups, count))]


def _looked_at(topic: Topic, count: int | None, *, newest_first: bool = False) -> list[Entry]:
    records, _ = topic.looked_at(ids.FIRST, ids.LAST, count, newest_first=newest_first)
    try:
        return [entries.decode(record) for record in records]
    except codec.BadRecord as error:
        raise Corruption(topic.folder, 0, f"an entry of this topic cannot be read: {error}") from error


def _entry(entry: Entry) -> Value:
    return [ids.show(entry[0]), entry[1]]
