"""Backup and restore of a store: its closed files and its catalog, with a manifest that says what they are.

    lamina store backup 1
    epoch 4711                                    everything of sessions up to this epoch is in it
    made 1794725200506000000
    file pwal_0000.01794725200506.4711 4096 0a1b2c3d          bytes, CRC-32C of the whole file
    crc 5e6f7a8b                                  CRC-32C of all lines before

Rotated files and parts never change, so a backup on the same disk takes no room: each is given a second name. The
manifest is written last: a folder without one is no backup. Restoring copies, never links, into a folder beside the
target that is renamed at the end: a store is restored whole or not at all.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Final, NoReturn

from lamina.clock import Clock
from lamina.engines.store import catalog as catalogs
from lamina.engines.store import hints, targets
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.codec import MOST
from lamina.engines.store.targets import MANIFEST
from lamina.engines.store.verifying import Damage, verify
from lamina.errors import BadOption, Corruption, StorageError, WrongFormat, from_os
from lamina.log import kernel, rewrite
from lamina.log.files import File, Files, join, read_at, write_all
from lamina.log.naming import PWAL
from lamina.log.recovery import chunks_of
from lamina.log.segment import open_for_reading

Progress = Callable[[int, int], None]

RESTORING: Final = ".restoring"
"""Behind the name of the target while it is being filled."""
_TITLE: Final = "lamina store backup "
_VERSION: Final = 1
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,19}")
_CRC: Final = re.compile(r"[0-9a-f]{8}")
_NO_LINK: Final = frozenset({errno.ENOENT, errno.ENOSPC, errno.EDQUOT, errno.EEXIST, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class BackedUp:
    """A file of a backup."""

    name: str
    bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup is."""

    epoch: int
    """Everything of sessions up to this epoch is in it."""
    time_ns: int
    files: tuple[BackedUp, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


# -- making one ------------------------------------------------------------------------------------------------------


def back_up(
    files: Files, folder: str, names: Iterable[str], catalog: Catalog, to: str, *, clock: Clock, link: bool = True
) -> Manifest:
    """Make a backup in ``to``, a folder that is empty or not there.

    ``names``: rotated files that are not merged, and rotated epoch files; the parts of ``catalog`` need not be among
    them. None may be removed meanwhile (``clean_up`` has ``keep`` for that). With ``link`` they get a second name
    where the disk can do that, and are copied where not.

    Durability: when it returns, the backup is on the disk and was read: it is a store that opens.
    Raises: BadOption for a target that is not empty or in the store, or a name that is not that of a closed file;
        Corruption of a file, with byte; DiskFull, DiskError. Then the target is empty again, as far as that can be.
    """
    wanted = sorted({*names, *(part.name for part in catalog.parts)} - {catalogs.NAME})
    for name in wanted:
        if catalogs.rotated_epoch(name) is None and catalogs.part_generation(name) is None:
            raise BadOption(f"{name!r} is not the name of a closed file", hint="rotate first; active files change")
    epochs = (catalogs.rotated_epoch(name) or 0 for name in wanted)
    check_is_outside(folder, to)
    targets.check_is_empty(files, to)
    made: list[str] = []
    try:
        files.make_folder(to)
        backed_up = [_take(files, folder, name, to, made, link=link) for name in wanted]
        _check_parts(backed_up, catalog)
        text = catalogs.encode(changed(catalog, merged=()))
        made.append(catalogs.NAME)
        _write(files, join(to, catalogs.NAME), [text])
        backed_up.append(BackedUp(catalogs.NAME, len(text), kernel.crc32c(text)))
        files.sync_folder(to)
        damage = _first_damage(files, to)
        if damage is not None:
            raise Corruption(damage.file, damage.offset, damage.reason, hint=hints.DAMAGED)
        manifest = Manifest(max([catalog.epoch, *epochs]), clock.now_ns(), tuple(backed_up))
        made.append(MANIFEST)
        rewrite.replace(files, to, MANIFEST, [encode(manifest)], PWAL)
    except OSError as error:
        _take_back(files, to, made)
        raise from_os(error, "make a backup in", to) from error
    except BaseException:
        _take_back(files, to, made)
        raise
    return manifest


def _first_damage(files: Files, folder: str) -> Damage | None:
    """Of what a store needs to open and to hold all that it did. Raises: DiskError."""
    report = verify(files, folder, beside_writer=False)
    for damage in report.damage:
        if damage.error is not None:
            raise damage.error
    return next((damage for damage in report.damage if damage.is_needed), None)


def _take(files: Files, folder: str, name: str, to: str, made: list[str], *, link: bool) -> BackedUp:
    source, target = join(folder, name), join(to, name)
    made.append(name)
    if link and _linked(files, source, target):
        file = open_for_reading(files, to, name)
        try:
            size = file.size()
            return BackedUp(name, size, _crc_of(chunks_of(file, 0, size)))
        finally:
            file.close()
    return _copy(files, source, target, name)


def _linked(files: Files, source: str, target: str) -> bool:
    try:
        files.link(source, target)
    except NotImplementedError:
        return False
    except OSError as error:
        if error.errno in _NO_LINK:
            raise
        return False  # another disk, or one that has no such thing: copying says what else may be wrong
    return True


def _copy(files: Files, source: str, target: str, name: str) -> BackedUp:
    file = files.open(source)
    crc = size = 0

    def watched() -> Iterator[bytes]:
        nonlocal crc, size
        for chunk in chunks_of(file, 0, file.size()):
            crc, size = kernel.crc32c(chunk, crc), size + len(chunk)
            yield chunk

    try:
        _write(files, target, watched())
    finally:
        file.close()
    return BackedUp(name, size, crc)


def _write(files: Files, path: str, chunks: Iterable[bytes]) -> None:
    file = files.create(path)
    try:
        for chunk in chunks:
            write_all(file, [chunk])
        file.sync()
    finally:
        file.close()


def _crc_of(chunks: Iterable[bytes]) -> int:
    crc = 0
    for chunk in chunks:
        crc = kernel.crc32c(chunk, crc)
    return crc


def _check_parts(backed_up: Sequence[BackedUp], catalog: Catalog) -> None:
    by_name = {file.name: file for file in backed_up}
    for part in catalog.parts:
        file = by_name[part.name]
        if (file.bytes, file.crc) != (part.bytes, part.crc):
            raise Corruption(part.name, 0, "the file is not what the catalog says", hint=hints.DAMAGED)


def check_is_outside(folder: str, to: str) -> None:
    """By the names alone. Raises: BadOption for a target in the folder of the store."""
    if f"{to.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/"):
        hint = "name a folder elsewhere; on the same disk a backup takes no room"
        raise BadOption(f"{to} is in the folder of the store", hint=hint)


def _take_back(files: Files, folder: str, names: Sequence[str]) -> None:
    """Clean up after another error, which is the one to report. The manifest goes first: it is a promise."""
    for name in reversed(names):
        try:
            files.remove(join(folder, name))
        except OSError:
            continue


# -- the manifest ----------------------------------------------------------------------------------------------------


def encode(manifest: Manifest) -> bytes:
    lines = [f"{_TITLE}{_VERSION}", f"epoch {manifest.epoch}", f"made {manifest.time_ns}"]
    lines += [f"file {file.name} {file.bytes} {file.crc:08x}" for file in manifest.files]
    text = "".join(f"{line}\n" for line in lines).encode("ascii")
    return text + b"crc %08x\n" % kernel.crc32c(text)


def decode(text: bytes) -> Manifest:
    """Raises: Corruption with the byte at which the bad line begins; WrongFormat for a later version."""
    at = 0
    numbers: dict[str, int] = {}
    found: dict[str, BackedUp] = {}

    def bad(reason: str) -> NoReturn:
        raise Corruption(MANIFEST, at, reason, hint=hints.OF_A_BACKUP)

    def number(word: str) -> int:
        if not _NUMBER.fullmatch(word) or int(word) > MOST:
            bad(f"{word[:40]!r} is no number that can be")
        return int(word)

    for count, raw in enumerate(text.split(b"\n")):
        line = raw.decode("ascii", "replace")
        words = line.split(" ")
        if count == 0:
            version = line.removeprefix(_TITLE)
            if version == line or not _NUMBER.fullmatch(version) or int(version) < _VERSION:
                bad("this is not the beginning of a manifest")
            if int(version) > _VERSION:
                raise WrongFormat(MANIFEST, f"version {version} of a backup, this program reads version {_VERSION}")
        elif words[0] in ("epoch", "made") and len(words) == 2 and words[0] not in numbers:
            numbers[words[0]] = number(words[1])
        elif words[0] == "file" and len(words) == 4 and _is_file(words[1]) and words[1] not in found:
            if not _CRC.fullmatch(words[3]):
                bad(f"{words[3][:40]!r} is no checksum")
            found[words[1]] = BackedUp(words[1], number(words[2]), int(words[3], 16))
        elif words[0] == "crc" and len(words) == 2 and _CRC.fullmatch(words[1]):
            if text[at + len(raw) :] != b"\n" or int(words[1], 16) != kernel.crc32c(text[:at]):
                bad("the checksum does not match the lines before it")
            if numbers.keys() != {"epoch", "made"} or catalogs.NAME not in found:
                bad("a line is missing")
            return Manifest(numbers["epoch"], numbers["made"], tuple(found.values()))
        else:
            bad("the manifest is cut short" if not line else f"a line that is none of a manifest: {line[:80]!r}")
        at += len(raw) + 1
    return bad("the manifest is cut short")


def _is_file(name: str) -> bool:
    """Never a path."""
    return (
        name == catalogs.NAME or catalogs.rotated_epoch(name) is not None or catalogs.part_generation(name) is not None
    )


def read_manifest(files: Files, folder: str) -> Manifest:
    """Raises: Corruption if there is none or it is bad; WrongFormat, DiskError."""
    try:
        file = open_for_reading(files, folder, MANIFEST)
    except FileNotFoundError:
        reason = "there is no manifest: this is no backup, or one that was never finished"
        raise Corruption(MANIFEST, 0, reason, hint=hints.OF_A_BACKUP) from None
    try:
        return decode(read_at(file, 0, file.size()))
    finally:
        file.close()


# -- checking and restoring ------------------------------------------------------------------------------------------


def check_backup(files: Files, folder: str, progress: Progress = lambda done, total: None) -> list[str]:
    """What is wrong with a backup, in words; nothing if it is whole: every byte was read. Changes nothing.

    ``progress`` is told how many bytes of how many were read, file by file.
    """
    try:
        manifest = read_manifest(files, folder)
    except StorageError as error:
        return [error.message]
    problems: list[str] = []
    done = 0
    for file in manifest.files:
        problems += _check_file(files, folder, file)
        done += file.bytes
        progress(done, manifest.bytes)
    if not problems:
        problems = _check_catalog(files, folder, manifest)
    if not problems:  # damage that was there when it was made, by one that did not look
        try:
            damage = _first_damage(files, folder)
        except StorageError as error:
            return [error.message]
        problems += [] if damage is None else [f"{damage.file}, byte {damage.offset}: {damage.reason}"]
    return problems


def _check_file(files: Files, folder: str, expected: BackedUp) -> Iterator[str]:
    try:
        file: File = open_for_reading(files, folder, expected.name)
    except FileNotFoundError:
        yield f"{expected.name}: the file is missing"
        return
    except StorageError as error:
        yield error.message
        return
    try:
        size = file.size()
        if size != expected.bytes:
            yield f"{expected.name}: the file has {size} bytes, the manifest says {expected.bytes}"
        elif _crc_of(chunks_of(file, 0, size)) != expected.crc:
            yield f"{expected.name}: the content is not what was backed up"
    except (OSError, StorageError) as error:
        yield f"{expected.name}: {error}"
    finally:
        file.close()


def _check_catalog(files: Files, folder: str, manifest: Manifest) -> list[str]:
    try:
        catalog = catalogs.load(files, folder)
    except StorageError as error:
        return [error.message]
    by_name = {file.name: file for file in manifest.files}
    problems = []
    for part in catalog.parts:
        file = by_name.get(part.name)
        if file is None or (file.bytes, file.crc) != (part.bytes, part.crc):
            problems.append(f"{part.name}: the catalog names it otherwise than the manifest")
    return problems


def restore(files: Files, backup: str, to: str, progress: Progress = lambda done, total: None) -> Manifest:
    """Make ``to``, a folder that is empty or not there, the store that was backed up.

    The backup is read whole and checked before anything is written.
    Durability: when it returns, the store is on the disk. A crash leaves the target as it was, or whole.
    Raises: BadOption for a target that is not empty; Corruption with the first problem of the backup, WrongFormat;
        DiskFull, DiskError.
    """
    manifest = read_manifest(files, backup)
    done, total = manifest.bytes, 2 * manifest.bytes  # read once to check, once to copy
    problems = check_backup(files, backup, lambda checked, _: progress(checked, total))
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise Corruption(MANIFEST, 0, f"the backup is not whole: {problems[0]}{more}", hint=hints.OF_A_BACKUP)
    targets.check_is_empty(files, to)
    filling = to.rstrip("/") + RESTORING
    names = [file.name for file in manifest.files]
    targets.remove_unfinished(files, filling, _is_file)
    try:
        files.make_folder(filling)
        for file in manifest.files:
            copied = _copy(files, join(backup, file.name), join(filling, file.name), file.name)
            if copied != file:
                raise Corruption(file.name, 0, "the file changed while it was copied", hint="try again")
            done += file.bytes
            progress(done, total)
        files.sync_folder(filling)
        files.remove_empty_folder(to)
        files.rename_folder(filling, to)
    except OSError as error:
        _take_back(files, filling, names)
        raise from_os(error, "restore the store to", to) from error
    except BaseException:
        _take_back(files, filling, names)
        raise
    return manifest
