"""compaction_catalog: which file is the baseline, and which PWAL files are contained in it.

    COMPACTION_CATALOG_HEADER
    COMPACTED_FILE <name> <version>      any number; version is 1
    DETACHED_PWAL <name>                 any number
    MAX_EPOCH_ID <number>                the boundary of the last compaction
    MAX_BLOB_ID <number>                 not before format 3
    COMPACTION_CATALOG_FOOTER            what follows is ignored

It is renamed to ``.back`` before a new one is written, so ``.back`` counts when the catalog is missing or torn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lamina.engines.store.limestone.manifest import CATALOG_SINCE
from lamina.engines.store.limestone.source import BACK, Source, damaged
from lamina.errors import Corruption

CATALOG: Final = "compaction_catalog"
COMPACTED: Final = "pwal_0000.compacted"
PREVIOUS: Final = COMPACTED + ".prev"

_HEADER: Final = b"COMPACTION_CATALOG_HEADER"
_FOOTER: Final = b"COMPACTION_CATALOG_FOOTER"
_MOST: Final = 256 << 20
_MOST_NUMBER: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a catalog says."""

    max_epoch: int = 0
    max_blob: int = 0
    compacted: tuple[tuple[str, int], ...] = ()
    """Names and versions."""
    detached: frozenset[str] = frozenset()


def load(source: Source, format_version: int, repairs: list[str]) -> Catalog:
    """The catalog, or else ``.back``, or else an empty one if nothing shows that there was a compaction.

    Raises: Corruption, with the line that is wrong.
    """
    copy = CATALOG + BACK
    if CATALOG in source:
        try:
            return parse(source.read_whole(CATALOG, _MOST), CATALOG)
        except Corruption as problem:
            if copy not in source:
                raise
            try:
                found = parse(source.read_whole(copy, _MOST), copy)
            except Corruption:
                raise problem from None
            repairs.append(f"{CATALOG}, byte {problem.offset}: {problem.reason}: {copy} was used")
            return found
    if copy in source:
        found = parse(source.read_whole(copy, _MOST), copy)
        repairs.append(f"{CATALOG}, byte 0: it is missing: {copy} was used")
        return found
    if COMPACTED in source or PREVIOUS in source:
        raise damaged(CATALOG, 0, "it is missing, and there is a compacted file: what that contains is not known")
    if format_version >= CATALOG_SINCE:
        repairs.append(f"{CATALOG}, byte 0: it is missing: taken for empty, as there is no compacted file")
    return Catalog()


def parse(data: bytes, name: str = CATALOG) -> Catalog:
    """Raises: Corruption naming the line."""
    max_epoch: int | None = None
    max_blob = 0
    compacted: list[tuple[str, int]] = []
    detached: set[str] = set()
    offset = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        words = line.split()
        wrong = damaged(name, offset, f"line {number}: {_shown(line)}")
        offset += len(line) + 1
        if number == 1:
            if line != _HEADER:
                raise wrong
            continue
        match words:
            case []:
                continue
            case [b"COMPACTED_FILE", file, version, *_] if _is_name(file) and _is_number(version):
                compacted.append((_name(file), int(version)))
            case [b"DETACHED_PWAL", file, *_]:
                detached.add(_name(file))
            case [b"MAX_EPOCH_ID", epoch, *_] if _is_number(epoch):
                max_epoch = int(epoch)
            case [b"MAX_BLOB_ID", blob, *_] if _is_number(blob):
                max_blob = int(blob)
            case [word, *_] if word == _FOOTER:
                if max_epoch is None:
                    raise damaged(name, offset, f"line {number}: the catalog ends without MAX_EPOCH_ID")
                return Catalog(max_epoch, max_blob, tuple(compacted), frozenset(detached))
            case _:
                raise wrong
    raise damaged(name, len(data), "the catalog has no last line: it was not written to its end")


def _is_number(word: bytes) -> bool:
    return word.isdigit() and len(word) <= 20 and int(word) <= _MOST_NUMBER


def _is_name(word: bytes) -> bool:
    """Of a file in the folder, not of one elsewhere."""
    return b"/" not in word and b"\0" not in word and word not in (b".", b"..")


def _name(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")


def _shown(line: bytes) -> str:
    text = line[:60].decode("utf-8", "replace")
    return f"{text!r} is nothing that a catalog says" if line.strip() else "an empty line where the header must be"
