"""What was asked for, checked before anything is done: a time that has passed, and a target that is new."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from lamina.engines.store.targets import check_is_empty
from lamina.errors import BadOption
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.pipeline.options import parse_moment
from lamina.pipeline.storage import open_storage
from lamina.units import show_time

_SETTLES_NS: Final = 10**9
"""A record is in its file that long after its time, at most, wherever a server writes as it should."""


def moment(given: str | int, sleep: Callable[[float], None] = time.sleep) -> int:
    """Nanoseconds since 1970. If it is only just over, wait until what was written then is in the files.

    Raises: BadOption.
    """
    found = given if isinstance(given, int) else parse_moment("time", given)
    now = time.time_ns()
    if found > now:
        raise BadOption(f"{show_time(found)} is yet to come", hint="give a time that has passed")
    if found <= 0:
        raise BadOption(f"{found} is before all times", hint="give nanoseconds since 1970, or a date")
    if now - found < _SETTLES_NS:
        sleep((_SETTLES_NS - (now - found)) / 10**9)
    return found


def target(option: str, to: str, data: str) -> tuple[Files, str]:
    """The disk and the path that something new is made at. Raises: BadOption."""
    files, path = open_storage(to)
    if not isinstance(files, RealFiles):
        raise BadOption(
            f"{to} is on shared storage, where nothing can be renamed",
            hint="make it on a disk, or one that is mounted, and copy it from there",
            option=option,
        )
    path = os.path.abspath(path)
    if "://" not in data:
        ours, theirs = os.path.realpath(path), os.path.realpath(data)
        if ours == theirs or ours.startswith(theirs + os.sep):
            raise BadOption(f"{to} is in {data} itself", hint="name a new folder elsewhere", option=option)
    return files, path


def check_is_new(files: Files, path: str) -> None:
    """Raises: BadOption, DiskError."""
    check_is_empty(files, path)
