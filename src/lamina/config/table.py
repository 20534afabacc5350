"""The one table of settings: everything that ``lamina.toml``, the environment and ``lamina serve`` can set.

``lamina config show``, ``check`` and ``example``, the environment's names and docs/reference/options.md all come from
it (a test compares the page).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lamina.config import fields, kinds
from lamina.config.kinds import Kind
from lamina.engines.queues.options import STORES, QueueOptions
from lamina.engines.store.options import StoreOptions
from lamina.log.history import DEFAULT_S, SHARE
from lamina.log.options import LogOptions
from lamina.log.reserve import LOW_WATER, SIZE
from lamina.units import MIB

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_NAMED_OTHERWISE: Final = {"server.password": "LAMINA_PASSWORD", "queues.password": "LAMINA_QUEUE_PASSWORD"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One of them."""

    section: str
    """Of ``lamina.toml``; empty: none, it stands at the top."""
    name: str
    kind: Kind
    default: object
    """None: there is no value."""
    meaning: str
    flag: str = ""
    """Of ``lamina serve``; empty: none."""
    is_live: bool = False
    """A reload (SIGHUP) can change it."""
    is_secret: bool = False

    @property
    def key(self) -> str:
        """``jobs.sync``."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def shown_key(self) -> str:
        """As people see it in the file: ``[jobs] sync``."""
        return f"[{self.section}] {self.name}" if self.section else self.name

    @property
    def variable(self) -> str:
        """Of the environment: ``LAMINA_JOBS_SYNC``."""
        return _NAMED_OTHERWISE.get(self.key, "LAMINA_" + self.key.replace(".", "_").upper())


def _listen(section: str, what: str, default: str) -> Setting:
    meaning = f"Where {what} listen: HOST:PORT, unix:/path or off."
    return Setting(
        section=section, name="listen", kind=kinds.LISTEN, default=default, meaning=meaning, flag=f"--{section}"
    )


def _server() -> Iterable[Setting]:
    def one(name: str, kind: Kind, default: object, meaning: str, **more: bool) -> Setting:
        flag = "--" + name.replace("_", "-")
        return Setting(section="server", name=name, kind=kind, default=default, meaning=meaning, flag=flag, **more)

    yield one(
        "max_connections",
        kinds.count(1, 1_000_000),
        10_000,
        "Connections of each door; more are told so and closed.",
        is_live=True,
    )
    yield one(
        "idle_s",
        kinds.seconds(is_whole=True),
        0,
        "Hang up on Redis clients that are silent for so long; 0: never.",
        is_live=True,
    )
    yield one(
        "max_output_bytes",
        kinds.size(MIB),
        256 * MIB,
        "Answers that clients have not taken, of all connections; beyond that those who have most are hung up on.",
        is_live=True,
    )
    yield one(
        "reserve_bytes",
        kinds.size(),
        SIZE,
        "Room kept for a full disk, in a file that all engines share; at most an eighth of the disk; 0: none.",
    )
    yield one(
        "low_water_bytes",
        kinds.size(),
        LOW_WATER,
        "With less than that free on the disk nothing new is taken, so that what ends work goes on; at most an eighth "
        "of the disk.",
    )
    yield one(
        "history_s",
        kinds.seconds(),
        DEFAULT_S,
        "For so long files stay that only the past needs, so that it can be read and restored; 0: they go at once.",
    )
    yield one(
        "history_percent",
        kinds.percent(),
        SHARE,
        "Of the disk, that such files of all engines take at most, and half of what nothing else takes.",
    )
    yield one(
        "password",
        kinds.text(),
        None,
        "What clients have to know. Better in the environment, or use lamina user add.",
        is_secret=True,
    )
    yield one("insecure", kinds.FLAG, False, "Listen beyond this machine without login or without TLS.")
    yield one(
        "tls_cert",
        kinds.PATH,
        None,
        "The certificate (PEM) that doors show; then every door but a socket file speaks TLS.",
        is_live=True,
    )
    yield one("tls_key", kinds.PATH, None, "Its key (PEM).", is_live=True)
    yield one(
        "tls_client_ca",
        kinds.PATH,
        None,
        "Certificates (PEM) of who signs those of clients; then each client needs one.",
    )
    yield one(
        "log_level",
        kinds.choice(*LOG_LEVELS),
        "info",
        "What is told on standard error: debug, info, warning or error.",
        is_live=True,
    )


def _log(section: str, policy: str, *names: str) -> Iterable[Setting]:
    for name in names:
        default = policy if name == "sync" else fields.default(LogOptions, name)
        yield Setting(
            section=section,
            name=name,
            kind=fields.kind(LogOptions, name),
            default=default,
            meaning=_plain(fields.meaning(LogOptions, name)),
            flag="--" + name.replace("_", "-"),
        )


def _plain(meaning: str) -> str:
    """Of the sync policy: how it is written here, not in Python."""
    if meaning.startswith("When written bytes are forced to the disk"):
        return "When written bytes are forced to the disk: always, os, interval or interval:500 (milliseconds)."
    return meaning.replace("None: never for age", "never: not for age")


def _options(section: str, options: type[QueueOptions] | type[StoreOptions], flag: str) -> Iterable[Setting]:
    for name in fields.names(options):
        if (section, name) == ("queues", "store"):
            continue  # it has one more value here
        yield Setting(
            section=section,
            name=name,
            kind=fields.kind(options, name),
            default=fields.default(options, name),
            meaning=fields.meaning(options, name),
            flag=f"{flag} {name}=",
        )


def _all() -> Iterable[Setting]:
    yield Setting(
        section="", name="data", kind=kinds.PATH, default="lamina-data", meaning="The data folder.", flag="--data"
    )
    yield from _server()
    yield _listen("workq", "jobs", "127.0.0.1:9922")
    yield _listen("resp", "topics, queues and the store", "127.0.0.1:6380")
    yield _listen("http", "health checks", "127.0.0.1:9980")
    yield Setting(
        section="http",
        name="public_url",
        kind=kinds.PUBLIC_URL,
        default=None,
        meaning="Where browsers reach the console if a proxy ends TLS in front of it: https://HOST. "
        "Headers of a proxy are not believed.",
        flag="--public-url",
    )
    yield from _log("jobs", "interval", "sync", "segment_bytes", "segment_age_s")
    yield Setting(
        section="jobs",
        name="clean_ms",
        kind=kinds.count(1),
        default=300_000,
        meaning="Milliseconds between two looks for old segments that can be cleaned.",
        flag="--clean-ms",
        is_live=True,
    )
    yield Setting(
        section="jobs",
        name="return_leases",
        kind=kinds.FLAG,
        default=False,
        meaning="At an orderly stop, give jobs that are being worked on back, to be had again at once; "
        "else their workers go on and report to the next start.",
        flag="--return-leases",
    )
    yield from _log("topics", "always", "sync", "segment_bytes", "segment_age_s")
    yield Setting(
        section="topics",
        name="retain",
        kind=kinds.RETAIN,
        default={},
        meaning="What is kept of topics, LIMITS by PATTERN; the first that fits a name counts, else all is kept.",
        flag="--retain",
        is_live=True,
    )
    yield Setting(
        section="queues",
        name="store",
        kind=kinds.choice(*STORES, kinds.OFF),
        default=fields.default(QueueOptions, "store"),
        meaning=fields.meaning(QueueOptions, "store").rstrip(".") + ", or off: no queues.",
        flag="--queues",
    )
    yield from _log("queues", "always", "sync")
    yield Setting(
        section="queues",
        name="password",
        kind=kinds.text(),
        default=None,
        meaning="What has to be said to make a queue. Better in the environment.",
        flag="--queue-password",
        is_secret=True,
    )
    yield from _options("queues", QueueOptions, "--queue")
    yield Setting(
        section="store",
        name="enabled",
        kind=kinds.FLAG,
        default=True,
        meaning="Serve the store; it is made when it is first used.",
        flag="--store",
    )
    yield from _options("store", StoreOptions, "--store-option")


SETTINGS: Final[dict[str, Setting]] = {setting.key: setting for setting in _all()}
SECTIONS: Final[tuple[str, ...]] = tuple(dict.fromkeys(setting.section for setting in SETTINGS.values()))
