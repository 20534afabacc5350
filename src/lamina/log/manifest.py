"""What a log consists of: which files must be there, how far each goes, and what is in those that are finished.

A listing of a folder cannot show that a file is missing, and a file cannot show that its end is, or that it is an older
copy of itself. The manifest can. It is a file of frames beside the log, ``manifest``, to which one is appended when a
file was sealed, has its first synced records, was closed in order, or is about to be replaced or removed:

    1 is         the file is so: kind, state, size, records, times, digest
    2 becomes    from now on the file is as before, or so            (synced before the new one takes its place)
    3 gone       from now on the file need not be there              (synced before it is removed)

So at every moment, whatever a crash leaves, a file that contradicts the manifest was damaged. Of a file that still
grows it says the least that must be there. A log with one file has no manifest: the index of that file says as much.

It is evidence, not content. Where it cannot be written it is given up as a whole, and made anew from the files; where
another program has written to the log since the last orderly stop (the real workq, an older lamina), too.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from lamina.errors import Corruption, WrongFormat, from_os
from lamina.log import frame, kernel
from lamina.log import index as indexes
from lamina.log.files import File, Files, file_size, join, read_at, write_all
from lamina.log.formats import Format
from lamina.log.frame import REASONS, Stop
from lamina.log.index import Index, State
from lamina.log.naming import INDEX_SUFFIX, MANIFEST, Ending, Family, FileName, Listing, parse, sort_out
from lamina.log.segment import check_header, header_is_torn, open_for_reading, read_header

HEAD: Final = b"lmmf" + (1).to_bytes(4, "big")
KEPT_FOR: Final = frozenset({"numbered", "timed", "stored"})
"""Families of logs that have one. Of a store its catalog and its epochs say the same, of a journal ``queue.log``."""
_NEW: Final = MANIFEST + ".rw"
_IS, _BECOMES, _GONE = 1, 2, 3
_FACTS: Final = struct.Struct(">BB4sQQqqqI")
_END: Final = 4096
_LEAST: Final = 64 << 10  # bytes below which a manifest is not written anew
# Who appends: the thread that commits, and those that clean. By folder, as far as it goes.
_LOCKS: Final = tuple(threading.Lock() for _ in range(64))


class Problem(NamedTuple):
    """A file that is not as it must be."""

    file: str
    offset: int
    reason: str

    def error(self) -> Corruption:
        return Corruption(self.file, self.offset, self.reason, hint=LOST)


def ends_early(name: str, size: int, promised: int) -> Problem:
    """It is shorter than it was once on the disk."""
    return Problem(name, size, f"the file ends early: it has {size} bytes, and had {promised} when they were synced")


class Facts(NamedTuple):
    """One file, as far as it is finished."""

    name: str
    magic: bytes
    state: State
    bytes: int
    """What it has, or of one that grows: at least."""
    records: int
    first_ns: int
    last_ns: int
    last_data_ns: int
    digest: int
    """CRC-32C of the last 4 KiB of so many bytes, or all of them. The records before have checksums of their own."""

    @classmethod
    def of(cls, file: File, name: str, format: Format, index: Index, state: State | None = None) -> Facts:
        """Raises: DiskError."""
        return cls(
            name,
            format.magic,
            index.state if state is None else state,
            index.bytes,
            index.records,
            index.first,
            index.last,
            index.last_data,
            digest_of(file, index.bytes),
        )

    def differs(self, file: File, *, deep: bool = True) -> str | None:
        """Why a file is not this one; None: it may be. ``deep``: by what it ends with, too. Raises: DiskError."""
        size = file_size(file)
        if size < self.bytes:
            return ends_early(self.name, size, self.bytes).reason
        if size > self.bytes and self.state is State.SEALED:
            return f"the file is not the one that was sealed: it has {size} bytes, that one had {self.bytes}"
        if deep and digest_of(file, self.bytes) != self.digest:
            return f"the file is not as it was synced: its {min(self.bytes, _END)} bytes up to byte {self.bytes} differ"
        return None


def _growing(names: Iterable[FileName]) -> list[FileName]:
    """Of each log, the file that is written to."""
    newest: dict[str, FileName] = {}
    for name in names:
        if name.ending is not Ending.WHOLE:
            newest[name.stream] = max(name, newest.get(name.stream, name))
    return list(newest.values())


def digest_of(file: File, size: int) -> int:
    """Raises: DiskError."""
    start = max(size - _END, 0)
    return kernel.crc32c(read_at(file, start, size - start))


class Manifest:
    """What was read of one."""

    def __init__(self) -> None:
        self.files: dict[str, Facts] = {}
        self.next: dict[str, Facts] = {}
        """Files that are as in ``files``, or so."""
        self.bytes = len(HEAD)
        self.torn = 0
        """Bytes at its end that a crash left of the last record."""

    def differs(self, name: str, file: File, *, deep: bool = True) -> str | None:
        """Why a file of that name is not the one that must be there; None: it may be, or nothing is known.

        Raises: DiskError.
        """
        facts, becomes = self.files.get(name), self.next.get(name)
        if facts is None or (becomes is not None and becomes.differs(file) is None):
            return None
        return facts.differs(file, deep=deep)

    def problem(self, name: str, file: File, reason: str) -> Problem:
        """Where a file that differs is wrong. Raises: DiskError."""
        facts, size = self.files[name], file_size(file)
        return Problem(name, max(facts.bytes - _END, 0) if size == facts.bytes else min(size, facts.bytes), reason)

    def missing(self, names: Collection[str]) -> list[str]:
        """Files that must be there and are not among the names, oldest first."""
        gone = [name for name, facts in self.files.items() if name not in names]
        return sorted(gone, key=lambda name: parse(name) or FileName("", (), name, ""))

    def doubt(self, files: Files, folder: str, names: Iterable[FileName]) -> str:
        """Why it is not to be believed; empty: it is. Raises: DiskError."""
        for name in _growing(names):
            its = [found for each in self.files if (found := parse(each)) and found.stream == name.stream]
            facts = self.files.get(name.name)
            index = indexes.kept(files, folder, name.name)
            if index is not None and index.state is State.CLEAN and (facts is None or facts.bytes < index.bytes):
                return "it is not whole, or an older copy of itself"
            known = max(its, default=None)
            if known is None or self.files[known.name].state is not State.CLEAN:
                continue
            # What was closed in order has more than that, and who opens it writes so down.
            if name > known or (facts is not None and _size(files, folder, name.name) > facts.bytes):
                return "another program has written to the log since"
        return ""


# -- reading ----------------------------------------------------------------------------------------------------------


def load(files: Files, folder: str) -> Manifest | None:
    """None: there is none. Raises: Corruption, WrongFormat; DiskError."""
    try:
        file = open_for_reading(files, folder, MANIFEST)
    except FileNotFoundError:
        return None
    try:
        data = read_at(file, 0, file_size(file))
    finally:
        file.close()
    return decode(data)


def decode(data: bytes) -> Manifest:
    """Raises: Corruption, WrongFormat."""
    if data[: len(HEAD)] != HEAD:
        if len(data) == len(HEAD) and data[:4] == HEAD[:4]:
            raise WrongFormat(MANIFEST, f"version {int.from_bytes(data[4:8], 'big')}, this program reads version 1")
        raise Corruption(MANIFEST, 0, "this is not the head of a manifest", hint=_REMADE)
    found = kernel.scan(data, len(HEAD), len(data), frame.MAX_PAYLOAD)
    manifest = Manifest()
    for at, size in zip(found.offsets, found.lengths, strict=True):
        _take(manifest, data, at, size)
    manifest.bytes = found.stop
    if found.why is not Stop.END:
        rest = frame.decode_head(data, found.stop, len(data))
        if isinstance(rest, frame.Head) and rest.end < len(data):
            raise Corruption(MANIFEST, found.stop, REASONS[found.why], hint=_REMADE)
        manifest.torn = len(data) - found.stop
    return manifest


_REMADE: Final = "the next start makes it anew from the files of the log"


def _take(manifest: Manifest, data: bytes, at: int, size: int) -> None:
    what = data[at] if size else 0
    if what == _GONE:
        name = data[at + 1 : at + size].decode("ascii", "replace")
        manifest.files.pop(name, None)
        manifest.next.pop(name, None)
        return
    if what not in (_IS, _BECOMES) or size <= _FACTS.size:
        raise Corruption(MANIFEST, at, "this is not a record of a manifest", hint=_REMADE)
    _, state, magic, *numbers = _FACTS.unpack_from(data, at)
    name = data[at + _FACTS.size : at + size].decode("ascii", "replace")
    try:
        facts = Facts._make((name, magic, State(state), *numbers))
    except ValueError:
        raise Corruption(MANIFEST, at, f"a file cannot be in state {state}", hint=_REMADE) from None
    if what == _BECOMES:
        manifest.next[name] = facts
    else:
        manifest.files[name] = facts
        manifest.next.pop(name, None)


def facts_of(files: Files, folder: str, name: str, path: str | None = None) -> Facts | None:
    """What a finished file has, by its index or all its bytes; None if it has nothing whole.

    ``path``: it is still there. Raises: Corruption, WrongFormat, DiskError; FileNotFoundError.
    """
    file = open_for_reading(files, folder, name) if path is None else open_for_reading(files, "", path)
    try:
        if header_is_torn(read_header(file), None):
            return None
        format = check_header(file, name)
        index = indexes.load(files, folder, name, file) if path is None else None
        if index is None:
            index, size = Index(), file_size(file)
            scan = indexes.extend(index, file, format, size, max(size, frame.MAX_PAYLOAD))
            if scan.why is not Stop.END:
                raise Corruption(name, scan.stop, REASONS[scan.why])
        return Facts.of(file, name, format, index, State.SEALED)
    finally:
        file.close()


class Witness:
    """Holds what a folder shows against its manifest, for who reads beside others that write and clean.

    It is read again only when it has changed.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, folder
        self._seen: tuple[tuple[int, int], int] | None = None
        self._known: Manifest | None = None

    def missing(self, streams: Collection[str] | None, names: Collection[FileName]) -> list[Problem]:
        """Files that must be there and are not among the names, oldest first. Raises: DiskError."""
        known = self._look()
        if known is None:
            return []
        gone = known.missing({name.name for name in names})
        if streams is not None:
            gone = [name for name in gone if (parsed := parse(name)) and parsed.stream in streams]
        if not gone or known.doubt(self._files, self._folder, names):
            return []
        # What was begun since the names were listed is no loss, and nor is what was removed.
        there = self._listed()
        known = self._look()
        return [Problem(name, 0, MISSING) for name in gone if name not in there and known and name in known.files]

    def differs(self, name: str, file: File, *, deep: bool = True) -> Problem | None:
        """Why a file is not as it must be. Raises: DiskError."""
        known = self._look()
        if known is None:
            return None
        reason = known.differs(name, file, deep=deep)
        if reason is None or known.doubt(self._files, self._folder, sort_out(self._listed()).segments):
            return None
        return known.problem(name, file, reason)

    def _listed(self) -> set[str]:
        try:
            return set(self._files.list(self._folder))
        except OSError as error:
            raise from_os(error, "list the folder", self._folder) from error

    def _look(self) -> Manifest | None:
        """As it is now; None: there is none that can be read."""
        try:
            file = open_for_reading(self._files, self._folder, MANIFEST)
        except FileNotFoundError:
            self._seen = self._known = None
            return None
        try:
            seen = (file.identity, file_size(file))
            if seen != self._seen:
                self._known = None
                with suppress(Corruption, WrongFormat):
                    self._known = decode(read_at(file, 0, seen[1]))
                self._seen = seen
        finally:
            file.close()
        return self._known


def lost_files(files: Files, folder: str, listing: Listing) -> list[Problem]:
    """Files of logs in a folder that must be there and are not. Raises: DiskError."""
    witness = Witness(files, folder)
    lost = witness.missing(None, listing.segments)
    if not lost and not listing.segments:
        # A log of one file has no manifest, but an index once something was synced.
        for name in listing.companions:
            of = parse(name.removesuffix(INDEX_SUFFIX)) if name.endswith(INDEX_SUFFIX) else None
            if of is not None and of.stream in KEPT_FOR and indexes.promised(files, folder, of.name):
                lost.append(Problem(of.name, 0, MISSING))
    return lost


# -- opening a log ----------------------------------------------------------------------------------------------------


def check(files: Files, folder: str, family: Family, names: Collection[str]) -> Checked:
    """Hold the files of a folder against its manifest, before anything is changed there.

    Raises: Corruption if one is shorter than it was; DiskError.
    """
    if family.name not in KEPT_FOR:
        return Checked(None)
    segments = sort_out(names).segments
    try:
        known = load(files, folder)
    except (Corruption, WrongFormat) as error:
        return Checked(None, f"{error.message}; it is made anew from the files of the log")
    if known is None:
        has_many = len(segments) > 1
        return Checked(
            None, f"{MANIFEST}: the log has none, it is made from its {len(segments)} files" if has_many else ""
        )
    doubt = known.doubt(files, folder, segments)
    if doubt:
        return Checked(None, f"{MANIFEST}: {doubt}; it is made anew from the files of the log")
    newest = (name.name for name in _growing(segments))  # readers look at the others
    for name in sorted({*newest, *known.next}.intersection(names, known.files)):
        file = open_for_reading(files, folder, name)
        try:
            reason = known.differs(name, file)
            if reason is not None:
                if not header_is_torn(read_header(file), None):
                    check_header(file, name)  # another kind of file is told as such
                raise known.problem(name, file, reason).error()
        finally:
            file.close()
    return Checked(known)


MISSING: Final = "the file is missing: it was part of the log, and nothing that removes files has removed it"
LOST: Final = "bring it back from a backup, or go on without what is lost with lamina log repair"


class Checked(NamedTuple):
    """What ``check`` found."""

    manifest: Manifest | None
    warning: str = ""
    """Why there is none."""


def go_on(files: Files, folder: str, family: Family, checked: Checked, newest: Facts | None) -> int:
    """Bring the manifest up to date with what opening left. Returns its size, 0 if there is none.

    ``newest``: the file that the log goes on in, or ended with; None: all are finished. Raises: DiskError.
    """
    if family.name not in KEPT_FOR:
        return 0
    try:
        segments = sort_out(files.list(folder)).segments
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
    known = checked.manifest
    if known is None:
        if len(segments) < 2:
            if checked.warning:
                give_up(files, folder)
            return 0
        finished = [name for name in segments if newest is None or name.name != newest.name]
        return rebuild(files, folder, finished, [] if newest is None else [newest])
    there = {name.name for name in segments}
    are: list[Facts] = []
    for name in segments:
        facts, becomes = known.files.get(name.name), known.next.get(name.name)
        if newest is not None and name.name == newest.name:
            if facts is None or (facts.state, facts.bytes) != (newest.state, newest.bytes):
                are.append(newest)
        elif becomes is not None or facts is None or facts.state is not State.SEALED:
            with suppress(FileNotFoundError, Corruption, WrongFormat):
                found = facts_of(files, folder, name.name)
                if found is not None:
                    are.append(found)
    gone = [name for name in {*known.files, *known.next} if name not in there]
    if known.torn:
        kept = {**known.files, **{facts.name: facts for facts in are}}
        return write(files, folder, [facts for name, facts in kept.items() if name in there])
    if not are and not gone:
        return known.bytes
    return note(files, folder, are=are, gone=gone)


def _size(files: Files, folder: str, name: str) -> int:
    """0 if it is not there. Raises: DiskError."""
    try:
        file = open_for_reading(files, folder, name)
    except FileNotFoundError:
        return 0
    try:
        return file_size(file)
    finally:
        file.close()


# -- writing ----------------------------------------------------------------------------------------------------------


def _encode(what: int, facts: Facts) -> bytes:
    name, magic, state, *numbers = facts
    return _FACTS.pack(what, state, magic, *numbers) + name.encode("ascii")


def note(
    files: Files,
    folder: str,
    *,
    are: Iterable[Facts] = (),
    become: Iterable[Facts] = (),
    gone: Iterable[str] = (),
    sync: bool = True,
) -> int:
    """Append facts, if there is a manifest. Returns its size, 0 if there is none, now or any more.

    Durability: with ``sync``, it is on the disk, or no manifest is: what contradicts the facts may be done next.
    Raises: DiskError, if neither can be had.
    """
    payloads = [_encode(_IS, each) for each in are] + [_encode(_BECOMES, each) for each in become]
    payloads += [bytes([_GONE]) + name.encode("ascii") for name in gone]
    if not payloads:
        return 0
    with _lock(folder):
        try:
            file = files.open(join(folder, MANIFEST), write=True)
        except FileNotFoundError:
            return 0
        except OSError as error:
            return give_up(files, folder, error)
        try:
            write_all(file, [kernel.encode_many(0, payloads)])
            if sync:
                file.sync()
            return file.size()
        except OSError as error:
            return give_up(files, folder, error)
        finally:
            file.close()


def announce(files: Files, folder: str, name: str, temporary: str) -> Facts | None:
    """Say that the file at the path ``temporary`` is about to become ``name``. None: there is no manifest.

    Raises: Corruption if it is not whole; DiskError.
    """
    if parse(name) is None or not _is_there(files, folder):
        return None
    becomes = facts_of(files, folder, name, temporary)
    return becomes if becomes is not None and note(files, folder, become=[becomes]) else None


def _is_there(files: Files, folder: str) -> bool:
    try:
        open_for_reading(files, folder, MANIFEST).close()
    except FileNotFoundError:
        return False
    return True


def give_up(files: Files, folder: str, cause: OSError | None = None) -> int:
    """What cannot be written down: without a manifest nothing contradicts it. Raises: DiskError."""
    try:
        with suppress(FileNotFoundError):
            files.remove(join(folder, MANIFEST))
        files.sync_folder(folder)
    except OSError as error:
        raise from_os(error, "give up the manifest in", folder) from cause or error
    return 0


def write(files: Files, folder: str, facts: Sequence[Facts]) -> int:
    """Have a manifest of exactly these. Returns its size, 0 if the disk refused it: then there is none.

    Durability: synced. Raises: DiskError, if neither can be had.
    """
    with _lock(folder):
        return _write(files, folder, facts)


def _write(files: Files, folder: str, facts: Sequence[Facts]) -> int:
    try:
        with suppress(FileNotFoundError):
            files.remove(join(folder, _NEW))
        file = files.create(join(folder, _NEW))
        try:
            write_all(file, [HEAD, kernel.encode_many(0, [_encode(_IS, each) for each in facts]) if facts else b""])
            file.sync()
            size = file.size()
        finally:
            file.close()
        files.rename(join(folder, _NEW), join(folder, MANIFEST))
        files.sync_folder(folder)
    except OSError as error:
        with suppress(OSError):
            files.remove(join(folder, _NEW))
        return give_up(files, folder, error)
    return size


def shorten(files: Files, folder: str, size: int, limit: int) -> tuple[int, int]:
    """Write it anew if it has more than ``limit`` bytes. Returns its size, and the next limit."""
    if size <= max(limit, _LEAST):
        return size, limit
    with _lock(folder):
        try:
            known = load(files, folder)
        except (Corruption, WrongFormat):
            known = None
        if known is None or known.next:  # of a file that is being replaced neither may be forgotten
            return size, 2 * size
        size = _write(files, folder, list(known.files.values()))
    return size, 2 * size


def rebuild(files: Files, folder: str, names: Iterable[FileName], more: Iterable[Facts] = ()) -> int:
    """Make it anew from finished files of a log, and ``more``. Returns its size; 0: the disk refused.

    What is damaged is left out: it is reported by who reads it. Raises: DiskError.
    """
    found = list(more)
    for name in names:
        with suppress(FileNotFoundError, Corruption, WrongFormat):
            facts = facts_of(files, folder, name.name)
            if facts is not None:
                found.append(facts)
    return write(files, folder, found)


def _lock(folder: str) -> threading.Lock:
    return _LOCKS[hash(folder) % len(_LOCKS)]
