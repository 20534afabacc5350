"""What opening a queue's folder finds: its state, and what a crash or a bad disk left. Oddities are healed and told.

    the last whole line of queue.log counts; if none is whole, the newest copy that has one; if there is none, and just
    one message file, all that is in it: what was received may come again, nothing is lost silently
    a message file that is missing: go on with what is there
    more in the write file than is committed: cut off        less: so much is committed
    message files that the state does not name: removed, if the state was read from queue.log
    nothing to make sense of: the folder is set aside under another name, and the queue starts empty

Where a line has all its fields, no message file is read: that the write file is long enough is all that is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lamina.engines.queues import ids
from lamina.engines.queues.journal import copies, records, state_line
from lamina.engines.queues.journal.extents import Extent, extents
from lamina.engines.queues.journal.home import Home
from lamina.engines.queues.journal.records import name_of
from lamina.engines.queues.journal.state_line import Found, StateLine
from lamina.engines.queues.journal.state_log import NAME, NEW
from lamina.log.files import File, join, read_at
from lamina.log.scan import HEADER_SIZE

_TAIL: Final = 4096
_SOME_LINE: Final = 150  # bytes, about, to tell how many lines there are without reading them

FROM_LINE, FROM_COPY, FROM_MESSAGES = range(3)


@dataclass(slots=True)
class Opened:
    """A folder as it is now."""

    state: StateLine
    has_files: set[str]
    """Ids of the message files that are there."""
    write_file: File | None = None
    """Open, if there is one."""
    log_exists: bool = False
    log_size: int = 0
    log_lines: int = 0
    copies: list[str] = field(default_factory=list)
    is_odd: bool = False
    """queue.log does not say what the state is now, or not only: write it anew."""


class Opening:
    """One look at one folder. Raises: OSError, StorageError, everywhere."""

    def __init__(self, home: Home, rid: bytes, folder: str, known_bytes: int | None = None) -> None:
        """``known_bytes``: so much of queue.log counts at most, since what stands behind it was refused."""
        self._home, self._rid, self._folder = home, rid, folder
        self._known_bytes = known_bytes
        self._files: set[str] = set()
        self._source = FROM_LINE
        self._is_odd = False
        self._write: File | None = None

    def run(self) -> Opened | None:
        """None: there is no folder, or nothing of a queue in it."""
        files = self._home.files
        try:
            names = files.list(self._folder)
        except FileNotFoundError:
            return None
        self._home.stats.opened += 1
        self._files = {match[1] for name in names if (match := records.NAME.fullmatch(name))}
        if NEW in names:
            files.remove(join(self._folder, NEW))  # a compaction that did not get to its end
        if self._known_bytes == 0:
            self._remove_uncommitted(names)
            return None
        olds = copies.copies_among(names)
        if not self._files and not olds and NAME not in names:
            return None
        log_size, found, whole_size = self._read_log(NAME in names)
        state, is_whole = self._find_state(found, olds)
        if state is None:
            return None
        try:
            self._match(state, is_whole)
        except BaseException:
            self._close_write()
            raise
        opened = Opened(state, self._files, self._write, NAME in names, whole_size, found.lines, olds)
        opened.is_odd = self._is_odd or found.is_torn or whole_size != log_size or self._source != FROM_LINE
        return opened

    def _tell(self, kind: str, *, is_error: bool = False, lost: int = 0, detail: str = "") -> None:
        self._home.told(self._rid, kind, is_error=is_error, lost=lost, detail=detail)

    def _remove_uncommitted(self, names: Sequence[str]) -> None:
        """The first write to the queue was refused, and nobody could clean up then."""
        for name in names:
            if name == NAME or records.NAME.fullmatch(name):
                self._home.files.remove(join(self._folder, name))

    # -- the state ---------------------------------------------------------------------------------------------------

    def _read_log(self, is_there: bool) -> tuple[int, Found, int]:
        """Size of queue.log, what its end says, and where its last line ends."""
        if not is_there:
            return 0, Found(None, 0, is_torn=False), 0
        file = self._home.files.open(join(self._folder, NAME))
        try:
            size = file.size()
            end = size if self._known_bytes is None else min(size, self._known_bytes)
            start = max(end - _TAIL, 0)
            data = read_at(file, start, end - start)
            found = state_line.last_of(data, is_start=start == 0)
            if found.parsed is None and start:
                start, data = 0, read_at(file, 0, end)
                found = state_line.last_of(data, is_start=True)
        finally:
            file.close()
        whole = start + data.rfind(b"\n") + 1 if b"\n" in data else start
        return size, Found(found.parsed, found.lines + start // _SOME_LINE, found.is_torn), whole

    def _find_state(self, found: Found, olds: list[str]) -> tuple[StateLine | None, bool]:
        """The state, and whether all its fields were given. None: there is nothing of a queue here."""
        if found.is_torn:
            self._tell("torn_state_line")
        if found.parsed is not None:
            return found.parsed.state, found.parsed.is_whole
        for name in reversed(olds):
            parsed = self._read_copy(name)
            if parsed is not None:
                self._source = FROM_COPY
                self._tell("state_from_copy", detail=name)
                return parsed.state, parsed.is_whole
        self._source = FROM_MESSAGES
        if len(self._files) == 1:
            self._tell("state_rebuilt_from_messages")
            (file,) = self._files
            return StateLine.fresh(file), False
        if self._files:
            self._set_aside()
            return None, False
        return StateLine.fresh(self._new_id()), True

    def _read_copy(self, name: str) -> state_line.Parsed | None:
        file = self._home.files.open(join(self._folder, name))
        try:
            return state_line.last_of(read_at(file, 0, file.size()), is_start=True).parsed
        finally:
            file.close()

    def _set_aside(self) -> None:
        """Nobody can say which of the files comes first: keep them for somebody who looks."""
        home = self._home
        aside = f".aside-{copies.stamp(home.clock.now_ns())}-{ids.handle(self._rid)}"
        home.files.rename_folder(self._folder, join(home.root, aside))
        self._tell("folder_set_aside", is_error=True, detail=aside)

    def _new_id(self) -> str:
        while (id := records.new_file_id(self._home.random)) in self._files:
            pass
        return id

    # -- state and files ---------------------------------------------------------------------------------------------

    def _match(self, state: StateLine, is_whole: bool) -> None:
        """Make the state and the message files agree."""
        if self._source == FROM_COPY:
            self._adopt_newer(state)
        if self._source == FROM_LINE:
            self._remove_orphans(state)
        self._write = self._opened_to_write(state.write_file)
        if self._write is None:
            self._go_on_without_write_file(state, is_whole)
            is_whole = True
        elif state.read_file not in self._files:
            lost = state.read_count - state.read_msg if is_whole else 0
            self._tell("read_file_missing", is_error=True, lost=lost)
            state.read_file, state.read_msg, state.read_byte = state.write_file, 0, 0
            state.read_count, self._is_odd = state.write_msg, True
        if self._write is not None:
            self._match_write_file(state, is_whole)
        state.size = state.counted_size()
        if state.size == 0:
            state.can_write = True
        # Invariant: what comes out of here could have been written as a line.
        assert state.is_sane()

    def _adopt_newer(self, state: StateLine) -> None:
        """A copy is older than queue.log was: the file that it does not name may be the one begun since."""
        others = self._files - {state.read_file, state.write_file}
        if not others:
            return
        if len(others) > 1 or not state.is_one_file:
            # Where they belong nobody can say: by another name nobody takes them for something to remove.
            for id in sorted(others):
                self._home.files.rename(self._path(id), join(self._folder, f"left.{id}.log"))
                self._files.discard(id)
            self._tell("unknown_files_left", is_error=True, detail=f"{len(others)} files")
            return
        file = self._home.files.open(self._path(state.read_file)) if state.read_file in self._files else None
        if file is not None:
            try:
                held = extents(file)
                state.read_count = len(held)
                self._place_reading(state, held)
            finally:
                file.close()
        (state.write_file,) = others
        state.write_msg = state.write_byte = 0

    def _remove_orphans(self, state: StateLine) -> None:
        for id in sorted(self._files - {state.read_file, state.write_file}):
            self._home.files.remove(self._path(id))
            self._files.discard(id)
            self._tell("orphan_file_removed")

    def _opened_to_write(self, id: str) -> File | None:
        """None if it is not there. One that is shorter than its header was just being made: it is as good as none."""
        if id not in self._files:
            return None
        file = self._home.files.open(self._path(id), write=True)
        if file.size() >= HEADER_SIZE:
            return file
        file.close()
        self._home.files.remove(self._path(id))
        self._files.discard(id)
        return None

    def _go_on_without_write_file(self, state: StateLine, is_whole: bool) -> None:
        """Write into the file that is read; without that, start anew."""
        self._write = None if state.is_one_file else self._opened_to_write(state.read_file)
        has_read = self._write is not None
        if state.is_one_file:
            lost, lost_unread = 0, state.write_msg - state.read_msg
        else:
            waited = state.read_count - state.read_msg if is_whole else 0
            lost, lost_unread = state.write_msg, 0 if has_read else waited
        if not has_read and (lost_unread or lost):
            self._tell("read_file_missing", is_error=True, lost=lost_unread)
        if lost or lost_unread:
            self._tell("write_file_missing", is_error=True, lost=lost)
            self._is_odd = True
        if self._write is None:
            # Also how a queue looks whose files were cleaned away: then nothing is lost, and nothing told.
            _become(state, StateLine.fresh(self._new_id()))
            return
        self._is_odd = True
        held = extents(self._write)
        state.write_file, state.write_msg = state.read_file, len(held)
        state.write_byte = held[-1].end if held else 0
        state.read_count, state.can_write = len(held), not _ends_with_marker(held)
        self._place_reading(state, held)

    def _match_write_file(self, state: StateLine, is_whole: bool) -> None:
        """Cut off what is not committed; commit no more than is there."""
        assert self._write is not None
        size = self._write.size() - HEADER_SIZE
        if not is_whole or size < state.write_byte or self._source != FROM_LINE:
            self._count(state, is_whole)
        if self._write.size() - HEADER_SIZE > state.write_byte:
            self._cut_uncommitted(state)
            if size > state.write_byte and self._source == FROM_LINE:
                self._tell("uncommitted_tail_truncated")

    def _cut_uncommitted(self, state: StateLine) -> None:
        """Whoever sent it was told nothing, and will send it again."""
        assert self._write is not None
        self._write.truncate(state.write_byte + HEADER_SIZE)

    def _count(self, state: StateLine, is_whole: bool) -> None:
        """Read the files to learn what the line does not say, or says wrongly."""
        assert self._write is not None
        held = extents(self._write)
        if self._source == FROM_LINE:
            committed = held[: state.write_msg]
        else:
            committed = held  # rather a message twice than one lost
        missing = state.write_msg - len(committed)
        if missing > 0:
            first_lost = max(len(committed), state.read_msg) if state.is_one_file else len(committed)
            self._tell("state_ahead_of_data", is_error=True, lost=state.write_msg - first_lost)
            self._is_odd = True
        elif missing < 0:
            self._is_odd = True
        state.write_msg = len(committed)
        state.write_byte = committed[-1].end if committed else 0
        if state.is_one_file:
            state.read_count = state.write_msg
            self._place_reading(state, committed)
        elif not is_whole:
            self._count_read_file(state)
        if not is_whole or missing:
            state.can_write = not _ends_with_marker(committed)

    def _count_read_file(self, state: StateLine) -> None:
        file = self._home.files.open(self._path(state.read_file))
        try:
            held = extents(file)
        finally:
            file.close()
        state.read_count = len(held)
        self._place_reading(state, held)

    def _place_reading(self, state: StateLine, held: list[Extent]) -> None:
        """Reading goes on behind ``read_msg`` messages, if there are so many."""
        state.read_msg = min(state.read_msg, len(held))
        at = held[state.read_msg].start if state.read_msg < len(held) else held[-1].end if held else 0
        if at != state.read_byte:
            state.read_byte = at
            self._is_odd = True

    def _path(self, id: str) -> str:
        return join(self._folder, name_of(id))

    def _close_write(self) -> None:
        if self._write is not None:
            self._write.close()
            self._write = None


def _ends_with_marker(held: list[Extent]) -> bool:
    return bool(held) and held[-1].message is not None and held[-1].message.is_marker


def _become(state: StateLine, other: StateLine) -> None:
    for name in StateLine.__slots__:
        setattr(state, name, getattr(other, name))
