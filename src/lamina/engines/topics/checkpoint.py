"""What is known of a topic at some position of its log, so that a start need not read the log from its start.

    header lmtc 2 · one record: position, added, length, last id, largest deleted id, trimmed to, let go to, exists,
    how many ranges of deleted ids there are · records with the ranges

A former version kept every deleted id by itself: header lmtc 1, all in one record.
A checkpoint that is not whole is not used, and the log alone gives the same, also when its oldest files went: before
they did, all that is known was written behind them, and so it was before others were written anew (compaction.py). Only
how many entries are there is counted once more, as a trim says how many went, but not how many of those are still in
the files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from lamina.engines.topics import codec
from lamina.engines.topics.entries import entry_id, entry_ids, run_from
from lamina.engines.topics.ids import FIRST, EntryId
from lamina.engines.topics.ranges import ID_SIZE, PACKED, IdRanges
from lamina.engines.topics.state import State
from lamina.errors import Corruption, StorageError
from lamina.log import kernel, rewrite
from lamina.log.files import Files, join, read_at
from lamina.log.formats import HEADER
from lamina.log.frame import Stop
from lamina.log.naming import CHECKPOINT, TIMED
from lamina.log.reader import Reader
from lamina.log.scan import FileScan
from lamina.units import MIB

_MAGIC: Final = HEADER.pack(b"lmtc", 2)
_FORMER: Final = HEADER.pack(b"lmtc", 1)
_FACTS: Final = struct.Struct(">QQQ16s16s16s16s?Q")  # position, added, length, four ids, exists, count
_RANGES: Final = 16_384  # in one record
_SYNC_EVERY: Final = 4 * MIB
_MANY: Final = 10_000  # ranges: it is worth a look whether they are neighbours


def save(files: Files, folder: str, state: State, position: int) -> None:
    """Durability: when it returns, it is synced. Raises: DiskFull, DiskError."""
    facts = _FACTS.pack(
        position,
        state.added,
        state.length,
        state.last_id.to_bytes(16, "big"),
        state.max_deleted.to_bytes(16, "big"),
        state.trimmed_to.to_bytes(16, "big"),
        state.let_go_to.to_bytes(16, "big"),
        state.exists,
        len(state.deleted),
    )
    rewrite.replace(files, folder, CHECKPOINT, _chunks(state, position, facts), TIMED, sync_every=_SYNC_EVERY)


def _chunks(state: State, position: int, facts: bytes) -> Iterator[bytes]:
    """Of a file as large as it has to be: a piece of it is in memory at a time."""
    yield _MAGIC
    yield kernel.encode_many(position, [facts])
    ranges, at = state.deleted.packed(), position
    while piece := b"".join(islice(ranges, _RANGES)):
        at += 1
        yield kernel.encode_many(at, [piece])


class Loaded(NamedTuple):
    """A topic as its log has it."""

    state: State
    position: int
    """What the checkpoint covers; 0: there is none."""
    replayed: int
    """Records that were read to get here."""


def copy_of(state: State) -> State:
    """As it is now."""
    known = State()
    known.last_id, known.added, known.length = state.last_id, state.added, state.length
    known.max_deleted, known.trimmed_to, known.exists = state.max_deleted, state.trimmed_to, state.exists
    known.let_go_to = state.let_go_to
    known.deleted = state.deleted.copy()
    return known


def load(files: Files, folder: str, reader: Reader) -> Loaded:
    """The state of a topic. Raises: Corruption, DiskError."""
    state, position = _read(files, folder) or (State(), 0)
    many = _MANY
    if len(state.deleted) > many:
        many = _join_neighbours(state, reader, None)
    replayed, is_compacted = _replay(state, reader, position or None, many)
    if not position or is_compacted or _is_older_than_all(reader, position):
        # Records between the two may have gone, alone or with their files. What they did to the rest was written again.
        state.length = sum(1 for id in _all_ids(reader) if state.has(id))
    return Loaded(state, position, replayed)


def _is_older_than_all(reader: Reader, position: int) -> bool:
    names = reader.segments()
    return bool(names) and names[0].number > position


def _join_neighbours(state: State, reader: Reader, after: int | None) -> int:
    """A log says what was deleted, not which of it were neighbours: see which. Returns how many ranges are many now."""
    previous = FIRST
    for segment, batch in reader.batches(after=after):
        try:
            ids = entry_ids(batch.data, batch.offsets, batch.lengths)
        except codec.BadRecord as error:
            raise Corruption(segment.name.name, batch.base, f"no record of a topic: {error}") from error
        if ids:
            previous = state.deleted.learn(ids, previous or EntryId(ids[0] - 1))
    return _MANY + 2 * len(state.deleted)


def _replay(state: State, reader: Reader, after: int | None, many: int) -> tuple[int, bool]:
    """Returns how many records there were, and whether some of those before the newest may have been taken out."""
    replayed, is_compacted = 0, False
    for segment, batch in reader.batches(after=after):
        number = 0
        while after is not None and number < len(batch.times) and batch.times[number] <= after:
            number += 1
        while number < len(batch.times):
            try:
                count, last = run_from(batch.data, batch.offsets, batch.lengths, number)
                if last is not None:
                    state.add(last, count)
                else:
                    payload = batch.payload(number)
                    if segment.format.is_mark(payload):
                        number += 1
                        continue
                    count = 1
                    state.apply(payload)
                    is_compacted = is_compacted or codec.trim_note(payload) > codec.LET_GO
            except codec.BadRecord as error:
                offset = batch.record_offset(number)
                raise Corruption(segment.name.name, offset, f"no record of a topic: {error}") from error
            number += count
            replayed += count
        if len(state.deleted) > many:
            many = _join_neighbours(state, reader, after)
    return replayed, is_compacted


def _all_ids(reader: Reader) -> Iterator[EntryId]:
    for _, batch in reader.batches():
        for number in range(len(batch.times)):
            id = entry_id(batch.payload(number))
            if id is not None:
                yield id


def _read(files: Files, folder: str) -> tuple[State, int] | None:
    """None: there is none that can be used."""
    try:
        file = files.open(join(folder, CHECKPOINT))
    except OSError:
        return None
    try:
        magic = read_at(file, 0, len(_MAGIC))
        if magic not in (_MAGIC, _FORMER):
            return None
        scan = FileScan(file, len(_MAGIC))
        payloads = (batch.payload(number) for batch in scan for number in range(len(batch.times)))
        facts = next(payloads, b"")
        if len(facts) < _FACTS.size:
            return None
        size = ID_SIZE if magic == _FORMER else PACKED
        packed: list[bytes] = []
        for piece in chain([facts[_FACTS.size :]], payloads):
            if len(piece) % size:
                return None
            packed += [piece[at : at + size] for at in range(0, len(piece), size)]
        if scan.why is not Stop.END or scan.stop != file.size():
            return None
    except (OSError, StorageError):
        return None
    finally:
        file.close()
    state = State()
    position, added, length, *found, state.exists, count = _FACTS.unpack_from(facts)
    if len(packed) != count:
        return None
    state.added, state.length = min(added, codec.MOST_COUNTED), min(length, codec.MOST_COUNTED)
    state.last_id, state.max_deleted, state.trimmed_to, state.let_go_to = (
        EntryId(int.from_bytes(raw, "big")) for raw in found
    )
    if magic == _FORMER:
        ids = [EntryId(int.from_bytes(raw, "big")) for raw in packed]
        state.deleted.add_all((EntryId(id - 1), id) for id in ids)
    else:
        state.deleted = IdRanges(packed)
    return state, position
