"""Which logs are under a path: a data folder, the folder of all topics, or one log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lamina.errors import BadOption, Corruption, DiskError, WrongFormat, from_os
from lamina.log import formats
from lamina.log.files import Files, join
from lamina.log.folders import name_of
from lamina.log.formats import Format
from lamina.log.manifest import lost_files
from lamina.log.naming import FileName, sort_out
from lamina.log.segment import check_header, open_for_reading

JOBS: Final = "jobs"
TOPIC: Final = "topic"
GROUPS: Final = "groups"
QUEUES: Final = "queues"
JOURNAL: Final = "journal"
STORE: Final = "store"
PLAIN: Final = "plain"

OF_FORMAT: Final = {
    formats.JOBS: JOBS,
    formats.TOPIC: TOPIC,
    formats.GROUP: GROUPS,
    formats.QUEUE_STORE: QUEUES,
    formats.JOURNAL: JOURNAL,
    formats.PWAL: STORE,
    formats.EPOCH: STORE,
    formats.PLAIN: PLAIN,
}
_PARTS: Final = ("jobs", "topics", "queues", "store", "logs")
_MESSAGES: Final = "messages"

PARTS: Final = frozenset(_PARTS)
"""Names in a data folder that logs are under."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """One log: of the store all channels together."""

    kind: str
    name: str
    """What people call it: the topic's name; else as ``path``."""
    path: str
    """From the data folder on: ``topics/orders``. The column ``log``."""
    folder: str


def find(files: Files, path: str, without: frozenset[str] = frozenset()) -> list[LogPlace]:
    """All logs under a path, in the order of their names. ``without``: parts of a data folder that are passed over.

    Raises: BadOption if nothing of lamina's is there; DiskError if it cannot be looked at.
    """
    names = _list(files, path)
    parts = [part for part in _PARTS if part in names]
    if sort_out(names).segments and not parts:
        one = _one(files, path, names)
        if one.kind == TOPIC and "groups" in names:
            return [one, LogPlace(GROUPS, one.name, f"{one.path}/groups", join(path, "groups"))]
        return [one]
    if not parts:
        found = _topics(files, path)  # of the folder topics/ itself
        if not found:
            raise BadOption(f"{path} is no folder of lamina's", hint="name the folder that the server was started with")
        return found
    found = []
    for part in (part for part in parts if part not in without):
        folder = join(path, part)
        inside = _list(files, folder, is_needed=False)
        if part == "topics":
            found += _topics(files, folder)
        elif part == "logs":
            found += _plain(files, folder, inside)
        elif _was_log(files, folder, inside) or (part == "queues" and _MESSAGES in inside):
            found.append(LogPlace(part, part, part, folder))
    return found


def _plain(files: Files, folder: str, names: list[str]) -> list[LogPlace]:
    found = []
    for name in sorted(names):
        try:
            inside = _list(files, join(folder, name))
        except DiskError:
            continue  # a file, or gone meanwhile
        if _was_log(files, join(folder, name), inside):
            found.append(LogPlace(PLAIN, _shown(name), f"logs/{name}", join(folder, name)))
    return found


def _was_log(files: Files, folder: str, names: list[str]) -> bool:
    """Files of a log are there, or were and are missing: whoever reads it says so."""
    listing = sort_out(names)
    return bool(listing.segments or lost_files(files, folder, listing))


def _one(files: Files, path: str, names: list[str]) -> LogPlace:
    above, _, last = path.rpartition("/")
    kind = _kind(files, path, names)
    if kind == TOPIC:
        return LogPlace(kind, _shown(last), f"topics/{last}", path)
    if kind == GROUPS:
        topic = above.rpartition("/")[2]
        return LogPlace(kind, _shown(topic), f"topics/{topic}/groups", path)
    if kind == PLAIN:
        return LogPlace(kind, _shown(last), f"logs/{last}", path)
    return LogPlace(kind, kind, kind, path)


def _topics(files: Files, folder: str) -> list[LogPlace]:
    found = []
    for name in sorted(_list(files, folder, is_needed=False)):
        if name.startswith(".") or name_of(name) is None:
            continue
        inside = join(folder, name)
        try:
            names = _list(files, inside)
        except DiskError:
            continue  # a file, or gone meanwhile
        if _was_log(files, inside, names):
            found.append(LogPlace(TOPIC, _shown(name), f"topics/{name}", inside))
            if "groups" in names:
                found.append(LogPlace(GROUPS, _shown(name), f"topics/{name}/groups", join(inside, "groups")))
    return found


def _kind(files: Files, folder: str, names: list[str]) -> str:
    """By the first header that can be read: names are shared by several kinds."""
    problem: Exception | None = None
    for name in sort_out(names).segments:
        try:
            return OF_FORMAT[format_of(files, folder, name)]
        except FileNotFoundError:
            continue  # gone meanwhile
        except (Corruption, WrongFormat) as error:
            problem = problem or error
    if problem is not None:
        raise problem
    raise BadOption(f"{folder} holds no log yet", hint="look again when something was written")


def format_of(files: Files, folder: str, name: FileName) -> Format:
    """What kind of file it is. Raises: Corruption, WrongFormat, DiskError, FileNotFoundError."""
    file = open_for_reading(files, folder, name.name)
    try:
        return check_header(file, name.name)
    finally:
        file.close()


def _shown(folder: str) -> str:
    name = name_of(folder)
    return folder if name is None else name.decode("utf-8", "backslashreplace")


def _list(files: Files, folder: str, *, is_needed: bool = True) -> list[str]:
    try:
        return files.list(folder)
    except FileNotFoundError as error:
        if not is_needed:
            return []
        raise from_os(error, "open the folder", folder) from error
    except OSError as error:
        raise from_os(error, "open the folder", folder) from error
