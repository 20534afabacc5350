"""A run that can be looked at: while a job goes on, its record beside the data says how far it is, then how it ended.

The record is for people (runs.py says what is in it). So it never stands in the way of the job: a folder that cannot be
written to, a full disk, shared storage, and there is none, or an old one. A thread writes it, at most once a second.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

import msgspec

from lamina import runs
from lamina._version import VERSION
from lamina.errors import LaminaError
from lamina.log.files import join, write_all
from lamina.log.files.real import RealFiles
from lamina.pipeline.places import PARTS
from lamina.pipeline.running import Progress
from lamina.runs import Run

logger = logging.getLogger("lamina.pipeline")

_EVERY_S: Final = 1.0
_NEW: Final = ".new"
_MOST_COUNTS: Final = 40
_MOST_TEXT: Final = 500
_WRITTEN: Final = {
    "asof": "bytes",
    "backup": "copied_bytes",
    "dump": "bytes_after",
    "export": "bytes",
    "report": "bytes",
}
"""Where the report of a kind says how much was written."""
_BY_BYTES: Final = ("audit", "backup", "clean", "compact", "export", "report")
"""Kinds of runs whose progress is told in bytes that are read; of others it is in steps."""
_SECRET: Final = re.compile(r"(?<=://)[^/@\s]*@")
_PLACES_ABOVE: Final = 3  # of a data folder: data/topics/orders/groups


class Report(Protocol):
    """What a job gives."""

    def as_dict(self) -> dict[str, object]: ...


R = TypeVar("R", bound=Report)


class Recording:
    """One run, from ``with`` on. Threads: ``progress`` is called by the one of the job."""

    def __init__(
        self,
        data: str,
        kind: str,
        *,
        step: str = "",
        arguments: Mapping[str, object] | None = None,
        show: Progress = lambda done, total: None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """``data``: as it was given to the job, a data folder or one log of it. ``show`` is told the progress, too.

        Nothing is written yet.
        """
        self._data = data_folder(data)
        self._show = show
        self._now_ns = now_ns
        now = now_ns()
        self._run = Run(
            id=runs.new_id(kind, now),
            kind=kind,
            state=runs.RUNNING,
            started_ns=now,
            updated_ns=now,
            step=step,
            arguments=_plain(arguments or {}),
            version=VERSION,
            process=runs.this_process(),
        )
        self._lock = threading.Lock()  # of what is written
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._written: Run | None = None

    @property
    def run(self) -> Run:
        """As it is now."""
        return self._run

    def progress(self, done: int, total: int) -> None:
        """``done`` bytes (or tasks) of ``total`` are through."""
        percent = round(min(100.0 * done / total, 100.0), 1) if total > 0 else None
        read = done if self._run.kind in _BY_BYTES else None
        self._run = msgspec.structs.replace(self._run, percent=percent, read_bytes=read)
        self._show(done, total)

    def done(self, report: R) -> R:
        """What the job gave, which is given back."""
        given = report.as_dict()
        written = given.get(_WRITTEN.get(self._run.kind, ""))
        page = str(given["path"]) if str(given.get("path", "")).endswith(runs.PAGE) else ""
        self._run = msgspec.structs.replace(
            self._run,
            counts=_counts(given),
            written_bytes=written if isinstance(written, int) else None,
            report=page,
        )
        return report

    # -- its life ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Recording:
        if self._data is not None and self._begin(self._data):
            self._thread = threading.Thread(target=self._keep, name="lamina-run", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = self._now_ns()
        if error is None:
            self._run = msgspec.structs.replace(self._run, state=runs.DONE, percent=100.0, step="", ended_ns=now)
        else:
            code, told = _said(error)
            self._run = msgspec.structs.replace(self._run, state=runs.FAILED, error=code, told=told, ended_ns=now)
        if self._thread is None or self._data is None:
            return
        self._stop.set()
        self._thread.join()
        if self._run.report:
            _keep_page(self._run.report, join(runs.folder_of(self._data), self._run.id + runs.PAGE))
        self._write(is_last=True)

    def _begin(self, data: str) -> bool:
        try:
            folder = runs.folder_of(data)
            RealFiles().make_folder(folder)
            _hand_over(data, join(data, runs.PART), folder)
            _make_room(folder)
        except OSError as error:
            logger.debug("no record of this run: %s", error)
            return False
        return self._write()

    def _keep(self) -> None:
        said = time.monotonic()
        while not self._stop.wait(_EVERY_S):
            if self._run is not self._written or time.monotonic() - said >= runs.SIGN_OF_LIFE_S:
                said = time.monotonic()
                self._write()

    def _write(self, *, is_last: bool = False) -> bool:
        assert self._data is not None
        path = join(runs.folder_of(self._data), self._run.id + runs.RECORD)
        with self._lock:
            shown = self._run
            try:
                content = msgspec.json.encode(msgspec.structs.replace(shown, updated_ns=self._now_ns()))
                _replace(path, content, sync=is_last)
                _hand_over(self._data, path)
            except (OSError, ValueError, TypeError, OverflowError) as error:  # a full disk, say: the next one may do
                logger.debug("the record of this run was not written: %s", error)
                return False
            self._written = shown
        return True


def data_folder(data: str) -> str | None:
    """The data folder that a path is, or is in; None if it is none on this machine."""
    if "://" in data and not data.startswith("file://"):
        return None
    path = os.path.abspath(data.removeprefix("file://"))
    try:
        if not PARTS.isdisjoint(os.listdir(path)):
            return path
    except OSError:
        return None
    for _ in range(_PLACES_ABOVE):
        path, part = os.path.split(path)
        if part in PARTS:
            return path
    return None


def _replace(path: str, content: bytes, *, sync: bool) -> None:
    """Whoever reads sees the old one or the new one. It is synced only when it is the last: it is no data."""
    files = RealFiles()
    temporary = path + _NEW
    with contextlib.suppress(FileNotFoundError):
        files.remove(temporary)  # of a write that failed
    file = files.create(temporary)
    try:
        write_all(file, [content])
        if sync:
            file.sync()
    finally:
        file.close()
    files.rename(temporary, path)


def _make_room(folder: str) -> None:
    """The oldest go, so that there is room for one more."""
    names = os.listdir(folder)
    by_kind: dict[str, list[str]] = {runs.RECORD: [], runs.PAGE: []}
    for name in sorted(names, reverse=True):
        id, ending = os.path.splitext(name)
        if runs.is_id(id) and ending in by_kind:
            by_kind[ending].append(name)
    too_many = by_kind[runs.RECORD][runs.MOST_KEPT - 1 :] + by_kind[runs.PAGE][runs.MOST_PAGES - 1 :]
    oldest = by_kind[runs.RECORD][: runs.MOST_KEPT - 1][-1:]
    too_many += [name for name in names if name.endswith(_NEW) and oldest and name < oldest[0]]
    for name in too_many:
        with contextlib.suppress(OSError):  # somebody else did it
            os.remove(join(folder, name))


def _keep_page(path: str, kept: str) -> None:
    """A copy, so that it can be had after the page was moved or replaced."""
    with contextlib.suppress(OSError):
        if os.path.getsize(path) <= runs.MOST_PAGE_BYTES:
            with open(path, "rb") as page, open(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as to:
                shutil.copyfileobj(page, to)
            _hand_over(os.path.dirname(os.path.dirname(os.path.dirname(kept))), kept)


def _hand_over(data: str, *paths: str) -> None:
    """What root wrote belongs to whoever the data belongs to: the server may be another user, and shows it."""
    if os.geteuid() != 0:
        return
    owner = os.stat(data)
    for path in paths:
        with contextlib.suppress(OSError):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


# -- what may be told ------------------------------------------------------------------------------------------------


def _plain(arguments: Mapping[str, object]) -> dict[str, Any]:
    """Without what may be secret: of settings of Spark the names only, of addresses no password."""
    told: dict[str, Any] = {}
    for name, value in arguments.items():
        if value is None or value is False or value == () or value == {} or name == "as_json":
            continue
        told[name] = sorted(str(_short(each)) for each in value) if isinstance(value, Mapping) else _short(value)
    return told


def _counts(given: Mapping[str, object]) -> dict[str, Any]:
    """The numbers and short words of a report; of lists, how many."""
    counts: dict[str, Any] = {}
    for name, value in given.items():
        if value is not None and len(counts) < _MOST_COUNTS:
            counts[name] = len(value) if isinstance(value, (list, tuple, dict)) else _short(value)
    return counts


def _short(value: object) -> object:
    if isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    # A path may hold bytes that are no text: JSON has no way to say them.
    text = _SECRET.sub("", str(value)).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "…"


def _said(error: BaseException) -> tuple[str, str]:
    if isinstance(error, LaminaError):
        return error.code, str(_short(error.message))
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return "interrupted", "somebody stopped it"
    return "error", str(_short(f"{type(error).__name__}: {error}"))
