"""The one way in which a sealed file is ever replaced or removed.

    1 write the new file under a temporary name     2 sync it
    3 rename it over the old name                   4 sync the folder     <- commit point: the rename, made durable here
    5 remove what it made obsolete                  6 sync the folder

A crash before 3 leaves the old file and a leftover that is removed at open; after 3 it leaves the new one. Never
neither. Removing (5) waits for the folder's sync (4): otherwise a power cut could undo the rename and keep the removal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lamina.errors import Corruption, from_os
from lamina.log import index, kernel, manifest
from lamina.log.files import File, Files, file_size, join, write_all
from lamina.log.formats import Format
from lamina.log.frame import MAX_PAYLOAD, REASONS, Stop
from lamina.log.naming import Family, FileName, parse, sort_out
from lamina.log.scan import Batch, FileScan
from lamina.log.segment import check_header, open_for_reading


def replace(
    files: Files,
    folder: str,
    name: str,
    chunks: Iterable[bytes],
    family: Family,
    obsolete: Sequence[str] = (),
    sync_every: int | None = None,
) -> None:
    """Make ``name`` a file of exactly ``chunks`` (header included), then remove the ``obsolete`` files.

    ``sync_every``: sync whenever so many bytes were written, so that others who write to the disk never wait for long.

    Durability: when it returns, the new content is synced under its name and the removals are too.
    Order: a crash may leave obsolete files behind; the caller must be able to tell, from what is in ``name``, that
        they are obsolete.
    Raises: DiskFull, DiskError; then the old file is still there, untouched (or, if the very last sync of the folder
        failed, the new one is, whole).
    """
    path = join(folder, name)
    temporary = path + family.temporary_suffix
    try:
        _remove_if_there(files, temporary)
        write_new(files, temporary, chunks, sync_every)
        put_in_place(files, folder, name, temporary)
    except OSError as error:
        raise from_os(error, "replace the file", path) from error
    except BaseException:
        _remove_quietly(files, temporary)
        raise
    if obsolete:
        remove(files, folder, obsolete)


def write_new(files: Files, path: str, chunks: Iterable[bytes], sync_every: int | None = None) -> int:
    """Steps 1 and 2 by themselves. Returns the size. Raises: DiskFull, DiskError; then some of it may be there."""
    size = unsynced = 0
    try:
        file = files.create(path)
        try:
            for chunk in chunks:
                write_all(file, [chunk])
                size += len(chunk)
                unsynced += len(chunk)
                if sync_every is not None and unsynced >= sync_every:
                    file.sync()
                    unsynced = 0
            file.sync()
        finally:
            file.close()
    except OSError as error:
        raise from_os(error, "write the file", path) from error
    return size


def put_in_place(files: Files, folder: str, name: str, temporary: str) -> None:
    """Steps 3 and 4 by themselves: a file that was written and synced becomes ``name``. The commit point.

    Raises: DiskFull, DiskError; then the old file is there, untouched (or, if the sync of the folder failed, the new
        one is, whole).
    """
    path = join(folder, name)
    becomes = manifest.announce(files, folder, name, temporary)
    try:
        if index.discard(files, folder, name):
            files.sync_folder(folder)  # beside the new file it would say that the end of that is missing
        files.rename(temporary, path)
        files.sync_folder(folder)
    except OSError as error:
        raise from_os(error, "replace the file", path) from error
    if becomes is not None:
        manifest.note(files, folder, are=[becomes], sync=False)


def remove(files: Files, folder: str, names: Sequence[str]) -> None:
    """Remove sealed files, oldest first, so that a crash in between leaves no hole."""
    manifest.note(files, folder, gone=[name for name in names if parse(name) is not None])
    for name in names:
        index.discard(files, folder, name)
        try:
            _remove_if_there(files, join(folder, name))
        except OSError as error:
            raise from_os(error, "remove the file", join(folder, name)) from error
    try:
        files.sync_folder(folder)
    except OSError as error:
        raise from_os(error, "sync the folder", folder) from error


@dataclass(slots=True)
class RewriteReport:
    """What cleaning a file did."""

    kept: int = 0
    dropped: int = 0
    renewed: int = 0
    """Of the kept ones: those that got another payload."""
    is_removed: bool = False
    bytes_before: int = 0
    bytes_after: int = 0

    @property
    def is_new(self) -> bool:
        """The file is, or is to be, another one than before."""
        return bool(self.dropped or self.renewed)


def as_it_is(payload: bytes) -> bytes:
    """What ``renew`` is where nothing gets another payload."""
    return payload


def drop_records(
    files: Files,
    folder: str,
    name: FileName,
    family: Family,
    keep: Callable[[int, bytes], bool],
    max_payload: int = MAX_PAYLOAD,
    before_commit: Callable[[], None] = lambda: None,
    renew: Callable[[bytes], bytes] = as_it_is,
) -> RewriteReport:
    """Rewrite a sealed file without the records that ``keep(time, payload)`` turns down; the rest stays byte for byte.

    ``renew(payload)`` gives a record that stays another payload, at the same time; it must say the same whenever it is
    asked. ``before_commit`` is called when all is decided and nothing is changed yet; raising, it leaves all as it was.
    Nothing is written when everything is kept. A file of which nothing is kept is removed, unless its absence would
    look like a loss: then its header and end mark stay.
    Raises: Corruption (nothing was changed), DiskFull, DiskError.
    """
    with _without(files, folder, name, family, keep, renew, max_payload) as (report, chunks):
        if report.is_new:
            before_commit()
            if report.is_removed:
                remove(files, folder, [name.name])
            else:
                replace(files, folder, name.name, chunks, family)
    return report


def stage_without(
    files: Files,
    folder: str,
    name: FileName,
    family: Family,
    keep: Callable[[int, bytes], bool],
    staged: str | None,
    max_payload: int = MAX_PAYLOAD,
    renew: Callable[[bytes], bytes] = as_it_is,
    *,
    reach_ns: int | None = None,
    sync_every: int | None = None,
) -> RewriteReport:
    """The first half of ``drop_records``: the new file is written to the path ``staged`` and synced, nothing changes.

    ``is_removed`` says that the file is to go; then nothing is written, as when everything is kept. ``staged`` None:
    it is only counted.
    ``reach_ns``: time of the last record of this file, or of a later one when all between the two may go. The file
    stays, whatever is left in it, and shows that the log reached so far; watermarks that mattered only while it grew
    are dropped, too. ``sync_every``: as in ``replace``.
    Raises: Corruption, DiskFull, DiskError.
    """
    with _without(files, folder, name, family, keep, renew, max_payload, reach_ns) as (report, chunks):
        if report.is_new and not report.is_removed:
            counted = sum(map(len, chunks)) if staged is None else write_new(files, staged, chunks, sync_every)
            report.bytes_after = counted
    return report


def commit_staged(files: Files, folder: str, name: FileName, report: RewriteReport, staged: str) -> None:
    """The second half: from here on the file is without those records. All that decided about them must be synced.

    Raises: DiskFull, DiskError; then the file is as it was (or, if the sync of the folder failed, as it is to be).
    """
    if report.is_removed:
        remove(files, folder, [name.name])
    elif report.is_new:
        put_in_place(files, folder, name.name, staged)


@contextmanager
def _without(
    files: Files,
    folder: str,
    name: FileName,
    family: Family,
    keep: Callable[[int, bytes], bool],
    renew: Callable[[bytes], bytes],
    max_payload: int,
    reach_ns: int | None = None,
) -> Iterator[tuple[RewriteReport, Iterator[bytes]]]:
    """What is to become of a file, and the bytes that it will have."""
    report = RewriteReport()
    file = open_for_reading(files, folder, name.name)
    try:
        report.bytes_before = report.bytes_after = file_size(file)
        format = check_header(file, name.name)
        decisions = _decide(file, name, format, keep, renew, max_payload, report, reach_ns)
        if reach_ns is None and report.dropped and report.kept == 0 and _may_vanish(files, folder, name, family):
            report.is_removed, report.bytes_after = True, 0
        yield report, _kept_bytes(file, format, decisions, renew, max_payload, reach_ns)
    finally:
        file.close()


_GOES, _STAYS, _STANDS_IN, _IS_RENEWED = range(4)


def _decide(
    file: File,
    name: FileName,
    format: Format,
    keep: Callable[[int, bytes], bool],
    renew: Callable[[bytes], bytes],
    max_payload: int,
    report: RewriteReport,
    reach_ns: int | None,
) -> bytearray:
    """One byte a record: what becomes of it."""
    decisions = bytearray()
    newest, newest_ns = -1, 0
    scan = FileScan(file, max_payload=max_payload)
    mark_sizes = format.mark_sizes
    for batch in scan:
        for at, time_ns in enumerate(batch.times):
            payload = batch.payload(at)
            is_mark = len(payload) in mark_sizes and format.is_mark(payload)
            if is_mark:
                stays = _mark_stays(format, time_ns, payload, decisions, reach_ns)
            else:
                stays = keep(time_ns, payload)
            if not is_mark or format.reaches(time_ns, payload):
                newest, newest_ns = len(decisions), time_ns
            is_renewed = stays and not is_mark and renew is not as_it_is and renew(payload) != payload
            decisions.append(_IS_RENEWED if is_renewed else _STAYS if stays else _GOES)
            report.renewed += is_renewed
            report.kept += stays and not is_mark
            report.dropped += not stays and (reach_ns is not None or not is_mark)
    if scan.why is not Stop.END:
        raise Corruption(name.name, scan.stop, REASONS[scan.why])
    if reach_ns is not None and reach_ns > newest_ns:
        report.dropped += 1  # the file is to be another one, even if all of it stays
    elif newest >= 0 and decisions[newest] == _GOES:
        # Something must show how far the file reached, so that it is seen to be whole (Format.reaches).
        decisions[newest] = _STANDS_IN
    return decisions


def _mark_stays(format: Format, time_ns: int, payload: bytes, before: Sequence[int], reach_ns: int | None) -> bool:
    """Of a sealed file, what vouches for the file before it, stands in for a record, or tells of a loss.

    All other watermarks are for telling a torn tail from damage, and a sealed file has no tail. With ``reach_ns``
    another one shows how far the log reached.
    """
    vouches_for = format.read_watermark(payload)
    return not before or vouches_for is None or (reach_ns is None and vouches_for == time_ns)


def _kept_bytes(
    file: File,
    format: Format,
    decisions: bytearray,
    renew: Callable[[bytes], bytes],
    max_payload: int,
    reach_ns: int | None,
) -> Iterator[bytes]:
    yield format.header
    number = newest_ns = 0
    for batch in FileScan(file, max_payload=max_payload):
        for at, time_ns in enumerate(batch.times):
            if decisions[number] == _STAYS:
                yield _record_bytes(batch, at)
                newest_ns = time_ns
            elif decisions[number] == _IS_RENEWED:
                yield kernel.encode_many(time_ns, (renew(batch.payload(at)),))
                newest_ns = time_ns
            elif decisions[number] == _STANDS_IN:
                yield kernel.encode_many(time_ns, (format.watermark(time_ns),))
                newest_ns = time_ns
            number += 1
    if reach_ns is not None and reach_ns > newest_ns:
        yield kernel.encode_many(reach_ns, (format.watermark(reach_ns),))


def _record_bytes(batch: Batch, at: int) -> bytes:
    start = batch.record_offset(at) - batch.base
    end = batch.offsets[at] + batch.lengths[at] + 4
    return bytes(batch.data[start:end])


def _may_vanish(files: Files, folder: str, name: FileName, family: Family) -> bool:
    """Numbers show where a file was taken away; in time-named logs only the oldest may go without a trace."""
    return family.name != "timed" or name == sort_out(files.list(folder)).of_family(family)[0]


def remove_leftovers(files: Files, folder: str, names: Sequence[str]) -> None:
    """Undo half-done replacements that a crash left behind."""
    if names:
        remove(files, folder, names)


def _remove_if_there(files: Files, path: str) -> None:
    try:
        files.remove(path)
    except FileNotFoundError:
        return


def _remove_quietly(files: Files, path: str) -> None:
    """Clean up after another error, which is the one to report."""
    try:
        files.remove(path)
    except OSError:
        return
