"""One verifier for every kind of file: of a data folder, or of one log. Nothing is changed, and no lock is needed.

``lamina log verify``, ``lamina doctor``, the console, backups and tests ask here, so all of them find the same and say
it in the same words. Which end a file may have is a rule of its kind (log/naming.py, ``Ending``); what a log, the
queues or the store need to start is asked of them:

    jobs, topics, groups, logs    log/survey.py: every byte; the newest may end torn, in what nobody vouches for
    queues                        engines/queues/verify.py: dumps complete or broken, logs without a hole, journals
    store                         engines/store/verifying.py: epochs, catalog, parts, channels
    lamina.json, users.json       log/control.py: whole, and there if they ever were
    checkpoints, indexes          hints: what is wrong with them costs time at the next start, and is noted
    consumers                     what cannot be read holds everything, and is told
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from lamina.errors import Corruption, LaminaError, WrongFormat, from_os
from lamina.log import consumers, control, lock, manifest, mark, survey
from lamina.log import index as indexes
from lamina.log.files import Files, file_size, join
from lamina.log.files.real import RealFiles
from lamina.log.folders import name_of
from lamina.log.frame import Stop
from lamina.log.naming import CHECKPOINT, CONSUMERS, FAMILIES, INDEX_SUFFIX, MANIFEST, Listing, parse, sort_out
from lamina.log.scan import HEADER_SIZE, FileScan
from lamina.log.segment import open_for_reading
from lamina.log.survey import Progress

DAMAGE: Final = "damage"
"""Something that is needed is broken, or gone: a start refuses, or serves less than there was."""
SPARE: Final = "not needed"
"""Something is broken that a start does without; the past may need it, or somebody who reads from outside."""
TORN: Final = "torn tail"
"""What a crash leaves: the next start cuts it off, and keeps it."""
NOTE: Final = "note"
"""Good to know."""

PARTS: Final = ("jobs", "topics", "queues", "store", "logs")
_RUNS: Final = "pipeline/runs"
_QUEUE_LOG: Final = "queue.log"
_MOST_RUN_BYTES: Final = 256 << 10
_LOCKS: Final = sorted({family.lock_name for family in FAMILIES.values()})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it was written."""

    kind: str
    """DAMAGE, SPARE, TORN or NOTE."""
    part: str
    """Which log, from the data folder on: ``topics/orders``; empty: the data folder itself."""
    file: str
    """From the folder of that log on."""
    offset: int
    end: int
    reason: str
    do: str = ""
    """What to do; empty: nothing."""

    @property
    def text(self) -> str:
        """File, byte and reason: the same words wherever it is told."""
        return f"{self.file}, byte {self.offset}: {self.reason}"


@dataclass(slots=True)
class Verdict:
    """What was found."""

    folder: str
    findings: list[Finding] = field(default_factory=list)
    logs: int = 0
    files: int = 0
    records: int = 0
    """Whole ones; marks of the kernel are left out where that is known."""
    bytes: int = 0
    newest: tuple[str, int] | None = None
    """Of one log: the file with the newest record, and its time."""
    survey: survey.Survey | None = None
    """Of one log that is neither the queues nor the store: its files, one by one."""

    @property
    def is_sound(self) -> bool:
        """Nothing that is needed is damaged. Torn tails are what a crash leaves."""
        return not self.of(DAMAGE)

    def of(self, kind: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind == kind]

    def add(self, other: Verdict) -> None:
        """What was found in a part of it."""
        self.findings += other.findings
        self.logs += other.logs
        self.files += other.files
        self.records += other.records
        self.bytes += other.bytes


def is_data_folder(files: Files, folder: str) -> bool:
    """A data folder, not one log. Raises: DiskError."""
    names = _names(files, folder)
    return not sort_out(names).segments and (mark.NAME in names or any(part in names for part in PARTS))


def verify(folder: str, files: Files | None = None, progress: Progress = lambda done, total: None) -> Verdict:
    """Look at every byte of a data folder, or of one log. ``progress`` gets the bytes of the log at hand.

    Raises: DiskError if a folder cannot be looked at; damage is reported, never raised.
    """
    files = RealFiles() if files is None else files
    if not is_data_folder(files, folder):
        return verify_log(files, folder, "", progress)
    verdict = Verdict(folder)
    verdict.findings += look_at_control(files, folder)
    for part in log_folders(files, folder):
        verdict.add(verify_log(files, join(folder, part), part, progress))
    verdict.findings += _runs(files, folder)
    return verdict


def log_folders(files: Files, folder: str) -> Iterator[str]:
    """Every folder with log files in a data folder, from there on. Raises: DiskError."""
    above = set(_names(files, folder))
    for part in ("jobs", "queues", "store"):
        if part in above and _has_files(files, join(folder, part)):
            yield part
    for part in ("topics", "logs"):
        if part not in above:
            continue
        for name in sorted(_names_or_none(files, join(folder, part))):
            path = f"{part}/{name}"
            if not name.startswith(".") and name_of(name) is not None and _has_files(files, join(folder, path)):
                yield path
                if _has_files(files, join(folder, f"{path}/groups")):
                    yield f"{path}/groups"


def verify_log(files: Files, folder: str, part: str, progress: Progress = lambda done, total: None) -> Verdict:
    """One log: its files, and what stands beside them. Raises: DiskError."""
    names = _names(files, folder)
    listing = sort_out(names)
    if _is_store(listing):
        verdict = _store(files, folder, part, progress)
    elif any(name.family == "stored" for name in listing.segments) or "messages" in names:
        verdict = _queues(files, folder, part, progress)
    elif _QUEUE_LOG in names or any(name.family == "journal" for name in listing.segments):
        verdict = _queues(files, folder, part, progress, is_one=True)
    else:
        verdict = _plain(files, folder, part, progress)
    verdict.findings += _beside(files, folder, part, listing)
    return verdict


def look_at_control(files: Files, folder: str) -> list[Finding]:
    """The files that say what a data folder is, and who may use it. Raises: DiskError."""
    return [
        Finding(DAMAGE if each.is_damage else NOTE, "", each.file, each.offset, each.offset, each.reason, each.do)
        for each in control.look(files, folder)
    ]


# -- logs -------------------------------------------------------------------------------------------------------------


def _plain(files: Files, folder: str, part: str, progress: Progress) -> Verdict:
    found = survey.survey(files, folder, progress=progress)
    marks = sum(segment.marks for segment in found.segments)
    verdict = Verdict(folder, [], 1, len(found.segments), found.records - marks, found.bytes)
    verdict.findings += _damage(part, found.damage, f'bring it back from a backup, or see "lamina log repair {folder}"')
    verdict.findings += _torn(part, found.torn)
    verdict.survey = found
    last = max(found.segments, key=lambda segment: segment.last_ns, default=None)
    verdict.newest = None if last is None else (last.name.name, last.last_ns)
    return verdict


def _queues(files: Files, folder: str, part: str, progress: Progress, *, is_one: bool = False) -> Verdict:
    """``is_one``: the folder of one queue."""
    from lamina.engines.queues import verify as queues  # with what it needs: a log can be looked at without it

    if is_one:
        found = queues.QueuesLooked(holder=lock.holder_above(files, folder))
        queues.verify_journal(files, folder, found)
    else:
        found = queues.verify(files, folder, progress)
    verdict = Verdict(folder, [], 1, found.files, found.records, found.bytes)
    verdict.findings += _damage(part, found.damage, f'bring it back from a backup, or see "lamina log repair {folder}"')
    verdict.findings += _torn(part, found.torn)
    verdict.findings += [Finding(NOTE, part, note.file, note.offset, note.offset, note.reason) for note in found.notes]
    verdict.newest = found.newest
    return verdict


def _store(files: Files, folder: str, part: str, progress: Progress) -> Verdict:
    from lamina.engines.store import verifying as store

    found = store.verify(files, folder, progress)
    verdict = Verdict(folder, [], 1, len(found.files), sum(each.entries for each in found.files), found.bytes)
    do = f'bring it back from a backup, or see "lamina store repair {folder}"'
    for each in found.damage:
        kind = DAMAGE if each.is_needed else SPARE
        verdict.findings.append(Finding(kind, part, each.file, each.offset, each.end, each.reason, do))
    verdict.findings += _torn(part, found.torn)
    return verdict


def _damage(part: str, found: list[survey.Damage], do: str) -> Iterator[Finding]:
    for each in found:
        kind = DAMAGE if each.is_needed else SPARE
        yield Finding(kind, part, each.file, each.offset, each.end, each.reason, each.do or do)


def _torn(part: str, found: list[survey.Torn]) -> Iterator[Finding]:
    for each in found:
        reason = f"a torn tail of {each.bytes} bytes, as a crash leaves it ({each.reason})"
        do = "the next start cuts it off and keeps it aside"
        yield Finding(TORN, part, each.file, each.offset, each.offset + each.bytes, reason, do)


# -- beside them ------------------------------------------------------------------------------------------------------


def _beside(files: Files, folder: str, part: str, listing: Listing) -> Iterator[Finding]:
    is_written = is_held(files, folder)
    try:
        manifest.load(files, folder)
    except (Corruption, WrongFormat) as error:
        yield Finding(NOTE, part, MANIFEST, error.offset, error.offset, error.reason, error.hint)
    for name in listing.companions:
        if name == CHECKPOINT and not is_written and not _is_whole(files, folder, name):
            yield Finding(NOTE, part, name, 0, 0, "it is not whole: the next start reads more of the log", "nothing")
        elif name.endswith(INDEX_SUFFIX) and not is_written and not _fits(files, folder, name):
            reason = "it does not fit its file: whoever needs it scans the file"
            yield Finding(NOTE, part, name, 0, 0, reason, "nothing")
    for one in consumers.find(files, folder):
        if one.damage is not None:
            reason = f"the position of consumer {one.name} cannot be read ({one.damage}): it holds everything"
            do = f'"lamina log consumers {folder} --remove {one.name}" if it is gone for good; else have it save again'
            yield Finding(SPARE, part, f"{CONSUMERS}/{one.name}", 0, 0, reason, do)


def is_held(files: Files, folder: str) -> bool:
    """Somebody has it open to write."""
    return any(files.lock_holder(join(folder, name)) for name in _LOCKS) or lock.holder_above(files, folder) is not None


def _is_whole(files: Files, folder: str, name: str) -> bool:
    """A file of nothing but whole records."""

    def read(size: int, scan: FileScan) -> bool:
        for _ in scan:
            pass
        return scan.why is Stop.END and scan.stop == size and size > HEADER_SIZE

    return _with(files, folder, name, read)


def _with(files: Files, folder: str, name: str, read: Callable[[int, FileScan], bool]) -> bool:
    """True also for a file that is gone, or cannot be opened: that is no contradiction."""
    with suppress(OSError, LaminaError):
        file = open_for_reading(files, folder, name)
        try:
            size = file_size(file)
            return read(size, FileScan(file, HEADER_SIZE, size))
        finally:
            file.close()
    return True


def _fits(files: Files, folder: str, name: str) -> bool:
    of = name.removesuffix(INDEX_SUFFIX)
    if parse(of) is None:
        return True
    with suppress(OSError, LaminaError):
        file = open_for_reading(files, folder, of)
        try:
            return indexes.load(files, folder, of, file, may_end_early=True) is not None
        finally:
            file.close()
    return True


def _runs(files: Files, folder: str) -> Iterator[Finding]:
    """Records of runs of the pipeline: no part of the data."""
    for name in sorted(_names_or_none(files, join(folder, _RUNS))):
        if not name.endswith(".json"):
            continue
        try:
            json.loads(control.read(files, join(folder, f"{_RUNS}/{name}"), _MOST_RUN_BYTES) or b"")
        except (ValueError, RecursionError):
            yield Finding(NOTE, "", f"{_RUNS}/{name}", 0, 0, "this record of a run cannot be read", "nothing needs it")
        except LaminaError:
            continue


# -- names ------------------------------------------------------------------------------------------------------------


def _is_store(listing: Listing) -> bool:
    is_named = any(name.startswith("compaction_catalog") for name in listing.companions)
    return is_named or any(name.family == "pwal" for name in listing.segments)


def _names(files: Files, folder: str) -> list[str]:
    try:
        return files.list(folder)
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error


def _names_or_none(files: Files, folder: str) -> list[str]:
    try:
        return files.list(folder)
    except OSError:
        return []


def _has_files(files: Files, folder: str) -> bool:
    return bool(_names_or_none(files, folder))
