"""The epoch file: up to which epoch everything is safe, and which epochs never came to be.

    durable  01  epoch(u64)  {channel(u16)  time(u64)}*                everything up to this epoch is on the disk; the
                                                                       newest record of each channel that wrote since
    head     02  epoch(u64)  voids(u32)  {first(u64)  last(u64)}*      the same at the start of a file, with all that
                 files(u32)  {size(u16)  name}*                        earlier ones said: void epochs, rotated files,
                 {channel(u16)  time(u64)}*                            and the newest record in those of each channel
    void     03  first(u64)  last(u64)                                 these epochs do not count, now or ever
    catalog  04  generation(u64)                                       the compaction catalog is of this generation, or
                                                                       of a later one

Epochs that were not durable at a crash are void: opening says so here, in one synced record, and their sessions are
passed over wherever they stand. So no other file is ever marked or cut for it, and they cannot come back when a later
epoch becomes durable.

The times of the channels vouch for their files: one that ends before its time has lost something that was durable.
So do the channels for this file (codec.Reached), and this file for the catalog: each says only what was synced before.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from lamina.engines.store import hints
from lamina.errors import Corruption, from_os
from lamina.log.attest import is_attested
from lamina.log.files import Files, join
from lamina.log.formats import EPOCH
from lamina.log.frame import REASONS, Stop
from lamina.log.naming import FileName, parse, sort_out
from lamina.log.scan import FileScan
from lamina.log.segment import check_header, header_is_torn, open_for_reading, read_header
from lamina.units import show_time

DURABLE: Final = 1
HEAD: Final = 2
VOID: Final = 3
CATALOG: Final = 4
NAME: Final = "epoch"

_EPOCH: Final = struct.Struct(">BQ")
_CHANNEL: Final = struct.Struct(">HQ")
_RANGE: Final = struct.Struct(">QQ")
_CATALOG: Final = struct.Struct(">BQ")
_COUNT: Final = struct.Struct(">I")
_SIZE: Final = struct.Struct(">H")
_FIRST: Final = 4096  # bytes that are read to find the first record


@dataclass(slots=True)
class Epochs:
    """What epoch files say."""

    durable: int = 0
    voids: list[tuple[int, int]] = field(default_factory=list)
    """First and last of each range."""
    attested: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By channel: time of the newest record known to be safe, and the epoch at which that was said."""
    files: tuple[str, ...] = ()
    """Rotated files that were there when the file was begun."""
    ends: dict[str, int] = field(default_factory=dict)
    """Of those, the newest of each channel, and the time of its last record."""
    history: list[tuple[int, int]] = field(default_factory=list)
    """(time, epoch): when each became durable."""
    generation: int = -1
    """The compaction catalog is of this generation or of a later one; -1: that is not said."""
    has_gap: bool = False
    """A repair took something out."""
    records: int = 0
    """That say something about epochs."""
    in_active: int = 0
    """Those of the active file, which may be none."""
    begun_ns: int = 0
    """Time of the first of them."""
    begun_with: int | None = None
    """The epoch that it said was durable, if it was a head."""
    last_ns: int = 0
    active_end: int | None = None
    """Where the last whole record of the active file ends; None: there is no such file."""
    torn_at: int | None = None
    """Where a torn tail of the active file begins."""


def durable(epoch: int, channels: Iterable[tuple[int, int]]) -> bytes:
    """``channels``: (number, time of the newest synced record)."""
    return _EPOCH.pack(DURABLE, epoch) + b"".join(_CHANNEL.pack(*channel) for channel in channels)


def head(
    epoch: int,
    voids: Sequence[tuple[int, int]],
    files: Sequence[str],
    channels: Iterable[tuple[int, int]] = (),
) -> bytes:
    """``channels``: (number, time of the newest record in its rotated files), as far as that is known."""
    parts = [_EPOCH.pack(HEAD, epoch), _COUNT.pack(len(voids)), *(_RANGE.pack(*each) for each in voids)]
    parts.append(_COUNT.pack(len(files)))
    for name in files:
        parts += [_SIZE.pack(len(name)), name.encode()]
    return b"".join([*parts, *(_CHANNEL.pack(*channel) for channel in channels)])


def void(first: int, last: int) -> bytes:
    return bytes([VOID]) + _RANGE.pack(first, last)


def catalog(generation: int) -> bytes:
    return _CATALOG.pack(CATALOG, generation)


def take(epochs: Epochs, time_ns: int, payload: bytes) -> None:
    """Take one record. Raises: ValueError, struct.error if it is none."""
    kind = payload[0] if payload else 0
    if kind == DURABLE:
        (_, epoch), rest = _EPOCH.unpack_from(payload), payload[_EPOCH.size :]
        for channel, newest in _CHANNEL.iter_unpack(rest):
            epochs.attested[channel] = newest, epoch
        _is_durable(epochs, time_ns, epoch)
    elif kind == HEAD:
        _take_head(epochs, time_ns, payload)
    elif kind == VOID:
        first, last = _RANGE.unpack(payload[1:])
        if not 0 < first <= last:
            raise ValueError(f"epochs {first} to {last} cannot be void")
        epochs.voids.append((first, last))
        epochs.durable = max(epochs.durable, last)
    elif kind == CATALOG:
        epochs.generation = max(epochs.generation, _CATALOG.unpack(payload)[1])
        return
    else:
        raise ValueError(f"there is no record of kind {kind} in an epoch file")
    epochs.records += 1
    epochs.begun_ns = epochs.begun_ns or time_ns


def _take_head(epochs: Epochs, time_ns: int, payload: bytes) -> None:
    _, epoch = _EPOCH.unpack_from(payload)
    at = _EPOCH.size
    (count,) = _COUNT.unpack_from(payload, at)
    at += _COUNT.size
    if count > (len(payload) - at) // _RANGE.size:
        raise ValueError(f"{count} ranges do not fit into a record of {len(payload)} bytes")
    voids = [_RANGE.unpack_from(payload, at + number * _RANGE.size) for number in range(count)]
    at += count * _RANGE.size
    (count,) = _COUNT.unpack_from(payload, at)
    at += _COUNT.size
    names = []
    for _ in range(min(count, len(payload))):
        (size,) = _SIZE.unpack_from(payload, at)
        at += _SIZE.size + size
        names.append(payload[at - size : at].decode("ascii"))
    if at > len(payload) or (len(payload) - at) % _CHANNEL.size:
        raise ValueError("the record has another size than its counts say")
    for channel, newest in _CHANNEL.iter_unpack(payload[at:]):
        # As of its newest file, not of this record: a compaction may take that before it takes what is behind it.
        its = [name for name in names if name.startswith(f"pwal_{channel:04d}.")]
        epochs.attested[channel] = newest, max((int(name.rpartition(".")[2]) for name in its), default=0)
        if its:
            epochs.ends[sort_out(its).segments[-1].name] = newest
    epochs.voids = [(first, last) for first, last in voids]
    epochs.files = tuple(names)
    epochs.begun_with = epoch if not epochs.records else epochs.begun_with
    _is_durable(epochs, time_ns, epoch)


def _is_durable(epochs: Epochs, time_ns: int, epoch: int) -> None:
    if epoch < epochs.durable:
        raise ValueError(f"epoch {epoch} behind epoch {epochs.durable}")
    epochs.durable = epoch
    epochs.history.append((time_ns, epoch))


def read_file(files: Files, folder: str, name: FileName, epochs: Epochs, *, may_be_torn: bool) -> None:
    """Take all records of one file. Raises: Corruption with file and byte, WrongFormat, DiskError."""
    file = open_for_reading(files, folder, name.name)
    try:
        header = read_header(file)
        size = file.size()
        if may_be_torn and header_is_torn(header, EPOCH) and not is_attested(file, 0, size, 0, EPOCH):
            epochs.torn_at = epochs.active_end = 0
            return
        check_header(file, name.name, EPOCH, header, hint=hints.DAMAGED)
        scan = FileScan(file, end=size)
        last_ns = 0
        for batch in scan:
            last_ns = max(last_ns, batch.newest)
            for at, time_ns in enumerate(batch.times):
                payload = batch.payload(at)
                epochs.last_ns = max(epochs.last_ns, time_ns)
                if EPOCH.is_mark(payload):
                    epochs.has_gap = epochs.has_gap or EPOCH.read_gap(payload) is not None
                    continue
                try:
                    take(epochs, time_ns, payload)
                except (ValueError, struct.error) as error:
                    raise Corruption(name.name, batch.record_offset(at), str(error), hint=hints.DAMAGED) from error
        if scan.why is not Stop.END:
            if not may_be_torn:
                raise Corruption(name.name, scan.stop, REASONS[scan.why], hint=hints.DAMAGED)
            if is_attested(file, scan.stop, size, last_ns, EPOCH):
                # Taken for a torn tail it would make epochs void that were told to be durable.
                reason = f"{REASONS[scan.why]}, though it was once synced"
                raise Corruption(name.name, scan.stop, reason, hint=hints.DAMAGED)
            epochs.torn_at = scan.stop
        epochs.active_end = scan.stop
    finally:
        file.close()


def names_of(names: Iterable[str]) -> list[FileName]:
    """The epoch files among ``names``, oldest first; the active one is the last if it is there."""
    return sort_out(names).of_stream(NAME)


def read(files: Files, folder: str, names: Iterable[str]) -> Epochs:
    """The newest epoch file that holds a record. Raises: Corruption, WrongFormat, DiskError; changes nothing."""
    epochs = Epochs()
    known = names_of(names)
    try:
        while known:
            name = known.pop()
            found = Epochs()
            read_file(files, folder, name, found, may_be_torn=name.name == NAME)
            epochs.last_ns = max(epochs.last_ns, found.last_ns)
            if name.name == NAME:
                epochs.torn_at, epochs.in_active, epochs.active_end = found.torn_at, found.records, found.active_end
            if found.records:
                found.last_ns, found.torn_at, found.in_active = epochs.last_ns, epochs.torn_at, epochs.in_active
                found.active_end = epochs.active_end
                if known:
                    check_follows(files, folder, name.name, found, known[-1].name)
                return found
    except OSError as error:
        raise from_os(error, "read the epoch file in", folder) from error
    return epochs


def through_voids(epoch: int, voids: Iterable[tuple[int, int]]) -> int:
    """``epoch``, or the last of the void ones that follow it."""
    for first, last in sorted(voids):
        epoch = last if first <= epoch + 1 <= last else epoch
    return epoch


def check_follows(files: Files, folder: str, name: str, found: Epochs, before: str) -> None:
    """The file was begun after the one before it, and is no older copy. Raises: Corruption, DiskError."""
    begun_ns = begun_at(files, folder, before)
    if begun_ns is not None and found.begun_ns <= begun_ns:
        reason = f"the file is an older copy: it was begun at {show_time(found.begun_ns)}, {before} at or after that"
        raise Corruption(name, 0, reason, hint=hints.DAMAGED)


def history(files: Files, folder: str, names: Iterable[str]) -> list[tuple[int, int]]:
    """(time, epoch) of all epoch files that are there, oldest first. Raises: as ``read``."""
    found: list[tuple[int, int]] = []
    for name in names_of(names):
        one = Epochs()
        try:
            read_file(files, folder, name, one, may_be_torn=name.name == NAME)
        except FileNotFoundError:
            continue  # cleaned up since the folder was listed
        found += one.history
    return found


def begun_at(files: Files, folder: str, name: str) -> int | None:
    """Time of the first record of one file; None if it is not there, or has none. Raises: DiskError."""
    try:
        file = open_for_reading(files, folder, name)
    except FileNotFoundError:
        return None
    try:
        for batch in FileScan(file, window=_FIRST):
            for at, time_ns in enumerate(batch.times):
                if not EPOCH.is_mark(batch.payload(at)):
                    return time_ns
    finally:
        file.close()
    return None


def active() -> FileName:
    name = parse(NAME)
    assert name is not None
    return name


def path(folder: str) -> str:
    return join(folder, NAME)
