"""Old contents are read again, a share in each backup, so that rot is found while the data folder can still heal it.

    contents of all generations, by the beginning of their digest:   | share 0 | share 1 | ... | share 29 |

Digests spread evenly, so shares are about of one size, and each content is in one of them for ever, whatever comes and
goes: who reads one share after the other, round and round, reads every content once in so many backups. Which share is
next is in the manifest, with the commit. A share is filled up with the next ones to ``AT_LEAST`` bytes: of a small
backup all is read each time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lamina.errors import DiskFull, StorageError
from lamina.log.files import File, Files, join
from lamina.log.segment import open_for_reading
from lamina.pipeline.backing import checking
from lamina.pipeline.backing.contents import FOLDER
from lamina.pipeline.backing.manifest import BackedFile, Content, Generation, shown
from lamina.pipeline.backing.place import Backup
from lamina.pipeline.backing.sources import Source, chunks_of

SHARES: Final = 30
"""In so many backups everything is read again, unless it is asked for sooner or later."""
MOST_SHARES: Final = 10_000
AT_LEAST: Final = 64 << 20
OPENING: Final = 16 << 10
"""Bytes that each content counts for besides its own: very many small ones take long, too."""
_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class Rot:
    """A content, or a manifest, that does not read back as it was written."""

    generations: list[str]
    """That have it."""
    file: str
    """Of the backup."""
    path: str
    """Of the data folder; empty for a manifest."""
    byte: int
    """In that file: the first that is wrong, or where the content begins if that is not known."""
    reason: str
    is_healed: bool


@dataclass(frozen=True, slots=True)
class Use:
    """Where a content is used."""

    generation: str
    file: BackedFile
    offset: int
    """Of the content in the file."""


def share_of(
    contents: Collection[Content], begin: tuple[int, int], shares: int, at_least: int
) -> tuple[list[Content], tuple[int, int]]:
    """What is to be read again, and where the next backup goes on. ``begin``: the share that is next, of how many."""
    by_share: dict[int, list[Content]] = {}
    for content in contents:
        by_share.setdefault(int(content.sha256[:_DIGITS], 16) * shares >> 4 * _DIGITS, []).append(content)
    first = begin[0] * shares // begin[1]  # if there were more or fewer shares: rather some again than some left out
    chosen: list[Content] = []
    size = 0
    for number in range(first, first + shares):
        found = by_share.get(number % shares, [])
        chosen += sorted(found, key=lambda content: content.sha256)
        size += sum(content.bytes + OPENING for content in found)
        if size >= at_least:
            return chosen, ((number + 1) % shares, shares)
    return chosen, (first, shares)


def uses(backup: Backup, generations: Iterable[Generation], digests: Collection[str]) -> dict[str, list[Use]]:
    """Where these contents are used."""
    found: dict[str, list[Use]] = {digest: [] for digest in digests}
    for generation in generations:
        for file in generation.files:
            offset = 0
            for content in file.contents:
                if content.sha256 in found:
                    found[content.sha256].append(Use(generation.name, file, offset))
                offset += content.bytes
    return found


def heal(
    backup: Backup, disk: Files, data: str, sources: Mapping[object, Source], content: Content, used: Sequence[Use]
) -> tuple[Use, int] | None:
    """Write a rotten content anew from the data folder, if a file there still has these bytes.

    ``sources``: files that are backed up now, by their identity and by their path.
    Returns whose file it is, and the first byte of it that was wrong; None: nobody has them any more.
    Raises: DiskFull.
    """
    tried: set[tuple[str, str, int]] = set()
    for use in reversed(used):  # the newest generation first
        for source in _candidates(disk, data, sources, use):
            key = (source.folder, source.name or source.path, use.offset)
            if key in tried or source.size < use.offset + content.bytes:
                continue
            tried.add(key)
            try:
                byte = backup.contents.heal(content, _range(disk, source, use.offset, use.offset + content.bytes))
            except DiskFull:
                raise
            except StorageError:
                continue  # it went meanwhile, or cannot be read: another one may have them
            if byte is not None:
                return use, use.offset + byte
    return None


def _candidates(disk: Files, data: str, sources: Mapping[object, Source], use: Use) -> Iterator[Source]:
    """Files that may have the bytes. That they do is proved by their digest, never by a name."""
    file = use.file
    for key in (file.identity, file.path):
        if key in sources:
            yield sources[key]
    folder, _, name = join(data, file.path).rpartition("/")
    try:  # no part of this generation, but perhaps still there
        opened = open_for_reading(disk, folder, name)
    except (OSError, StorageError):
        return
    try:
        yield Source(file.path, folder, name, opened.identity, opened.size())
    finally:
        opened.close()


def _range(disk: Files, source: Source, start: int, end: int) -> Iterator[bytes]:
    if source.data is not None:
        yield source.data[start:end]
        return
    file: File = source.open(disk)
    try:
        yield from chunks_of(file, start, end, source.path)
    finally:
        file.close()


def rot(backup: Backup, content: Content, used: Sequence[Use], reason: str) -> Rot:
    """What nobody can heal: which file and, as far as its log can say, which byte."""
    use = used[-1]
    byte, bad = use.offset, checking.first_bad_record(backup, use.file, use.offset)
    if bad is not None and use.offset <= bad.byte <= use.offset + content.bytes:
        byte = bad.byte
    return Rot(_generations(used), f"{FOLDER}/{content.sha256}", use.file.shown, byte, reason, is_healed=False)


def healed(content: Content, used: Sequence[Use], path: str, byte: int) -> Rot:
    return Rot(_generations(used), f"{FOLDER}/{content.sha256}", shown(path), byte, "was not what was backed up", True)


def _generations(used: Sequence[Use]) -> list[str]:
    return list(dict.fromkeys(use.generation for use in used))
