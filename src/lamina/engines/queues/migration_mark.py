"""The file ``migrating``: messages are on their way from one store to the other, and nobody may use either.

    to=journal queues=3 messages=17 digest=<64 hex>

It is written before anything is changed and removed when all is done, and says what there was: so whoever goes on
after a crash can tell which of the two stores counts, and that nothing is missing in the end.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lamina.engines.queues.journal.paths import replace_file
from lamina.engines.queues.proving import Counted
from lamina.errors import BadOption, Corruption, from_os
from lamina.log.files import Files, join, read_at

NAME: Final = "migrating"
_LINE: Final = re.compile(rb"to=(memory|journal) queues=(\d{1,18}) messages=(\d{1,18}) digest=([0-9a-f]{64})\n")
_MOST: Final = 256


class Mark(NamedTuple):
    to: str
    before: Counted


def read(files: Files, folder: str) -> Mark | None:
    """None: no migration is under way. Raises: Corruption; DiskError."""
    path = join(folder, NAME)
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise from_os(error, "open the file", path) from error
    try:
        found = _LINE.fullmatch(read_at(file, 0, _MOST))
    finally:
        file.close()
    if found is None:
        raise Corruption(NAME, 0, "this does not say which migration is under way")
    return Mark(found[1].decode(), Counted(int(found[2]), int(found[3]), found[4].decode()))


def write(files: Files, folder: str, mark: Mark) -> None:
    """In one step, and there to stay. Raises: DiskFull, DiskError."""
    line = "to={} queues={} messages={} digest={}\n".format(mark.to, *mark.before)
    try:
        replace_file(files, folder, NAME, line.encode())
    except OSError as error:
        raise from_os(error, "write the file", join(folder, NAME)) from error


def remove(files: Files, folder: str) -> None:
    """When it returns it is gone for good. Raises: DiskError."""
    try:
        files.remove(join(folder, NAME))
        files.sync_folder(folder)
    except OSError as error:
        raise from_os(error, "remove the file", join(folder, NAME)) from error


def refuse_if_under_way(files: Files, folder: str) -> None:
    """Raises: BadOption while messages are in neither store as a whole; Corruption; DiskError."""
    mark = read(files, folder)
    if mark is not None:
        raise BadOption(
            f"{folder}: a migration to the store {mark.to} is under way",
            hint=f"run it again, it goes on where it was: lamina queues migrate --to {mark.to}",
            option="store",
        )
