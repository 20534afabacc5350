"""From settings as they are configured to what a server is started with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lamina.config.loading import DEFAULT

if TYPE_CHECKING:
    from lamina.addresses import Address
    from lamina.config import Config
    from lamina.server.settings import HttpSettings, Settings, TlsSettings, TopicSettings


def to_settings(config: Config, *, force_restore: bool = False) -> Settings:
    """``config`` has no problems."""
    from lamina.server.settings import JobSettings, Settings

    data, workq, resp = config.text("data"), config.address("workq"), config.address("resp")
    jobs = None
    if workq is not None:
        jobs = JobSettings(
            at=workq,
            folder=str(Path(data) / "jobs"),
            log=config.log_options("jobs"),
            clean_ms=config.number("jobs.clean_ms"),
            returns_leases=config.is_on("jobs.return_leases"),
        )
    return Settings(
        data=data,
        jobs=jobs,
        topics=None if resp is None else _topics(config, resp, force_restore=force_restore),
        http=_http(config),
        tls=_tls(config),
        password=config.maybe("server.password"),
        insecure=config.is_on("server.insecure"),
        history_s=config.decimal("server.history_s"),
        history_percent=config.decimal("server.history_percent"),
        max_connections=config.number("server.max_connections"),
        max_output_bytes=config.number("server.max_output_bytes"),
        reserve_bytes=config.number("server.reserve_bytes"),
        low_water_bytes=config.number("server.low_water_bytes"),
        log_level=config.text("server.log_level"),
    )


def _topics(config: Config, at: Address, *, force_restore: bool) -> TopicSettings:
    from lamina.server.settings import QueueSettings, StoreSettings, TopicSettings

    data = Path(config.text("data"))
    queue_options, store_options = config.queue_options(), config.store_options()
    queues = store = None
    if queue_options is not None:
        queues = QueueSettings(
            folder=str(data / "queues"),
            log=config.log_options("queues"),
            options=queue_options,
            password=config.maybe("queues.password"),
            force=force_restore,
        )
    if store_options is not None:
        store = StoreSettings(folder=str(data / "store"), options=store_options)
    return TopicSettings(
        at=at,
        folder=str(data / "topics"),
        log=config.log_options("topics"),
        retain=config.retain(),
        idle_s=config.number("server.idle_s"),
        queues=queues,
        store=store,
    )


def _http(config: Config) -> HttpSettings | None:
    from lamina.server.settings import HttpSettings

    at = config.address("http")
    return None if at is None else HttpSettings(at=at, is_wanted=config.origins["http.listen"] != DEFAULT)


def _tls(config: Config) -> TlsSettings | None:
    from lamina.server.settings import TlsSettings

    cert, key = config.maybe("server.tls_cert"), config.maybe("server.tls_key")
    if cert is None or key is None:
        return None
    return TlsSettings(cert=cert, key=key, client_ca=config.maybe("server.tls_client_ca"))
