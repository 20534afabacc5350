"""What a user has to be allowed for each command, and whether it is. Only those are asked who may not do everything.

Topics are checked by the keys of a command, the store by the storages it names. Queues have capabilities of their own:
the right is to use them at all. What shows many names (KEYS, SCAN, DBSIZE, S.STORAGES …) shows those that may be read.
A command that has no line here is for those who may do everything with the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from lamina.server.resp.session import Args, Refusal, Session
from lamina.server.resp.table import Facts

NOAUTH: Final = b"NOAUTH Authentication required."
BEFORE_LOGIN: Final = frozenset((b"auth", b"hello", b"quit", b"reset"))
_NO_COMMAND: Final = b"NOPERM this user has no permissions to run the '%b' command"
_NO_KEY: Final = b"NOPERM this user has no permissions to access one of the keys used as arguments"


class Need(NamedTuple):
    """What a command asks for."""

    engine: str
    """Empty: whoever has logged in may run it."""
    level: str = ""
    over: str = "all"
    """Which names: all, some (what is shown is chosen), or those of its keys or storages."""

    def __str__(self) -> str:
        if not self.engine:
            return "nothing"
        return f"{self.engine}:{self.level}" + {"all": "", "some": " of some"}.get(self.over, f" of its {self.over}")


def _needs(need: Need, names: str) -> dict[bytes, Need]:
    return dict.fromkeys(names.encode().split(), need)


_FREE: Final = Need("")
_SERVER: Final = Need("admin", "admin")

NEEDS: Final[dict[bytes, Need]] = {
    **_needs(
        _FREE,
        "hello auth ping echo quit reset select time info wait waitaof multi exec discard unwatch function|flush "
        "script|flush acl|whoami client|setinfo client|setname client|getname client|id client|info client|no-evict "
        "client|no-touch client|reply command command|count command|list command|info command|docs command|getkeys "
        "client|help command|help config|help xgroup|help xinfo|help object|help",
    ),
    **_needs(
        Need("topics", "read", "keys"),
        "exists touch type ttl pttl object|encoding memory|usage watch xlen xrange xrevrange xread xpending "
        "xinfo|stream xinfo|groups xinfo|consumers l.why",
    ),
    **_needs(Need("topics", "read", "some"), "keys scan dbsize randomkey"),
    **_needs(
        Need("topics", "write", "keys"),
        "xadd xdel xtrim xgroup|create xgroup|setid xgroup|destroy xgroup|createconsumer xgroup|delconsumer "
        "xreadgroup xack xclaim xautoclaim persist expire",
    ),
    **_needs(Need("topics", "admin", "keys"), "del unlink rename renamenx xsetid"),
    **_needs(Need("topics", "admin"), "flushall flushdb"),
    **_needs(Need("queues", "read", "some"), "q.auth q.info"),
    **_needs(Need("queues", "write", "some"), "q.new q.key q.send q.sub q.unsub q.get q.ack q.off q.del"),
    **_needs(Need("queues", "admin"), "l.dump l.queues"),
    **_needs(Need("store", "read", "storages"), "s.get s.scan"),
    **_needs(Need("store", "read", "some"), "s.epoch s.storages s.snapshot s.wait"),
    **_needs(Need("store", "write", "storages"), "s.write"),
    **_needs(Need("store", "write", "some"), "s.switch"),
    **_needs(Need("store", "admin"), "s.rotate s.compact s.clean"),
    **_needs(Need("admin", "read"), "client|list config|get acl|users"),
    **_needs(_SERVER, "client|kill config|set config|resetstat debug"),
}
"""By name, in small letters; ``xgroup|create`` for a command below another."""


def admit(session: Session, facts: Facts, args: Args) -> None:
    """Raises: Refusal for who has not logged in, whose time is over, or who may not do that."""
    user = session.user
    if user is None or user.is_expired(session.house.gate.now_ns()):
        session.log_out()
        if facts.name not in BEFORE_LOGIN:
            raise Refusal(NOAUTH)
        return
    need = NEEDS.get(facts.name, _SERVER)
    if user.may_everything or not need.engine:
        return
    engine, level, over = need
    if over == "all":
        if not user.may_all(engine, level):
            raise Refusal(_NO_COMMAND % facts.name)
        return
    if not user.may_some(engine, level):
        raise Refusal(_NO_COMMAND % facts.name)
    if over != "some":
        for name in names_of(facts, args):
            if not user.may(engine, level, name):
                raise Refusal(_NO_KEY)


def may_add(session: Session, key: bytes) -> bool:
    """Whether entries can be added to a topic without asking for each."""
    user = session.user
    return (
        user is not None
        and not user.is_expired(session.house.gate.now_ns())
        and (user.may_everything or user.may("topics", "write", key))
    )


def sees_all(session: Session) -> bool:
    """Every topic."""
    return session.is_free or session.user is None or session.user.may_everything


def readable(session: Session, names: list[bytes]) -> list[bytes]:
    """Those topics of ``names`` that the user may read."""
    user = session.user
    if user is None or sees_all(session):
        return names
    return [name for name in names if user.may("topics", "read", name)]


def may_read_storage(session: Session, number: int) -> bool:
    user = session.user
    return session.is_free or (user is not None and user.may("store", "read", b"%d" % number))


def may_see_server(session: Session) -> bool:
    """Whether it may be told what is the business of those who run the server: where its files are."""
    user = session.user
    return session.is_free or (user is not None and user.may_all("admin", "read"))


def names_of(facts: Facts, args: Args) -> Iterable[bytes]:
    """Keys and storages that the command itself will find among its words: none where it will refuse them."""
    find = _FINDERS.get(facts.name)
    if find is None:
        return facts.keys_of(args)
    try:
        return find(args)
    except Refusal:  # its own to tell
        return ()


# The modules of the commands stand behind dispatch.py, which stands behind this one: they are imported when needed.


def _read_keys(args: Args) -> Iterable[bytes]:
    from lamina.server.resp.stream_reading import parse

    return parse(args)[2]


def _group_read_keys(args: Args) -> Iterable[bytes]:
    from lamina.server.resp.group_reading import parse

    # Not by the first word STREAMS: a group can have that name, and the keys then stand elsewhere.
    return parse(args).keys or ()


def _storage(args: Args) -> Iterable[bytes]:
    from lamina.server.resp.store_words import storage

    return (b"%d" % storage(args[1]),)


def _storages(args: Args) -> Iterable[bytes]:
    from lamina.server.resp.store_words import changes

    return {b"%d" % storage for _, storage, _ in changes(args)[0]}


_FINDERS: Final[dict[bytes, Callable[[Args], Iterable[bytes]]]] = {
    b"xread": _read_keys,
    b"xreadgroup": _group_read_keys,
    b"s.get": _storage,
    b"s.scan": _storage,
    b"s.write": _storages,
}
