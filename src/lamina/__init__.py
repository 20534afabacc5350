"""Lamina: jobs, queues, topics and state on one append-only log that survives any crash.

    import lamina

    with lamina.open("data") as data:
        log = data.log("events")
        position = log.append(b"hello", until=lamina.Level.SYNCED)
        for record in log.reader.read(since=position):
            print(record.time_ns, record.payload)

Importing this loads next to nothing: each name below brings in its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lamina import _version

if TYPE_CHECKING:
    from lamina import errors as errors
    from lamina.client.connecting import Remote as Remote
    from lamina.client.connecting import connect as connect
    from lamina.data import Data as Data
    from lamina.data import open as open
    from lamina.engines.queues.options import QueueOptions as QueueOptions
    from lamina.engines.store.options import StoreOptions as StoreOptions
    from lamina.log import ALWAYS as ALWAYS
    from lamina.log import OS as OS
    from lamina.log import Level as Level
    from lamina.log import Log as Log
    from lamina.log import LogOptions as LogOptions
    from lamina.log import Reader as Reader
    from lamina.log import Record as Record
    from lamina.log import interval as interval

__version__ = _version.VERSION

_HOMES = {
    "ALWAYS": "lamina.log",
    "Data": "lamina.data",
    "Level": "lamina.log",
    "Log": "lamina.log",
    "LogOptions": "lamina.log",
    "OS": "lamina.log",
    "QueueOptions": "lamina.engines.queues.options",
    "Reader": "lamina.log",
    "Record": "lamina.log",
    "Remote": "lamina.client.connecting",
    "StoreOptions": "lamina.engines.store.options",
    "connect": "lamina.client.connecting",
    "interval": "lamina.log",
    "open": "lamina.data",
}

__all__ = [
    "ALWAYS",
    "OS",
    "Data",
    "Level",
    "Log",
    "LogOptions",
    "QueueOptions",
    "Reader",
    "Record",
    "Remote",
    "StoreOptions",
    "__version__",
    "connect",
    "errors",
    "interval",
    "open",
]


def __getattr__(name: str) -> object:
    if name == "errors":
        return importlib.import_module("lamina.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'lamina' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
