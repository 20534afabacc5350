"""What opening a queue's folder finds: its state, and what a crash or a bad disk left. Oddities are healed and told.

    the last whole line of queue.log counts; if none is whole, the newest copy that has one; if there is none, the
    message files in the order of their times: what was received may come again, nothing is lost silently
    whole messages after what is committed: they count, for the line that committed them may be what went bad; only in a
    folder of the seed's own program, whose lines have no checksum, and after a refusal, they are cut off
    bytes after that which are no message: cut off, and kept in a file beside it
    a message file that is missing, or shorter than is committed: go on with what is there; a marker at the end says so
    message files that the state does not name: unnamed.py

Where the last line is whole and the write file as long as it says, no message file is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from lamina.engines.queues.journal import copies, records, state_line
from lamina.engines.queues.journal.extents import Extent, extents
from lamina.engines.queues.journal.home import Home
from lamina.engines.queues.journal.records import name_of
from lamina.engines.queues.journal.state_line import Found, Parsed, StateLine
from lamina.engines.queues.journal.state_log import NAME, NEW
from lamina.engines.queues.journal.unnamed import Content, Unnamed
from lamina.log import recovery
from lamina.log.files import File, join, read_at, write_all
from lamina.log.scan import HEADER_SIZE

_TAIL: Final = 4096
_SOME_LINE: Final = 150  # bytes, about, to tell how many lines there are without reading them
_SECOND: Final = 10**9
_LATEST: Final = 1 << 63

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
        """``known_bytes``: so much of queue.log counts at most, since what stands after it was refused."""
        self._home, self._rid, self._folder = home, rid, folder
        self._known_bytes = known_bytes
        self._files: set[str] = set()
        self._source, self._said_by, self._said_to = FROM_LINE, NAME, 0
        self._keeps_tail = known_bytes is None
        """Whole messages that no line commits count."""
        self._is_odd = self._has_lost = False
        self._is_damaged = False
        """The end of queue.log is not what a crash leaves."""
        self._further: list[str] = []
        """Message files that come after the write file."""
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
        try:
            self._match(state, is_whole)
        except BaseException:
            self._close_write()
            raise
        opened = Opened(state, self._files, self._write, NAME in names, whole_size, found.lines, olds)
        opened.is_odd = self._is_odd or found.is_torn or whole_size != log_size or self._source != FROM_LINE
        return opened

    def _tell(
        self,
        kind: str,
        *,
        is_error: bool = False,
        lost: int = 0,
        detail: str = "",
        file: str = "",
        offset: int | None = None,
    ) -> None:
        self._home.told(self._rid, kind, is_error=is_error, lost=lost, detail=detail, file=file, offset=offset)

    def _remove_uncommitted(self, names: Sequence[str]) -> None:
        """The first write to the queue was refused, and nobody could clean up then."""
        for name in names:
            if name == NAME or records.NAME.fullmatch(name):
                self._home.files.remove(join(self._folder, name))

    # -- the state ---------------------------------------------------------------------------------------------------

    def _read_log(self, is_there: bool) -> tuple[int, Found, int]:
        """Size of queue.log, what its end says, and where lines may be added. Bytes that say nothing are kept aside."""
        if not is_there:
            return 0, Found(None, 0, is_torn=False), 0
        file = self._home.files.open(join(self._folder, NAME))
        try:
            size = file.size()
            end = size if self._known_bytes is None else min(size, self._known_bytes)
            start = max(end - _TAIL, 0)
            data = read_at(file, start, end - start)
            found = state_line.last_of(data, is_start=start == 0)
            if start and (found.parsed is None or found.is_torn):
                start, data = 0, read_at(file, 0, end)
                found = state_line.last_of(data, is_start=True)
            if found.is_torn:
                self._tell_torn(file, data[found.end :], start + found.end)
        finally:
            file.close()
        lf = data.rfind(b"\n", 0, found.end)
        return size, replace(found, lines=found.lines + start // _SOME_LINE, end=start + found.end), start + lf + 1

    def _tell_torn(self, file: File, torn: bytes, at: int) -> None:
        kept = self._keep_aside(file, NAME, at, at + len(torn)) if torn else "its end is missing"
        self._is_damaged = not state_line.is_cut_line(torn)  # else it may be what a crash leaves
        self._tell("torn_state_line", is_error=self._is_damaged, file=NAME, offset=at, detail=kept)

    def _keep_aside(self, file: File, name: str, start: int, end: int) -> str:
        """Says where."""
        kept = recovery.try_to_keep_aside(self._home.files, self._folder, file, name, start, end, self._home.clock)
        return f"{end - start} bytes kept in {kept}" if kept else f"{end - start} bytes not kept, for the disk is full"

    def _find_state(self, found: Found, olds: list[str]) -> tuple[StateLine, bool]:
        """The state, and whether all its fields were given."""
        if found.parsed is not None:
            self._keeps_tail = self._keeps_tail and found.parsed.is_checked
            self._said_by, self._said_to = NAME, found.end
            return found.parsed.state, found.parsed.is_whole
        for name in reversed(olds):
            old = state_line.last_of(self._content_of(name), is_start=True)
            if old.parsed is not None:
                self._source, self._said_by, self._said_to = FROM_COPY, name, old.end
                self._tell("state_from_copy", is_error=True, file=NAME, detail=f"its state is that of {name}")
                return old.parsed.state, old.parsed.is_whole
        if self._files:
            return self._rebuilt(self._files), False
        self._source = FROM_MESSAGES
        return StateLine.fresh(self._new_id()), True

    def _rebuilt(self, candidates: set[str]) -> StateLine:
        """All that is in the message files waits, in the order of their times."""
        self._source = FROM_MESSAGES
        contents = {id: self._unnamed.content(id) for id in candidates}
        in_order = list[str]()
        seen = frozenset[bytes]()
        for id in sorted(candidates, key=lambda each: (contents[each].first_ns() or _LATEST, each)):
            if in_order and contents[id].ids <= seen:  # made by cleaning, or not begun yet
                kept = self._unnamed.set_aside(id)
                self._tell("uncommitted_tail_truncated", file=name_of(id), offset=0, detail=f"all of it kept in {kept}")
            elif contents[id].ids & seen or len(in_order) == 2:
                self._further.append(id)
            else:
                in_order.append(id)
            seen |= contents[id].ids
        # By a crash it is one, whose first line was not written yet.
        is_error = len(candidates) > 1 or bool(copies.copies_among(self._home.files.list(self._folder)))
        self._tell("state_rebuilt_from_messages", is_error=is_error, file=NAME)
        return StateLine(in_order[0], 0, 0, in_order[-1], 0)

    def _content_of(self, name: str) -> bytes:
        file = self._home.files.open(join(self._folder, name))
        try:
            return read_at(file, 0, file.size())
        finally:
            file.close()

    def _new_id(self) -> str:
        while (id := records.new_file_id(self._home.random)) in self._files:
            pass
        return id

    # -- files that the state does not name --------------------------------------------------------------------------

    @property
    def _unnamed(self) -> Unnamed:
        return Unnamed(self._home, self._folder, self._files)

    def _place_unnamed(self, state: StateLine) -> None:
        """Remove those that the state has left behind, take in the one begun since, leave the others for who looks."""
        named = {state.read_file, state.write_file}
        others = self._files - named
        if not others:
            return
        files, unnamed = self._home.files, self._unnamed
        if self._known_bytes is not None:
            gone = dict.fromkeys(others, "what it holds was refused")
            torn, rest = list[str](), dict[str, Content]()
        else:
            gone, torn, rest = unnamed.sort_out(others, named, self._lines())
        for id in sorted(gone):
            files.remove(self._path(id))
            self._files.discard(id)
            self._tell("orphan_file_removed", file=name_of(id), detail=gone[id])
        if gone:
            files.sync_folder(self._folder)  # the line that proves it may go next
        for id in torn if self._keeps_tail else sorted({*torn, *rest}):
            kept = unnamed.set_aside(id)
            self._tell("uncommitted_tail_truncated", file=name_of(id), offset=0, detail=f"all of it kept in {kept}")
            rest.pop(id, None)
        if rest and not named & self._files:
            self._tell("unnamed_files_used", is_error=True, file=NAME, detail="the files that it names are not there")
            _become(state, self._rebuilt(set(rest)))
        elif rest:
            self._take_in(state, rest)

    def _lines(self) -> list[Parsed]:
        """All whole lines of the file that says the state, up to that which does."""
        content = self._content_of(self._said_by)[: self._said_to]
        return [parsed for _, _, parsed in state_line.walk(content) if parsed is not None]

    def _take_in(self, state: StateLine, rest: dict[str, Content]) -> None:
        """The one begun after the write file becomes the write file; what is in further ones is added to it."""
        last_ns = max(self._unnamed.content(id).last_ns for id in (state.read_file, state.write_file))
        known = self._unnamed.ids_in({state.read_file, state.write_file})
        firsts = {id: rest[id].first_ns(known) for id in rest}
        newer = sorted((id for id in rest if firsts[id] > last_ns), key=lambda each: firsts[each])
        if others := sorted(set(rest) - set(newer)):
            self._leave(others)
        is_next = bool(newer) and state.is_one_file and not rest[newer[0]].ids & known
        self._further = newer[1:] if is_next else newer
        if not is_next:
            return
        file = self._home.files.open(self._path(state.write_file))
        try:
            more = extents(file, min(state.write_byte, max(file.size() - HEADER_SIZE, 0)))
            state.read_count = state.write_msg + len(more)
        finally:
            file.close()
        state.write_file, state.write_msg, state.write_byte = newer[0], 0, 0
        self._is_odd = True

    def _leave(self, ids: Sequence[str]) -> None:
        """Where they belong nobody can say: by another name nobody takes them for something to remove."""
        for id in ids:
            left = f"left.{id}.log"
            self._home.files.rename(self._path(id), join(self._folder, left))
            self._files.discard(id)
            self._tell("unknown_files_left", is_error=True, file=name_of(id), detail=f"it is {left} now")
        self._has_lost = True

    # -- state and files ---------------------------------------------------------------------------------------------

    def _match(self, state: StateLine, is_whole: bool) -> None:
        """Make the state and the message files agree."""
        if not state.is_one_file and state.read_file not in self._files and state.write_file in self._files:
            self._go_on_without_read_file(state, is_whole)
        if self._source != FROM_MESSAGES:
            self._place_unnamed(state)
            is_whole = is_whole and self._source != FROM_MESSAGES
        self._write = self._opened_to_write(state.write_file)
        if self._write is None:
            self._go_on_without_write_file(state, is_whole)
            is_whole = True
        if self._write is None and self._further:
            self._write = self._new_write_file(state.write_file)
        if self._write is not None:
            self._match_write_file(state, is_whole)
        if self._has_lost and self._keeps_tail:
            self._append_loss(state)
        state.size = state.counted_size()
        if state.size == 0:
            state.can_write = True
        # Invariant: what comes out of here could have been written as a line.
        assert state.is_sane()

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

    def _go_on_without_read_file(self, state: StateLine, is_whole: bool) -> None:
        lost = state.read_count - state.read_msg if is_whole and self._source == FROM_LINE else 0
        self._missing("read_file_missing", state.read_file, lost)
        state.read_file, state.read_msg, state.read_byte = state.write_file, 0, 0
        state.read_count, self._is_odd = state.write_msg, True

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
            self._missing("read_file_missing", state.read_file, lost_unread)
        if lost or lost_unread:
            self._missing("write_file_missing", state.write_file, lost)
            self._is_odd = True
        if self._write is None:
            # Also how a queue looks whose files were cleaned away: then nothing is lost, and nothing told.
            _become(state, StateLine.fresh(self._new_id()))
            return
        self._is_odd = True
        held = extents(self._write)
        state.write_file, state.write_msg = state.read_file, len(held)
        state.write_byte = held[-1].end if held else 0
        state.read_count, state.can_write = len(held), not _has_quota(held[-1:])
        self._place_reading(state, held, is_whole)

    def _missing(self, kind: str, id: str, lost: int) -> None:
        self._tell(kind, is_error=True, lost=lost, file=name_of(id), detail="it is not there")
        self._has_lost = True

    def _match_write_file(self, state: StateLine, is_whole: bool) -> None:
        """Take what is whole, cut off what is not; commit no more than is there."""
        assert self._write is not None
        size = self._write.size() - HEADER_SIZE
        if not is_whole or size < state.write_byte or self._source != FROM_LINE:
            self._count(state, is_whole)
        elif size > state.write_byte and self._keeps_tail:
            self._take_unconfirmed(state)
        if self._write.size() - HEADER_SIZE > state.write_byte:
            self._cut_uncommitted(state)
        for id in self._further:
            self._add_further(state, id)

    def _add_further(self, state: StateLine, id: str) -> None:
        """Put the messages of a file that the state has no place for after those of the write file."""
        assert self._write is not None
        known = self._unnamed.ids_in({state.read_file, state.write_file})
        is_all = self._unnamed.content(id).is_readable
        file = self._home.files.open(self._path(id))
        try:
            held = [each for each in extents(file) if each.message is not None and each.message.id not in known]
            content = b"".join(read_at(file, each.start + HEADER_SIZE, each.end - each.start) for each in held)
        finally:
            file.close()
        write_all(self._write, [content])
        self._write.sync()
        if is_all:
            self._home.files.remove(self._path(id))
            self._files.discard(id)
            kept = ""
        else:
            kept = f"; kept in {self._unnamed.set_aside(id)}"
        detail = f"{len(held)} messages, put into {name_of(state.write_file)}{kept}"
        self._tell("unconfirmed_messages_kept", file=name_of(id), offset=0, detail=detail)
        state.write_msg, state.write_byte = state.write_msg + len(held), state.write_byte + len(content)
        if state.is_one_file:
            state.read_count = state.write_msg
        state.can_write = state.can_write and not _has_quota(held)
        self._is_odd = True

    def _take_unconfirmed(self, state: StateLine) -> None:
        """The line that committed them may be what went bad: rather a message nobody was promised than one lost."""
        assert self._write is not None
        more = extents(self._write, state.write_byte)
        if not self._is_damaged and any(each.message is None for each in more):
            more = self._without_torn(state, more)
        if not more:
            return
        at = state.write_byte + HEADER_SIZE
        detail = f"{len(more)} after what is committed"
        self._tell("unconfirmed_messages_kept", file=name_of(state.write_file), offset=at, detail=detail)
        state.write_msg, state.write_byte = state.write_msg + len(more), more[-1].end
        if state.is_one_file:
            state.read_count = state.write_msg
        state.can_write = state.can_write and not _has_quota(more)
        self._is_odd = True

    def _without_torn(self, state: StateLine, held: list[Extent]) -> list[Extent]:
        """A power cut may leave some messages of one write and not those before: nobody was promised these."""
        assert self._write is not None
        at = state.write_byte + HEADER_SIZE
        whole = [each for each in held if each.message is not None]
        content = b"".join(read_at(self._write, each.start + HEADER_SIZE, each.end - each.start) for each in whole)
        self._cut_uncommitted(state)
        write_all(self._write, [content])
        self._write.sync()
        assert self._write.size() == at + len(content)
        return extents(self._write, state.write_byte)

    def _cut_uncommitted(self, state: StateLine) -> None:
        """It is no message, or it was refused; it is kept, unless whoever sent it was told so by this process."""
        assert self._write is not None
        name, at, size = name_of(state.write_file), state.write_byte + HEADER_SIZE, self._write.size()
        kept = self._keep_aside(self._write, name, at, size) if self._known_bytes is None else ""
        self._write.truncate(at)
        self._tell("uncommitted_tail_truncated", file=name, offset=at, detail=kept)

    def _count(self, state: StateLine, is_whole: bool) -> None:
        """Read the files to learn what the line does not say, or says wrongly."""
        assert self._write is not None
        held = extents(self._write)
        # Rather a message twice than one lost.
        committed = held if self._keeps_tail else held[: state.write_msg]
        missing = state.write_msg - len(committed)
        end = committed[-1].end if committed else 0
        if missing > 0 and (self._source == FROM_LINE or end < state.write_byte):
            first_lost = max(len(committed), state.read_msg) if state.is_one_file else len(committed)
            lost, at = state.write_msg - first_lost, self._write.size()
            self._tell("state_ahead_of_data", is_error=True, lost=lost, file=name_of(state.write_file), offset=at)
            self._has_lost = self._has_lost or lost > 0
        self._is_odd = self._is_odd or missing != 0
        state.write_msg, state.write_byte = len(committed), end
        if state.is_one_file:
            state.read_count = state.write_msg
            self._place_reading(state, committed, is_whole)
        elif not is_whole:
            self._count_read_file(state)
        if not is_whole or missing:
            state.can_write = not _has_quota(committed[-1:])

    def _count_read_file(self, state: StateLine) -> None:
        file = self._home.files.open(self._path(state.read_file))
        try:
            held = extents(file)
        finally:
            file.close()
        state.read_count = len(held)
        self._place_reading(state, held, is_whole=False)

    def _place_reading(self, state: StateLine, held: list[Extent], is_whole: bool) -> None:
        """Reading goes on at ``read_byte`` if a message begins there, else after ``read_msg`` messages."""
        places = [*(each.start for each in held), held[-1].end if held else 0]
        if is_whole and state.read_byte in places:  # of what cannot be read nobody knows how many it was
            state.read_msg = places.index(state.read_byte)
        state.read_msg = min(state.read_msg, len(held))
        if places[state.read_msg] != state.read_byte:
            state.read_byte = places[state.read_msg]
            self._is_odd = True

    def _append_loss(self, state: StateLine) -> None:
        """The recipient is told, too: by a marker at the end. Without room for it, the server's log is all there is."""
        home = self._home
        marker = records.loss(state.write_file, state.write_byte, home.clock.now_ns() // _SECOND)
        record = records.encode(home.next_time(), marker)
        at = state.write_byte + HEADER_SIZE
        try:
            if self._write is None:
                self._write = self._new_write_file(state.write_file)
            write_all(self._write, [record])
            self._write.sync()
            home.files.sync_folder(self._folder)
        except OSError:
            if self._write is not None:
                with suppress(OSError):
                    self._write.truncate(at)
            return
        state.write_msg += 1
        state.write_byte = self._write.size() - HEADER_SIZE
        if state.is_one_file:
            state.read_count = state.write_msg
        self._is_odd = True

    def _new_write_file(self, id: str) -> File:
        file = self._home.files.create(self._path(id))
        self._files.add(id)
        write_all(file, [records.HEADER])
        return file

    def _path(self, id: str) -> str:
        return join(self._folder, name_of(id))

    def _close_write(self) -> None:
        if self._write is not None:
            self._write.close()
            self._write = None


def _has_quota(held: Sequence[Extent]) -> bool:
    return any(each.message is not None and each.message.is_marker and not each.message.is_loss for each in held)


def _become(state: StateLine, other: StateLine) -> None:
    for name in StateLine.__slots__:
        setattr(state, name, getattr(other, name))
