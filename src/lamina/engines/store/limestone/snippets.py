"""One PWAL file, snippet by snippet: which entries count, and what may be dropped.

A snippet is what one session wrote: a begin mark, entries and, since format 6, an end mark. Without one it is closed by
the next begin mark or the end of the file.

    begin mark, epoch durable       its entries count
    begin mark, epoch not durable   left out: nobody was told that it is kept
    void begin mark                 left out: an earlier open found that it was not durable

What cannot be read is damage when it is inside a snippet that counts, and a rest that is dropped when it is not.
An entry where a begin mark must be, a durable mark, or a file that does not start as a PWAL file does is nothing that a
crash can leave: damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

from lamina.engines.store.limestone import rest
from lamina.engines.store.limestone.entries import BEGIN, DURABLE, END, NAMES, VOID_BEGIN, Entry, EntryReader, Why
from lamina.engines.store.limestone.source import damaged
from lamina.errors import Corruption
from lamina.log.files import File

_BEGIN_SIZE: Final = 9


class State(Enum):
    """What became of a session."""

    COUNTS = "counts"
    NOT_DURABLE = "not durable"
    VOID = "void"


class Snippet:
    """What is known of a snippet; ``entries`` and ``is_ended`` when it is closed."""

    __slots__ = ("entries", "epoch", "is_ended", "offset", "state")

    def __init__(self, offset: int, epoch: int, state: State) -> None:
        self.offset = offset
        self.epoch = epoch
        self.state = state
        self.entries = 0
        self.is_ended = False
        """It has an end mark: the session came to its end."""


class SnippetScan:
    """Reads a PWAL file once, from start to end."""

    def __init__(self, file: File, name: str, durable: int) -> None:
        self._file = file
        self._name = name
        self._durable = durable
        self.dropped: list[str] = []
        """What was left out, each naming file and byte."""
        self.max_epoch = 0
        """The largest in a begin mark, void or not."""
        self.has_end_marks = False
        """One was met: from there on the file is of format 6 or later."""
        self._last_epoch = 0

    def __iter__(self) -> Iterator[tuple[Snippet, Entry | None]]:
        """Entries that count, each with its snippet; and every snippet with None when it is closed.

        Raises: Corruption naming the epoch; DiskError.
        """
        reader = EntryReader(self._file)
        snippet: Snippet | None = None
        for entry in reader:
            kind = entry.kind
            if kind in (BEGIN, VOID_BEGIN):
                if snippet is not None:
                    yield snippet, None
                snippet = self._begin(entry)
            elif kind == DURABLE or snippet is None:
                raise self._unexpected(entry, snippet)
            elif kind == END:
                snippet.is_ended = True
                yield snippet, None
                self.has_end_marks = True
                snippet = None
            else:
                snippet.entries += 1
                if snippet.state is State.COUNTS:
                    yield snippet, entry
        if reader.why is not Why.END:
            self._drop(reader, snippet)
        if snippet is not None:
            yield snippet, None

    def _begin(self, entry: Entry) -> Snippet:
        epoch = entry.epoch
        self.max_epoch = max(self.max_epoch, epoch)
        self._last_epoch = epoch
        if entry.kind == VOID_BEGIN:
            return Snippet(entry.offset, epoch, State.VOID)
        if epoch <= self._durable:
            return Snippet(entry.offset, epoch, State.COUNTS)
        self.dropped.append(
            f"{self._name}, byte {entry.offset}: the session of epoch {epoch} was not durable "
            f"(epoch {self._durable} is the last that is): left out"
        )
        return Snippet(entry.offset, epoch, State.NOT_DURABLE)

    def _unexpected(self, entry: Entry, snippet: Snippet | None) -> Corruption:
        where = "before any begin mark" if self._last_epoch == 0 else f"behind the session of epoch {self._last_epoch}"
        if snippet is not None:
            where = f"in a session of epoch {snippet.epoch}"
        return damaged(self._name, entry.offset, f"{NAMES[entry.kind]} {where}, where none can be")

    def _drop(self, reader: EntryReader, snippet: Snippet | None) -> None:
        """Decide about the rest behind ``reader.stop``. Raises: Corruption if it may not be dropped."""
        is_short = reader.why is Why.SHORT
        what = f"{NAMES[reader.kind]} that is cut short" if is_short else f"byte {reader.kind:#04x}, which is no entry"
        is_void_begin = is_short and reader.kind == VOID_BEGIN  # whatever it is, it does not count
        is_begin = is_short and reader.kind in (BEGIN, VOID_BEGIN)
        if reader.stop == 0 and not is_begin and not rest.is_zeros(self._file, 0, min(_BEGIN_SIZE, reader.size)):
            raise damaged(self._name, 0, f"{what}, where a PWAL file has its first begin mark")
        if snippet is not None and snippet.state is State.COUNTS and not is_void_begin:
            reason = f"{what}, in a session of epoch {snippet.epoch}, which is durable"
            raise damaged(self._name, reader.stop, reason)
        if not is_void_begin:
            # Behind a snippet that does not count its own end mark says nothing; in a file epochs never fall.
            after = self._last_epoch if snippet is None else snippet.epoch + 1
            trace = rest.durable_behind(self._file, reader.stop, reader.size, after=after, durable=self._durable)
            if trace is not None:
                reason = (
                    f"{what}, and behind it, at byte {trace.offset}, a session of epoch {trace.epoch}, which is durable"
                )
                raise damaged(self._name, reader.stop, reason)
        if not is_short and rest.is_zeros(self._file, reader.stop, reader.size):
            what = "zeros"
        self.dropped.append(
            f"{self._name}, byte {reader.stop}: {what}: the rest, {reader.size - reader.stop} bytes, was dropped"
        )
