"""Servers to make mistakes with: a request is sent with fields that are wrong, or over a disk that fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any

import pytest

from http_lab import HttpLab
from integration.console_samples import SAMPLES, Fields, address_of
from integration.console_server import STRANGE, Filled, fill, record_runs
from lamina import runs
from lamina.engines.store.catalog import part_generation
from lamina.log.files.real import RealFile, RealFiles
from lamina.server.http import openapi
from lamina.server.http.ops import all_operations
from waiting import wait_until

Answered = tuple[int, Any]
AUDIT = "logs/lamina.audit"
"""The log of what was done over HTTP, in the data folder."""

READS: dict[str, Callable[[Filled], Fields]] = {
    "logs.one": lambda filled: {"name": "topics/orders"},
    "jobs.queue": lambda filled: {"queue": "mail"},
    "jobs.list": lambda filled: {"queue": "mail"},
    "jobs.one": lambda filled: {"id": filled.ready},
    "jobs.search": lambda filled: {"text": "letter"},
    "jobs.timeline": lambda filled: {"id": filled.ready},
    "jobs.dead": lambda filled: {"queue": "mail"},
    "topics.one": lambda filled: {"name": "orders"},
    "topics.why": lambda filled: {"name": "orders"},
    "topics.entries": lambda filled: {"name": "orders", "order": "oldest"},
    "topics.entry": lambda filled: {"name": "orders", "id": filled.pending[0]},
    "topics.groups": lambda filled: {"name": "orders"},
    "topics.group": lambda filled: {"name": "orders", "group": "packers"},
    "topics.pending": lambda filled: {"name": "orders", "group": "packers"},
    "queues.show": lambda filled: {"handle": filled.handles[1]},
    "queues.browse": lambda filled: {"handle": filled.handles[1]},
    "store.scan": lambda filled: {"storage": 1},
    "store.key": lambda filled: {"storage": 1, "key": "stock/001"},
}
"""By name of an operation that looks at something: fields with which it finds it."""


def documented() -> dict[str, dict[str, int]]:
    """By code: which operations say that they may give it, and with which status."""
    found: dict[str, dict[str, int]] = {}
    for operations in openapi.document(all_operations().values())["paths"].values():
        for described in operations.values():
            for status, answer in described["responses"].items():
                if status != "200":
                    for code in answer["description"].split(", "):
                        found.setdefault(code, {})[described["operationId"]] = int(status)
    return found


def code_of(answered: Answered) -> str:
    """Of the error; empty: it is none."""
    status, found = answered
    return "" if status == 200 else str(found["error"]["code"])


class Met:
    """A server to make mistakes with."""

    def __init__(self, lab: HttpLab, filled: Filled) -> None:
        self.lab, self.filled = lab, filled

    def do(self, operation_name: str, token: str | None = None, /, **fields: object) -> Answered:
        """One operation, with these fields instead of those with which it works; None leaves one out."""
        operation = all_operations()[operation_name]
        given = {name: value for name, value in {**self.sample(operation_name), **fields}.items() if value is not None}
        path, left = address_of(operation, given)
        if operation.changes:
            return self.lab.post_json(path, left, token)
        return self.lab.get_json(path, token, **left)

    def sample(self, name: str) -> Fields:
        """Fields with which an operation works, on a server that ``fill`` filled; of another only some do."""
        made = SAMPLES.get(name) or READS.get(name)
        if made is not None:
            return made(self.filled) if self.filled.handles or name in SAMPLES else {}
        return {"id": self.run} if name in ("pipeline.run", "pipeline.page") else {}

    @property
    def run(self) -> str:
        """A run of the pipeline that left a page."""
        return next(iter(runs.ids(str(self.lab.folder))), "")

    def send(self, name: str, data: bytes = b"{}", **headers: str) -> Answered:
        """The same with any body."""
        operation = all_operations()[name]
        path, _ = address_of(operation, SAMPLES[name](self.filled) if operation.changes else {})
        sent = {"content-type": "application/json", **{key.replace("_", "-"): value for key, value in headers.items()}}
        answer = self.lab.request(operation.method, path, data if operation.changes else b"", sent)
        return answer.status, answer.json()

    def state(self, operation: str) -> object:
        """Of the part of the server that an operation is about: what a mistake must not change."""
        looks: dict[str, list[tuple[str, Fields]]] = {
            "jobs": [("jobs.queues", {})],
            "topics": [("topics.one", {"name": name}) for name in ("orders", "logs.web", STRANGE)]
            + [("topics.pending", {"limit": 1000})],
            "queues": [("queues.list", {})],
            "store": [("store.scan", {"storage": 1}), ("store.scan", {"storage": 2})],
        }
        found = [self.do(name, **fields) for name, fields in looks.get(operation.partition(".")[0], [])]
        assert [status for status, _ in found] == [200] * len(found), found
        return [_lasting(answer) for _, answer in found]

    @contextmanager
    def disk(self, folder: str, number: int, method: str = "append", *, but: str | None = None) -> Iterator[None]:
        """A disk that fails so, for what is below ``folder`` of the data and not below ``but``.

        ``method``: of a file, or of files as a whole.
        """
        below = str(self.lab.folder / folder)
        beside = None if but is None else str(self.lab.folder / but)
        kind: Any = RealFile if hasattr(RealFile, method) else RealFiles
        real = getattr(kind, method)

        def fails(self: Any, *args: Any, **options: Any) -> Any:
            path = self.path if kind is RealFile else str(args[0])
            if path.startswith(below) and not (beside and path.startswith(beside)):
                raise OSError(number, os.strerror(number), path)
            return real(self, *args, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, method, fails)
            yield

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Without the server; then it starts on what is there."""
        self.lab._opened.close()
        yield
        self.lab.__enter__()


def _lasting(found: Any) -> Any:
    """Without what differs though nothing was changed: times that pass, files, and epochs."""
    if isinstance(found, dict):
        passing = ("bytes", "files", "epoch")
        return {name: _lasting(one) for name, one in found.items() if name not in passing and not name.endswith("_s")}
    return [_lasting(each) for each in found] if isinstance(found, list) else found


@contextmanager
def filled_server(folder: Path, **settings: Any) -> Iterator[Met]:
    """With something of everything in it."""
    with HttpLab(folder, **settings) as lab:
        with lab.remote() as lm:
            filled = fill(lm)
        record_runs(lab.folder)
        met = Met(lab, filled)
        Path(runs.folder_of(str(lab.folder)), met.run + runs.PAGE).write_text("<p>a page</p>")
        yield met


@contextmanager
def damaged_server(folder: Path) -> Iterator[Met]:
    """Just started, with journals of queues, on files of which some are damaged, foreign, or of another process.

    Of the topics ``orders`` is damaged, ``logs.web`` is none, ``big`` is locked, and ``cold`` is well.
    """
    with filled_server(folder, queues="journal") as met, ExitStack() as held:
        with met.lab.remote() as lm:
            lm.topic("cold").publish({"note": "nobody looks at it"})
            lm.store.compact()
        data = met.lab.folder
        with met.stopped():
            for path in (data / "topics/orders").glob("*.dat"):
                spoil(path)
            max((data / "topics/logs.web").glob("*.dat")).write_bytes(b"PK" + bytes(100))
        flock(held.enter_context(open(data / "topics/big/lamina.lock", "a")), LOCK_EX | LOCK_NB)
        for handle in met.filled.handles:
            met.do("queues.suspend", handle=handle)
        for path in parts_of(met):
            spoil(path, 0.001)
        for path in (*(data / AUDIT).glob("*.log"), *(data / "queues").glob("*.log")):
            spoil(path, 0.4, 0.45)
        yield met


@contextmanager
def failed_server(folder: Path) -> Iterator[Met]:
    """The logs of jobs, of the topic ``orders`` with its groups, of queues, and the store have failed."""
    always: dict[str, Any] = {f"{part}.sync": "always" for part in ("jobs", "topics", "queues")}
    with filled_server(folder, **always) as met:
        with met.disk("", errno.EIO, "sync", but=AUDIT):
            for name in ("jobs.pause", "topics.publish", "topics.acknowledge"):
                met.do(name)
        with met.disk("queues", errno.ENOSPC), met.disk("queues", errno.EIO, "truncate"):
            met.do("queues.purge")
        met.do("store.put")  # its file is there: a new one that cannot be synced would be no more than refused
        with met.disk("store", errno.EIO, "sync"):
            wait_until(lambda: code_of(met.do("store.put")) == "log_failed")
        yield met


@contextmanager
def closed_server(folder: Path) -> Iterator[Met]:
    """It stops: engines are closed while requests are under way."""
    with filled_server(folder) as met:
        inside, store = met.lab.inside, met.lab.inside.find_store()
        assert inside.jobs and inside.topics and inside.queues and store
        for part in (inside.jobs, inside.topics, inside.queues.engine, store):
            part.close()
        yield met


def parts_of(met: Met) -> list[Path]:
    """The sorted files of the store."""
    return [path for path in (met.lab.folder / "store").iterdir() if part_generation(path.name) is not None]


def spoil(path: Path, begin: float = 0.25, end: float = 0.75) -> None:
    """Turn all bits of a part of a file."""
    data = bytearray(path.read_bytes())
    for place in range(int(len(data) * begin), int(len(data) * end)):
        data[place] ^= 0xFF
    path.write_bytes(data)
