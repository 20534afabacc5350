"""Looking through every byte of the folder of one queue, changing nothing: what ``log verify`` and ``doctor`` show.

Message files are checked record by record, queue.log and its copies line by line, and then each against the other: how
much is committed, and which files there must be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lamina.engines.queues.journal import copies, records, state_line
from lamina.engines.queues.journal.extents import extents
from lamina.engines.queues.journal.state_line import Parsed
from lamina.engines.queues.journal.state_log import NAME
from lamina.log.files import File, Files, join, read_at
from lamina.log.formats import HEADER, JOURNAL
from lamina.log.scan import HEADER_SIZE

_TRIES: Final = 5


class Bad(NamedTuple):
    """A place that is not as it should be."""

    file: str
    offset: int
    end: int
    reason: str
    is_torn: bool = False
    """A crash leaves it so, and the next start sees to it; the bytes are kept."""


@dataclass(slots=True)
class Verified:
    """One folder, looked through."""

    files: int = 0
    bytes: int = 0
    messages: int = 0
    """Whole ones in its files, those that were received too."""
    bad: list[Bad] = field(default_factory=list)

    @property
    def damage(self) -> list[Bad]:
        return [bad for bad in self.bad if not bad.is_torn]

    @property
    def torn(self) -> list[Bad]:
        return [bad for bad in self.bad if bad.is_torn]


def is_journal(names: list[str]) -> bool:
    """These are the names in the folder of a queue."""
    return NAME in names or any(records.NAME.fullmatch(name) for name in names)


def folders_below(files: Files, root: str) -> Iterator[str]:
    """All folders of queues below, and those that were set aside. Raises: OSError."""
    try:
        names = files.list(root)
    except (FileNotFoundError, NotADirectoryError):
        return
    if is_journal(names):
        yield root
        return
    for name in sorted(names):
        yield from folders_below(files, join(root, name))


def verify(files: Files, folder: str) -> Verified:
    """Look through the folder of one queue, also beside a server that writes there. Raises: OSError, DiskError."""
    for left in reversed(range(_TRIES)):
        before = _content(files, folder, NAME), sorted(files.list(folder))
        look = _Look(files, folder)
        look.run(before[0], before[1])
        if not look.found.bad or not left:
            break
        if (_content(files, folder, NAME), sorted(files.list(folder))) == before:
            break  # nobody was at it meanwhile
    return look.found


def _content(files: Files, folder: str, name: str) -> bytes | None:
    try:
        file = files.open(join(folder, name))
    except FileNotFoundError:
        return None
    try:
        return read_at(file, 0, file.size())
    finally:
        file.close()


class _Look:
    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, folder
        self.found = Verified()

    def run(self, log: bytes | None, names: list[str]) -> None:
        message_files = [match[1] for name in names if (match := records.NAME.fullmatch(name))]
        olds = copies.copies_among(names)
        last = None
        if log is not None:
            last = self._lines(NAME, log)
        for name in olds:
            self._lines(name, _content(self._files, self._folder, name) or b"")
        if last is None and (log is None or not log) and (message_files or olds):
            # One file and no copy is what a crash leaves before the first line is written.
            is_torn = len(message_files) < 2 and not olds
            self._bad(NAME, 0, 0, "it is missing" if log is None else "it is empty", is_torn=is_torn)
        self._match(last, message_files)

    def _bad(self, file: str, offset: int, end: int, reason: str, *, is_torn: bool = False) -> None:
        self.found.bad.append(Bad(file, offset, end, reason, is_torn))

    # -- queue.log ---------------------------------------------------------------------------------------------------

    def _lines(self, name: str, data: bytes) -> Parsed | None:
        """The state that counts."""
        self.found.files += 1
        self.found.bytes += len(data)
        bad_from, end = None, 0
        for start, line, parsed in state_line.walk(data):
            end = min(start + len(line) + 1, len(data))
            is_whole = parsed is not None and start + len(line) < len(data)
            if is_whole and bad_from is not None:
                self._bad(name, bad_from, start, "these bytes are no line of a state")
                bad_from = None
            elif not is_whole and bad_from is None:
                bad_from = start
        if bad_from is not None:
            is_torn = state_line.is_cut_line(data[bad_from:])
            reason = "the last line is cut short" if is_torn else "these bytes are no line of a state"
            self._bad(name, bad_from, end, reason, is_torn=is_torn)
        return state_line.last_of(data, is_start=True).parsed

    # -- message files -----------------------------------------------------------------------------------------------

    def _match(self, last: Parsed | None, ids: list[str]) -> None:
        state = None if last is None else last.state
        is_counted = last is not None and last.is_whole
        for id in ids:
            name = records.name_of(id)
            try:
                file = self._files.open(join(self._folder, name))
            except FileNotFoundError:
                continue  # removed since
            try:
                if state is None or id not in (state.read_file, state.write_file):
                    self._records(file, name, None, None)
                    if state is not None:
                        self._bad(name, 0, file.size(), f"{NAME} does not name it", is_torn=True)
                elif id == state.write_file:
                    self._records(file, name, state.write_byte if is_counted else None, state.write_msg)
                else:
                    self._records(file, name, None, state.read_count if is_counted else None)
            finally:
                file.close()
        if state is None:
            return
        waiting = {state.read_file: state.read_count - state.read_msg, state.write_file: state.write_msg}
        if state.is_one_file:
            waiting[state.write_file] = state.write_msg - state.read_msg
        for id, count in waiting.items():
            if id not in ids and (count > 0 or (not is_counted and not state.is_one_file)):
                self._bad(records.name_of(id), 0, 0, f"it is missing, with {max(count, 0)} messages that wait")

    def _records(self, file: File, name: str, committed: int | None, count: int | None) -> None:
        """``committed`` bytes and ``count`` messages are what queue.log says of it; None: it does not say."""
        size = file.size()
        self.found.files += 1
        self.found.bytes += size
        header = read_at(file, 0, HEADER_SIZE)
        if len(header) < HEADER_SIZE:
            is_torn = not count and not committed
            self._bad(name, len(header), HEADER_SIZE, "the header is cut short", is_torn=is_torn)
            return
        if header != records.HEADER:
            magic, version = HEADER.unpack(header)
            is_later = magic == JOURNAL.magic and version > JOURNAL.version
            reason = f"version {version} is not known here" if is_later else "the header is not that of a message file"
            self._bad(name, 0, HEADER_SIZE, reason)
        held = extents(file)
        for each in held:
            if each.message is None:
                self._bad(name, each.start + HEADER_SIZE, each.end + HEADER_SIZE, "these bytes are no message")
            else:
                self.found.messages += 1
        whole_to = held[-1].end if held else 0
        end = size - HEADER_SIZE
        safe_to = committed if committed is not None else whole_to
        if whole_to < min(end, safe_to):
            at = whole_to + HEADER_SIZE
            self._bad(name, at, min(end, safe_to) + HEADER_SIZE, "these bytes are no message")
        if end < safe_to:
            self._bad(name, size, size, f"the file ends early, {NAME} says that it has {safe_to - end} bytes more")
        beyond = [each for each in held if each.start >= safe_to]
        if committed is not None and beyond:
            reason = f"{len(beyond)} messages after what {NAME} commits"
            self._bad(name, safe_to + HEADER_SIZE, whole_to + HEADER_SIZE, reason, is_torn=True)
        rest_at = max(whole_to, safe_to)
        is_bad = any(each.message is None for each in held)
        known = len([each for each in held if each.end <= safe_to])
        is_short = count is not None and known < count and not is_bad and end >= safe_to
        if end > rest_at:
            # In a file that is read, the messages that are missing may have been these bytes.
            reason = "a torn message" if not is_short else "these bytes are no message"
            self._bad(name, rest_at + HEADER_SIZE, size, reason, is_torn=not is_short)
        elif is_short and whole_to >= safe_to:
            reason = f"the file ends early: {known} messages, {NAME} says {count}"
            self._bad(name, whole_to + HEADER_SIZE, size, reason)
