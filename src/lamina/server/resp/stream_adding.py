"""What changes a topic: XADD, XDEL, XTRIM and XSETID."""

from __future__ import annotations

from typing import Final

from lamina.engines import loops
from lamina.engines.topics import ids
from lamina.engines.topics.codec import check_counted
from lamina.engines.topics.entries import entry_id
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.errors import BadTopic, InputError
from lamina.server.resp import replies
from lamina.server.resp.entry_replies import show_id
from lamina.server.resp.group_words import SYNTAX, integer
from lamina.server.resp.session import Args, Refusal, Session
from lamina.server.resp.stream_trimming import Asked, can_trim_at_once, node_entries, parse, trim

_ARITY: Final = b"ERR wrong number of arguments for 'xadd' command"
_ZERO: Final = b"ERR The ID specified in XADD must be greater than 0-0"
_NOT_LARGER: Final = "The ID specified in XADD is equal or smaller than the target stream top item"
_SET_BELOW_TOP: Final = b"ERR The ID specified in XSETID is smaller than the target stream top item"
_SET_BELOW_GIVEN: Final = b"ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"
_ADDED_BELOW_LENGTH: Final = b"ERR The entries_added specified in XSETID is smaller than the target stream length"


# -- XADD ------------------------------------------------------------------------------------------------------------


def xadd(session: Session, args: Args) -> bytes:
    key, asked, fields_at = args[1], None, 3
    if args[2] != b"*":  # nearly all of them have no options: they are not looked for
        asked = parse(args, is_add=True)
        fields_at = asked.fields_at
    words = len(args) - fields_at
    if words < 2 or words % 2:
        raise Refusal(_ARITY)
    if asked is not None:
        # Before the topic is made, if there is none: a new one takes every id but this.
        if asked.id == ids.FIRST and asked.has_sequence:
            raise Refusal(_ZERO)
        if not asked.makes and session.topics.get(key) is None:
            return replies.null(session.version)
    topic = session.topics.get_or_make(key)
    try:
        id, position = topic.add(args[3:]) if asked is None else _add(session, topic, args[fields_at:], asked)
    except InputError:
        session.topics.delete_unused(key)
        raise
    session.rest_on(topic, position)
    session.house.changed(key)
    return show_id(id)


def _add(session: Session, topic: Topic, fields: Args, asked: Asked) -> tuple[EntryId, int]:
    """Add an entry and trim. Returns its id, and the position of what was written last."""
    with topic.lock:
        node = node_entries(session)
        if asked.trims and not can_trim_at_once(topic, asked, node):
            loops.must_wait()  # before the entry is added
        id, position = topic.add(fields, _resolved(topic, asked))
        if asked.trims:
            _, trimmed_at = trim(topic, asked, node)
            position = trimmed_at or position
        return id, position


def _resolved(topic: Topic, asked: Asked) -> EntryId | None:
    """The id to add under; None: by the clock. Raises: BadTopic."""
    wanted, last = asked.id, topic.state.last_id
    if last == ids.LAST:
        topic.next_id()  # raises: of all that is wrong with an id, Redis tells this first
    if wanted is None or asked.has_sequence:
        return wanted
    id = max(wanted, EntryId(last + 1))
    if ids.ms_of(id) != ids.ms_of(wanted):
        raise BadTopic(_NOT_LARGER)
    return id


# -- XDEL, XTRIM -----------------------------------------------------------------------------------------------------


def xdel(session: Session, args: Args) -> bytes:
    topic = session.topics.get(args[1])
    if topic is None:
        return replies.integer(0)
    count, position = topic.delete([ids.parse(text) for text in args[2:]])
    session.rest_on(topic, position or topic.newest_position())
    return replies.integer(count)


def xtrim(session: Session, args: Args) -> bytes:
    asked = parse(args, is_add=False)
    topic = session.topics.get(args[1])
    if topic is None:
        return replies.integer(0)
    count, position = trim(topic, asked, node_entries(session))
    session.rest_on(topic, position or topic.newest_position())
    return replies.integer(count)


# -- XSETID ----------------------------------------------------------------------------------------------------------


def xsetid(session: Session, args: Args) -> bytes:
    last = ids.parse(args[2])
    added, deleted = _set_options(args, last)
    topic = session.topics.get(args[1])
    if topic is None:
        raise Refusal(b"ERR no such key")
    with topic.lock:
        if last < _top(topic):
            raise Refusal(_SET_BELOW_TOP)
        if added is not None and added < topic.state.length:
            raise Refusal(_ADDED_BELOW_LENGTH)
        position = topic.set_id(last, added, deleted or None)  # 0-0 leaves it as it is
    session.rest_on(topic, position)
    return replies.OK


def _set_options(args: Args, last: EntryId) -> tuple[int | None, EntryId | None]:
    """ENTRIESADDED and MAXDELETEDID. Raises: Refusal; BadTopic."""
    added: int | None = None
    deleted: EntryId | None = None
    for at in range(3, len(args), 2):
        option, has_value = args[at].upper(), at + 1 < len(args)
        if option == b"ENTRIESADDED" and has_value:
            added = integer(args[at + 1])
            if added < 0:
                raise Refusal(b"ERR entries_added must be positive")
            check_counted(added, "ENTRIESADDED")
        elif option == b"MAXDELETEDID" and has_value:
            deleted = ids.parse(args[at + 1])
            if last < deleted:
                raise Refusal(_SET_BELOW_GIVEN)
        else:
            raise Refusal(SYNTAX)
    return added, deleted


def _top(topic: Topic) -> EntryId:
    """The last id has to be at or behind this one.

    Redis looks at entries that are there. Here those that are gone count, too: what is added under an id that was
    trimmed or deleted would not be there either.
    """
    state = topic.state
    newest, _ = topic.looked_at(ids.FIRST, ids.LAST, 1, newest_first=True)
    there = [id for record in newest if (id := entry_id(record)) is not None]
    return max([state.trimmed_to, state.deleted.last() or ids.FIRST] + there)  # noqa: RUF005 - Cython knows no stars here
