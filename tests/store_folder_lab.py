"""A store's folder made by hand: files of channels, epoch files, parts, catalogs. And what a store finds in it."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import codec, epoch_file
from lamina.engines.store.catalog import Catalog, Part
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.sorted_file import SortedWriter
from lamina.log import kernel
from lamina.log.files import Files
from lamina.log.formats import EPOCH, PWAL
from lamina.testing import ManualClock, MemoryFiles

FOLDER = "store"
BASE_NS = 1_700_000_000_000_000_000
Content = dict[tuple[int, bytes], bytes]


def rotated(stream: str, epoch: int) -> str:
    """The name of a file that a rotation at the end of ``epoch`` made."""
    return f"{stream}.{1_700_000_000_000 + epoch:014d}.{epoch}"


def at(epoch: int, more: int = 0) -> int:
    """A time in that epoch."""
    return BASE_NS + epoch * 1_000_000 + more


def session(epoch: int, *entries: bytes) -> list[bytes]:
    return [codec.begin(epoch), *entries, codec.end(epoch, len(entries))]


def put(key: bytes, value: bytes, epoch: int, minor: int = 0, storage: int = 1) -> bytes:
    return codec.put(storage, key, value, epoch, minor)


def channel_file(*sessions: list[bytes]) -> bytes:
    """Bytes of a channel's file. Each session's records have times in its epoch."""
    parts = [PWAL.header]
    for number, payloads in enumerate(sessions):
        epoch = codec.decode(payloads[0]).epoch
        parts.append(kernel.encode_many(at(epoch, number * 1000), payloads))
    return b"".join(parts)


def epochs_file(*payloads: bytes, start_ns: int = BASE_NS) -> bytes:
    return EPOCH.header + (kernel.encode_many(start_ns, payloads) if payloads else b"")


def head(epoch: int = 0, voids: Sequence[tuple[int, int]] = (), files: Sequence[str] = ()) -> bytes:
    return epoch_file.head(epoch, voids, files)


def durable(epoch: int, **channels: int) -> bytes:
    """``c0=time``: what the newest record of a channel is."""
    return epoch_file.durable(epoch, [(int(name[1:]), time_ns) for name, time_ns in channels.items()])


def part(files: Files, generation: int, number: int, entries: Sequence[bytes], folder: str = FOLDER) -> Part:
    """Write a part of puts and removes."""
    name = catalogs.part_name(generation, number)
    writer = SortedWriter(files, f"{folder}/{name}", generation=generation, part=number)
    items = sorted(
        (codec.place(e.storage, e.key), codec.item(at(1), raw)) for raw in entries if (e := codec.decode(raw))
    )
    for place, item in items:
        writer.add(place, item)
    return writer.finish()


class Lab:
    """Three rotations, epochs 10, 20 and 30, and an active file; generations are made by ``compact``."""

    def __init__(self, files: MemoryFiles | None = None) -> None:
        self.files = MemoryFiles() if files is None else files
        self.files.make_folder(FOLDER)
        self.all: list[bytes] = []  # entries up to the last rotation that was compacted
        for epoch in (10, 20, 30):
            for channel in (0, 1):
                self.put(rotated(f"pwal_000{channel}", epoch), channel_file(*self.sessions(channel, epoch)))
            self.put(rotated("epoch", epoch), epochs_file(head(epoch - 10), durable(epoch), start_ns=at(epoch)))
        self.put("pwal_0000", channel_file(session(31, put(b"active", b"31", 31))))
        self.put("epoch", epochs_file(head(30), durable(31), start_ns=at(31)))
        catalogs.begin(self.files, FOLDER)

    @staticmethod
    def sessions(channel: int, epoch: int) -> list[list[bytes]]:
        own = b"c%d" % channel
        return [
            session(e, put(own + b" %d" % e, b"v%d" % e, e), put(own, b"newest %d" % e, e, channel + 1))
            for e in range(epoch - 9, epoch + 1, 3)
        ]

    def put(self, name: str, data: bytes) -> None:
        self.files.write(f"{FOLDER}/{name}", data)

    def get(self, name: str) -> bytes:
        return bytes(self.files.names[f"{FOLDER}/{name}"].data)

    def drop(self, name: str) -> None:
        self.files.remove(f"{FOLDER}/{name}")

    def names(self) -> set[str]:
        return set(self.files.list(FOLDER))

    def flip(self, name: str, offset: int) -> None:
        data = bytearray(self.get(name))
        data[offset] ^= 0x55
        self.put(name, bytes(data))

    def compact(self, epoch: int) -> Catalog:
        """A new generation up to the rotation at ``epoch``, in two parts."""
        before = catalogs.load(self.files, FOLDER)
        newest: dict[bytes, bytes] = {}
        for boundary in range(10, epoch + 1, 10):
            for channel in (0, 1):
                for payloads in self.sessions(channel, boundary):
                    for raw in payloads[1:-1]:
                        newest[codec.decode(raw).key] = raw
        entries = [newest[key] for key in sorted(newest)]
        middle, generation = len(entries) // 2, before.generation + 1
        parts = [part(self.files, generation, n, half) for n, half in enumerate((entries[:middle], entries[middle:]))]
        streams = ("pwal_0000", "pwal_0001", "epoch")
        merged = [rotated(stream, e) for e in range(10, epoch + 1, 10) for stream in streams]
        merged = [name for name in merged if name in self.names()]
        catalog = Catalog(generation, epoch, tuple(parts), before.storages, tuple(merged), at(epoch))
        catalogs.save(self.files, FOLDER, catalog)
        return catalog

    def catalog(self) -> Catalog:
        return catalogs.load(self.files, FOLDER)

    def content(self) -> Content:
        return content(self.files)


def content(files: MemoryFiles, folder: str = FOLDER) -> Content:
    """What a store holds that is opened on a copy of this disk."""
    copy = MemoryFiles(files.contents())
    with StoreEngine.open(folder, files=copy, clock=ManualClock(at(1000))) as store:
        return {(found.storage, found.key): found.value for found in store.snapshot().scan()}


def expected() -> Content:
    """What the lab's store holds, however it is compacted and cleaned up."""
    found: Content = {(1, b"active"): b"31"}
    for epoch in (10, 20, 30):
        for channel in (0, 1):
            for payloads in Lab.sessions(channel, epoch):
                for raw in payloads[1:-1]:
                    entry = codec.decode(raw)
                    found[1, entry.key] = entry.value
    return found
