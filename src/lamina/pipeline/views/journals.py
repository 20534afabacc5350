"""The journals of queues (engines/queues/journal), to be read: which folders there are, and what of each file counts.

Folders are found when a read is planned. What is in them is read as it is when a task comes to it: journals keep the
present only, and no server waits for who looks. Paths have ids in them, which nobody is told (``home.no_path``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lamina.engines.queues import ids
from lamina.engines.queues.journal import records, state_line
from lamina.engines.queues.journal.paths import TEXT_CHARS
from lamina.engines.queues.journal.state_log import NAME
from lamina.log.files import Files, join, read_at
from lamina.log.formats import JOURNAL
from lamina.log.scan import HEADER_SIZE, FileScan
from lamina.log.segment import check_header
from lamina.pipeline import places
from lamina.pipeline.pieces import Piece
from lamina.pipeline.places import LogPlace
from lamina.pipeline.snapshot import PinnedFile

_TAIL: Final = 4096
_PATH: Final = "queues/messages"


class Journals(NamedTuple):
    """What one task reads: folders of queues."""

    folders: tuple[str, ...]


def find(disk: Files, root: str) -> list[str]:
    """Folders of queues under ``messages``, in the order of their names; none if there are no journals."""
    found: list[str] = []
    _walk(disk, root, "", found)
    return found


def _walk(disk: Files, folder: str, text: str, found: list[str]) -> None:
    try:
        names = sorted(disk.list(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        longer = text + name
        if name.startswith(".") or "." in name or len(longer) > TEXT_CHARS:
            continue
        if len(longer) < TEXT_CHARS:
            _walk(disk, join(folder, name), longer, found)
        elif ids.parse(longer.encode("utf-8", "replace")) is not None:
            found.append(join(folder, name))


def divide(folders: list[str], partitions: int) -> list[Journals]:
    size = max(-(-len(folders) // max(partitions, 1)), 1)
    return [Journals(tuple(folders[at : at + size])) for at in range(0, len(folders), size)]


def id_of(folder: str) -> bytes | None:
    """The id that the end of a path spells, None if it spells none."""
    text = ""
    for part in reversed(folder.split("/")):
        text = part + text
        if len(text) >= TEXT_CHARS:
            break
    return ids.parse(text.encode("utf-8", "replace"))


def handle_of(folder: str) -> str | None:
    """What operators call the queue."""
    id = id_of(folder)
    return None if id is None else ids.handle(id)


def pieces(disk: Files, folder: str) -> Iterator[Piece]:
    """The message files of a queue, each up to what is committed.

    Raises: Corruption, WrongFormat, DiskError, OSError.
    """
    place = LogPlace(places.JOURNAL, handle_of(folder) or "", _PATH, folder)
    try:
        names = disk.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return  # deleted since it was found
    line = _state(disk, folder) if NAME in names else None
    found = [_piece(disk, place, match[1], line) for name in names if (match := records.NAME.fullmatch(name))]
    # What is read comes before what is written: there are never more than two.
    is_written = line.write_file if line is not None and not line.is_one_file else ""
    known = [piece for piece in found if piece is not None]
    yield from sorted(known, key=lambda piece: (piece.file.name == records.name_of(is_written), piece.file.name))


def _piece(disk: Files, place: LogPlace, id: str, line: state_line.StateLine | None) -> Piece | None:
    name = records.name_of(id)
    try:
        file = disk.open(join(place.folder, name))
    except FileNotFoundError:
        return None  # received and gone
    try:
        size = file.size()
        if size < HEADER_SIZE:
            return None  # it was only just made
        check_header(file, name, JOURNAL)
        end = size
        if line is not None and id == line.write_file:
            end = min(size, line.write_byte + HEADER_SIZE)
        elif line is None or id != line.read_file:
            scan = FileScan(file, HEADER_SIZE, size)
            for _ in scan:
                pass
            end = scan.stop  # nobody says what of it is committed
        return Piece(PinnedFile(place, name, JOURNAL, file.identity, end), HEADER_SIZE, end)
    finally:
        file.close()


def _state(disk: Files, folder: str) -> state_line.StateLine | None:
    """The last line of queue.log, if it is whole and says all."""
    try:
        file = disk.open(join(folder, NAME))
    except FileNotFoundError:
        return None
    try:
        start = max(file.size() - _TAIL, 0)
        found = state_line.last_of(read_at(file, start, file.size() - start), is_start=start == 0)
    finally:
        file.close()
    return found.parsed.state if found.parsed is not None and found.parsed.is_whole else None
