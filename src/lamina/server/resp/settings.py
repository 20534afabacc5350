"""What the server was started with, as far as its clients may ask: CONFIG, INFO and HELLO show it.

A client changes none of it. CONFIG SET of a setting to the value it has is OK all the same, since many clients begin
with such a line; to another value it is refused in the words Redis has for settings that are fixed at the start. The
two sizes of stream nodes are an exception, and kept as given. Lamina has no such nodes: ``stream-node-max-entries`` is
how many entries a trim with ``~`` lets go at once, nothing follows from the other.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lamina._version import VERSION
from lamina.log.history import History
from lamina.units import KIB, MIB

REDIS_VERSION: Final = "7.0.15"
"""The one whose answers these are; clients look at it before they use a command."""

_MOST: Final = (1 << 63) - 1
_NUMBER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_SIZE: Final = re.compile(rb"([0-9]*)(|b|k|kb|m|mb|g|gb)")
_UNITS: Final = {
    b"": 1,
    b"b": 1,
    b"k": 1000,
    b"kb": KIB,
    b"m": 1000**2,
    b"mb": MIB,
    b"g": 1000**3,
    b"gb": 1024 * MIB,
}
_FIXED_IN_REDIS: Final = frozenset((b"cluster-enabled", b"daemonize", b"databases", b"io-threads"))
_PROTECTED_IN_REDIS: Final = frozenset((b"dir",))


@dataclass(kw_only=True, slots=True)
class Settings:
    """Of one server."""

    sync: str = "always"
    """The policy of the topics, as ``str(Sync)`` says it."""
    max_connections: int = 10_000
    max_bulk: int = 512 * MIB
    """Bytes of the longest word of a command."""
    idle_s: int = 0
    """Seconds after which a silent client is hung up on; 0: never."""
    past: History | None = None
    """What stays of the recent past."""
    folder: str = ""
    """Where the data is; empty: in memory."""
    version: str = VERSION
    run_id: str = field(default_factory=lambda: secrets.token_hex(20))
    """Another one at every start."""
    sections: dict[bytes, tuple[bytes, Callable[[Any], dict[str, object]]]] = field(default_factory=dict)
    """More sections of INFO, by name, with their titles: of what this process serves at other doors."""
    node_sizes: dict[bytes, int] = field(
        default_factory=lambda: {b"stream-node-max-bytes": 4 * KIB, b"stream-node-max-entries": 100}
    )

    @property
    def fsync(self) -> str:
        """The policy in the words of Redis, of which it has three."""
        return {"always": "always", "os": "no"}.get(self.sync, "everysec")

    def shown(self, port: int) -> dict[bytes, bytes]:
        """All that CONFIG GET tells, by name."""
        values: dict[str, object] = {
            "appendfsync": self.fsync,
            "appendonly": "yes",
            "cluster-enabled": "no",
            "daemonize": "no",
            "databases": 16,
            "dir": self.folder,
            "io-threads": 1,
            "maxclients": self.max_connections,
            "maxmemory": 0,
            "maxmemory-policy": "noeviction",
            "notify-keyspace-events": "",
            "port": port,
            "proto-max-bulk-len": self.max_bulk,
            "save": "",
            "timeout": self.idle_s,
        }
        named = {name.encode(): str(value).encode() for name, value in values.items()}
        return named | {name: b"%d" % size for name, size in self.node_sizes.items()}

    def why_never(self, name: bytes) -> str:
        """Why Redis lets nobody set a known setting, to no value; empty: it does."""
        if name in _PROTECTED_IN_REDIS:
            return "can't set protected config"
        return "can't set immutable config" if name in _FIXED_IN_REDIS else ""

    def why_not(self, name: bytes, value: bytes, port: int) -> str:
        """Why ``value`` cannot become the value of a known setting; empty: it can, or is it already."""
        if name in self.node_sizes:
            size = _node_size(name, value)
            return size if isinstance(size, str) else ""
        return "" if value.lower() == self.shown(port)[name] else "can't set immutable config"

    def change(self, name: bytes, value: bytes) -> None:
        """To a value of which ``why_not`` has nothing to say."""
        if name in self.node_sizes:
            size = _node_size(name, value)
            assert isinstance(size, int)
            self.node_sizes[name] = size


def whole_number(text: bytes) -> int | None:
    """As Redis reads one: 64 bits, and no other way to write it; None: it is none."""
    if not _NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if -_MOST - 1 <= number <= _MOST else None


def _node_size(name: bytes, value: bytes) -> int | str:
    """The number, or what is wrong with it."""
    if name == b"stream-node-max-bytes":
        match = _SIZE.fullmatch(value.lower())
        if match is None or len(match[1]) > 18:
            return "argument must be a memory value"
        return int(match[1] or 0) * _UNITS[match[2]]
    number = whole_number(value)
    if number is None:
        return "argument couldn't be parsed into an integer"
    return number if number >= 0 else f"argument must be between 0 and {_MOST} inclusive"
