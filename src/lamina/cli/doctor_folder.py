"""What ``lamina doctor`` looks at in a data folder: its mark, who may read it, who has it, its users and settings."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lamina.cli import doctor_logs
from lamina.cli.doctor_finding import NOTE, OK, PROBLEM, WARNING, Finding
from lamina.errors import LaminaError
from lamina.log import mark
from lamina.log.files.real import RealFiles
from lamina.log.naming import FAMILIES
from lamina.log.survey import Progress
from lamina.server.security import tls, users
from lamina.server.security.modes import open_to_others
from lamina.units import show_duration

if TYPE_CHECKING:
    from lamina.config import Config

_FILES: Final = RealFiles()
_ENGINES: Final = ("jobs", "topics", "queues", "store")
_LOCKS: Final = (*sorted({family.lock_name for family in FAMILIES.values()}), ".lock")
_SOON_S: Final = 14 * 86_400


def look(
    folder: str,
    *,
    deep: bool = False,
    has_password: bool = False,
    progress: Progress = lambda done, total: None,
) -> Iterator[Finding]:
    """At a data folder. Changes nothing. ``has_password``: whoever comes to a server has to know one."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        yield Finding(NOTE, "data folder", f"{folder} is not there", "the first start makes it")
        return
    except OSError as error:
        yield Finding(PROBLEM, "data folder", f"{folder}: {error.strerror}", "check the path and its rights")
        return
    yield from _mark(folder, names)
    yield from _rights(folder)
    yield from _holders(folder)
    yield from _users(folder, has_password)
    yield from doctor_logs.look(folder, deep=deep, progress=progress)


def _mark(folder: str, names: list[str]) -> Iterator[Finding]:
    try:
        version = mark.check(_FILES, folder)
    except LaminaError as error:
        yield Finding(PROBLEM, "version", error.message, error.hint)
        return
    if version == mark.FORMAT:
        yield Finding(OK, "version", f"a data folder of version {version}")
    elif version:
        text = f"a data folder of version {version}, this program writes version {mark.FORMAT}"
        yield Finding(NOTE, "version", text, "the next start of a server makes it one; an older lamina then refuses it")
    elif any((Path(folder) / name).is_dir() for name in _ENGINES if name in names):
        yield Finding(NOTE, "version", "no mark: a folder of an earlier lamina", "the next start of a server makes one")
    elif names:
        yield Finding(WARNING, "data folder", f"{folder} holds no data of lamina", "check the path")
    else:
        yield Finding(NOTE, "data folder", f"{folder} is empty")


def _rights(folder: str) -> Iterator[Finding]:
    found = open_to_others(folder)
    for line in found:
        what, _, do = line.rpartition(": ")
        yield Finding(WARNING, "rights", what, do)
    if not found:
        yield Finding(OK, "rights", "nobody else may read it")
    owner = os.stat(folder).st_uid
    if owner != os.getuid():
        text = f"it belongs to user {owner}, you are {os.getuid()}"
        yield Finding(NOTE, "rights", text, "run a server as its owner, or files of two owners are mixed")
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(PROBLEM, "rights", "its owner may not write to it", f"chmod u+rwx {folder}")


def _holders(folder: str) -> Iterator[Finding]:
    """Who writes where, now."""
    held: dict[str, list[str]] = {}
    for engine in _ENGINES:
        for lock in _LOCKS:
            holder = _FILES.lock_holder(os.path.join(folder, engine, lock))
            if holder:
                held.setdefault(holder, []).append(engine)
                break
    for holder, engines in held.items():
        yield Finding(NOTE, "in use", f"{', '.join(engines)}: {holder} is writing there")
    if not held:
        yield Finding(OK, "in use", "no process has it open")


def _users(folder: str, has_password: bool) -> Iterator[Finding]:
    try:
        known = users.load(folder)
    except LaminaError as error:
        yield Finding(PROBLEM, "users", error.message, error.hint)
        return
    if known is None and has_password:
        yield Finding(OK, "users", "none: whoever knows the password may do everything")
        return
    if known is None:
        yield Finding(NOTE, "users", "none: whoever reaches a door may do everything", 'see "lamina user add"')
        return
    now = time.time_ns()
    over = sorted(user.name for user in known.values() if user.is_expired(now))
    if over:
        do = "take them off (lamina user remove NAME) or renew them"
        yield Finding(NOTE, "users", f"the time of {', '.join(over[:5])} is over", do)
    if len(over) == len(known):
        yield Finding(WARNING, "users", "nobody can log in", 'see "lamina user add"')
    else:
        yield Finding(OK, "users", f"{len(known) - len(over)} may log in")


def look_at_settings(config: Config) -> Iterator[Finding]:
    """At what a server would be started with."""
    where = config.file or "the environment and the defaults"
    for problem in config.problems:
        yield Finding(PROBLEM, "settings", problem, 'see "lamina config check"')
    if not config.problems:
        yield Finding(OK, "settings", f"from {where}")
    cert, key = config.maybe("server.tls_cert"), config.maybe("server.tls_key")
    if cert is not None and key is not None:
        yield from _certificate(cert, key)


def _certificate(cert: str, key: str) -> Iterator[Finding]:
    try:
        tls.server_context(cert, key)
    except LaminaError as error:
        yield Finding(PROBLEM, "certificate", error.message, error.hint)
        return
    ends = tls.not_after(cert)
    if ends is None:
        yield Finding(NOTE, "certificate", f"{cert}: nobody can tell until when it is good")
        return
    left = ends - time.time()
    do = "renew it, then send SIGHUP to the server"
    if left <= 0:
        yield Finding(PROBLEM, "certificate", f"{cert} is over since {show_duration(-left)}", do)
    elif left < _SOON_S:
        yield Finding(WARNING, "certificate", f"{cert} ends in {show_duration(left)}", do)
    else:
        yield Finding(OK, "certificate", f"{cert} is good for {show_duration(left)}")
    mode = os.stat(key).st_mode
    if mode & 0o077:
        yield Finding(WARNING, "certificate", f"others may read the key {key}", f"chmod go-rwx {key}")
