"""A store on a disk in memory whose epochs are switched by hand, with verbs for what tests do to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import codec, epoch_file
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.channel import Channel, Session
from lamina.engines.store.compactions import CompactionReport, Compactions
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.fold import Fold
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.reading import fold_file
from lamina.engines.store.rotation import Rotated
from lamina.engines.store.table import Table
from lamina.errors import StorageError
from lamina.log.files import Files
from lamina.log.scan import FileScan
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles

FOLDER = "store"
Version = tuple[int, int]
Everything = dict[tuple[int, bytes], bytes]


class StoreLab:
    """Keys and values of storage 1 are words: ``lab.s(0, 42, k1="v1")``, ``lab.entries() == {"k1": "v1"}``."""

    def __init__(self, disk: MemoryFiles | None = None, /, **options: float) -> None:
        self.disk = MemoryFiles() if disk is None else disk
        self.files = FaultyFiles(self.disk)
        self.clock = ManualClock()
        self.options = StoreOptions(epoch_ms=0, **options)  # type: ignore[arg-type]
        self.store = self.open()

    def open(self) -> StoreEngine:
        self.clock.advance(1)
        store = StoreEngine.open(FOLDER, files=self.files, clock=self.clock, options=self.options)
        self.compactions = Compactions(store)
        return store

    # -- writing -----------------------------------------------------------------------------------------------------

    def sw(self, epoch: int | None = None) -> int:
        """Switch the epoch."""
        return self.store.switch_epoch(epoch)

    def ch(self, number: int) -> Channel:
        return self.store.channel(number)

    def begin(self, channel: int, epoch: int | None = None, /, **pairs: str | None) -> Session:
        """A session that is open; the epoch is switched before if it is a later one."""
        if epoch is not None and epoch > self.store.epoch:
            self.sw(epoch)
        session = self.ch(channel).begin()
        assert epoch is None or session.epoch == epoch
        self.write(session, **pairs)
        return session

    @staticmethod
    def write(session: Session, version: Version | None = None, /, **pairs: str | None) -> Session:
        for key, value in pairs.items():
            if value is None:
                session.remove(1, key.encode(), version=version)
            else:
                session.put(1, key.encode(), value.encode(), version=version)
        return session

    def s(self, channel: int, epoch: int | None = None, /, **pairs: str | None) -> int:
        """A session that begins and ends in an epoch. Of a value that is None the key is removed."""
        return self.begin(channel, epoch, **(pairs or {"x": "x"})).end()

    def flush(self) -> None:
        """Have what sessions wrote in the files, and not synced."""
        for channel in self.store.channels.values():
            channel.write(codec.MOST)
            if channel._log is not None:
                channel._log.run_round(may_sync=False)

    # -- rotating and compacting -------------------------------------------------------------------------------------

    @contextmanager
    def switching(self) -> Iterator[None]:
        """Epochs are switched whenever somebody waits for that."""
        store = self.store

        def nudge() -> None:
            if store.is_urgent():
                store.switch_epoch()
            else:
                store.settle()

        store.nudge = nudge
        try:
            yield
        finally:
            store.nudge = store.settle

    def rotate(self) -> Rotated:
        with self.switching():
            return self.store.rotate(timeout=5)

    def compact(self) -> CompactionReport:
        self.clock.advance(1)
        with self.switching():
            return self.compactions.compact()

    # -- stopping ----------------------------------------------------------------------------------------------------

    def reopen(self) -> StoreEngine:
        """Close in order and open again."""
        self.store.close()
        self.store = self.open()
        return self.store

    def crash(self) -> None:
        """The process is killed: what was written stays, locks are gone, nothing is closed in order."""
        self.disk = MemoryFiles(self.disk.contents())
        self.files = FaultyFiles(self.disk)

    def restart(self) -> StoreEngine:
        """Crash and open again."""
        self.crash()
        self.store = self.open()
        return self.store

    def refuses_to_open(self, problem: type[StorageError]) -> StorageError:
        """Opening says what is wrong and changes no byte of the folder. The store must not be open."""
        before = self.disk.contents()
        with pytest.raises(problem) as caught:
            self.open()
        assert self.disk.contents() == before
        assert self.disk.lock_holder(f"{FOLDER}/lamina.lock") is None
        return caught.value

    # -- looking -----------------------------------------------------------------------------------------------------

    def entries(self, storage: int = 1) -> dict[str, str]:
        """What readers see of one storage; get and scan agree."""
        found = {each.key.decode(): each.value.decode() for each in self.store.snapshot().scan(storage)}
        for key, value in found.items():
            entry = self.store.view.get(storage, key.encode())
            assert entry is not None and entry.value == value.encode()
        return found

    def everything(self) -> Everything:
        return everything(self.store)

    def version(self, key: str, storage: int = 1) -> Version:
        found = self.store.view.get(storage, key.encode())
        assert found is not None
        return found.version.major, found.version.minor

    def names(self, start: str = "") -> list[str]:
        return sorted(name for name in self.disk.list(FOLDER) if name.startswith(start))

    def rotated(self, start: str = "pwal_") -> list[str]:
        return [name for name in self.names(start) if catalogs.rotated_epoch(name) is not None]

    def parts(self) -> list[str]:
        return [name for name in self.names() if catalogs.part_generation(name) is not None]

    def catalog(self) -> Catalog:
        """The one on the disk."""
        return catalogs.load(self.disk, FOLDER)

    def ld(self) -> int:
        """The durable epoch on the disk."""
        return epoch_file.read(self.disk, FOLDER, self.names()).durable

    def data(self, name: str) -> bytearray:
        """The bytes of a file, to be read or damaged in place."""
        return self.disk.names[f"{FOLDER}/{name}"].data

    def put_file(self, name: str, data: bytes) -> None:
        self.disk.write(f"{FOLDER}/{name}", data)

    def drop(self, *names: str) -> None:
        for name in names:
            self.disk.remove(f"{FOLDER}/{name}")

    def damage(self, name: str, offset: int) -> None:
        self.data(name)[offset] ^= 0x55


def everything(store: StoreEngine) -> Everything:
    return {(found.storage, found.key): found.value for found in store.snapshot().scan()}


def epochs_in(files: Files, name: str) -> list[int]:
    """Epochs of the sessions in a file of a channel, whether they count or not."""
    file = files.open(f"{FOLDER}/{name}")
    try:
        payloads = [batch.payload(at) for batch in FileScan(file) for at in range(len(batch.times))]
    finally:
        file.close()
    own = bytes([codec.BEGIN, codec.END, codec.PUT, codec.REMOVE, codec.CLEAR, codec.ADD, codec.DROP])
    records = [codec.decode(payload) for payload in payloads if payload[0] in own]
    return [record.epoch for record in records if record.kind == codec.BEGIN]


def keys_in(files: Files, names: Iterable[str], until: int = codec.MOST) -> set[bytes]:
    """Keys of storage 1 in rotated files of channels."""
    table = Table()
    for name in names:
        if name.startswith("pwal_"):
            fold_file(files, FOLDER, name, Fold(0, until), table, may_be_torn=False)
    return {place[8:] for place, _ in table.walk()}
