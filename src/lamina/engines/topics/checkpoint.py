"""What is known of a topic at some position of its log, so that a start need not read the log from its start.

    header lmtc 1 · one record: position, last id, added, length, largest deleted id, trimmed to, deleted ids

A checkpoint that is not whole is not used, and the log alone gives the same: then entries are counted once more, as a
trim says how many went, but not how many of those are still in the files.
"""

from __future__ import annotations

import struct
from typing import Final

from lamina.engines.topics import codec
from lamina.engines.topics.finding import entry_id
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
_FACTS: Final = struct.Struct(">QQQ16s16s16s?Q")  # position, added, length, last, deleted, trimmed, exists, count


def save(files: Files, folder: str, state: State, position: int) -> None:
    """Durability: when it returns, it is synced. Raises: DiskFull, DiskError."""
    facts = _FACTS.pack(
        position,
        state.added,
        state.length,
        state.last_id.to_bytes(16, "big"),
        state.max_deleted.to_bytes(16, "big"),
        state.trimmed_to.to_bytes(16, "big"),
        state.exists,
        len(state.deleted),
    )
    deleted = b"".join(id.to_bytes(16, "big") for id in state.deleted)
    rewrite.replace(files, folder, CHECKPOINT, [_MAGIC, kernel.encode_many(position, [facts + deleted])], TIMED)


def load(files: Files, folder: str, reader: Reader) -> tuple[State, int]:
    """The state of a topic, and what the checkpoint covers. Raises: Corruption, DiskError."""
    found = _read(files, folder)
    if found is not None:
        state, position = found
        _replay(state, reader, position)
        return state, position
    state = State()
    _replay(state, reader, None)
    state.length = sum(1 for id in _all_ids(reader) if state.has(id))
    return state, 0


def _replay(state: State, reader: Reader, after: int | None) -> None:
    for segment, batch in reader.batches(after=after):
        for number in range(len(batch.times)):
            if after is not None and batch.times[number] <= after:
                continue
            payload = batch.payload(number)
            if not segment.format.is_mark(payload):
                try:
                    state.apply(payload)
                except codec.BadRecord as error:
                    offset = batch.record_offset(number)
                    raise Corruption(segment.name.name, offset, f"no record of a topic: {error}") from error


def _all_ids(reader: Reader) -> list[EntryId]:
    found = []
    for _, batch in reader.batches():
        ids = (entry_id(batch.payload(number)) for number in range(len(batch.times)))
        found += [id for id in ids if id is not None]
    return found


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
    position, state.added, state.length, last, deleted, trimmed, state.exists, count = _FACTS.unpack_from(data, at)
    if scan.lengths[0] != _FACTS.size + 16 * count:
        return None
    state.last_id, state.max_deleted, state.trimmed_to = (
        EntryId(int.from_bytes(raw, "big")) for raw in (last, deleted, trimmed)
    )
    start = at + _FACTS.size
    state.deleted = [
        EntryId(int.from_bytes(data[place : place + 16], "big")) for place in range(start, start + 16 * count, 16)
    ]
    return state, position
