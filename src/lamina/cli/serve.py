"""``lamina serve`` and ``lamina workq-server``: the same engine, with our own flags or with workq's."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from lamina.cli.render import out
from lamina.cli.serve_settings import to_settings
from lamina.config import SETTINGS, Given, load
from lamina.errors import BadOption
from lamina.log.options import LogOptions
from lamina.log.sync import ALWAYS, OS, Sync, interval

if TYPE_CHECKING:
    from lamina.config.loading import Change
    from lamina.server.app import Reloaded

_SEVERAL: Final = {
    "sync": ("jobs.sync", "topics.sync", "queues.sync"),
    "segment_bytes": ("jobs.segment_bytes", "topics.segment_bytes"),
    "segment_age_s": ("jobs.segment_age_s", "topics.segment_age_s"),
}
"""Flags that set more than one setting."""
_ONE: Final = {
    setting.flag.removeprefix("--").replace("-", "_"): key
    for key, setting in SETTINGS.items()
    if setting.flag and "=" not in setting.flag and setting.flag.removeprefix("--").replace("-", "_") not in _SEVERAL
}
_NAMED: Final = {"queue": "queues", "store_option": "store"}
"""Flags that name the setting, by the section it is in."""


def log_to_stderr(level: str = "info") -> None:
    """What the server has to tell operators: one line each, never a key, an id of a queue or what a message says."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("lamina")
    logger.addHandler(handler)
    logger.setLevel(level.upper())


def _say(line: str) -> None:
    """At once: whoever started the server waits for it. Nobody who listens any more is no reason to fail."""
    with suppress(OSError):
        click.echo(line)
        out.file.flush()


def _default(key: str) -> str:
    return f"  [default: {SETTINGS[key].default}]"


@click.command()
@click.option("--config", "config_file", metavar="FILE", type=click.Path(), help="The lamina.toml to read.")
@click.option("--data", metavar="DIR", type=click.Path(), help="The data folder." + _default("data"))
@click.option(
    "--workq", metavar="WHERE", help="Where jobs listen: HOST:PORT, unix:/path or off." + _default("workq.listen")
)
@click.option("--resp", metavar="WHERE", help="Where topics, queues and the store listen." + _default("resp.listen"))
@click.option("--http", metavar="WHERE", help="Where health checks listen." + _default("http.listen"))
@click.option("--public-url", metavar="URL", help="Where browsers reach the console if a proxy ends TLS: https://HOST.")
@click.option("--tls-cert", metavar="FILE", type=click.Path(), help="The certificate (PEM); then all doors speak TLS.")
@click.option("--tls-key", metavar="FILE", type=click.Path(), help="Its key (PEM).")
@click.option("--tls-client-ca", metavar="FILE", type=click.Path(), help="Clients need a certificate signed by these.")
@click.option(
    "--sync",
    help="always, os, interval or interval:MS.  [default: always for topics and queues, interval for jobs]",
    metavar="POLICY",
)
@click.option("--segment-bytes", metavar="BYTES", help="When a new file starts." + _default("jobs.segment_bytes"))
@click.option("--segment-age-s", metavar="S", help="Start a new file also when the first record of one is so old.")
@click.option("--clean-ms", metavar="MS", help="How often old segments are cleaned." + _default("jobs.clean_ms"))
@click.option("--return-leases", metavar="on|off", help="At a stop, give leased jobs back at once.  [default: off]")
@click.option(
    "--max-connections", metavar="N", help="More are told so and closed." + _default("server.max_connections")
)
@click.option(
    "--max-output-bytes",
    metavar="BYTES",
    help="Answers that clients have not taken, of all connections together." + _default("server.max_output_bytes"),
)
@click.option(
    "--reserve-bytes", metavar="BYTES", help="Room kept for a full disk, 0: none." + _default("server.reserve_bytes")
)
@click.option(
    "--low-water-bytes",
    metavar="BYTES",
    help="With less than that free on the disk nothing new is taken." + _default("server.low_water_bytes"),
)
@click.option(
    "--history-s",
    metavar="S",
    help="For so long what was can be read and restored, 0: not at all." + _default("server.history_s"),
)
@click.option(
    "--history-percent",
    metavar="PERCENT",
    help="Of the disk, that the past may take." + _default("server.history_percent"),
)
@click.option(
    "--retain",
    multiple=True,
    metavar="PATTERN=LIMITS",
    help="What is kept of topics: 'logs.*=age:7d,bytes:10GiB'. Several times: the first that fits counts.",
)
@click.option(
    "--idle-s",
    metavar="S",
    help="Hang up on Redis clients that are silent for so long, 0: never." + _default("server.idle_s"),
)
@click.option("--password", help="What clients have to know. Better in LAMINA_PASSWORD, or use lamina user add.")
@click.option(
    "--queues",
    metavar="STORE",
    help="Where messages of queues are: memory (with log and dumps), journal (a folder for each queue) or off."
    + _default("queues.store"),
)
@click.option(
    "--queue",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of queues, such as quota=1000 or ttl_s=86400 (docs/reference/options.md). Several times.",
)
@click.option("--queue-password", help="What has to be said to make a queue. Better in LAMINA_QUEUE_PASSWORD.")
@click.option("--store", metavar="on|off", help="Serve the store; it is made when it is first used.  [default: on]")
@click.option(
    "--store-option",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the store, such as compact_every_s=3600 (docs/reference/options.md). Several times.",
)
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error." + _default("server.log_level"))
@click.option("--force-restore", is_flag=True, help="Load what can be read of queues whose files are damaged.")
@click.option("--insecure", is_flag=True, default=None, help="Listen beyond this machine without login or without TLS.")
def serve(config_file: str | None, force_restore: bool, **flags: object) -> None:
    """Serve the jobs, topics, queues and the store of a data folder until SIGTERM or Ctrl-C.

    It needs no configuration. Settings come from lamina.toml (--config, LAMINA_CONFIG, the data folder or the current
    one), the environment and these flags; "lamina config show" says which hold. SIGHUP reads them again.
    Every answer says that its change is as safe as --sync promises. A killed server loses nothing it answered.
    """
    from lamina.server.app import Reloaded
    from lamina.server.app import serve as run

    if threading.current_thread() is threading.main_thread():
        # Before the server takes it and when it has ended: one that comes too early or too late kills nobody.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    given = list(_given(flags))
    config = load(config_file, flags=given).raise_problem()
    log_to_stderr(config.text("server.log_level"))
    for warning in config.warnings:
        logging.getLogger("lamina.config").warning("%s", warning)

    holds = config

    def reload() -> Reloaded:
        new = load(config_file or config.file, flags=given).raise_problem()
        live = [str(change) for change in holds.changes(new) if _can_change(change)]
        later = [str(change) for change in config.changes(new) if not _can_change(change)]

        def accepted() -> None:
            nonlocal holds
            holds = new

        settings = to_settings(new, force_restore=force_restore)
        return Reloaded(settings=settings, live=tuple(live), later=tuple(later), accepted=accepted)

    settings = replace(to_settings(config, force_restore=force_restore), config=lambda: holds)
    run(settings, _say, reload)


def _can_change(change: Change) -> bool:
    """While it runs. Whether there is TLS at all is decided when the doors open."""
    decides_tls = change.setting.name in ("tls_cert", "tls_key") and None in (change.before, change.after)
    return change.setting.is_live and not decides_tls


def _given(flags: dict[str, object]) -> Iterator[Given]:
    """What the command line says, as settings. Raises: BadOption for one of several that has no name."""
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is None:  # an empty one is told: --password "$UNSET" must not open a server
            continue
        if name in _NAMED:
            assert isinstance(value, tuple)
            for text in value:
                setting, equals, said = text.partition("=")
                if not equals:
                    raise BadOption(f"{flag} {text}: there is no value", hint=f"write {flag} {setting}=VALUE")
                yield Given(f"{_NAMED[name]}.{setting}", said, flag)
        elif isinstance(value, tuple):
            yield from (Given(_ONE[name], text, flag) for text in value)
        else:
            yield from (Given(key, value, flag) for key in _SEVERAL.get(name) or (_ONE[name],))


@click.command("workq-server")
@click.option(
    "-listen", "--listen", default="127.0.0.1:9922", show_default=True, metavar="HOST:PORT", help="Where it listens."
)
@click.option("-cmdlog-path", "--cmdlog-path", default="", metavar="DIR", help="Empty: jobs are not kept.")
@click.option("-cmdlog-seg-size", "--cmdlog-seg-size", default=0, metavar="BYTES", help="0: 64 MiB.")
@click.option(
    "-cmdlog-sync",
    "--cmdlog-sync",
    default="interval",
    show_default=True,
    metavar="POLICY",
    help="always, interval or os.",
)
@click.option(
    "-cmdlog-sync-int",
    "--cmdlog-sync-int",
    "--cmdlog-sync-interval",
    "-cmdlog-sync-interval",
    default=1000,
    show_default=True,
    metavar="MS",
    help="How often the policy interval syncs.",
)
@click.option(
    "-cmdlog-clean-int",
    "--cmdlog-clean-int",
    default=300_000,
    show_default=True,
    metavar="MS",
    help="How often it is cleaned.",
)
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
    from lamina.server.app import Address, JobSettings, Settings
    from lamina.server.app import serve as run

    segment = _positive("a segment size", cmdlog_seg_size) if cmdlog_seg_size else LogOptions().segment_bytes
    options = LogOptions(sync=_workq_sync(cmdlog_sync, cmdlog_sync_int), segment_bytes=segment)
    clean_ms = _positive("-cmdlog-clean-int", cmdlog_clean_int)
    jobs = JobSettings(at=Address.parse(listen), folder=cmdlog_path or None, log=options, clean_ms=clean_ms)
    run(Settings(jobs=jobs, insecure=insecure), _say)


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
