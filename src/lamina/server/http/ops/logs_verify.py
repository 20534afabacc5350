"""Reading every byte of a log, beside the server that writes it. Changes nothing, and can be stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Protocol

from lamina.engines.queues import ids
from lamina.engines.queues import verify as queues
from lamina.engines.queues.journal.home import no_path
from lamina.engines.queues.journal.verify import verify as verify_journal
from lamina.engines.store import verifying
from lamina.errors import StorageError
from lamina.log.survey import survey
from lamina.server.http.ops import logs_names as names
from lamina.server.http.ops.logs_model import Damage
from lamina.server.http.ops.logs_names import Ref
from lamina.server.http.ops.logs_segments import FILES
from lamina.server.http.ops.logs_works import Running
from lamina.units import show_bytes


class _Bad(Protocol):
    @property
    def file(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def reason(self) -> str: ...


def verify(ref: Ref, work: Running) -> str:
    """What was found, in a sentence; damage is in ``work``. Raises: DiskError; Stopped."""
    if ref.kind == names.JOURNALS:
        return _journals(ref, work)
    if ref.kind == names.STORE:
        report = verifying.verify(FILES, ref.folder, work.progress)
        work.damage = _told(report.damage)
        return _sentence(work.damage, len(report.files), report.bytes, sum(each.entries for each in report.files))
    if ref.kind == names.QUEUES:
        store = queues.verify(FILES, ref.folder, work.progress, journals=False)
        work.damage = _told(store.damage)
        return _sentence(work.damage, store.files, store.bytes, store.records)
    found = survey(FILES, ref.folder, progress=work.progress)
    work.damage = _told(found.damage)
    marks = sum(each.marks for each in found.segments)
    return _sentence(work.damage, len(found.segments), found.bytes, found.records - marks)


def _journals(ref: Ref, work: Running) -> str:
    """Folder by folder; queues are told by their handles."""
    folders = [path for path, below, plain in os.walk(ref.folder) if plain and not below]
    files = size = records = 0
    for at, path in enumerate(folders):
        work.progress(at, len(folders))
        rid = ids.parse("".join(os.path.relpath(path, ref.folder).split(os.sep)).encode("utf-8", "replace"))
        if rid is None:
            continue
        shown = f"queue {ids.handle(rid)}"
        try:
            with no_path(rid, "verify"):
                found = verify_journal(FILES, path)
        except StorageError as error:
            if os.path.isdir(path):  # else the queue was deleted meanwhile
                work.damage.append(Damage(file=shown, offset=0, end=0, reason=error.message))
            continue
        work.damage += _told(found.damage, lambda file, shown=shown: f"{shown}, {file}")  # type: ignore[misc]
        files, size, records = files + found.files, size + found.bytes, records + found.messages
    return _sentence(work.damage, files, size, records)


def _told(damage: Iterable[_Bad], show: Callable[[str], str] = lambda file: file) -> list[Damage]:
    return [Damage(file=show(one.file), offset=one.offset, end=one.end, reason=one.reason) for one in damage]


def _sentence(damage: list[Damage], files: int, size: int, records: int) -> str:
    read = f"read {files} files, {show_bytes(size)}, {records} records"
    if not damage:
        return f"{read}: no damage"
    first = damage[0]
    more = f" and {len(damage) - 1} more places" if len(damage) > 1 else ""
    return f"{read}: damage in {first.file}, byte {first.offset}: {first.reason}{more}"
