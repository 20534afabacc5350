"""Consumer positions: how far somebody outside of the server has read a log, so that what comes after stays for them.

Beside the files of a log, in ``consumers/``, each consumer has one small file with its name: all up to and including
``position`` was read; what comes after is to stay until ``expires``. Cleaning, retention and the like ask here before
they remove records. Any process may save a position, without the lock of the log: a file is written under a name of its
own, synced, and renamed over the one before. So whoever looks finds the old position or the new one, whole.

    consumers/<name>                         the position
    consumers/<name>~new-<time>-<random>     being written, or left by a crash: removed a day after <time>
    consumers/<name>~aside-<time>            expired or unreadable, taken out of the way at <time> (see ``tidy``)

An unreadable file says neither position nor expiry. It holds everything, for no records may be lost on account of it,
but not for ever: a week after it was found it is given up, with an error in the log of the server. A consumer that
saves again ends that at once.

Rejected: a lock for this folder. A consumer that hangs would stop cleaning, and on shared disks locks are not sure.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from lamina.clock import SystemClock
from lamina.errors import BadOption, StorageError, from_os
from lamina.log import consumer_file
from lamina.log.consumer_file import MOST_BYTES, NEVER, Consumer
from lamina.log.files import Files, join, read_at, write_all
from lamina.log.naming import CONSUMERS, parse_file_time, show_file_time

GRACE_NS: Final = 7 * 86400 * 10**9
"""So long an unreadable file holds everything, from when cleaning met it."""
_STALE_NS: Final = 86400 * 10**9  # whoever writes a file for so long has died
_FILE: Final = re.compile(
    r"(?P<of>[^~]+)(?:~(?P<what>new|aside)-(?P<time>\d{8}T\d{6}\.\d{9}Z)(?:-[0-9a-f]+)?)?", re.ASCII
)
_UNREADABLE: Final = (
    "%s: the position of consumer %r cannot be read (%s): everything is kept for a week, or until it saves another; "
    'or remove it with "lamina log consumers DIR --remove NAME"'
)

logger = logging.getLogger("lamina.log")


# -- consumers -------------------------------------------------------------------------------------------------------


def save(
    files: Files,
    folder: str,
    name: str,
    position: int,
    expires_ns: int,
    *,
    streams: Mapping[str, int] | None = None,
    now_ns: int | None = None,
) -> None:
    """Say that ``name`` has read the log in ``folder`` up to ``position``, and needs the rest until ``expires_ns``.

    Replaces what it said before, also if that was later. A run of cleaning that is under way may have looked before:
    whoever saves for the first time, or goes back, sees after it whether the log still reaches back so far.
    Durability: when it returns, the position is synced.
    Raises: BadName; BadOption; DiskFull, DiskError (also if there is no such folder): then the one before counts.
    """
    now_ns = SystemClock().now_ns() if now_ns is None else now_ns
    for what, value in [("position", position), ("expires_ns", expires_ns), *(streams or {}).items()]:
        if not 0 <= value <= NEVER:
            raise BadOption(f"{what}: {value} is no time of a record", hint="give nanoseconds since 1970", option=what)
    file_name = consumer_file.file_name(name)
    data = consumer_file.encode(Consumer(name, position, dict(streams or {}), now_ns, expires_ns))
    place = join(folder, CONSUMERS)
    temporary = join(place, f"{file_name}~new-{show_file_time(now_ns)}-{secrets.token_hex(8)}")
    try:
        files.list(folder)  # a log that was deleted must not come back as an empty folder
        files.make_folder(place)
        files.sync_folder(folder)  # another process may have made it, and died
        file = files.create(temporary)
        try:
            write_all(file, [data])
            file.sync()
        finally:
            file.close()
        files.rename(temporary, join(place, file_name))  # commit point, made durable by the sync
        files.sync_folder(place)
    except OSError as error:
        with suppress(OSError):
            files.remove(temporary)
        raise from_os(error, f"save the position of {name!r}", place) from error


def remove(files: Files, folder: str, name: str) -> bool:
    """Nothing is kept for ``name`` any more. Returns whether it had a position. Raises: BadName; DiskError."""
    place, file_name = join(folder, CONSUMERS), consumer_file.file_name(name)
    its = [each for each in _list(files, place) if (match := _FILE.fullmatch(each)) and match["of"] == file_name]
    try:
        for each in its:
            with suppress(FileNotFoundError):
                files.remove(join(place, each))
        if its:
            files.sync_folder(place)
    except OSError as error:
        raise from_os(error, f"remove the position of {name!r}", place) from error
    return bool(its)


# -- those who remove records ----------------------------------------------------------------------------------------


def find(files: Files, folder: str) -> list[Consumer]:
    """All consumers of the log in ``folder``, also expired and unreadable ones, by name. Changes nothing.

    Raises: DiskError.
    """
    return [one for found in _look(files, join(folder, CONSUMERS)) if (one := found.counts) is not None]


def holding(files: Files, folder: str, now_ns: int) -> list[Consumer]:
    """Those whose positions count now. Changes nothing. Raises: DiskError."""
    return [one for one in find(files, folder) if not one.has_expired(now_ns)]


def held_after(files: Files, folder: str, now_ns: int, stream: str | None = None) -> int | None:
    """Records past this time must stay: where the slowest is, in one log or in any. None: nobody holds any.

    Changes nothing. Raises: DiskError.
    """
    places = [
        min([one.position, *one.streams.values()]) if stream is None else one.position_in(stream)
        for one in holding(files, folder, now_ns)
    ]
    return min(places, default=None)


def tidy(files: Files, folder: str, now_ns: int) -> list[Consumer]:
    """As ``holding``, for who is about to remove records: takes away what has expired, and bounds what is unreadable.

    One at a time for a folder: whoever has the lock of its log. Consumers go on saving meanwhile: a file is renamed
    before it is removed, so that a position which came just then is found in it, and put back.
    Raises: DiskError if the folder cannot be listed. What cannot be taken away is told as a warning and tried again.
    """
    place = join(folder, CONSUMERS)
    for name in _list(files, place):
        match = _FILE.fullmatch(name)
        if match is not None and match["what"] == "new" and _time_of(match) + _STALE_NS < now_ns:
            with suppress(OSError):
                files.remove(join(place, name))
    for found in _look(files, place):
        try:
            _settle(files, place, found, now_ns)
        except OSError as error:
            logger.warning("%s", from_os(error, f"tidy the position of {found.name!r}", place))
    return holding(files, folder, now_ns)


# -- files -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """The files of one consumer."""

    name: str
    file_name: str
    main: Consumer | None = None
    aside: list[tuple[str, Consumer]] = field(default_factory=list)
    """File names and what is in them, the newest last."""

    @property
    def counts(self) -> Consumer | None:
        """The one that says how far it is: what was put aside was there before what has the name now."""
        return self.main if self.main is not None else self.aside[-1][1] if self.aside else None


def _look(files: Files, place: str) -> Iterator[_Found]:
    by_name: dict[str, _Found] = {}
    for file_name in sorted(_list(files, place)):
        match = _FILE.fullmatch(file_name)
        name = None if match is None else consumer_file.name_of(match["of"])
        if match is None or name is None or match["what"] == "new":
            continue  # not ours, or not there yet
        found = by_name.setdefault(match["of"], _Found(name, match["of"]))
        since = None if match["what"] is None else _time_of(match)
        one = _read(files, place, file_name, found.name, since)
        if one is not None and since is None:
            found.main = one
        elif one is not None:
            found.aside.append((file_name, one))
    yield from by_name.values()


def _read(files: Files, place: str, file_name: str, name: str, since: int | None) -> Consumer | None:
    """None: it is gone. ``since``: when it was put aside, if it was."""
    try:
        file = files.open(join(place, file_name))
        try:
            consumer = consumer_file.decode(read_at(file, 0, min(file.size(), MOST_BYTES + 1)))
        finally:
            file.close()
        if consumer.name == name:
            return consumer
        damage = f"it is of {consumer.name!r}, and not of {name!r}"
    except FileNotFoundError:
        return None
    except (OSError, StorageError, ValueError, RecursionError) as error:
        damage = str(error)
    return Consumer(name, 0, {}, since or 0, NEVER if since is None else since + GRACE_NS, damage)


def _settle(files: Files, place: str, found: _Found, now_ns: int) -> None:
    main, asides, fresh = found.main, [name for name, _ in found.aside], ""
    if main is not None and (main.damage is not None or main.has_expired(now_ns)):
        fresh = f"{found.file_name}~aside-{show_file_time(now_ns)}"
        with suppress(FileNotFoundError):
            files.rename(join(place, found.file_name), join(place, fresh))
            files.sync_folder(place)
        main = None
        asides.append(fresh)
    for aside in asides:
        is_newest = aside == asides[-1]
        one = _read(files, place, aside, found.name, _time_of(_FILE.fullmatch(aside)))
        if one is None:
            continue
        is_needed = main is None and is_newest and not one.has_expired(now_ns)
        if is_needed and one.damage is not None:
            if aside == fresh:
                logger.warning(_UNREADABLE, join(place, aside), found.name, one.damage)
            continue
        if is_needed:
            with suppress(FileExistsError):  # one that is newer has come
                files.link(join(place, aside), join(place, found.file_name))
            files.sync_folder(place)
        elif main is None and is_newest and one.damage is not None:
            logger.error("%s: given up: nothing is kept for consumer %r any more", join(place, aside), found.name)
        files.remove(join(place, aside))
        files.sync_folder(place)


def _time_of(match: re.Match[str] | None) -> int:
    """When a file was begun, or put aside. A time that cannot be is long past."""
    try:
        return 0 if match is None else parse_file_time(match["time"])
    except ValueError:
        return 0


def _list(files: Files, place: str) -> list[str]:
    try:
        return files.list(place)
    except (FileNotFoundError, NotADirectoryError):  # nobody has saved anything, or can have
        return []
    except OSError as error:
        raise from_os(error, "list the folder", place) from error
