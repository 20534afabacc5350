"""What is known of a topic at some position of its log, so that a start need not read the log from its start.

    header lmtc 1 · one record: position, last id, added, length, largest deleted id, trimmed to, let go to, deleted ids

A checkpoint that is not whole is not used, and the log alone gives the same, also when its oldest files went: before
they did, all that is known was written behind them. Only how many entries are there is counted once more, as a trim
says how many went, but not how many of those are still in the files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from lamina.engines.topics import codec
from lamina.engines.topics.entries import entry_id, run_from
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.state import State
from lamina.errors import Corruption, StorageError
from lamina.log import kernel, rewrite
from lamina.log.files import Files, join, read_at
from lamina.log.formats import HEADER
from lamina.log.frame import Stop
from lamina.log.naming import CHECKPOINT, TIMED
from lamina.log.reader import Reader

_MAGIC: Final = HEADER.pack(b"lmtc", 1)
_FACTS: Final = struct.Struct(">QQQ16s16s16s16s?Q")  # position, added, length, four ids, exists, count


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
    deleted = b"".join(id.to_bytes(16, "big") for id in state.deleted)
    rewrite.replace(files, folder, CHECKPOINT, [_MAGIC, kernel.encode_many(position, [facts + deleted])], TIMED)


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
    known.deleted = state.deleted[:]
    return known


def load(files: Files, folder: str, reader: Reader) -> Loaded:
    """The state of a topic. Raises: Corruption, DiskError."""
    state, position = _read(files, folder) or (State(), 0)
    replayed = _replay(state, reader, position or None)
    if not position or _is_older_than_all(reader, position):
        # Records between the two may have gone with their files. What they did to the rest was written again.
        state.length = sum(1 for id in _all_ids(reader) if state.has(id))
    return Loaded(state, position, replayed)


def _is_older_than_all(reader: Reader, position: int) -> bool:
    names = reader.segments()
    return bool(names) and names[0].number > position


def _replay(state: State, reader: Reader, after: int | None) -> int:
    """Returns how many records there were."""
    replayed = 0
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
            except codec.BadRecord as error:
                offset = batch.record_offset(number)
                raise Corruption(segment.name.name, offset, f"no record of a topic: {error}") from error
            number += count
            replayed += count
    return replayed


def _all_ids(reader: Reader) -> Iterator[EntryId]:
    for _, batch in reader.batches():
        for number in range(len(batch.times)):
            id = entry_id(batch.payload(number))
            if id is not None:
                yield id


def _read(files: Files, folder: str) -> tuple[State, int] | None:
    try:
        file = files.open(join(folder, CHECKPOINT))
    except OSError:
        return None
    try:
        data = read_at(file, 0, file.size())
    except (OSError, StorageError):
        return None
    finally:
        file.close()
    if data[: len(_MAGIC)] != _MAGIC:
        return None
    scan = kernel.scan(data, len(_MAGIC), len(data))
    if len(scan.times) != 1 or scan.why is not Stop.END or scan.lengths[0] < _FACTS.size:
        return None
    at = scan.offsets[0]
    state = State()
    position, added, length, *found, state.exists, count = _FACTS.unpack_from(data, at)
    state.added, state.length = min(added, codec.MOST_COUNTED), min(length, codec.MOST_COUNTED)
    if scan.lengths[0] != _FACTS.size + 16 * count:
        return None
    state.last_id, state.max_deleted, state.trimmed_to, state.let_go_to = (
        EntryId(int.from_bytes(raw, "big")) for raw in found
    )
    start = at + _FACTS.size
    state.deleted = [
        EntryId(int.from_bytes(data[place : place + 16], "big")) for place in range(start, start + 16 * count, 16)
    ]
    return state, position
