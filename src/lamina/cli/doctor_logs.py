"""What ``lamina doctor`` looks at in the logs of a data folder: how they end, what stands beside them, who holds them.

Quickly: the header of each file, and the newest file of each log, for only that one can have been torn by a crash.
Deeply: every byte of every file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from lamina import verify as verifier
from lamina.cli.doctor_finding import NOTE, OK, PROBLEM, WARNING, Finding
from lamina.errors import Corruption, LaminaError, WrongFormat
from lamina.log import consumers, frame
from lamina.log.files.real import RealFiles
from lamina.log.naming import CONSUMERS, RESERVE, STAGING, Ending, FileName, Listing, sort_out
from lamina.log.recovery import examine
from lamina.log.segment import check_header, header_is_torn, open_for_reading, read_header
from lamina.log.survey import Progress
from lamina.units import show_bytes, show_duration

_FILES: Final = RealFiles()
_GROWING: Final = ("numbered", "timed", "stored")  # logs whose newest file is looked at
_LEVELS: Final = {verifier.DAMAGE: PROBLEM, verifier.SPARE: WARNING, verifier.TORN: NOTE, verifier.NOTE: NOTE}
_QUICKLY: Final = 500  # logs that a quick look goes to
_HEADERS: Final = 200  # files of one log whose headers a quick look reads
_AHEAD_NS: Final = 60 * 10**9
_BEHIND_S: Final = 7 * 86_400
_SHOWN: Final = 5


class LogFolder(NamedTuple):
    """A folder that holds logs."""

    name: str
    """As seen from the data folder."""
    path: str
    listing: Listing


def look(data: str, *, deep: bool = False, progress: Progress = lambda done, total: None) -> Iterator[Finding]:
    """At all logs of a data folder. Changes nothing."""
    folders = list(islice(log_folders(data), None if deep else _QUICKLY + 1))
    is_cut = not deep and len(folders) > _QUICKLY
    found: list[Finding] = []
    found += _set_aside(data)
    for folder in folders[:_QUICKLY] if is_cut else folders:
        try:
            found += _look_deeply(folder, progress) if deep else _look_quickly(folder)
            found += _beside(folder)
            found += _consumers(folder)
        except LaminaError as error:
            found.append(Finding(PROBLEM, folder.name, error.message, error.hint))
    yield from found
    yield from _thrown_away(data)
    looked = "every byte" if deep else "headers, and how each log ends"
    bad = sum(finding.level == PROBLEM for finding in found)
    if not bad:
        files = sum(len(folder.listing.segments) for folder in folders)
        yield Finding(OK, "logs", f"{len(folders)} logs, {files} files: {looked}")
    if is_cut:
        yield Finding(NOTE, "logs", f"only {_QUICKLY} logs were looked at", "--deep looks at all of them")


def log_folders(data: str) -> Iterator[LogFolder]:
    """Every folder with log files: those of engines, of topics and their groups, and named logs."""
    for name in verifier.log_folders(_FILES, data):
        path = os.path.join(data, name)
        try:
            yield LogFolder(name, path, sort_out(os.listdir(path)))
        except OSError:
            continue  # gone meanwhile


def _set_aside(data: str) -> Iterator[Finding]:
    """Folders of queues that the log of the queues does not know."""
    aside = [name for name in _folders_in(os.path.join(data, "queues/messages")) if name.startswith(".aside-")]
    if aside:
        text = f"messages/{_some(aside)}: folders of queues that the log of the queues does not know"
        do = "bring back the right log, and the next start brings them back; remove them when nobody misses them"
        yield Finding(WARNING, "journals", text, do)


def _folders_in(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


# -- how they end -----------------------------------------------------------------------------------------------------


def _look_quickly(folder: LogFolder) -> Iterator[Finding]:
    if folder.name == "store":
        yield from _look_at_store(folder)
        return
    is_written = _is_written(folder.path)
    if folder.name == "queues":
        from lamina.engines.queues import verify as queues

        for damage in queues.needs(_FILES, folder.path):
            text = f"{damage.file}, byte {damage.offset}: {damage.reason}"
            yield Finding(PROBLEM if damage.is_needed else WARNING, folder.name, text, damage.do or _mend(folder))
    for stream in folder.listing.streams().values():
        for name in [*stream[:-1][-_HEADERS:], *stream[-1:]]:
            may_be_torn = name.ending is Ending.EACH or (name.ending is Ending.GROWS and name is stream[-1])
            yield from _header(folder, name, may_be_torn=may_be_torn)
        if stream[-1].family in _GROWING and stream[-1].ending is not Ending.WHOLE:
            yield from _end(folder, stream, is_written=is_written)


def _header(folder: LogFolder, name: FileName, *, may_be_torn: bool) -> Iterator[Finding]:
    try:
        file = open_for_reading(_FILES, folder.path, name.name)
    except FileNotFoundError:
        return  # removed since
    try:
        if not (may_be_torn and header_is_torn(read_header(file), None)):
            check_header(file, name.name)
    except (Corruption, WrongFormat) as error:
        if not may_be_torn or isinstance(error, WrongFormat):
            yield Finding(PROBLEM, folder.name, error.message, error.hint)
    finally:
        file.close()


def _end(folder: LogFolder, stream: list[FileName], *, is_written: bool) -> Iterator[Finding]:
    name, before = stream[-1], stream[-2] if len(stream) > 1 else None
    try:
        file = open_for_reading(_FILES, folder.path, name.name)
    except FileNotFoundError:
        return
    try:
        if header_is_torn(read_header(file), None):
            return
        format = check_header(file, name.name)
        seen = examine(_FILES, folder.path, name.name, before, file, format, frame.MAX_PAYLOAD)
    except Corruption as error:
        yield Finding(PROBLEM, folder.name, error.message, _mend(folder))
        return
    except WrongFormat:
        return  # told by its header
    finally:
        file.close()
    if seen.is_torn and not is_written:
        left = file_size(os.path.join(folder.path, name.name)) - seen.index.bytes
        yield _torn(folder, name.name, seen.index.bytes, left)
    yield from _future(folder, name.name, seen.index.last)


def _future(folder: LogFolder, file: str, last_ns: int) -> Iterator[Finding]:
    ahead = last_ns - time.time_ns()
    if ahead > _AHEAD_NS:
        text = f"{file}: its newest record is {show_duration(ahead / 1e9)} in the future"
        do = "set the clock of this machine; times of records go on from there, never back"
        yield Finding(WARNING, folder.name, text, do)


def _look_deeply(folder: LogFolder, progress: Progress) -> Iterator[Finding]:
    verdict = verifier.verify_log(_FILES, folder.path, folder.name, progress)
    for each in verdict.findings:
        if not each.file.startswith(f"{CONSUMERS}/"):  # they are looked at by themselves
            yield Finding(_LEVELS[each.kind], folder.name, each.text, each.do)
    if verdict.newest is not None:
        yield from _future(folder, *verdict.newest)


def _look_at_store(folder: LogFolder) -> Iterator[Finding]:
    """What a start reads, as only all of it together shows whether a file is missing or cut."""
    from lamina.engines.store.verifying import verify

    report = verify(_FILES, folder.path, is_quick=True)
    for damage in report.damage:
        level = PROBLEM if damage.is_needed else WARNING
        yield Finding(level, folder.name, f"{damage.file}, byte {damage.offset}: {damage.reason}", _mend(folder))
    for torn in report.torn:
        yield _torn(folder, torn.file, torn.offset, torn.bytes)
    newest = max(report.files, key=lambda file: file.last_ns, default=None)
    if newest is not None:
        yield from _future(folder, newest.name, newest.last_ns)


def _torn(folder: LogFolder, file: str, offset: int, size: int) -> Finding:
    text = f"{file}, byte {offset}: a torn tail of {size} bytes, as a crash leaves it"
    return Finding(NOTE, folder.name, text, "the next start cuts it off and keeps it aside")


def _mend(folder: LogFolder) -> str:
    if folder.name == "store":
        return f'bring it back from a backup, or see "lamina store repair {folder.path}"'
    return f'bring it back from a backup, or see "lamina log repair {folder.path}"'


def _is_written(path: str) -> bool:
    return verifier.is_held(_FILES, path)


# -- what stands beside them ------------------------------------------------------------------------------------------


def _beside(folder: LogFolder) -> Iterator[Finding]:
    listing = folder.listing
    torn = [name for name in listing.companions if ".torn-" in name]
    broken = [name for name in listing.companions if ".broken-" in name]
    if torn:
        text = f"{_some(torn)}: torn tails that were cut off ({_size(folder, torn)})"
        yield Finding(NOTE, folder.name, text, "nothing needs them; remove them when you have seen them")
    if broken:
        text = f"{_some(broken)}: damage that was taken out ({_size(folder, broken)})"
        yield Finding(WARNING, folder.name, text, "find out why the disk lost it; keep them until then")
    if listing.leftovers and not _is_written(folder.path):
        do = "the next start removes them"
        yield Finding(NOTE, folder.name, f"{_some(listing.leftovers)}: left behind by a crash", do)
    staged = os.path.join(folder.path, STAGING)
    if STAGING in listing.companions and os.path.isdir(staged):
        text = f"{STAGING}/ of a pipeline job ({show_bytes(folder_size(staged))})"
        yield Finding(NOTE, folder.name, text, "unless a job runs: the next one of its kind removes it")
    foreign = [name for name in listing.foreign if name not in (RESERVE, "groups", "messages", "users.json")]
    if foreign:
        yield Finding(NOTE, folder.name, f"{_some(foreign)}: no file of lamina, left alone")


def _consumers(folder: LogFolder) -> Iterator[Finding]:
    """Those who read from outside, and so keep files from being cleaned."""
    now = time.time_ns()
    for one in consumers.find(_FILES, folder.path):
        remove = f'"lamina log consumers {folder.path} --remove {one.name}" if it is gone for good'
        if one.damage is not None:
            text = f"the position of consumer {one.name} cannot be read ({one.damage}): it holds everything"
            yield Finding(WARNING, folder.name, text, remove)
            continue
        if one.has_expired(now):
            continue
        behind = max(now - min([one.position, *one.streams.values()]), 0) / 1e9
        text = f"consumer {one.name} has read up to {show_duration(behind)} ago: what is newer stays for it"
        yield Finding(WARNING if behind > _BEHIND_S else NOTE, folder.name, text, remove if behind > _BEHIND_S else "")


def _thrown_away(data: str) -> Iterator[Finding]:
    gone = [name for name in _folders_in(os.path.join(data, "topics")) if name.startswith(".gone-")]
    if gone:
        text = f"{len(gone)} topics that were deleted are on their way out"
        yield Finding(NOTE, "topics", text, "a server removes them")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _size(folder: LogFolder, names: list[str]) -> str:
    return show_bytes(sum(file_size(os.path.join(folder.path, name)) for name in names))


def file_size(path: str) -> int:
    """0 if it is gone."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def folder_size(path: str) -> int:
    """Of all files below."""
    return sum(file_size(os.path.join(above, name)) for above, _, names in os.walk(path) for name in names)
