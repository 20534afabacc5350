"""The rest of a file that cannot be read: whether it may be dropped.

After a crash the end of a file can be torn, be zeros or be anything, and nobody was promised what was there. But one
damaged byte makes the rest unreadable just as well, and then sessions that were durable may be in it. So the rest is
searched for marks of such sessions: a begin mark with whole entries behind it, or an end mark with a begin mark or the
end of the file behind it. Less would be found in values by chance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice, repeat
from typing import Final, NamedTuple

from lamina.engines.store.limestone.entries import BEGIN, DURABLE, END, VOID_BEGIN, EntryReader, Why
from lamina.log.files import File, read_at

_CHUNK: Final = 1 << 20
_LOOK: Final = 4096
_MARK_SIZE: Final = 10  # kind, epoch, and the byte behind them: kind of an entry, or the 1 that ends an end mark


class Trace(NamedTuple):
    """Bytes that look like the mark of a durable session."""

    offset: int
    epoch: int


def is_zeros(file: File, start: int, end: int) -> bool:
    return all(not chunk.strip(b"\0") for _, chunk in _chunks(file, start, end))


def durable_behind(file: File, start: int, end: int, *, after: int, durable: int) -> Trace | None:
    """The first mark of a session with an epoch from ``after`` to ``durable``."""
    lowest = max(after, 1)
    if durable < lowest:
        return None
    free = (durable.bit_length() + 7) // 8
    marks = re.compile(rb"(?s)(?=[\x02\x03](.{%d}\x00{%d})[\x01\x05\x07-\x0a])" % (free, 8 - free))
    for offset, chunk in _chunks(file, start, end):
        for match in marks.finditer(chunk):
            epoch = int.from_bytes(match[1], "little")
            if lowest <= epoch <= durable and _is_mark(file, offset + match.start()):
                return Trace(offset + match.start(), epoch)
    return None


def _is_mark(file: File, offset: int) -> bool:
    reader = EntryReader(file, start=offset, chunk=_LOOK)
    first, second, third = islice(chain(reader, repeat(None)), 3)
    if second is None or first is None:
        return first is not None and first.kind == END and reader.why is Why.END
    if first.kind == END:
        return second.kind in (BEGIN, VOID_BEGIN)
    return second.kind not in (BEGIN, VOID_BEGIN, DURABLE) and (third is not None or reader.why is Why.END)


def _chunks(file: File, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """They overlap, so that a mark is whole in one of them."""
    while start < end:
        yield start, read_at(file, start, min(_CHUNK, end - start))
        start += _CHUNK - _MARK_SIZE + 1
