"""``lamina serve`` and ``lamina workq-server``: the same engine, with our own flags or with workq's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lamina.cli.render import out
from lamina.engines.queues.options import QueueOptions
from lamina.engines.store.options import StoreOptions
from lamina.errors import BadOption
from lamina.log.options import LogOptions
from lamina.log.reserve import SIZE
from lamina.log.sync import ALWAYS, OS, Sync, interval
from lamina.log.sync import parse as parse_sync

if TYPE_CHECKING:
    from lamina.server.app import Address

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OFF = "off"


def _log_to_stderr() -> None:
    """What the server has to tell operators: one line each, never a key, an id of a queue or what a message says."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("lamina")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _say(line: str) -> None:
    """At once: whoever started the server waits for this line."""
    click.echo(line)
    out.file.flush()


@click.command()
@click.option("--data", metavar="DIR", required=True, type=click.Path(file_okay=False), help="The data folder.")
@click.option(
    "--workq", metavar="HOST:PORT", default="127.0.0.1:9922", show_default=True, help="Where jobs listen, or off."
)
@click.option(
    "--resp",
    metavar="HOST:PORT",
    default="127.0.0.1:6380",
    show_default=True,
    help="Where topics, queues and the store listen, or off.",
)
@click.option(
    "--sync",
    help="always, os, interval or interval:MS.  [default: always for topics and queues, interval for jobs]",
    metavar="POLICY",
)
@click.option("--segment-bytes", default=LogOptions().segment_bytes, show_default=True, help="When a new file starts.")
@click.option("--segment-age-s", type=float, help="Start a new file also when the first record of one is so old.")
@click.option("--clean-ms", default=300_000, show_default=True, help="How often old segments are cleaned.")
@click.option("--max-connections", default=10_000, show_default=True, help="More are told so and closed.")
@click.option(
    "--reserve-bytes",
    type=click.IntRange(min=0),
    default=SIZE,
    show_default=True,
    help="Room kept for a full disk, 0: none.",
)
@click.option(
    "--retain",
    multiple=True,
    metavar="PATTERN=LIMITS",
    help="What is kept of topics: 'logs.*=age:7d,bytes:10GiB'. Several times: the first that fits counts.",
)
@click.option(
    "--idle-s",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Hang up on Redis clients that are silent for so long, 0: never.",
)
@click.option(
    "--password", envvar="LAMINA_PASSWORD", help="What Redis clients have to know (AUTH). Better in LAMINA_PASSWORD."
)
@click.option(
    "--queues",
    type=click.Choice(["memory", "journal", "off"]),
    default="memory",
    show_default=True,
    help="Where the messages of queues are kept: in memory with log and dumps, or in a folder for each queue.",
)
@click.option(
    "--queue",
    "queue_settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of queues, such as quota=1000 or ttl_s=86400 (docs/reference/options.md). Several times.",
)
@click.option(
    "--queue-password",
    envvar="LAMINA_QUEUE_PASSWORD",
    help="What has to be said to make a queue. Better in LAMINA_QUEUE_PASSWORD.",
)
@click.option(
    "--store",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="Serve the store; it is made when it is first used.",
)
@click.option(
    "--store-option",
    "store_settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the store, such as compact_every_s=3600 (docs/reference/options.md). Several times.",
)
@click.option("--force-restore", is_flag=True, help="Load what can be read of queues whose files are damaged.")
@click.option("--insecure", is_flag=True, help="Listen beyond this machine without authentication.")
def serve(
    data: str,
    workq: str,
    resp: str,
    sync: str | None,
    segment_bytes: int,
    segment_age_s: float | None,
    clean_ms: int,
    max_connections: int,
    reserve_bytes: int,
    retain: tuple[str, ...],
    idle_s: int,
    password: str | None,
    queues: str,
    queue_settings: tuple[str, ...],
    queue_password: str | None,
    store: str,
    store_settings: tuple[str, ...],
    force_restore: bool,
    insecure: bool,
) -> None:
    """Serve the jobs, topics, queues and the store of a data folder until SIGTERM or Ctrl-C.

    Every answer says that its change is as safe as --sync promises. A killed server loses nothing it answered.
    """
    from lamina.server.app import JobSettings, QueueSettings, Settings, StoreSettings, TopicSettings
    from lamina.server.app import serve as run

    _log_to_stderr()
    size = _segment(segment_bytes)
    jobs = topics = None
    if workq != _OFF:
        jobs = JobSettings(
            at=_address(workq, insecure=insecure),
            folder=str(Path(data) / "jobs"),
            log=LogOptions(sync=parse_sync(sync or "interval"), segment_bytes=size, segment_age_s=segment_age_s),
            clean_ms=_positive("--clean-ms", clean_ms),
            reserve_bytes=reserve_bytes,
        )
    if resp != _OFF:
        mailboxes = None
        if queues != _OFF:
            mailboxes = QueueSettings(
                folder=str(Path(data) / "queues"),
                log=LogOptions(sync=parse_sync(sync or "always")),
                options=_queue_options(queues, queue_settings),
                reserve_bytes=reserve_bytes,
                password=queue_password or None,
                force=force_restore,
            )
        kept = None
        if store != _OFF:
            kept = StoreSettings(folder=str(Path(data) / "store"), options=_store_options(store_settings))
        topics = TopicSettings(
            at=_address(resp, insecure=insecure or bool(password)),
            folder=str(Path(data) / "topics"),
            log=LogOptions(sync=parse_sync(sync or "always"), segment_bytes=size, segment_age_s=segment_age_s),
            reserve_bytes=reserve_bytes,
            retain=retain,
            password=password or None,
            idle_s=idle_s,
            queues=mailboxes,
            store=kept,
        )
    run(Settings(jobs=jobs, topics=topics, max_connections=_positive("--max-connections", max_connections)), _say)


@click.command("workq-server")
@click.option("-listen", "--listen", default="127.0.0.1:9922", show_default=True, metavar="HOST:PORT")
@click.option("-cmdlog-path", "--cmdlog-path", default="", metavar="DIR", help="Empty: jobs are not kept.")
@click.option("-cmdlog-seg-size", "--cmdlog-seg-size", default=0, metavar="BYTES", help="0: 64 MiB.")
@click.option("-cmdlog-sync", "--cmdlog-sync", default="interval", show_default=True, metavar="POLICY")
@click.option(
    "-cmdlog-sync-int",
    "--cmdlog-sync-int",
    "--cmdlog-sync-interval",
    "-cmdlog-sync-interval",
    default=1000,
    show_default=True,
    metavar="MS",
)
@click.option("-cmdlog-clean-int", "--cmdlog-clean-int", default=300_000, show_default=True, metavar="MS")
@click.option("-insecure", "--insecure", is_flag=True, help="Listen beyond this machine without authentication.")
def workq_server(
    listen: str,
    cmdlog_path: str,
    cmdlog_seg_size: int,
    cmdlog_sync: str,
    cmdlog_sync_int: int,
    cmdlog_clean_int: int,
    insecure: bool,
) -> None:
    """Serve jobs with the flags and the folder layout of workq-server 0.2.0.

    Flags take one dash or two. POLICY is interval, os or always.
    """
    from lamina.server.app import JobSettings, Settings
    from lamina.server.app import serve as run

    segment = _segment(cmdlog_seg_size) if cmdlog_seg_size else LogOptions().segment_bytes
    options = LogOptions(sync=_workq_sync(cmdlog_sync, cmdlog_sync_int), segment_bytes=segment)
    clean_ms = _positive("-cmdlog-clean-int", cmdlog_clean_int)
    address = _address(listen, insecure=insecure)
    run(Settings(jobs=JobSettings(at=address, folder=cmdlog_path or None, log=options, clean_ms=clean_ms)), _say)


def _address(text: str, *, insecure: bool) -> Address:
    """Raises: BadOption for one that is open to other machines unless that is wanted."""
    from lamina.server.app import Address

    address = Address.parse(text)
    if address.host not in _LOOPBACK and not insecure:
        raise BadOption(
            f"{address} is open to other machines and there is no authentication",
            hint="listen on 127.0.0.1, set a password (RESP only), or say --insecure if the network is yours",
        )
    return address


def _queue_options(store: str, given: tuple[str, ...]) -> QueueOptions:
    """Raises: BadOption, naming the setting."""
    values = _numbers("--queue", "queues", QueueOptions, given)
    return QueueOptions(store=store, **values)  # type: ignore[arg-type]


def _store_options(given: tuple[str, ...]) -> StoreOptions:
    """Raises: BadOption, naming the setting."""
    options = StoreOptions(**_numbers("--store-option", "the store", StoreOptions, given))  # type: ignore[arg-type]
    if not options.epoch_ms:
        raise BadOption(
            "--store-option epoch_ms=0: no client could end an epoch, and no write would become durable",
            hint="give at least 1",
            option="epoch_ms",
        )
    return options


def _numbers(flag: str, of: str, kind: type[QueueOptions | StoreOptions], given: tuple[str, ...]) -> dict[str, float]:
    """What is said with a flag that sets one setting at a time. Raises: BadOption, naming the setting."""
    from dataclasses import fields

    values: dict[str, float] = {}
    known = [field.name for field in fields(kind) if field.name != "store"]
    for text in given:
        name, _, value = text.partition("=")
        if name not in known:
            raise BadOption(f"{flag} {text}: no setting of {of} has that name", hint=f"one of {', '.join(known)}")
        try:
            values[name] = int(value) if value.isdigit() else float(value)
        except ValueError:
            raise BadOption(f"{flag} {text}: that is no number", hint=f"write {name}=10") from None
    return values


def _workq_sync(policy: str, every_ms: int) -> Sync:
    if policy == "interval":
        return interval(_positive("-cmdlog-sync-int", every_ms))
    if policy not in ("os", "always"):
        raise BadOption(f"Invalid cmdlog-sync policy: {policy}", hint="write interval, os or always")
    return OS if policy == "os" else ALWAYS


def _positive(flag: str, number: int) -> int:
    if number <= 0:
        raise BadOption(f"{flag} of {number} cannot be", hint="give at least 1")
    return number


def _segment(size: int) -> int:
    return _positive("a segment size", size)
