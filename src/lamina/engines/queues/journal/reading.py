"""Reading messages of one queue: ahead, so that a file is not read for each of them, and around bad places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lamina.engines import loops
from lamina.engines.queues import ids
from lamina.engines.queues.journal import records
from lamina.engines.queues.journal.extents import Extent, extents
from lamina.engines.queues.journal.home import no_path
from lamina.errors import WrongFormat
from lamina.log import frame, kernel
from lamina.log.files import File, read_at
from lamina.log.formats import HEADER, JOURNAL
from lamina.log.scan import HEADER_SIZE

if TYPE_CHECKING:
    from lamina.engines.queues.journal.folder import QueueFolder
    from lamina.engines.queues.message import Message

_AHEAD: Final = 16 << 10
_UNKNOWN: Final = -1
_SECOND: Final = 10**9


class Reading:
    """Of one folder. Offsets count behind the header of a file."""

    def __init__(self, folder: QueueFolder) -> None:
        self._folder = folder
        self.end = _UNKNOWN
        """Where the read file ends, if it is no longer written to."""
        self._window = b""
        self._window_of = ""
        self._window_at = 0

    def forget(self) -> None:
        """The read file is another one."""
        self._window, self.end = b"", _UNKNOWN

    def next(self, at: int) -> tuple[Message, int] | None:
        """The message that begins at ``at`` in the read file, and the size of its record; None: it is bad.

        Raises: DiskError; WrongFormat for a file of a later version.
        """
        growth = self._folder.growths.get(self._folder.state.read_file)
        if growth is not None and at >= growth.base:
            return _message_at(growth.data, at - growth.base)
        end = self._folder.read_end() if growth is None else growth.base
        offset = at - self._window_at
        if self._window_of == self._folder.state.read_file and 0 <= offset < len(self._window):
            found = _message_at(self._window, offset)
            if found is not None:
                return found
        with no_path(self._folder.rid, "read its messages"):
            return self._read_from_disk(at, end)

    def has_at(self, at: int) -> bool:
        """``next`` needs no file for the message that begins there."""
        growth = self._folder.growths.get(self._folder.state.read_file)
        if growth is not None and at >= growth.base:
            return True
        offset = at - self._window_at
        is_in = self._window_of == self._folder.state.read_file and 0 <= offset < len(self._window)
        return is_in and _message_at(self._window, offset) is not None

    def _read_from_disk(self, at: int, end: int) -> tuple[Message, int] | None:
        file, is_ours = self._open(self._folder.state.read_file)
        try:
            if at == 0:
                self._check_header(file)
            data = read_at(file, at + HEADER_SIZE, max(min(_AHEAD, end - at), 0))
            head = frame.decode_head(data, 0, len(data)) if data else frame.Stop.END
            if isinstance(head, frame.Head) and len(data) < head.end <= end - at:
                data = read_at(file, at + HEADER_SIZE, head.end)
        finally:
            if is_ours:
                file.close()
        self._window, self._window_of, self._window_at = data, self._folder.state.read_file, at
        return _message_at(data, 0)

    def _check_header(self, file: File) -> None:
        """A flipped byte in it does no harm: the name says what the file is. But a later version is another thing."""
        header = read_at(file, 0, HEADER_SIZE)
        if len(header) == HEADER_SIZE:
            magic, version = HEADER.unpack(header)
            if magic == JOURNAL.magic and version > JOURNAL.version:
                raise WrongFormat(
                    f"messages of queue {ids.handle(self._folder.rid)}",
                    f"version {version} of a {JOURNAL.name} file, this program reads version {JOURNAL.version}",
                    hint="a later lamina may have written it: upgrade; nothing was changed",
                )

    def end_of_read_file(self) -> int:
        if self.end == _UNKNOWN:
            with no_path(self._folder.rid, "read its messages"):
                file, is_ours = self._open(self._folder.state.read_file)
                try:
                    self.end = max(file.size() - HEADER_SIZE, 0)
                finally:
                    if is_ours:
                        file.close()
        return self.end

    def extents_of(self, id: str, start: int, end: int) -> list[Extent]:
        """Records of a file that is on disk. Raises: DiskError."""
        with no_path(self._folder.rid, "read its messages"):
            file, is_ours = self._open(id)
            try:
                return extents(file, start, end)
            finally:
                if is_ours:
                    file.close()

    def messages_of(self, id: str, start: int, end: int, count: int) -> list[Message]:
        """All from ``start`` to ``end``, on disk or pending: ``count`` at most, with markers for what cannot be read.

        A file that is no longer written to may have more at its end, if a power cut undid that it was cut off.
        """
        growth = self._folder.growths.get(id)
        found: list[Message] = []
        on_disk = end if growth is None else growth.base
        waiting = 0 if growth is None else growth.messages
        if count > waiting:
            held = self._held(id, start, on_disk, count - waiting)
            found = [each.message or self._loss(id, each.start) for each in held]
        if growth is not None:
            at = max(start - growth.base, 0)
            while (record := _message_at(growth.data, at)) is not None:
                found.append(record[0])
                at += record[1]
        return found

    def _held(self, id: str, start: int, end: int, count: int) -> list[Extent]:
        """``count`` messages at most from ``start`` to ``end``, on disk; what is missing at the end is there as one."""
        held = self.extents_of(id, start, end)[:count] if start < end else []
        if len(held) < count:
            good = sum(each.message is not None for each in held)
            bad = len(held) - good
            at = held[-1].end if held else start
            if count - good > bad and (at < end or not bad):
                held.append(Extent(at, max(end, at), None))
        return held

    def loss_at(self, at: int) -> tuple[Message, int, int]:
        """The marker in place of what cannot be read at ``at`` in the read file: with the bytes that it stands for, and
        the number of messages. Raises: DiskError.
        """
        folder, state = self._folder, self._folder.state
        growth = folder.growths.get(state.read_file)
        waiting, end = (0, folder.read_end()) if growth is None else (growth.messages, growth.base)
        count = state.read_count - state.read_msg - waiting
        held = self._held(state.read_file, at, end, max(count, 0))
        good = sum(each.message is not None for each in held)
        size = next((each.start for each in held if each.message is not None), max(end, at)) - at
        later = sum(each.message is None for each in held) - 1  # each of them is one at least
        lost = max(count - good - max(later, 0), 0 if size else 1)
        return self._loss(state.read_file, at), size, lost

    def _loss(self, id: str, at: int) -> Message:
        return records.loss(id, at, self._folder.home.clock.now_ns() // _SECOND)

    def bytes_of(self, id: str, start: int, end: int) -> bytes:
        """As they are in the file."""
        file, is_ours = self._open(id)
        try:
            return read_at(file, start + HEADER_SIZE, end - start)
        finally:
            if is_ours:
                file.close()

    def _open(self, id: str) -> tuple[File, bool]:
        loops.must_wait()
        self._folder.home.stats.read += 1
        return self._folder.open_for_reading(id)


def _message_at(data: bytes | bytearray, at: int) -> tuple[Message, int] | None:
    if at >= len(data):
        return None
    head = frame.decode_head(memoryview(data), at, len(data))
    if not isinstance(head, frame.Head) or head.end > len(data):
        return None
    if not len(kernel.scan(data, at, head.end).times):
        return None
    message = records.decode(bytes(data[head.payload_at : head.payload_at + head.size]))
    return None if message is None else (message, head.end - at)
