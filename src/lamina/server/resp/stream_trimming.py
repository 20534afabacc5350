"""MAXLEN and MINID, of XADD and XTRIM: the words, and what is let go because of them.

With ``~`` Redis removes whole nodes of its tree only. Lamina has no nodes, but does as if it had: it lets as many go at
once as a node would hold (``stream-node-max-entries``), so that not every XADD writes a record about a single entry.
Only the last node may hold fewer. It goes when nothing is to be left, as in Redis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.server.resp.group_words import SYNTAX, integer
from lamina.server.resp.session import Args, Refusal, Session

_BOTH: Final = b"ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
_LIMIT_OF_NOTHING: Final = b"ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
_LIMIT_OF_EXACT: Final = b"ERR syntax error, LIMIT cannot be used without the special ~ option"
_NO_STRATEGY: Final = b"ERR syntax error, XTRIM must be called with a trimming strategy"
_NODE: Final = 100  # entries, where no number is set


@dataclass(slots=True)
class Asked:
    """The words of an XADD or XTRIM in front of the fields."""

    length: int | None = None
    """MAXLEN."""
    oldest: EntryId | None = None
    """MINID."""
    is_rough: bool = False
    """With ``~``."""
    limit: int | None = None
    """How many may go at most, for a rough one; 0: any number."""
    makes: bool = True
    """Not NOMKSTREAM."""
    id: EntryId | None = None
    """None: by the clock."""
    has_sequence: bool = True
    """False: ``ms-*``."""
    fields_at: int = 0

    @property
    def trims(self) -> bool:
        return self.length is not None or self.oldest is not None


def parse(args: Args, *, is_add: bool) -> Asked:
    """In the order in which Redis looks at them: which mistake is told first follows from it.

    Raises: Refusal; BadTopic for an id that is none.
    """
    asked = Asked()
    at = 2
    while at < len(args):
        option, more = args[at].upper(), len(args) - at - 1
        if option == b"*" and is_add:
            break
        if option in (b"MAXLEN", b"MINID") and more:
            at = _strategy(asked, args, at)
        elif option == b"LIMIT" and more:
            at += 1
            asked.limit = integer(args[at])
            if asked.limit < 0:
                raise Refusal(b"ERR The LIMIT argument must be >= 0.")
        elif option == b"NOMKSTREAM" and is_add:
            asked.makes = False
        elif is_add:
            asked.id, asked.has_sequence = _id(args[at])
            break
        else:
            raise Refusal(SYNTAX)
        at += 1
    asked.fields_at = at + 1
    if asked.limit and not asked.trims:
        raise Refusal(_LIMIT_OF_NOTHING)
    if not is_add and not asked.trims:
        raise Refusal(_NO_STRATEGY)
    if asked.limit is not None and not asked.is_rough:
        raise Refusal(_LIMIT_OF_EXACT)
    return asked


def _strategy(asked: Asked, args: Args, at: int) -> int:
    """Returns where its last word is."""
    if asked.trims:
        raise Refusal(_BOTH)
    is_length = args[at].upper() == b"MAXLEN"
    at += 1
    if at + 1 < len(args) and args[at] in (b"~", b"="):
        asked.is_rough = args[at] == b"~"
        at += 1
    if not is_length:
        asked.oldest = ids.parse(args[at])
        return at
    asked.length = integer(args[at])
    if asked.length < 0:
        raise Refusal(b"ERR The MAXLEN argument must be >= 0.")
    return at


def _id(text: bytes) -> tuple[EntryId, bool]:
    """An id, and whether its sequence was given."""
    if text.endswith(b"-*") and text.count(b"-") == 1:
        return ids.parse(text[:-2]), False
    return ids.parse(text), True


# -- trimming --------------------------------------------------------------------------------------------------------


def node_entries(session: Session) -> int:
    """How many entries go at once when it need not be exact."""
    return session.house.settings.node_sizes[b"stream-node-max-entries"] or _NODE


def can_trim_at_once(topic: Topic, asked: Asked, node: int) -> bool:
    """``trim`` finds what it needs in memory, once one more entry is there.

    Raises: MustWait, where it has to be looked for.
    """
    if asked.length is None:
        return (asked.is_rough and _old_edge(topic, asked, node) is None) or topic.can_trim_at_once(None, asked.oldest)
    excess = topic.state.length + 1 - asked.length
    if excess < (node if asked.is_rough else 1):
        return True
    is_half = 2 * excess > topic.state.length  # then it is looked for from the other end
    return topic.can_trim_at_once(None if is_half else excess)


def trim(topic: Topic, asked: Asked, node: int) -> tuple[int, int]:
    """Let go what was asked for. Returns how many went, and the position."""
    if asked.is_rough:
        return _trim_rough(topic, asked, node)
    if asked.length is not None:
        return topic.trim_length(asked.length)
    return topic.trim_to(asked.oldest or ids.FIRST)


def _trim_rough(topic: Topic, asked: Asked, node: int) -> tuple[int, int]:
    limit = min(100 * node, 1_000_000) if asked.limit is None else asked.limit
    with topic.lock:
        length = topic.state.length
        is_length = asked.length is not None
        by = node if is_length else _read_node(node)
        most = length if not limit or limit >= length else limit - limit % by
        if is_length or topic.state.last_id < (asked.oldest or ids.FIRST):
            kept = asked.length or 0
            excess = max(length - kept, 0)
            most = min(most, excess - excess % by if kept else excess)
            return topic.trim_length(length - most) if most else (0, 0)
        edge = _old_edge(topic, asked, node)
        if not most or edge is None:
            return 0, 0
        trimmed = topic.trim_to(asked.oldest or ids.FIRST, most, by)
        return trimmed if trimmed[0] else topic.trim_to(EntryId(edge + 1))  # some of the node were deleted


def _read_node(node: int) -> int:
    """Entries of a node where they have to be read: not a whole topic, whatever the size of a node."""
    return min(node, _NODE)


def _old_edge(topic: Topic, asked: Asked, node: int) -> EntryId | None:
    """The last entry of the oldest node; None: not all of that is older than what is to stay."""
    edge = topic.edge(_read_node(node))
    return edge if edge is not None and edge < (asked.oldest or ids.FIRST) else None
