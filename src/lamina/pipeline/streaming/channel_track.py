"""A channel of the store as a stream follows it: it reaches to the last entry whose epoch is durable.

What is durable is asked first, and then what the channel holds: so all entries up to that epoch are there. Sessions of
a channel follow one another, their epochs rise, and none goes on in another file. So what is given always ends where a
session does, and what is read next begins with one.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import Final

from lamina.engines.store import epoch_file
from lamina.engines.store.epoch_file import Epochs
from lamina.errors import Corruption
from lamina.log.files import Files
from lamina.log.formats import EPOCH
from lamina.log.scan import HEADER_SIZE, FileScan
from lamina.pipeline import columns, pieces
from lamina.pipeline.pieces import Piece, Times
from lamina.pipeline.places import LogPlace
from lamina.pipeline.reading import Records, read_piece, refuse
from lamina.pipeline.streaming.track import Track

_BEGIN, _END = b"\x01", b"\x02"
_WHOLE: Final = 1 << 62
_ALL: Final = (1 << 63) - 1

Facts = tuple[int, tuple[tuple[int, int], ...]]
"""The last epoch that is durable, and those that never came to be."""


class DurableEpoch:
    """Of one store. Threads: one at a time."""

    def __init__(self, disk: Files, place: LogPlace, *, is_permissive: bool) -> None:
        self._disk, self._folder = disk, place.folder
        self._track = Track(disk, place, epoch_file.NAME, epoch_file.NAME, is_permissive=is_permissive)
        self._identity: tuple[int, int] | None = None
        self._at = HEADER_SIZE
        self._epochs = Epochs()
        self._facts: Facts = (0, ())

    def look(self) -> Facts:
        """Raises: Corruption, DiskError."""
        self._track.look()
        growing = self._track.growing
        if growing is None:
            return self._facts
        if (growing.file.identity, growing.index.bytes) == (self._identity, self._at):
            return self._facts
        is_same = growing.file.identity == self._identity
        # The first record of a file says again what those before it said. While it is not there, that still counts.
        epochs, at = (self._epochs, self._at) if is_same else (Epochs(), HEADER_SIZE)
        has_said = is_same
        for batch in FileScan(growing.file, at, growing.index.bytes):
            for number, time_ns in enumerate(batch.times):
                payload = batch.payload(number)
                if not EPOCH.is_mark(payload):
                    self._take(epochs, time_ns, payload, batch.record_offset(number))
                    has_said = True
        if self._identity is None and not has_said:
            epochs = epoch_file.read(self._disk, self._folder, self._disk.list(self._folder))
            self._facts = epochs.durable, tuple(epochs.voids)
        elif has_said:
            epochs.history.clear()
            self._identity, self._at, self._epochs = growing.file.identity, growing.index.bytes, epochs
            self._facts = max(epochs.durable, self._facts[0]), tuple(epochs.voids)
        return self._facts

    def _take(self, epochs: Epochs, time_ns: int, payload: bytes, offset: int) -> None:
        try:
            epoch_file.take(epochs, time_ns, payload)
        except (ValueError, struct.error) as error:
            raise Corruption(epoch_file.NAME, offset, str(error)) from error

    def close(self) -> None:
        self._track.close()


class ChannelTrack(Track):
    """Of one channel. Threads: one at a time."""

    def __init__(
        self, disk: Files, place: LogPlace, stream: str, key: str, epochs: DurableEpoch, *, is_permissive: bool
    ) -> None:
        super().__init__(disk, place, stream, key, is_permissive=is_permissive)
        self._epochs = epochs
        self._safe: int | None = None
        self._scanned = 0
        self._open_epoch = 0
        """Of the session that is open where scanning has come to; 0: none is."""
        self._in_file: tuple[int, int] | None = None
        self._pending: dict[int, int] = {}
        """Time of the last entry of each epoch that was not durable yet."""

    @property
    def facts(self) -> Facts:
        """For who reads what was reached: all of it is durable, but for what is void."""
        _, voids = self._epochs.look()
        return _ALL, voids

    def look(self) -> int:
        """Time of the last entry that is durable, or of the end of its session."""
        durable, _ = self._epochs.look()
        holds = super().look()
        if self._safe is None:
            self._safe = self._scanned = self._whole_files(durable)
        if holds > self._scanned:
            self._scan(holds)
        for epoch in [each for each in self._pending if each <= durable]:
            self._safe = max(self._safe, self._pending.pop(epoch))
        return self._safe

    def _whole_files(self, durable: int) -> int:
        """Where the rotated files end of which all is durable: their names say it."""
        found = 0
        for name in self._reader.segments():
            if not name.is_closed or name.order[1] > durable:
                break
            segment = self._reader.open(name, is_newest=False)
            if segment is not None:
                try:
                    found = self._reader.index_of(segment).last_data or found
                finally:
                    segment.file.close()
        return found

    def _scan(self, until: int) -> None:
        """Which epochs the entries belong to that were added."""
        times = Times(self._scanned + 1, until + 1)
        for file in self._pin_steadily(self._scanned, until):
            if file.identity != self._in_file:
                self._in_file, self._open_epoch = file.identity, 0
            for piece in pieces.cut(self._disk, [file], times, _WHOLE):
                for records in read_piece(self._disk, piece, times, refuse):
                    self._note(piece, records)
        self._scanned = until

    def _note(self, piece: Piece, records: Records) -> None:
        try:
            found = columns.entries(records.data, records.offsets, records.lengths, self._open_epoch)
        except ValueError as error:
            number = error.args[1] if len(error.args) > 1 else 0
            raise Corruption(piece.file.name, records.position(number), str(error.args[0])) from error
        self._open_epoch = found.epoch
        epochs, places = array("q", found.epochs), array("q", found.places)
        at = 0
        while at < len(epochs):
            behind = bisect_right(epochs, epochs[at], at)
            self._pending[epochs[at]] = records.times[places[behind - 1]]
            at = behind

    # -- sessions ----------------------------------------------------------------------------------------------------

    def settle(self, time_ns: int, until: int) -> int:
        """The end of the session that is open at a time."""
        last = time_ns
        times = Times(time_ns + 1, until + 1)
        for file in self._pin_steadily(time_ns, until):
            for piece in pieces.cut(self._disk, [file], times, _WHOLE):
                for records in read_piece(self._disk, piece, times, refuse):
                    for number, its in enumerate(records.times):
                        kind = records.payload(number)[:1]
                        if kind == _BEGIN:
                            return last
                        if kind == _END:
                            return its
                        last = its
        return until

    def settle_back(self, time_ns: int) -> int:
        """The end of the last session that was over at a time."""
        for file in self._pin_steadily(time_ns - 1, time_ns)[:1]:
            last = max((file.first_ns or 1) - 1, 0)
            for records in read_piece(self._disk, Piece(file, HEADER_SIZE, file.end), Times(None, time_ns + 1), refuse):
                ends = [at for at in range(len(records.times)) if records.payload(at)[:1] == _END]
                last = records.times[ends[-1]] if ends else last
            return min(last, time_ns)
        return time_ns
