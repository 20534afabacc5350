"""The options of a write, parsed in one place: where to publish, into which topic, and under which name.

path=data                                          a data folder that no server has
server=host:port, stagingPath=folder               a running server
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lamina.engines.topics.messages import to_name
from lamina.errors import BadOption
from lamina.log.files import Files, join
from lamina.log.folders import folder_name
from lamina.log.naming import STAGING, sort_out
from lamina.pipeline.options import check_names, nearest

WRITING: Final = {
    "path": "a data folder that no server has",
    "server": "a running server: host:port of its RESP door",
    "password": "of that server; else LAMINA_PASSWORD",
    "stagingPath": "with server: a folder that driver and executors reach, and that a driver after a crash finds again",
    "topic": "the topic for all rows; else the column topic",
    "queryId": "a name under which a batch is published once; a stream has one of its own",
    "batchId": "with queryId: which of its batches a write is; 0 unless given",
    "inDoubt": "what to do about entries that were perhaps published and are gone: fail, publish or skip",
}
PUBLICATIONS: Final = "publications"
"""The folder where is kept what was published."""
FAIL, PUBLISH, SKIP = "fail", "publish", "skip"
_DOUBTS: Final = (FAIL, PUBLISH, SKIP)
_PARTS: Final = frozenset({"jobs", "topics", "queues", "store", "logs", PUBLICATIONS, STAGING})
_OF_CHECKPOINT: Final = "lamina"
_LONGEST_QUERY: Final = 200
_LARGEST_BATCH: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What was asked for."""

    place: str
    """Where staged files and what is known of publications are: the data folder, or the staging path."""
    server: tuple[str, int] | None = None
    """None: ``place`` is the data folder to publish into."""
    password: str | None = field(default=None, repr=False)
    topic: bytes | None = None
    query: str | None = None
    batch: int = 0
    in_doubt: str = FAIL

    @classmethod
    def parse(cls, given: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
        """Raises: BadOption, BadName; naming the option and what is right."""
        check_names(given, WRITING)
        options = {name.lower(): value for name, value in given.items()}
        query, batch = options.get("queryid"), options.get("batchid")
        if query is not None and not 0 < len(folder_name(query.encode("utf-8", "replace"))) <= _LONGEST_QUERY:
            raise BadOption(f"queryId: {query[:40]!r} is too long", hint=f"at most {_LONGEST_QUERY} bytes")
        if batch is not None and is_stream:
            raise BadOption("batchId: a stream counts its batches itself", hint="leave it out")
        if batch is not None and query is None:
            raise BadOption("batchId: without a queryId it says nothing", hint="give both, or none")
        if batch is not None and not (batch.isascii() and batch.isdigit() and int(batch) <= _LARGEST_BATCH):
            raise BadOption(f"batchId: {batch!r} is no number", hint="0 or more, such as the batch id of foreachBatch")
        doubt = options.get("indoubt", FAIL).lower()
        if doubt not in _DOUBTS:
            raise BadOption(f"inDoubt: there is no {doubt!r}", hint=nearest(doubt, _DOUBTS))
        topic = options.get("topic")
        return cls(
            place=_place(options, is_stream=is_stream),
            server=_address(options["server"]) if "server" in options else None,
            password=options.get("password") or os.environ.get("LAMINA_PASSWORD"),
            topic=None if topic is None else checked_topic(topic),
            query=query,
            batch=int(batch or 0),
            in_doubt=doubt,
        )


def checked_topic(name: str) -> bytes:
    """Raises: BadName for one that no topic can have."""
    raw = to_name(name)
    folder_name(raw)
    return raw


def check_data_folder(files: Files, folder: str) -> None:
    """It is a data folder, or can become one. Raises: BadOption, else."""
    try:
        names = files.list(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadOption(f"path: {folder} is no folder", hint="name a data folder") from error
    if ".lock" in names or sort_out(names).segments:
        hint = 'name the data folder it is in, and the topic with option("topic", ...)'
        raise BadOption(f"path: {folder} is only a part of a data folder", hint=hint)
    if names and _PARTS.isdisjoint(names):
        hint = "name a data folder, an empty folder, or one that is not there yet"
        raise BadOption(f"path: {folder} is no folder of lamina's", hint=hint)


def _place(options: Mapping[str, str], *, is_stream: bool) -> str:
    path, staging = options.get("path"), options.get("stagingpath")
    if "server" not in options:
        if staging is not None or "password" in options:
            which = "stagingPath" if staging is not None else "password"
            raise BadOption(f"{which}: it is for publishing to a server", hint='option("server", "host:port")')
        if not path:
            hint = '.save("data") for a data folder, or option("server", "host:port") for a running server'
            raise BadOption("neither a path nor a server was given", hint=hint)
        return _local("path", path)
    if path:
        raise BadOption("path and server: it is either a folder or a server", hint="leave one of them out")
    if staging:
        return _local("stagingPath", staging)
    if is_stream and options.get("checkpointlocation"):
        return join(_local("stagingPath", options["checkpointlocation"]), _OF_CHECKPOINT)
    hint = 'option("stagingPath", ...): a folder that driver and executors reach'
    raise BadOption("stagingPath: what is to be published has to be kept somewhere until the server has it", hint=hint)


def _local(name: str, path: str) -> str:
    """A path of this machine, or of one that is mounted on all of them. Raises: BadOption."""
    scheme, colon, rest = path.partition(":")
    if colon and scheme.lower() == "file":
        path = "/" + rest.lstrip("/")
    elif colon and rest.startswith("/"):
        hint = "name a folder of the file system" + ("" if name == "path" else ", by option stagingPath")
        raise BadOption(f"{name}: cannot write to {path}", hint=hint)
    return os.path.abspath(path)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise BadOption(f"server: {text!r} is no address", hint="host:port, such as 127.0.0.1:6380")
    return host.removeprefix("[").removesuffix("]"), int(port)
