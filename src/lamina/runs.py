"""Runs over a data folder by other processes, such as ``lamina pipeline clean``: what each leaves to be looked at.

A run has a file of its own beside the data, ``pipeline/runs/<time>-<kind>-<random>.json``, written by
pipeline/recording.py while it goes on, and read by whoever shows runs. It is no part of the data: a folder is the same
without it. The names sort by time. A run whose process is gone without saying how it ended is lost.
"""

from __future__ import annotations

import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from lamina.errors import NotThere, StorageError, from_os
from lamina.log.files import join
from lamina.log.files.real import RealFiles

PART: Final = "pipeline"
"""The folder in a data folder."""
RECORD: Final = ".json"
PAGE: Final = ".html"
"""The page that a run made, kept beside its record."""
MOST_KEPT: Final = 200
"""Records; the oldest go."""
MOST_PAGES: Final = 10
MOST_PAGE_BYTES: Final = 16 << 20
"""A larger page is not kept beside the record."""

RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
LOST: Final = "lost"
SIGN_OF_LIFE_S: Final = 10.0
"""A run that goes on writes its record anew at least so often."""
_SILENT_S: Final = 6 * SIGN_OF_LIFE_S
_MOST_BYTES: Final = 256 << 10
_ID: Final = re.compile(r"\d{8}T\d{6}\.\d{3}Z-[a-z]{1,20}-[0-9a-f]{8}", re.ASCII)


Moment = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""Nanoseconds since 1970."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """Which one runs it."""

    pid: int
    started: int = 0
    """Since the machine started, in its ticks: ids of processes are used again. 0: it cannot be told."""
    place: str = ""
    """In which machine, since which start of it, and in which container: elsewhere the id means another process."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    id: str
    kind: str
    """Such as ``clean``."""
    state: str
    """``running``, ``done``, ``failed`` or ``lost``."""
    started_ns: Moment
    updated_ns: Moment
    """When this was written."""
    ended_ns: Moment | None = None
    percent: float | None = None
    """None: it is not known how much there is to do."""
    step: str = ""
    """What is being done."""
    arguments: dict[str, Any] = {}
    """What it was asked; no values of settings of Spark, and no password of an address."""
    counts: dict[str, Any] = {}
    """What it says of itself at the end."""
    read_bytes: int | None = None
    """Bytes it has been through, where that is told."""
    written_bytes: int | None = None
    error: str = ""
    """The code of the error that ended it."""
    told: str = ""
    """What went wrong."""
    report: str = ""
    """The path of the page that it made."""
    version: str = ""
    process: Process


def folder_of(data: str) -> str:
    """Where the records of a data folder are."""
    return join(join(data, PART), "runs")


def new_id(kind: str, now_ns: int) -> str:
    """A name that no other run has, and that sorts by time."""
    moment = datetime.fromtimestamp(now_ns // 10**9, UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{now_ns // 10**6 % 1000:03d}Z-{kind}-{secrets.token_hex(4)}"


def is_id(text: str) -> bool:
    """Whether a run could be called so: nothing else ever gets into a path."""
    return _ID.fullmatch(text) is not None


def ids(data: str) -> list[str]:
    """Of all that are kept, the newest first. Raises: DiskError."""
    folder = folder_of(data)
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise from_os(error, "look for runs", folder) from error
    found = [name.removesuffix(RECORD) for name in names if name.endswith(RECORD)]
    return sorted((id for id in found if is_id(id)), reverse=True)


def read(data: str, id: str, now_ns: int) -> Run:
    """One of them, as it is now.

    Raises: NotThere; StorageError if it cannot be read.
    """
    if not is_id(id):
        raise _not_there(id)
    path = join(folder_of(data), id + RECORD)
    try:
        found = msgspec.json.decode(_content(path, _MOST_BYTES), type=Run)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: this is no record of a run: {error}", hint="it can be removed") from error
    except FileNotFoundError:
        raise _not_there(id) from None
    except OSError as error:
        raise from_os(error, "read the record of a run", path) from error
    return msgspec.structs.replace(found, id=id, state=_state(found, now_ns))


def has_page(data: str, id: str) -> bool:
    """Whether a page is kept beside the record."""
    return is_id(id) and Path(folder_of(data), id + PAGE).is_file()


def page(data: str, id: str) -> bytes:
    """The page that it made. Raises: NotThere; DiskError."""
    path = join(folder_of(data), id + PAGE)
    try:
        if is_id(id):
            return _content(path, MOST_PAGE_BYTES)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise from_os(error, "read the page of a run", path) from error
    raise NotThere(f"no page of the run {id[:80]!r} is kept", hint=f"those of the newest {MOST_PAGES} reports are")


def _content(path: str, most: int) -> bytes:
    file = RealFiles().open(path)
    try:
        data = bytearray(min(file.size(), most))
        del data[file.read_into(memoryview(data), 0) :]
        return bytes(data)
    finally:
        file.close()


def _not_there(id: str) -> NotThere:
    return NotThere(f"there is no run {id[:80]!r}", hint=f"the newest {MOST_KEPT} are kept")


# -- is it still there? ----------------------------------------------------------------------------------------------


def _state(run: Run, now_ns: int) -> str:
    if run.state != RUNNING:
        return run.state
    here = this_process()
    if run.process.place and run.process.place == here.place:
        if _started(run.process.pid) == run.process.started:
            return RUNNING
        if _sees_others():
            return LOST
    # Elsewhere, or on a system that does not tell: by its sign of life.
    return LOST if now_ns - run.updated_ns > _SILENT_S * 10**9 else RUNNING


def this_process() -> Process:
    """The one that asks."""
    pid = os.getpid()
    return Process(pid=pid, started=_started(pid), place=_place())


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except (OSError, ValueError):
        return ""


def _sees_others() -> bool:
    """A server may be kept from seeing processes of other users: the first one is there, and belongs to none of us."""
    return os.path.exists("/proc/1/stat")


def _started(pid: int) -> int:
    """0: there is no such process, or nobody can tell."""
    try:
        # Behind the name, which may hold anything, the 20th word is the start time.
        after = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return 0 if after[0] in (b"Z", b"X") else int(after[19])
    except (OSError, ValueError, IndexError):
        return 0
