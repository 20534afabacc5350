"""One queue: its messages in files of its folder, its state in queue.log.

A change is made in memory at once and is pending until the store pushes it: first the message bytes, then, when those
are as safe as the policy wants it, the state lines. So a line never commits what is not there. Files that nobody needs
any more go last, when the state that does not name them is synced.

The head of the queue stays in memory until it is received: delivering it again costs no read.

Threads: the store's lock guards it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lamina.engines import loops
from lamina.engines.queues.journal import paths, records, state_line
from lamina.engines.queues.journal.home import Home, no_path
from lamina.engines.queues.journal.opening import Opened
from lamina.engines.queues.journal.reading import Reading
from lamina.engines.queues.journal.state_line import StateLine
from lamina.engines.queues.journal.state_log import StateLog
from lamina.log import recovery
from lamina.log.files import File, join, write_all
from lamina.log.scan import HEADER_SIZE
from lamina.log.teardown import Teardown

if TYPE_CHECKING:
    from lamina.engines.queues.message import Message, Queue

_HEADER: Final = records.HEADER


class Growth:
    """Bytes on their way to a message file."""

    def __init__(self, base: int, is_new: bool) -> None:
        self.base = base
        """Bytes behind the header that the file has."""
        self.is_new = is_new
        """The file is yet to be made."""
        self.data = bytearray()
        self.messages = 0


class QueueFolder:
    """An open queue. ``opened`` is None where there is no folder yet: it is made with the first message."""

    def __init__(self, home: Home, queue: Queue, path: str, opened: Opened | None) -> None:
        self.home = home
        self.queue = queue
        self.path = path
        self.state: StateLine
        self.log = StateLog(home, path)
        self.growths: dict[str, Growth] = {}
        """Pending bytes by message file, in the order in which the files were begun."""
        self.grown: dict[str, int] = {}
        """Message files with pending changes in them: their sizes before; 0: it was not there."""
        self.lines: list[bytes] = []
        """Pending state lines, one for each change."""
        self.positions: list[int] = []
        """Of the pending changes."""
        self.obsolete: list[str] = []
        """Message files to remove when the state is synced."""
        self.unsynced_files: dict[str, None] = {}
        self.is_log_unsynced = False
        self.unsynced_folders: list[str] = []
        self.wants_compaction = False
        self.used_at = 0.0
        self.is_syncing = False
        """Its files are being synced by somebody who does not hold the lock: they must not be closed."""
        self.is_abandoned = False
        """Nobody uses it any more: whoever syncs it closes it."""
        self.is_new = opened is None
        """Nothing of it was ever committed."""
        self.log_size_before = 0
        """Bytes of queue.log that count if the pending changes are refused."""
        self.has_folder = opened is not None
        self._files: set[str] = set() if opened is None else opened.has_files
        self._retired: dict[str, bytes] = {}
        """Of files that are to go, or went since queue.log was written anew: the last line that names them."""
        self._told_losses: set[tuple[str, int]] = set()
        self._found: list[str] | None = None
        """Message files that were there: a killed process may not have got to syncing them."""
        self._write: File | None = None
        self._write_id = ""
        self._head: Message | None = None
        self._head_size = 0
        self._head_count = 1
        """Messages that go with the head: more than one, if it is the marker of a loss."""
        self._reading = Reading(self)
        if opened is None:
            self.state = StateLine.fresh(self._new_file_id())
        else:
            self.state = opened.state
            if opened.write_file is not None:
                self._write, self._write_id = opened.write_file, opened.state.write_file
            self.log.exists, self.log.size = opened.log_exists, opened.log_size
            self.log.lines, self.log.copies = opened.log_lines, opened.copies
            self.wants_compaction = opened.is_odd or opened.log_lines > home.options.open_lines
            self.log_size_before = opened.log_size
            self._found = sorted(opened.has_files)
            if self.wants_compaction:
                self._take_found()

    @property
    def rid(self) -> bytes:
        rid: bytes = self.queue.rid
        return rid

    @property
    def is_dirty(self) -> bool:
        return bool(self.lines)

    @property
    def head_ts(self) -> int | None:
        """When the message was sent that is next, in seconds, if that is known without looking into a file."""
        return None if self._head is None else self._head.ts

    @property
    def pending_bytes(self) -> int:
        """That the next push writes."""
        return sum(len(growth.data) for growth in self.growths.values()) + sum(map(len, self.lines))

    @property
    def is_unsynced(self) -> bool:
        return bool(self.unsynced_files or self.is_log_unsynced or self.obsolete)

    # -- commands: in memory -----------------------------------------------------------------------------------------

    def head(self) -> Message | None:
        """The message that is next, or a marker in place of what cannot be read. Raises: DiskError."""
        state = self.state
        while self._head is None:
            if state.read_msg >= state.read_count:
                if state.is_one_file:
                    return None  # the end of a file that is still written to is no reason to go on to the next
                self._switch()
                self._changed()
                continue
            found = self._reading.next(state.read_byte)
            if found is None:
                self._head, self._head_size, self._head_count = self._reading.loss_at(state.read_byte)
                self._tell_loss()
            else:
                self._head, self._head_size = found
                self._head_count = 1
        return self._head

    def _tell_loss(self) -> None:
        """Once, as long as it is open: the same marker comes again until it is acknowledged."""
        state = self.state
        place = state.read_file, state.read_byte
        if place not in self._told_losses:
            self._told_losses.add(place)
            name, at = records.name_of(state.read_file), state.read_byte + HEADER_SIZE
            detail = f"{self._head_size} bytes cannot be read"
            lost = self._head_count
            self.home.told(self.rid, "bad_message", is_error=True, lost=lost, detail=detail, file=name, offset=at)

    def has_next_at_hand(self) -> bool:
        """Behind the head stands a message that is in memory, or none."""
        state = self.state
        if state.size <= 1:
            return True
        behind = state.read_msg + self._head_count
        return behind < state.read_count and self._reading.has_at(state.read_byte + self._head_size)

    def put(self, message: Message) -> None:
        """Store a message, or a marker, at the end."""
        state = self.state
        # Not before the first line is on disk: a crash would leave two files, and nobody to say which comes first.
        if state.is_one_file and state.write_msg >= self.home.options.max_file_messages and not self.is_new:
            self._rotate()
            state = self.state
        record = records.encode(self.home.next_time(), message)
        growth = self.growths.get(state.write_file)
        if growth is None:
            is_new = state.write_file not in self._files
            growth = self.growths[state.write_file] = Growth(state.write_byte, is_new)
        growth.data += record
        growth.messages += 1
        state.write_msg += 1
        state.write_byte += len(record)
        state.size += 1
        if state.is_one_file:
            state.read_count = state.write_msg
            if state.size == 1:
                self._head, self._head_size = message, len(record)  # just written, never read
                self._head_count = 1
        if message.is_marker:
            state.can_write = False
        self._changed()

    def drop_head(self) -> None:
        """The head was received. There must be one. Raises: DiskError, DiskFull."""
        self._keep_what_was_lost()
        self._drop()
        self._changed()

    def drop_expired(self, now: int, ttl: int) -> int:
        """Let what has expired at the head go, with one state line. Returns how many went. Raises: DiskError."""
        count = 0
        while (message := self.head()) is not None and message.has_expired(now, ttl):
            self._drop()
            count += 1
        if count:
            self._changed()
        return count

    def messages(self) -> list[Message]:
        """All that wait, in order; a marker in place of what cannot be read. Raises: DiskError."""
        state = self.state
        reading, waiting = self._reading, state.read_count - state.read_msg
        found = reading.messages_of(state.read_file, state.read_byte, self.read_end(), waiting) if waiting else []
        if not state.is_one_file:
            found += reading.messages_of(state.write_file, 0, state.write_byte, state.write_msg)
        return found

    def _drop(self) -> None:
        head = self.head()
        assert head is not None
        state = self.state
        state.read_msg += self._head_count
        state.read_byte += self._head_size
        state.size -= self._head_count
        self._head = None
        self.home.stats.received += 1
        self._after_reading()

    def _keep_what_was_lost(self) -> None:
        """The bytes in whose place a marker was received: the file that holds them may go from now on."""
        head, state = self.head(), self.state
        if head is None or not head.is_loss or not self._head_size or state.read_file not in self._files:
            return
        if self._reading.next(state.read_byte) is not None:
            return  # this marker is a record of its own
        loops.must_wait()
        start = state.read_byte + HEADER_SIZE
        name = records.name_of(state.read_file)
        with no_path(self.rid, "keep bytes of it aside"):
            file, is_ours = self.open_for_reading(state.read_file)
            try:
                end = min(start + self._head_size, file.size())
                if end > start:
                    home = self.home
                    recovery.keep_aside(home.files, self.path, file, name, start, end, home.clock, "broken")
            finally:
                if is_ours:
                    file.close()

    def _after_reading(self) -> None:
        state = self.state
        if state.read_msg >= state.read_count and not state.is_one_file:
            self._switch()
        if state.size == 0:
            state.can_write = True

    def _switch(self) -> None:
        """The file is read to its end, and writing has gone on to another: read that, and let the old one go."""
        state = self.state
        self._retire(state.read_file)
        state.read_file, state.read_msg, state.read_byte = state.write_file, 0, 0
        state.read_count = state.write_msg
        self._reading.forget()
        self.home.stats.switches += 1

    def _retire(self, id: str) -> None:
        """The file goes when the state that does not name it is synced. Till it is gone for good queue.log names it:
        that it was superseded is what the next start needs for a proof, if a crash leaves it."""
        self.obsolete.append(id)
        self._retired[id] = state_line.encode(self.state)

    def _rotate(self) -> None:
        state, new = self.state, self._new_file_id()
        if state.size == 0:
            self._retire(state.write_file)
            self.state = StateLine.fresh(new)
            self._reading.forget()
        else:
            state.read_count = state.write_msg
            self._reading.end = state.write_byte
            state.write_file, state.write_msg, state.write_byte = new, 0, 0
        self.home.stats.rotations += 1
        self.wants_compaction = True

    def _changed(self) -> None:
        self.lines.append(state_line.encode(self.state))
        self.queue.size = self.state.size

    def _new_file_id(self) -> str:
        while (id := records.new_file_id(self.home.random)) in self._files or id in self.growths:
            pass
        return id

    def read_end(self) -> int:
        """Where the committed part of the read file ends, behind its header."""
        return self.state.write_byte if self.state.is_one_file else self._reading.end_of_read_file()

    # -- the disk, in the order in which the store calls it; raises OSError ------------------------------------------

    def file_path(self, id: str) -> str:
        return join(self.path, records.name_of(id))

    def write_file(self) -> File | None:
        """The file that is written to, if it is open."""
        return self._write if self._write_id == self.state.write_file else None

    def open_for_reading(self, id: str) -> tuple[File, bool]:
        """A message file, and whether it is for the caller to close it."""
        if id == self._write_id and self._write is not None:
            return self._write, False
        return self.home.files.open(self.file_path(id)), True

    def write_messages(self) -> None:
        """Put the pending messages into their files, one write for each file."""
        self._take_found()
        if self.growths and not self.has_folder:
            self.home.files.make_folder_unsynced(self.path)
            # All above it: another queue may have made them, and its push may have failed before they were synced.
            above = paths.parents_of(self.home.root, self.path)
            self.unsynced_folders = [self.home.root, *reversed(above), *self.unsynced_folders]
            self.has_folder = True
        for id, growth in self.growths.items():
            file = self._opened(id, growth.is_new)
            self.grown.setdefault(id, 0 if growth.is_new else growth.base + HEADER_SIZE)
            write_all(file, [_HEADER + growth.data if growth.is_new else bytes(growth.data)])
            self._files.add(id)
            self.unsynced_files[id] = None
            self.home.stats.written += growth.messages
        self.growths = {}

    def _take_found(self) -> None:
        """What will be promised rests on what was found: that has to be synced, too."""
        if self._found is not None:
            self.unsynced_files = dict.fromkeys(id for id in self._found if id in self._files)
            self.unsynced_folders.append(self.path)
            self._found = None

    def _opened(self, id: str, is_new: bool) -> File:
        if id == self._write_id and self._write is not None:
            return self._write
        self.close_write()
        files = self.home.files
        self._write = files.create(self.file_path(id)) if is_new else files.open(self.file_path(id), write=True)
        self._write_id = id
        if is_new and self.path not in self.unsynced_folders:
            self.unsynced_folders.append(self.path)
        return self._write

    def sync_messages(self) -> None:
        """The names that lead to them are yet to be synced."""
        for id in self.unsynced_files:
            if id == self._write_id and self._write is not None:
                self._write.sync()
            else:
                file = self.home.files.open(self.file_path(id), write=True)
                try:
                    file.sync()
                finally:
                    file.close()

    def messages_are_synced(self) -> None:
        self.unsynced_files = {}

    def names_are_synced(self) -> None:
        self.unsynced_folders = []

    def write_lines(self) -> None:
        """Commit. The changes stay pending until ``are_safe``."""
        if not self.log.exists and self.path not in self.unsynced_folders:
            self.unsynced_folders.append(self.path)
        self.log.append(self.lines)
        self.is_log_unsynced = True

    def are_safe(self) -> None:
        """The pending changes are on disk, as safe as the policy promises."""
        self.lines, self.positions, self.grown = [], [], {}
        self.log_size_before = self.log.size
        self.is_new = False

    def sync_log(self) -> None:
        if self.is_log_unsynced:
            self.log.sync()

    def log_is_synced(self) -> None:
        self.is_log_unsynced = False

    def needs_compaction(self) -> bool:
        return self.wants_compaction or self.log.lines > self.home.options.compact_lines

    def compact(self) -> None:
        """queue.log becomes one line: the state as it is. Nothing must be pending, and the messages be synced."""
        assert not self.lines and not self.unsynced_files
        retired = dict.fromkeys(self._retired.values())
        self.log.compact([*retired, state_line.encode(self.state)])
        self._retired = {id: line for id, line in self._retired.items() if id in self.obsolete}
        self.log_size_before = self.log.size
        self.log_is_synced()
        self.names_are_synced()
        self.wants_compaction = False

    def remove_obsolete(self) -> None:
        """The state that does not name them must be synced."""
        assert not self.lines and not self.is_log_unsynced
        while self.obsolete:
            id = self.obsolete[-1]
            if id == self._write_id:
                self.close_write()
            if id in self._files:
                self.home.files.remove(self.file_path(id))
                self._files.discard(id)
            self.obsolete.pop()

    # -- privacy -----------------------------------------------------------------------------------------------------

    def begin_cleaning(self) -> int:
        """Have the state name no file that holds what was received. Returns the bytes that will go.

        What is yet to be received is put into a new file. Pending then: that file, one state line, and the old file.
        Nothing must be pending before. Raises: OSError, DiskError.
        """
        state = self.state
        if state.size == 0:
            if not self._files:
                return 0
            freed = sum(self._size_of(id) for id in self._files)
            for id in sorted(self._files - set(self.obsolete)):
                self._retire(id)
            self.state = StateLine.fresh(self._new_file_id())
        else:
            if state.read_byte == 0:
                return 0
            freed = state.read_byte
            self._move_to_new_file()
        self._head = None
        self._reading.forget()
        self._changed()
        return freed

    def _move_to_new_file(self) -> None:
        state, new = self.state, self._new_file_id()
        rest = self._reading.bytes_of(state.read_file, state.read_byte, self.read_end())
        growth = self.growths[new] = Growth(0, is_new=True)
        growth.data += rest
        self._retire(state.read_file)
        if state.is_one_file:
            state.write_file, state.write_msg = new, state.write_msg - state.read_msg
            state.write_byte, state.read_count = len(rest), state.write_msg
        else:
            state.read_count -= state.read_msg
            self._reading.end = len(rest)
        state.read_file, state.read_msg, state.read_byte = new, 0, 0

    def _size_of(self, id: str) -> int:
        file, is_ours = self.open_for_reading(id)
        try:
            return file.size() - HEADER_SIZE
        finally:
            if is_ours:
                file.close()

    # -- closing -----------------------------------------------------------------------------------------------------

    def close_write(self) -> None:
        file, self._write, self._write_id = self._write, None, ""
        if file is not None:
            file.close()

    def close(self) -> None:
        with Teardown("the folder of a queue") as teardown:
            teardown.step(self.close_write)
            teardown.step(self.log.close)
