"""What a server is started with: plain values, made by whoever starts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamina.addresses import Address
from lamina.engines.queues.options import QueueOptions
from lamina.engines.store.options import StoreOptions
from lamina.log.history import DEFAULT_S, SHARE
from lamina.log.options import LogOptions
from lamina.log.reserve import LOW_WATER, SIZE
from lamina.units import MIB

if TYPE_CHECKING:
    from lamina.config.loading import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The workq door and what is behind it."""

    at: Address
    folder: str | None
    """None: jobs are kept in memory only."""
    log: LogOptions
    clean_ms: int = 300_000
    returns_leases: bool = False
    """At an orderly stop, jobs that are being worked on are ready again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The queues behind the RESP door."""

    folder: str
    log: LogOptions
    options: QueueOptions
    password: str | None = None
    """What has to be said to make a queue."""
    force: bool = False
    """Load what can be read where a restore would refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The store behind the RESP door."""

    folder: str
    options: StoreOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The RESP door and what is behind it."""

    at: Address
    folder: str
    log: LogOptions
    retain: tuple[str, ...] = ()
    """What to keep, as ``PATTERN=LIMITS`` (engines/topics/retention.py): the first that fits a topic counts."""
    idle_s: int = 0
    """Seconds after which a silent client is hung up on; 0: never."""
    max_bulk: int = 512 * 1024 * 1024
    queues: QueueSettings | None = None
    """Served by the same door; None: not at all."""
    store: StoreSettings | None = None
    """The same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The HTTP door."""

    at: Address
    is_wanted: bool = True
    """False: nobody asked for it. Where it cannot be opened the server does without, and says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Certificates, as paths of PEM files."""

    cert: str
    key: str
    client_ca: str | None = None
    """Who signs the certificates of clients; None: they need none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to serve, and where."""

    data: str | None = None
    """The data folder, with its mark and its users; None: there is none, as for workq-server."""
    jobs: JobSettings | None = None
    topics: TopicSettings | None = None
    http: HttpSettings | None = None
    tls: TlsSettings | None = None
    password: str | None = None
    """What clients have to know, beside or instead of users."""
    insecure: bool = False
    """Other machines may come without logging in, or without TLS."""
    history_s: float = DEFAULT_S
    """Seconds for which files that only the past needs stay; 0: they go at once."""
    history_percent: float = SHARE
    """Of the disk, that these may take."""
    max_connections: int = 10_000
    """Of each door."""
    max_output_bytes: int = 256 * MIB
    """Answers that clients have not taken, of all connections together."""
    reserve_bytes: int = SIZE
    """Room that is kept for a full disk, on each that the folders are on; 0: none."""
    low_water_bytes: int = LOW_WATER
    """With less than that free on a disk, nothing new is taken."""
    log_level: str = "info"
    config: Callable[[], Config] | None = None
    """The settings that hold, with their origins, for who wants to see them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What a reload found."""

    settings: Settings
    live: tuple[str, ...] = ()
    """What changed and holds from now on, a text each."""
    later: tuple[str, ...] = ()
    """What changed and needs a restart."""
    accepted: Callable[[], None] = lambda: None
    """Called when it holds."""
