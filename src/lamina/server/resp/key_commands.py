"""Commands about whole topics: which there are, deleting and renaming them, and what other keys of Redis have."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from random import choice
from typing import Final

from lamina.engines import loops
from lamina.log.files import join
from lamina.log.folders import folder_name
from lamina.server.resp import replies
from lamina.server.resp.dispatch import Handler
from lamina.server.resp.glob import compile_glob
from lamina.server.resp.group_words import integer
from lamina.server.resp.guard import readable
from lamina.server.resp.replies import encode
from lamina.server.resp.session import Args, Refusal, Session

_SYNTAX: Final = "ERR syntax error"
_NO_SUCH_KEY: Final = "ERR no such key"
_STREAM: Final = b"stream"


# -- which there are -----------------------------------------------------------------------------------------------


def exists(session: Session, args: Args) -> bytes:
    """EXISTS and TOUCH. A key that is named twice counts twice."""
    return replies.integer(sum(_is_there(session, key) for key in args[1:]))


def _is_there(session: Session, key: bytes) -> bool:
    topic = session.topics.get(key)
    if topic is None:
        return False
    session.rest_on(topic, topic.newest_position())
    return True


def type_(session: Session, args: Args) -> bytes:
    return replies.simple(_STREAM if _is_there(session, args[1]) else b"none")


def _names(session: Session) -> list[bytes]:
    """Of those that are there and that the user may see. The answer rests on such that were just made."""
    for _, topic in session.topics.opened():
        session.rest_on(topic, topic.newest_position())
    return readable(session, session.topics.names())


def keys(session: Session, args: Args) -> bytes:
    fits = compile_glob(args[1])
    return encode([name for name in _names(session) if fits(name)], session.version)


def dbsize(session: Session, args: Args) -> bytes:
    return replies.integer(len(_names(session)))


def randomkey(session: Session, args: Args) -> bytes:
    names = _names(session)
    return encode(choice(names) if names else None, session.version)


def scan(session: Session, args: Args) -> bytes:
    """SCAN cursor [MATCH pattern] [COUNT count] [TYPE type].

    Names come in the order of a hash, and the cursor is a hash: who scans gets every topic that was there all the time,
    whatever else came and went.
    """
    cursor = _cursor(args[1])
    fits, count, is_stream = _scan_options(args)
    found: list[bytes] = []
    next_cursor = 0
    for hash, name in sorted((_hash(name), name) for name in _names(session)):
        if hash < cursor:
            continue
        if len(found) >= count and hash != _hash(found[-1]):  # all with one hash come together
            next_cursor = hash
            break
        found.append(name)
    shown = [name for name in found if is_stream and fits(name)]
    return encode([b"%d" % next_cursor, shown], session.version)


def _hash(name: bytes) -> int:
    return zlib.crc32(name) + 1  # 0 is the cursor of the beginning, and of the end


def _cursor(text: bytes) -> int:
    if not text.isdigit() or len(text) > 20 or int(text) >= 1 << 64:
        raise Refusal("ERR invalid cursor")
    return int(text)


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
    return replies.integer(sum(_delete(session, key) for key in args[1:]))


def _delete(session: Session, key: bytes) -> bool:
    if not session.topics.delete(key):
        return False
    session.house.changed(key)
    session.house.forget_closed()
    return True


def flush(session: Session, args: Args) -> bytes:
    """FLUSHALL and FLUSHDB [ASYNC | SYNC]: all databases show the same topics."""
    if len(args) > 2 or (len(args) == 2 and args[1].lower() not in (b"async", b"sync")):
        raise Refusal(_SYNTAX)
    names = session.topics.names()
    session.topics.delete_all()
    for name in names:
        session.house.changed(name)
    session.house.forget_closed()
    return replies.OK


def rename(session: Session, args: Args) -> bytes:
    _rename(session, args[1], args[2])
    return replies.OK


def renamenx(session: Session, args: Args) -> bytes:
    if not _is_there(session, args[1]):
        raise Refusal(_NO_SUCH_KEY)
    if _is_there(session, args[2]):
        return replies.integer(0)
    _rename(session, args[1], args[2])
    return replies.integer(1)


def _rename(session: Session, old: bytes, new: bytes) -> None:
    if session.topics.get(old) is None:
        raise Refusal(_NO_SUCH_KEY)
    session.topics.rename(old, new)
    for key in (old, new):
        session.house.changed(key)
    session.house.forget_closed()


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
