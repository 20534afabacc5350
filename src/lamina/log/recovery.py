"""What happens when a log is opened for writing: leave on disk exactly what may be served, and say what was done.

Only the newest file can have been torn by a crash: a full segment is synced before the next one is used. So only the
newest is looked at: from its index if the log was closed in order, if not by a scan of what its index does not cover. A
tail that is torn is cut, after its bytes were put aside in ``<name>.torn-<time>``; damage refuses to open (attest.py
tells the two apart). A newest file without any whole record is taken away and the one before it becomes the newest.

Everything kept is synced before it is served: a record that was read once stays, also through the next power cut.
Being cut short itself by a crash, recovery comes to the same result when it is run again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from lamina.clock import Clock
from lamina.errors import Corruption, from_os
from lamina.log import index as indexes
from lamina.log import manifest, rewrite
from lamina.log.attest import is_attested
from lamina.log.files import File, Files, is_full, join, read_at, write_all
from lamina.log.formats import Format
from lamina.log.frame import REASONS, Stop
from lamina.log.index import Index, State
from lamina.log.naming import INDEX_SUFFIX, Family, FileName, show_file_time, sort_out
from lamina.log.scan import HEADER_SIZE, read_record
from lamina.log.segment import check_header, header_is_torn, open_for_reading, read_header

_COPY = 1 << 20


@dataclass(frozen=True, slots=True)
class TornTail:
    """A tail that was cut, and where its bytes are kept."""

    file: str
    offset: int
    bytes: int
    reason: str
    kept_as: str
    """Empty: on a full disk they are cut all the same, for it has to be possible to start."""

    def __str__(self) -> str:
        kept = f"kept in {self.kept_as}" if self.kept_as else "not kept, for the disk is full"
        return f"{self.file}, byte {self.offset}: cut a torn tail of {self.bytes} bytes ({self.reason}), {kept}"


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did."""

    segments: int = 0
    was_clean: bool = True
    torn: list[TornTail] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def warnings(self) -> list[str]:
        return [
            *(str(tail) for tail in self.torn),
            *(f"{name}: removed a half-done replacement that a crash left behind" for name in self.leftovers),
            *(f"{name}: not a file of this log, left alone" for name in self.foreign),
            *self.notes,
        ]


@dataclass(slots=True)
class Recovered:
    """What the writer goes on from."""

    report: RecoveryReport
    newest: FileName | None = None
    index: Index = field(default_factory=Index)
    """Of the newest file."""
    manifest_bytes: int = 0
    """Of the manifest of the log; 0: there is none."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A newest file, looked at."""

    index: Index
    why: Stop
    is_clean: bool

    @property
    def is_torn(self) -> bool:
        return self.why is not Stop.END


def recover(files: Files, folder: str, family: Family, format: Format, clock: Clock, max_payload: int) -> Recovered:
    """Make the folder of a log ready to be served and written. The caller holds the lock.

    Raises: Corruption, WrongFormat (nothing was changed); DiskError, DiskFull.
    """
    try:
        names = files.list(folder)
        listing = sort_out(names)
        segments = listing.of_family(family)
        report = RecoveryReport(leftovers=listing.leftovers, foreign=listing.foreign)
        checked = manifest.check(files, folder, family, names)
        if checked.warning:
            report.notes.append(checked.warning)
        for lost in manifest.lost_files(files, folder, listing):
            raise lost.error()
        # Nothing is changed before all that has to be checked was.
        looked_at = _look_back(files, folder, segments, format, max_payload)
        for name, examined in looked_at:
            if examined.is_torn or not examined.index.records:
                cut(files, folder, name.name, examined, report, clock)
        rewrite.remove_leftovers(files, folder, listing.leftovers)
        gone = {name for name, examined in looked_at if not examined.index.records}
        segments = [name for name in segments if name not in gone]
        report.segments = len(segments)
        is_safe = bool(segments) and looked_at[-1][1].is_clean and not (report.torn or report.leftovers or gone)
        _sync_what_is_kept(files, folder, segments, set(names), is_safe=is_safe)
        recovered = _go_on_from(files, folder, looked_at[-1] if segments else None, report)
        for name in reversed(segments[:-1]):
            if recovered.index.last_data:
                break
            # The newest file holds marks only: how far the log reached is in the ones before.
            recovered.index.last_data = _last_data(files, folder, name.name, format, max_payload)
        facts = _facts_of(files, folder, recovered)
        recovered.manifest_bytes = manifest.go_on(files, folder, family, checked, facts)
        return recovered
    except OSError as error:
        raise from_os(error, "recover the log", folder) from error


def _facts_of(files: Files, folder: str, recovered: Recovered) -> manifest.Facts | None:
    """Of the file that the log ends with; it may grow."""
    if recovered.newest is None:
        return None
    name = recovered.newest.name
    file = open_for_reading(files, folder, name)
    try:
        state = State.SEALED if recovered.index.state is State.SEALED else State.GROWING
        return manifest.Facts.of(file, name, check_header(file, name), recovered.index, state)
    finally:
        file.close()


def _look_back(
    files: Files, folder: str, segments: list[FileName], format: Format, max_payload: int
) -> list[tuple[FileName, Examined]]:
    """The newest files, newest first, down to the first that has a whole record. Raises: Corruption, WrongFormat."""
    looked_at: list[tuple[FileName, Examined]] = []
    for place in range(len(segments) - 1, -1, -1):
        before = segments[place - 1] if place else None
        file = open_for_reading(files, folder, segments[place].name)
        try:
            examined = examine(files, folder, segments[place].name, before, file, format, max_payload)
        finally:
            file.close()
        looked_at.append((segments[place], examined))
        if examined.index.records:
            break
    return looked_at


def _go_on_from(
    files: Files, folder: str, newest: tuple[FileName, Examined] | None, report: RecoveryReport
) -> Recovered:
    if newest is None:
        return Recovered(report)
    name, examined = newest
    report.was_clean = examined.is_clean and not report.torn
    if not report.was_clean:
        # Writing goes on in a new file, so this one is sealed now.
        examined.index.state = State.SEALED
        indexes.save(files, folder, name.name, examined.index)
    return Recovered(report, name, examined.index)


def examine(
    files: Files,
    folder: str,
    name: str,
    before: FileName | None,
    file: File,
    format: Format,
    max_payload: int,
) -> Examined:
    """Look at a newest file without changing anything. Raises: Corruption if it is damaged; WrongFormat."""
    size = file.size()
    promised = indexes.promised(files, folder, name)
    header = read_header(file)
    if not header_is_torn(header, format):
        check_header(file, name, format)
    if promised > size:
        raise manifest.ends_early(name, size, promised).error()
    if header_is_torn(header, format):
        index, why, stop = Index(), Stop.BAD_TIME, 0
    else:
        index = indexes.load(files, folder, name, file, may_end_early=True) or Index()
        if index.state is not State.GROWING:
            return Examined(index, Stop.END, is_clean=True)
        scan = indexes.extend(index, file, format, size, max_payload)
        why, stop = scan.why, scan.stop
        if why is Stop.END and stop < size:
            why = Stop.TRUNCATED  # the file shrank while it was read
    if why is Stop.END:
        return Examined(index, why, is_clean=_ends_with_watermark(file, index, format))
    if stop < promised:
        raise Corruption(name, stop, f"{REASONS[why]}, though it was once synced")
    last_good = index.last_data
    if not last_good and before is not None:
        last_good = _last_data(files, folder, before.name, format, max_payload)
    if is_attested(file, stop, size, last_good, format, max_payload):
        raise Corruption(name, stop, f"{REASONS[why]}, though it was once synced")
    return Examined(index, why, is_clean=False)


def _ends_with_watermark(file: File, index: Index, format: Format) -> bool:
    """The last record vouches for all before it: the log was closed in order."""
    size = 20 + len(format.watermark(0))
    at = index.bytes - size
    head = read_record(file, at, index.bytes) if at >= HEADER_SIZE else Stop.END
    if isinstance(head, Stop) or head.time_ns != index.last:
        return False
    return format.read_watermark(read_at(file, head.payload_at, head.size)) == index.last_data


def _last_data(files: Files, folder: str, name: str, format: Format, max_payload: int) -> int:
    file = open_for_reading(files, folder, name)
    try:
        index = indexes.load(files, folder, name, file)
        if index is None:
            index = Index()
            indexes.extend(index, file, format, None, max_payload)
        return index.last_data
    finally:
        file.close()


def cut(files: Files, folder: str, name: str, examined: Examined, report: RecoveryReport, clock: Clock) -> None:
    """Put the tail aside, then cut it off; take the file away if no record is left in it."""
    path = join(folder, name)
    file = files.open(path, write=True)
    try:
        keep = examined.index.bytes if examined.index.records else 0
        size = file.size()
        # A file that never got past its header holds nothing worth keeping or telling.
        is_worth_keeping = size > max(keep, HEADER_SIZE)
        kept_as = try_to_keep_aside(files, folder, file, name, keep, size, clock) if is_worth_keeping else ""
        if keep:
            file.truncate(keep)
            file.sync()
    finally:
        file.close()
    if not keep:
        rewrite.remove(files, folder, [name])
    if is_worth_keeping:
        report.torn.append(TornTail(name, keep, size - keep, REASONS[examined.why], kept_as))


def try_to_keep_aside(files: Files, folder: str, file: File, name: str, start: int, end: int, clock: Clock) -> str:
    """``keep_aside`` for a tail that nobody was told is safe. Returns nothing where the disk has no room for it."""
    try:
        return keep_aside(files, folder, file, name, start, end, clock)
    except OSError as error:
        if not is_full(error):
            raise
        return ""


def keep_aside(
    files: Files, folder: str, file: File, name: str, start: int, end: int, clock: Clock, what: str = "torn"
) -> str:
    """Copy bytes of a file to ``<name>.torn-<time>`` and make sure that they are there. Raises: OSError, and no copy is
    left.
    """
    moment = clock.now_ns()
    while True:
        kept_as = f"{name}.{what}-{show_file_time(moment)}"
        try:
            copy = files.create(join(folder, kept_as))
            break
        except FileExistsError:
            moment += 1
    try:
        for chunk in chunks_of(file, start, end):
            write_all(copy, [chunk])
        copy.sync()
    except BaseException:
        with suppress(OSError):
            files.remove(join(folder, kept_as))
        raise
    finally:
        copy.close()
    files.sync_folder(folder)
    return kept_as


def chunks_of(file: File, start: int, end: int) -> Iterator[bytes]:
    """Bytes of a file, a MiB at a time."""
    while start < end:
        chunk = read_at(file, start, min(_COPY, end - start))
        if not chunk:
            raise OSError(errno.EIO, "the file is shorter than it was", file.path)
        yield chunk
        start += len(chunk)


def _sync_what_is_kept(files: Files, folder: str, segments: list[FileName], names: set[str], *, is_safe: bool) -> None:
    """Sync every file that has no index: the index is written after the sync of a seal, so those are safe.

    ``is_safe``: the newest was closed in order, so what it holds was synced before, and so was every name.
    """
    unsure = [segment for segment in segments if segment.name + INDEX_SUFFIX not in names]
    if segments and not is_safe and segments[-1] not in unsure:
        unsure.append(segments[-1])
    for segment in unsure:
        file = files.open(join(folder, segment.name))
        try:
            file.sync()
        finally:
            file.close()
    if unsure or not is_safe:
        files.sync_folder(folder)
