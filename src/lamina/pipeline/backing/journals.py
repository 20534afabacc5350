"""The journals of queues: each queue as it was at one moment, the one in which it was looked at.

A line of queue.log says what counts of its message files, which only grow, or go when another line has come. So the
last line, and the files that it names up to where it says, are a whole queue. A queue in which nothing waits needs no
journal. Lines have no time: what a queue held at an earlier moment its journal cannot say.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from lamina.engines.queues import ids
from lamina.engines.queues.journal import paths, records, state_line
from lamina.engines.queues.journal import verify as journal
from lamina.engines.queues.journal.paths import Layout
from lamina.engines.queues.journal.state_line import StateLine
from lamina.engines.queues.journal.state_log import NAME
from lamina.engines.queues.looking import layouts_of, look_at_journals
from lamina.engines.queues.opening import JOURNALS
from lamina.engines.queues.state import State
from lamina.errors import Corruption, DiskError, StorageError, from_os
from lamina.log.files import Files, read_at
from lamina.log.scan import HEADER_SIZE
from lamina.log.segment import open_for_reading
from lamina.pipeline.backing.sources import Changed, Source, of_file
from lamina.pipeline.places import LogPlace

_TRIES: Final = 20


def collect(disk: Files, place: LogPlace, state: State) -> Iterator[Source]:
    """The journals of all queues of ``state``; nothing if there are none.

    Raises: Changed; Corruption if a journal cannot be understood; DiskError.
    """
    layouts = layouts_of(disk, place.folder)
    if not layouts:
        return
    layout = layouts[0]
    yield Source(f"{place.path}/{JOURNALS}/{paths.LAYOUT}", data=b"parts=%d chars=%d\n" % layout)
    looked = look_at_journals(disk, place.folder, state)
    for rid, queue in state.queues.items():
        for _ in range(_TRIES):
            try:
                yield from _one(disk, place, layout, rid, looked._folder_of(queue))
                break
            except FileNotFoundError:
                continue  # a new line says where to go on
            except OSError as error:
                raise _no_path(from_os(error, "read the journal of", ids.handle(rid))) from None
        else:
            _refuse_damage(disk, looked._folder_of(queue), rid)
            raise Changed(f"{place.path}: the journal of queue {ids.handle(rid)}")


def _refuse_damage(disk: Files, folder: str, rid: bytes) -> None:
    """Raises: Corruption if what is missing did not just go."""
    with suppress(OSError, DiskError):
        for bad in journal.verify(disk, folder).damage:
            raise Corruption(bad.file, bad.offset, f"{_ODD.format(ids.handle(rid))}: {bad.reason}", hint=_HINT)


def _one(disk: Files, place: LogPlace, layout: Layout, rid: bytes, folder: str) -> list[Source]:
    line = _line(disk, folder, rid)
    if line is None or not line.size:
        return []
    to = layout.folder(f"{place.path}/{JOURNALS}", rid)
    found = [Source(f"{to}/{NAME}", data=state_line.encode(line))]
    for id in dict.fromkeys((line.read_file, line.write_file)):
        file = open_for_reading(disk, folder, name := records.name_of(id))
        try:
            end = HEADER_SIZE + line.write_byte if id == line.write_file else file.size()
            if file.size() < end:
                raise Corruption(name, file.size(), _ODD.format(ids.handle(rid)), hint=_HINT)
            found.append(of_file(f"{to}/{name}", folder, file, end))
        finally:
            file.close()
    return found


_ODD: Final = "the journal of queue {} is not whole"
_HINT: Final = "start the server once: it heals journals and tells what it did; then back up again"


def _line(disk: Files, folder: str, rid: bytes) -> StateLine | None:
    try:
        names = disk.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not names:
        return None
    file = open_for_reading(disk, folder, NAME)
    try:
        found = state_line.last_of(read_at(file, 0, file.size()), is_start=True).parsed
    finally:
        file.close()
    if found is None or not found.is_whole:
        raise Corruption(NAME, 0, _ODD.format(ids.handle(rid)), hint=_HINT)
    return found.state


def _no_path(error: StorageError) -> StorageError:
    """The folder of a queue is half of a capability: it is not told."""
    error.facts.pop("path", None)
    return error
