"""What is known of every command before it is run: how many words it has, which of them are keys, what it may do.

The facts are those that COMMAND INFO of Redis 7.0.15 tells (a test compares them where it is installed); WAITAOF,
CLIENT SETINFO and CLIENT NO-TOUCH are as of 7.2. Clients choose by them what to send where, and dispatch.py what to
refuse.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple


class Facts(NamedTuple):
    """Of one command, or of one below another: ``xgroup|create``."""

    name: bytes
    arity: int
    """How many words, its name among them; -3: three or more."""
    flags: tuple[bytes, ...]
    first_key: int
    last_key: int
    """-1: the last word."""
    step: int
    categories: tuple[bytes, ...]
    since: bytes
    group: bytes
    summary: bytes
    subcommands: dict[bytes, Facts]
    """By the second word in small letters."""
    tips: tuple[bytes, ...] = ()
    access: tuple[tuple[bytes, ...], ...] = ()
    """What it does with its keys: once for all of them, or for each one."""
    streams_from: int = 0
    """Not 0: the keys come behind the word STREAMS, which is looked for from this word on."""

    @property
    def has_keys(self) -> bool:
        return bool(self.access)

    def fits(self, words: int) -> bool:
        """Whether it can have so many words."""
        return words == self.arity if self.arity > 0 else words >= -self.arity

    def keys_of(self, args: list[bytes]) -> list[bytes]:
        """The keys among the words of a command of which ``fits`` holds; none if they are not where they have to be."""
        if not self.has_keys:
            return []
        if not self.streams_from:
            return args[self.first_key : (self.last_key if self.last_key > 0 else len(args)) + 1 : self.step]
        for place in range(self.streams_from, len(args) - 1):
            if args[place].lower() == b"streams":
                behind = args[place + 1 :]  # the keys, then as many ids
                return behind[: len(behind) // 2]
        return []


# A command is in these by what its flags say. The order of all is the one they are told in.
_IMPLIED: Final = {
    "write": ("write",),
    "readonly": ("read",),
    "admin": ("admin", "dangerous"),
    "blocking": ("blocking",),
}
_CATEGORIES: Final = (
    *("keyspace", "read", "write", "stream", "admin", "fast", "slow", "blocking", "dangerous"),
    *("connection", "transaction", "scripting"),
)


def _facts(
    name: str,
    arity: int,
    flags: str,
    since: str,
    summary: str,
    *,
    group: str,
    also: str = "",
    access: str = "",
    keys: tuple[int, int, int] = (1, 1, 1),
    tips: str = "",
    streams_from: int = 0,
) -> Facts:
    """``also``: categories that do not follow from the flags. ``access``: comma between keys that are used unalike."""
    has = {*also.split(), "fast" if "fast" in flags.split() else "slow"}
    for flag in flags.split():
        has.update(_IMPLIED.get(flag, ()))
    first, last, step = keys if access and not streams_from else (0, 0, 0)
    return Facts(
        name=name.encode(),
        arity=arity,
        flags=_split(flags),
        first_key=first,
        last_key=last,
        step=step,
        categories=tuple(b"@" + category.encode() for category in _CATEGORIES if category in has),
        since=since.encode(),
        group=group.encode(),
        summary=summary.encode(),
        subcommands={},
        tips=_split(tips),
        access=tuple(map(_split, access.split(","))) if access else (),
        streams_from=streams_from,
    )


def _split(text: str) -> tuple[bytes, ...]:
    return tuple(text.encode().split())


def _over(facts: Facts, *below: Facts) -> Facts:
    """``facts`` with commands below it, whose words begin one later."""
    for each in below:
        moved = 1 if each.first_key else 0
        facts.subcommands[each.name] = each._replace(
            name=facts.name + b"|" + each.name, first_key=each.first_key + moved, last_key=each.last_key + moved
        )
    return facts


# -- the commands --------------------------------------------------------------------------------------------------

_connection = partial(_facts, group="connection", also="connection")
_server = partial(_facts, group="server")
_transaction = partial(_facts, group="transactions", also="transaction")
_generic = partial(_facts, group="generic", also="keyspace")
_stream = partial(_facts, group="stream", also="stream")
_script = partial(_facts, group="scripting", also="scripting")

_ANY_TIME = "loading stale"
_TALK = "noscript loading stale"
_ADMIN = "admin noscript loading stale"
_DOOR = "noscript loading stale fast no_auth allow_busy"
_QUICK = "noscript loading stale fast allow_busy"
_ALL = (1, -1, 1)
_HELP = "Say what is below this command."

_SHARDS = "request_policy:all_shards"
_SUM = "request_policy:multi_shard response_policy:agg_sum"
_EVERYWHERE = "request_policy:all_shards response_policy:all_succeeded"
_NODES = "request_policy:all_nodes response_policy:all_succeeded"
_VARIES = "nondeterministic_output"
_ANY_ORDER = "nondeterministic_output_order"

_CONNECTION = (
    _connection("hello", -1, _DOOR, "6.0.0", "Agree on the protocol; log in and take a name on the way."),
    _connection("auth", -2, _DOOR, "1.0.0", "Log in."),
    _connection("ping", -1, "fast", "1.0.0", "Say PONG, or what was said.", tips=_EVERYWHERE),
    _connection("echo", 2, "loading stale fast", "1.0.0", "Say what was said."),
    _connection("quit", -1, _DOOR, "1.0.0", "Hang up."),
    _connection("reset", 1, _DOOR, "6.2.0", "Begin again as if just connected."),
    _connection("select", 2, "loading stale fast", "1.0.0", "Choose a database; all show the same topics."),
    _over(
        _connection("client", -2, "", "2.4.0", "All about connections.", also=""),
        _connection("setinfo", 4, _TALK, "7.2.0", "Say which library the client is."),
        _connection("setname", 3, _TALK, "2.6.9", "Give this connection a name."),
        _connection("getname", 2, _TALK, "2.6.9", "The name of this connection."),
        _connection("id", 2, _TALK, "5.0.0", "The number of this connection."),
        _connection("info", 2, _TALK, "6.2.0", "What is known of this connection.", tips=_VARIES),
        _connection("list", -2, _ADMIN, "2.4.0", "What is known of all connections.", tips=_VARIES),
        _connection("kill", -3, _ADMIN, "2.4.0", "Close connections."),
        _connection("no-evict", 3, _ADMIN, "7.0.0", "Keep this connection when memory is short."),
        _connection("no-touch", 3, _TALK, "7.2.0", "Leave the age of keys alone."),
        _connection("reply", 3, _TALK, "3.2.0", "Whether commands are answered."),
        _connection("help", 2, _ANY_TIME, "5.0.0", _HELP),
    ),
    _over(
        _server("acl", -2, "", "6.0.0", "All about users."),
        _server("whoami", 2, _TALK, "6.0.0", "The name of the user of this connection."),
        _server("users", 2, _ADMIN, "6.0.0", "The names of all users."),
    ),
)

_SERVER = (
    _over(
        _server("command", -1, _ANY_TIME, "2.8.13", "The facts of all commands.", also="connection", tips=_ANY_ORDER),
        _server("count", 2, _ANY_TIME, "2.8.13", "How many commands there are.", also="connection"),
        _server("list", -2, _ANY_TIME, "7.0.0", "The names of commands.", also="connection", tips=_ANY_ORDER),
        _server("info", -2, _ANY_TIME, "2.8.13", "The facts of some commands.", also="connection", tips=_ANY_ORDER),
        _server("docs", -2, _ANY_TIME, "7.0.0", "What commands are for.", also="connection", tips=_ANY_ORDER),
        _server("getkeys", -4, _ANY_TIME, "2.8.13", "The keys among the words of a command.", also="connection"),
        _server("help", 2, _ANY_TIME, "5.0.0", _HELP, also="connection"),
    ),
    _server(
        *("info", -1, _ANY_TIME, "1.0.0", "The state of the server as text."),
        also="dangerous",
        tips=f"{_VARIES} {_SHARDS} response_policy:special",
    ),
    _over(
        _server("config", -2, "", "2.0.0", "All about settings."),
        _server("get", -3, _ADMIN, "2.0.0", "The values of settings."),
        _server("set", -4, _ADMIN, "2.0.0", "Change settings.", tips=_NODES),
        _server("resetstat", 2, _ADMIN, "2.0.0", "Count from 0 again."),
        _server("help", 2, _ANY_TIME, "5.0.0", _HELP),
    ),
    _server("time", 1, "loading stale fast", "2.6.0", "The time of the server.", tips=_VARIES),
    _server("debug", -2, _ADMIN, "1.0.0", "For tests of clients: wait for a while."),
    _over(
        _server("memory", -2, "", "4.0.0", "All about memory."),
        _server("usage", -3, "readonly", "4.0.0", "How many bytes a key takes.", access="RO"),
    ),
    _server(
        "dbsize",
        1,
        "readonly fast",
        "1.0.0",
        "How many topics there are.",
        also="keyspace",
        tips=f"{_SHARDS} response_policy:agg_sum",
    ),
    _server("flushall", -1, "write", "1.0.0", "Delete all topics.", also="keyspace dangerous", tips=_EVERYWHERE),
    _server("flushdb", -1, "write", "1.0.0", "Delete all topics.", also="keyspace dangerous", tips=_EVERYWHERE),
    _over(
        _script("function", -2, "", "7.0.0", "All about functions, of which there are none.", also=""),
        _script("flush", -2, "write noscript", "7.0.0", "Forget all functions.", tips=_EVERYWHERE),
    ),
    _over(
        _script("script", -2, "", "2.6.0", "All about scripts, of which there are none.", also=""),
        _script("flush", -2, "noscript", "2.6.0", "Forget all scripts.", tips=_NODES),
    ),
)

_TRANSACTIONS = (
    _transaction("multi", 1, _QUICK, "1.2.0", "Collect the commands that come, up to EXEC."),
    _transaction("exec", 1, "noscript loading stale skip_slowlog", "1.2.0", "Run what was collected, all at once."),
    _transaction("discard", 1, _QUICK, "2.0.0", "Forget what was collected."),
    _transaction("watch", -2, _QUICK, "2.2.0", "Have EXEC run nothing if a key changes.", access="RO", keys=_ALL),
    _transaction("unwatch", 1, _QUICK, "2.2.0", "Watch no key any more."),
)

_KEYS = (
    _generic("del", -2, "write", "1.0.0", "Delete topics.", access="RM delete", keys=_ALL, tips=_SUM),
    _generic("unlink", -2, "write fast", "4.0.0", "Delete topics.", access="RM delete", keys=_ALL, tips=_SUM),
    _generic("exists", -2, "readonly fast", "1.0.0", "How many are there.", access="RO", keys=_ALL, tips=_SUM),
    _generic("touch", -2, "readonly fast", "3.2.1", "How many are there.", access="RO", keys=_ALL, tips=_SUM),
    _generic("type", 2, "readonly fast", "1.0.0", "What a key holds: a stream, or none.", access="RO"),
    _generic("keys", 2, "readonly", "1.0.0", "The topics whose names fit a pattern.", also="keyspace dangerous",
             tips=f"{_SHARDS} {_ANY_ORDER}"),
    _generic("scan", -2, "readonly", "2.8.0", "The names of topics, some at a time.",
             tips=f"{_VARIES} request_policy:special"),
    _generic("randomkey", 1, "readonly", "1.0.0", "The name of any topic.", tips=f"{_SHARDS} {_VARIES}"),
    _generic("rename", 3, "write", "1.0.0", "Give a topic another name.",
             access="RW access delete, OW update", keys=(1, 2, 1)),
    _generic("renamenx", 3, "write fast", "1.0.0", "Give a topic a name that is free.",
             access="RW access delete, OW insert", keys=(1, 2, 1)),
    _over(
        _generic("object", -2, "", "2.2.3", "What is known of how a key is kept.", also=""),
        _generic("encoding", 3, "readonly", "2.2.3", "How a key is kept.", access="RO", tips=_VARIES),
        _generic("help", 2, _ANY_TIME, "6.2.0", _HELP),
    ),
    _generic("persist", 2, "write fast", "2.2.0", "Have a key live for ever, as all do.", access="RW update"),
    _generic("expire", -3, "write fast", "1.0.0", "Refused: topics do not expire.", access="RW update"),
    _generic("ttl", 2, "readonly fast", "1.0.0", "Seconds a key will live: -1.", access="RO access", tips=_VARIES),
    _generic("pttl", 2, "readonly fast", "2.6.0", "Milliseconds it will: -1.", access="RO access", tips=_VARIES),
    _generic("wait", 3, "noscript", "3.0.0", "How many replicas have it: 0.", also="connection",
             tips=f"{_SHARDS} response_policy:agg_min"),
    _generic("waitaof", 4, "blocking", "7.2.0", "Wait until what this connection wrote is synced.", also="connection",
             tips=f"{_SHARDS} response_policy:agg_min"),
)  # fmt: skip

_STREAMS = (
    _stream("xadd", -5, "write denyoom fast", "5.0.0", "Append an entry.", access="RW update", tips=_VARIES),
    _stream("xlen", 2, "readonly fast", "5.0.0", "How many entries there are.", access="RO"),
    _stream("xrange", -4, "readonly", "5.0.0", "Entries from one id to another.", access="RO access"),
    _stream("xrevrange", -4, "readonly", "5.0.0", "The same, last ones first.", access="RO access"),
    _stream("xread", -4, "readonly blocking movablekeys", "5.0.0", "Entries behind an id, of several topics.",
            access="RO access", streams_from=1),
    _stream("xdel", -3, "write fast", "5.0.0", "Delete entries.", access="RW delete"),
    _stream("xtrim", -4, "write", "5.0.0", "Delete the oldest entries.", access="RW delete", tips=_VARIES),
    _stream("xsetid", -3, "write denyoom fast", "5.0.0", "Say what the last id was.", access="RW update"),
    _over(
        _stream("xgroup", -2, "", "5.0.0", "All about groups of consumers.", also=""),
        _stream("create", -5, "write denyoom", "5.0.0", "Make a group.", access="RW insert"),
        _stream("setid", -5, "write", "5.0.0", "Have a group read on from another id.", access="RW update"),
        _stream("destroy", 4, "write", "5.0.0", "Delete a group.", access="RW delete"),
        _stream("createconsumer", 5, "write denyoom", "6.2.0", "Make a consumer.", access="RW insert"),
        _stream("delconsumer", 5, "write", "5.0.0", "Delete a consumer and what it was given.", access="RW delete"),
        _stream("help", 2, _ANY_TIME, "5.0.0", _HELP),
    ),
    _stream("xreadgroup", -7, "write blocking movablekeys", "5.0.0", "Entries that no other consumer was given.",
            access="RO access", streams_from=4),
    _stream("xack", -4, "write fast", "5.0.0", "Say that entries are done.", access="RW update"),
    _stream("xpending", -3, "readonly", "5.0.0", "Entries that are not done yet.", access="RO access", tips=_VARIES),
    _stream("xclaim", -6, "write fast", "5.0.0", "Take entries over.", access="RW update", tips=_VARIES),
    _stream("xautoclaim", -6, "write fast", "6.2.0", "Take over what idles.", access="RW delete", tips=_VARIES),
    _over(
        _stream("xinfo", -2, "", "5.0.0", "All about the state of a topic.", also=""),
        _stream("stream", -3, "readonly", "5.0.0", "Of the topic.", access="RO access"),
        _stream("groups", 3, "readonly", "5.0.0", "Of its groups.", access="RO access"),
        _stream("consumers", 4, "readonly", "5.0.0", "Of the consumers of a group.", access="RO access", tips=_VARIES),
        _stream("help", 2, _ANY_TIME, "5.0.0", _HELP),
    ),
)  # fmt: skip

_queue = partial(_facts, group="queue")

_QUEUES = (
    _queue("q.new", -1, "write denyoom fast", "0.1.0", "Make a queue: the ids of its recipient and its senders."),
    _queue("q.auth", 3, "fast", "0.1.0", "Show the key of an id."),
    _queue("q.key", -3, "write fast", "0.1.0", "Set the key that senders have to show."),
    _queue("q.send", -3, "write denyoom fast", "0.1.0", "Send a message."),
    _queue("q.sub", -2, "fast", "0.1.0", "Have the messages of a queue pushed, one at a time."),
    _queue("q.unsub", -2, "fast", "0.1.0", "Have nothing of a queue pushed any more."),
    _queue("q.get", -2, "blocking", "0.1.0", "The message that is next."),
    _queue("q.ack", -3, "write fast", "0.1.0", "Say that a message was received: the next one."),
    _queue("q.off", -2, "write fast", "0.1.0", "Have a queue accept nothing more."),
    _queue("q.del", -2, "write", "0.1.0", "Delete a queue and its messages."),
    _queue("q.info", -2, "fast", "0.1.0", "What is known of a queue."),
)

_store = partial(_facts, group="store")

_STORE = (
    _store("s.write", -3, "write denyoom", "0.1.0", "Change entries of the store, all or none: the epoch."),
    _store("s.get", -3, "readonly fast", "0.1.0", "The value of a key of the store, now or as of an earlier moment."),
    _store("s.scan", -2, "readonly", "0.1.0", "Entries of the store in order of their keys, some at a time."),
    _store("s.epoch", 1, "readonly fast", "0.1.0", "The present epoch of the store, and the last that is durable."),
    _store("s.rotate", -1, "admin", "0.1.0", "Rotate the files of the store."),
    _store("s.compact", -1, "admin", "0.1.0", "Compact the store now."),
    _store("s.storages", -1, "readonly", "0.1.0", "The storages, and how many entries each has."),
    _store("s.snapshot", -1, "readonly", "0.1.0", "The epoch of what can be read now, to page through it."),
    _store("s.wait", -2, "blocking", "0.1.0", "Wait until an epoch of the store is durable."),
    _store("s.switch", -1, "write fast", "0.1.0", "End the present epoch of the store: the next one."),
    _store("s.clean", -1, "admin", "0.1.0", "Remove files of the store that are obsolete."),
)

_OWN = (
    _facts("l.why", -2, "readonly", "0.1.0", "Why a topic is as large as it is.", group="lamina", access="RO"),
    _facts("l.dump", 2, "admin", "0.1.0", "Dump the queues now.", group="lamina"),
    _facts("l.queues", 1, "admin fast", "0.1.0", "How many queues and messages there are.", group="lamina"),
)  # fmt: skip

FACTS: Final[dict[bytes, Facts]] = {
    facts.name: facts
    for group in (_CONNECTION, _SERVER, _TRANSACTIONS, _KEYS, _STREAMS, _QUEUES, _STORE, _OWN)
    for facts in group
}
"""By name in small letters; those below others are in ``subcommands``."""


def look_up(name: bytes) -> Facts | None:
    """By a name as COMMAND INFO has it, in any letters: ``xlen``, ``xgroup|create``."""
    above, bar, below = name.lower().partition(b"|")
    facts = FACTS.get(above)
    return facts.subcommands.get(below) if facts and bar else facts
