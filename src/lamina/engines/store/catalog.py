"""The compaction catalog: which sorted files are the baseline of the store, and which rotated files are wholly in it.

Text, one fact a line, replaced in one step: that step is the commit point of a compaction.

    lamina compaction catalog 1
    generation 3
    epoch 4711                                           sessions up to this epoch are in the parts
    committed 1794725200506000000
    part pwal_compacted.3.0 4096 0a1b2c3d 17 <first> <last> <highest>    bytes, CRC-32C, entries; places, version: hex
    cleared 7 <version>                                  entries of storage 7 below this version are gone
    storage 7 added <version>                            or: dropped
    merged pwal_0000.01794725200506.4711                 no longer read; may still be there
    crc 5e6f7a8b                                         CRC-32C of all lines before

Former catalogs stay as ``compaction_catalog.<generation>`` until clean-up, so that reads as of an earlier time reach
further back. A catalog is there from the first open on: where parts are and no catalog is, it was lost.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from lamina.engines.store.codec import MOST
from lamina.engines.store.storages import Storages
from lamina.errors import Corruption, WrongFormat, from_os
from lamina.log import kernel, rewrite
from lamina.log.files import Files, join, read_at
from lamina.log.naming import PWAL
from lamina.log.segment import open_for_reading

NAME: Final = "compaction_catalog"
PROGRESS: Final = "compaction_progress"
"""What a compaction that was cut short had done so far."""
_TITLE: Final = "lamina compaction catalog "
_VERSION: Final = 1

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,19}")
_PART: Final = re.compile(r"pwal_compacted\.(0|[1-9][0-9]{0,19})\.(0|[1-9][0-9]{0,9})")
_ROTATED: Final = re.compile(r"(pwal_[0-9]{4}|epoch)\.([0-9]{14})\.(0|[1-9][0-9]{0,19})")
_FORMER: Final = re.compile(rf"{NAME}\.(0|[1-9][0-9]{{0,19}})")
_VERSION_HEX: Final = re.compile(r"[0-9a-f]{32}")
_CRC_HEX: Final = re.compile(r"[0-9a-f]{8}")
_PLACE_HEX: Final = re.compile(r"(?:[0-9a-f]{2}){8,}")
_LOST: Final = 'run "lamina store verify" to see what is there, "lamina store repair" to go on from a former catalog'


@dataclass(frozen=True, slots=True)
class Part:
    """A sorted file: one range of places of the baseline."""

    name: str
    bytes: int
    crc: int
    """CRC-32C of the whole file."""
    entries: int
    """Items, removes included."""
    first: builtins.bytes
    last: builtins.bytes
    """Places; both are empty if the part is."""
    highest: builtins.bytes
    """The largest version, 16 bytes."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The default is that of a store that was never compacted."""

    generation: int = 0
    epoch: int = 0
    """Everything of sessions up to this epoch is in the parts."""
    parts: tuple[Part, ...] = ()
    """In the order of their places, which do not overlap."""
    storages: Storages = field(default_factory=Storages)
    merged: tuple[str, ...] = ()
    """Rotated files that are wholly in the parts and may still be there."""
    time_ns: int = 0
    """When it was committed."""


# -- names -----------------------------------------------------------------------------------------------------------


def part_name(generation: int, number: int) -> str:
    return f"pwal_compacted.{generation}.{number}"


def part_generation(name: str) -> int | None:
    """The generation that made this part, None if the name is not that of a part."""
    match = _PART.fullmatch(name)
    return int(match[1]) if match else None


def rotated_epoch(name: str) -> int | None:
    """The boundary of the rotation that closed this file, None if it is no rotated file."""
    match = _ROTATED.fullmatch(name)
    return int(match[3]) if match else None


def is_rotated_pwal(name: str) -> bool:
    return name.startswith("pwal_") and _ROTATED.fullmatch(name) is not None


def former_name(generation: int) -> str:
    return f"{NAME}.{generation}"


def former_generation(name: str) -> int | None:
    """The generation of a former catalog, None if the name is not that of one."""
    match = _FORMER.fullmatch(name)
    return int(match[1]) if match else None


# -- text ------------------------------------------------------------------------------------------------------------


def encode(catalog: Catalog) -> bytes:
    lines = [
        f"{_TITLE}{_VERSION}",
        f"generation {catalog.generation}",
        f"epoch {catalog.epoch}",
        f"committed {catalog.time_ns}",
    ]
    lines += [
        f"part {part.name} {part.bytes} {part.crc:08x} {part.entries} {part.first.hex() or '-'} "
        f"{part.last.hex() or '-'} {part.highest.hex()}"
        for part in catalog.parts
    ]
    storages = catalog.storages
    lines += [f"cleared {storage} {version.hex()}" for storage, version in sorted(storages.cleared.items())]
    lines += [
        f"storage {storage} {'added' if is_there else 'dropped'} {version.hex()}"
        for storage, (version, is_there) in sorted(storages.there.items())
    ]
    lines += [f"merged {name}" for name in catalog.merged]
    text = "".join(f"{line}\n" for line in lines).encode("ascii")
    return text + b"crc %08x\n" % kernel.crc32c(text)


def decode(text: bytes, name: str = NAME) -> Catalog:
    """Raises: Corruption with the byte at which the bad line begins; WrongFormat for a later version."""
    return _Reading(text, name).catalog()


class _Reading:
    """Takes a catalog line by line."""

    def __init__(self, text: bytes, name: str) -> None:
        self._text, self._name = text, name
        self._at = 0  # where the line begins
        self._numbers: dict[str, int] = {}
        self._parts: dict[str, Part] = {}
        self._part_at: dict[str, int] = {}
        self._storages = Storages()
        self._merged: dict[str, int] = {}  # and where the line begins
        self._takers: dict[str, Callable[[Sequence[str]], None]] = {
            "part": self._take_part,
            "cleared": self._take_cleared,
            "storage": self._take_storage,
            "merged": self._take_merged,
        }

    def catalog(self) -> Catalog:
        self._check_title()
        while True:
            line = self._line()
            words = line.split()
            if words and words[0] == "crc":
                break
            if words:
                self._take(words)
            self._at += len(line) + 1
        self._check_crc(line)
        for word in ("generation", "epoch", "committed"):
            if word not in self._numbers:
                self._bad(f"the line {word!r} is missing")
        return self._checked(
            Catalog(
                self._numbers["generation"],
                self._numbers["epoch"],
                tuple(self._parts.values()),
                self._storages,
                tuple(self._merged),
                self._numbers["committed"],
            )
        )

    def _bad(self, reason: str, at: int | None = None) -> NoReturn:
        raise Corruption(self._name, self._at if at is None else at, reason, hint=_LOST)

    def _line(self) -> str:
        end = self._text.find(b"\n", self._at)
        if end < 0:
            self._bad("the catalog is cut short" if self._text else "the catalog is empty")
        try:
            return self._text[self._at : end].decode("ascii")
        except UnicodeDecodeError:
            self._bad("a byte that is no text")

    def _check_title(self) -> None:
        title = self._line()
        version = title.removeprefix(_TITLE)
        if version == title or not _NUMBER.fullmatch(version) or int(version) < _VERSION:
            self._bad("this is not the beginning of a compaction catalog")
        if int(version) > _VERSION:
            raise WrongFormat(
                self._name,
                f"version {version} of a compaction catalog, this program reads version {_VERSION}",
                hint="a later lamina may have written it: upgrade; nothing was changed",
            )
        self._at += len(title) + 1

    def _check_crc(self, line: str) -> None:
        if not _CRC_HEX.fullmatch(line.removeprefix("crc ")):
            self._bad("the checksum is no checksum")
        if self._at + len(line) + 1 != len(self._text):
            self._bad("something stands behind the checksum", self._at + len(line) + 1)
        if int(line[4:], 16) != kernel.crc32c(self._text[: self._at]):
            self._bad("the checksum does not match the lines before it")

    def _take(self, words: Sequence[str]) -> None:
        word, rest = words[0], words[1:]
        if word in ("generation", "epoch", "committed"):
            self._arguments(word, rest, 1)
            if word in self._numbers:
                self._bad(f"a second line {word!r}")
            self._numbers[word] = self._number(rest[0])
        elif word in self._takers:
            self._takers[word](rest)
        else:
            self._bad(f"an unknown word {word[:40]!r}")

    def _arguments(self, word: str, rest: Sequence[str], count: int) -> None:
        if len(rest) != count:
            self._bad(f"{word!r} with {len(rest)} words behind it, not {count}")

    def _number(self, word: str) -> int:
        if not _NUMBER.fullmatch(word) or int(word) > MOST:
            self._bad(f"{word[:40]!r} is no number that can be")
        return int(word)

    def _version(self, word: str) -> bytes:
        if not _VERSION_HEX.fullmatch(word):
            self._bad(f"{word[:40]!r} is no version")
        return bytes.fromhex(word)

    def _place(self, word: str, entries: int) -> bytes:
        if entries == 0 and word == "-":
            return b""
        if entries == 0 or not _PLACE_HEX.fullmatch(word):
            self._bad(f"{word[:40]!r} is no place of a part with {entries} entries")
        return bytes.fromhex(word)

    def _take_part(self, rest: Sequence[str]) -> None:
        self._arguments("part", rest, 7)
        name, size, crc, count, first, last, highest = rest
        if not _PART.fullmatch(name):
            self._bad(f"{name[:80]!r} is not the name of a part")
        if name in self._parts:
            self._bad(f"{name} is named twice")
        if not _CRC_HEX.fullmatch(crc):
            self._bad(f"{crc[:40]!r} is no checksum")
        entries = self._number(count)
        part = Part(
            name,
            self._number(size),
            int(crc, 16),
            entries,
            self._place(first, entries),
            self._place(last, entries),
            self._version(highest),
        )
        if part.last < part.first:
            self._bad(f"{name} ends before it begins")
        before = next((other for other in reversed(self._parts.values()) if other.entries), None)
        if entries and before is not None and part.first <= before.last:
            self._bad(f"{name} begins before {before.name} ends")
        self._parts[name] = part
        self._part_at[name] = self._at

    def _take_cleared(self, rest: Sequence[str]) -> None:
        self._arguments("cleared", rest, 2)
        storage = self._number(rest[0])
        if storage in self._storages.cleared:
            self._bad(f"storage {storage} is cleared twice")
        self._storages.cleared[storage] = self._version(rest[1])

    def _take_storage(self, rest: Sequence[str]) -> None:
        self._arguments("storage", rest, 3)
        storage = self._number(rest[0])
        if storage in self._storages.there:
            self._bad(f"storage {storage} is named twice")
        if rest[1] not in ("added", "dropped"):
            self._bad(f"a storage is added or dropped, not {rest[1][:40]!r}")
        self._storages.there[storage] = self._version(rest[2]), rest[1] == "added"

    def _take_merged(self, rest: Sequence[str]) -> None:
        self._arguments("merged", rest, 1)
        if not _ROTATED.fullmatch(rest[0]):
            self._bad(f"{rest[0][:80]!r} is not the name of a rotated file")
        if rest[0] in self._merged:
            self._bad(f"{rest[0]} is named twice")
        self._merged[rest[0]] = self._at

    def _checked(self, catalog: Catalog) -> Catalog:
        """What only the whole shows."""
        for part in catalog.parts:
            if (part_generation(part.name) or 0) > catalog.generation:
                self._bad(f"{part.name} is of a later generation than the catalog", self._part_at[part.name])
        for name, at in self._merged.items():
            if (rotated_epoch(name) or 0) > catalog.epoch:
                self._bad(f"{name} holds epochs that are not in the parts", at)
        return catalog


# -- files -----------------------------------------------------------------------------------------------------------


def load(files: Files, folder: str, *, at_least: int = -1) -> Catalog:
    """The catalog of a store, that of a new one if there is neither a catalog nor anything that one has named.

    ``at_least``: the generation that the epoch file says it has; -1: it does not say.
    Raises: Corruption, also of one that is older than that; WrongFormat, DiskError; nothing is ever changed.
    """
    found = _read(files, folder, NAME)
    if found is not None:
        catalog = decode(found)
        if catalog.generation < at_least:
            reason = f"the catalog is an older copy: of generation {catalog.generation}, there was one of {at_least}"
            raise Corruption(NAME, 0, reason, hint=_LOST)
        return catalog
    if at_least >= 0:
        raise Corruption(NAME, 0, f"the catalog is missing: there was one of generation {at_least}", hint=_LOST)
    try:
        names = files.list(folder)
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
    named = sorted(name for name in names if (part_generation(name), former_generation(name)) != (None, None))
    if named:
        raise Corruption(NAME, 0, f"the catalog is missing, but {named[0]} is there", hint=_LOST)
    return Catalog()


def begin(files: Files, folder: str) -> Catalog:
    """Load the catalog, and make it if the store is new: without that the parts of a first compaction that was cut
    short would look like those of a catalog that was lost.

    Durability: when it returns, the catalog is there for good. Raises: as ``load``; DiskFull.
    """
    catalog = load(files, folder)
    if _read(files, folder, NAME) is None:
        replace(files, folder, catalog)
    return catalog


def load_former(files: Files, folder: str, generation: int) -> Catalog | None:
    """A catalog of a former generation, None if it is not there. Raises: Corruption, WrongFormat, DiskError."""
    name = former_name(generation)
    found = _read(files, folder, name)
    return None if found is None else decode(found, name)


def save(files: Files, folder: str, catalog: Catalog) -> None:
    """Commit ``catalog``, keeping the one before it as a former one.

    The files it names must be synced, and the folder too.
    Durability: when it returns, it is the catalog for good. A crash leaves this one or the one before, whole.
    Raises: DiskFull, DiskError, Corruption (of the one before); then the one before still counts, unless the very last
        sync of the folder failed: then which of the two does is not known before the next open.
    """
    before = _read(files, folder, NAME)
    if before is not None:
        generation = decode(before).generation
        if generation != catalog.generation:
            rewrite.replace(files, folder, former_name(generation), [before], PWAL)
    replace(files, folder, catalog)


def replace(files: Files, folder: str, catalog: Catalog) -> None:
    """Put ``catalog`` in the place of the one before it, which is gone then. Durability and errors as in ``save``."""
    rewrite.replace(files, folder, NAME, [encode(catalog)], PWAL)


def check_parts(files: Files, folder: str, catalog: Catalog) -> None:
    """Every part is there and has its size. Raises: Corruption, DiskError."""
    for part in catalog.parts:
        try:
            file = open_for_reading(files, folder, part.name)
        except FileNotFoundError:
            raise Corruption(part.name, 0, "the catalog names this file, and it is not there", hint=_LOST) from None
        try:
            size = file.size()
        except OSError as error:
            raise from_os(error, "look at the file", join(folder, part.name)) from error
        finally:
            file.close()
        if size != part.bytes:
            reason = f"the file has {size} bytes, the catalog says {part.bytes}"
            raise Corruption(part.name, min(size, part.bytes), reason, hint=_LOST)


def _read(files: Files, folder: str, name: str) -> bytes | None:
    try:
        file = open_for_reading(files, folder, name)
    except FileNotFoundError:
        return None
    try:
        return read_at(file, 0, file.size())
    except OSError as error:
        raise from_os(error, "read the file", join(folder, name)) from error
    finally:
        file.close()
