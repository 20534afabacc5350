"""Commands about whole topics: which there are, deleting and renaming them, and what other keys of Redis have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import randrange, sample
from typing import Final

from lamina.engines import loops
from lamina.engines.topics.catalog import PLACES
from lamina.log.files import join
from lamina.log.folders import folder_name
from lamina.server.resp import replies
from lamina.server.resp.dispatch import Handler
from lamina.server.resp.glob import compile_glob
from lamina.server.resp.group_words import integer
from lamina.server.resp.guard import readable, sees_all
from lamina.server.resp.replies import encode
from lamina.server.resp.session import Args, Refusal, Session

_SYNTAX: Final = "ERR syntax error"
_NO_SUCH_KEY: Final = "ERR no such key"
_STREAM: Final = b"stream"
_LOOKED_AT: Final = 1000  # names, where some may not be for the user
_LISTED_AT_ONCE: Final = 2000  # names that KEYS goes through on the loop
_ERA: Final = hash(b"of this process") % 4096 * 2 * PLACES
"""What cursors of this process begin with. With it they have 53 bits, which is what some clients can hold."""


# -- which there are -----------------------------------------------------------------------------------------------


def exists(session: Session, args: Args) -> bytes:
    """EXISTS and TOUCH. A key that is named twice counts twice."""
    return replies.integer(sum(_is_there(session, key) for key in args[1:]))


def _is_there(session: Session, key: bytes) -> bool:
    """No topic is opened to find out."""
    topics = session.topics
    if not topics.exists(key):
        return False
    topic = topics.rests_on(key)
    if topic is not None:
        session.rest_on(topic, topic.newest_position())
    return True


def type_(session: Session, args: Args) -> bytes:
    return replies.simple(_STREAM if _is_there(session, args[1]) else b"none")


def _show(session: Session, names: list[bytes]) -> list[bytes]:
    """These are there, and that is shown: it may rest on records that were just made."""
    just_made = session.topics.just_made()
    if just_made:
        shown = set(names)
        for name, topic in just_made:
            if name in shown:
                session.rest_on(topic, topic.newest_position())
    return names


def keys(session: Session, args: Args) -> bytes:
    fits = compile_glob(args[1])
    if session.topics.count() > _LISTED_AT_ONCE:
        loops.must_wait()
    return encode(
        _show(session, [name for name in readable(session, session.topics.names()) if fits(name)]), session.version
    )


def dbsize(session: Session, args: Args) -> bytes:
    topics = session.topics
    if not sees_all(session):
        return replies.integer(len(_show(session, readable(session, topics.names()))))
    count = topics.existing()
    for _, topic in topics.just_made():
        session.rest_on(topic, topic.newest_position())
    return replies.integer(count)


def randomkey(session: Session, args: Args) -> bytes:
    """One of the next ones from a random place on, going round: where there are few keys, of all alike."""
    start = randrange(PLACES) + 1
    for page in _pages_around(session, start):
        for name in sample(page, len(page)):
            if readable(session, [name]) and _is_there(session, name):
                return encode(name, session.version)
    return encode(None, session.version)


def _pages_around(session: Session, start: int) -> Iterator[list[bytes]]:
    """All names from a place on, and then those before it, some at a time."""
    names: list[bytes] = []
    for place, end in ((start, PLACES + 1), (1, start)):
        while place:
            page, next_place = session.topics.page(place, _LOOKED_AT)
            names += [name for at, name in page if at < end]
            place = next_place if next_place < end else 0
            if len(names) >= _LOOKED_AT:
                yield names
                names = []
    yield names


def scan(session: Session, args: Args) -> bytes:
    """SCAN cursor [MATCH pattern] [COUNT count] [TYPE type].

    Names come in the order of their places (catalog.py), and the cursor is a place: who scans gets every topic that was
    there all the time, whatever else came and went. No more names are looked at than were asked for, unless many of
    them are not for the user.
    """
    cursor = _cursor(args[1])
    fits, count, is_stream = _scan_options(args)
    page, next_place = session.topics.page(cursor, count if sees_all(session) else max(count, _LOOKED_AT))
    found: list[bytes] = []
    last = 0
    for place, name in page:
        if len(found) >= count and place != last:  # all at one place come together
            next_place = place
            break
        last = place
        if readable(session, [name]) and session.topics.exists(name):
            found.append(name)
    shown = _show(session, [name for name in found if is_stream and fits(name)])
    return encode([b"%d" % (next_place and _ERA + next_place), shown], session.version)


def _cursor(text: bytes) -> int:
    """The place where a scan goes on."""
    if not text.isdigit() or len(text) > 20 or int(text) >= 1 << 64:
        raise Refusal("ERR invalid cursor")
    place = int(text) - _ERA
    return place if 0 < place <= PLACES else 1  # of another process, with other places: all names come once more


def _scan_options(args: Args) -> tuple[Callable[[bytes], object], int, bool]:
    """What a name has to fit, how many to look at, and whether streams are asked for."""
    fits, count, is_stream = compile_glob(b"*"), 10, True
    for at in range(2, len(args), 2):
        option, value = args[at].lower(), args[at + 1] if at + 1 < len(args) else None
        if value is None:
            raise Refusal(_SYNTAX)
        if option == b"match":
            fits = compile_glob(value)
        elif option == b"count":
            count = integer(value)
            if count < 1:
                raise Refusal(_SYNTAX)
        elif option == b"type":
            is_stream = value.lower() == _STREAM
        else:
            raise Refusal(_SYNTAX)
    return fits, count, is_stream


# -- deleting and renaming -----------------------------------------------------------------------------------------


def delete(session: Session, args: Args) -> bytes:
    """DEL and UNLINK."""
    count = 0
    try:
        for key in args[1:]:
            if session.topics.delete(key):
                count += 1
                session.house.changed(key)
    finally:
        if count:
            session.house.forget_closed()
    return replies.integer(count)


def flush(session: Session, args: Args) -> bytes:
    """FLUSHALL and FLUSHDB [ASYNC | SYNC]: all databases show the same topics."""
    if len(args) > 2 or (len(args) == 2 and args[1].lower() not in (b"async", b"sync")):
        raise Refusal(_SYNTAX)
    names = session.topics.known()
    session.topics.delete_all()
    for name in names:
        session.house.changed(name)
    session.house.forget_closed()
    return replies.OK


def rename(session: Session, args: Args) -> bytes:
    if not _rename(session, args[1], args[2]):
        raise Refusal(_NO_SUCH_KEY)
    return replies.OK


def renamenx(session: Session, args: Args) -> bytes:
    if not _is_there(session, args[1]):
        raise Refusal(_NO_SUCH_KEY)
    if _is_there(session, args[2]) or not _rename(session, args[1], args[2], only_if_free=True):
        return replies.integer(0)
    return replies.integer(1)


def _rename(session: Session, old: bytes, new: bytes, *, only_if_free: bool = False) -> bool:
    if not session.topics.rename(old, new, only_if_free=only_if_free):
        return False
    for key in (old, new):
        session.house.changed(key)
    session.house.forget_closed()
    return True


# -- what other keys have ------------------------------------------------------------------------------------------


def object_encoding(session: Session, args: Args) -> bytes:
    return encode(_STREAM if _is_there(session, args[2]) else None, session.version)


def memory_usage(session: Session, args: Args) -> bytes:
    """MEMORY USAGE key [SAMPLES count]: bytes of its files, which is where it is."""
    if len(args) > 3 and (len(args) != 5 or args[3].lower() != b"samples" or integer(args[4]) < 0):
        raise Refusal(_SYNTAX)
    if not _is_there(session, args[2]):
        return replies.null(session.version)
    loops.must_wait()
    topics = session.topics
    folder, total = join(topics.folder, folder_name(args[2])), 0
    for name in topics.files.list(folder):
        try:
            file = topics.files.open(join(folder, name))
        except OSError:  # a folder, or gone by now
            continue
        total += file.size()
        file.close()
    return replies.integer(total)


def persist(session: Session, args: Args) -> bytes:
    """Every topic lives until it is deleted: there is nothing to take back."""
    return replies.integer(0)


def expire(session: Session, args: Args) -> bytes:
    integer(args[2])
    if not _is_there(session, args[1]):
        return replies.integer(0)
    raise Refusal("ERR topics do not expire: delete them, or give the server a retention (--retain)")


def ttl(session: Session, args: Args) -> bytes:
    """TTL and PTTL: for ever, or no such key."""
    return replies.integer(-1 if _is_there(session, args[1]) else -2)


COMMANDS: dict[bytes, Handler] = {
    b"exists": exists,
    b"touch": exists,
    b"type": type_,
    b"keys": keys,
    b"scan": scan,
    b"dbsize": dbsize,
    b"randomkey": randomkey,
    b"del": delete,
    b"unlink": delete,
    b"flushall": flush,
    b"flushdb": flush,
    b"rename": rename,
    b"renamenx": renamenx,
    b"object|encoding": object_encoding,
    b"memory|usage": memory_usage,
    b"persist": persist,
    b"expire": expire,
    b"ttl": ttl,
    b"pttl": ttl,
}
