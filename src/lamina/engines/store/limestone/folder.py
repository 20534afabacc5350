"""What a folder of limestone holds: which files count, merged into the live entries.

    baseline   the compacted file, also if the catalog does not name it (a compaction that was stopped before that, or
               one offline); when it is missing, the previous one that was set aside for it
    live       every other PWAL file that is not detached, active or rotated, whether or not it has a channel
    detached   only for what the compaction that set them aside missed

Removes always take part, so that keys removed after a compaction stay removed, whatever the catalog says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from lamina.engines.store.limestone import epochs
from lamina.engines.store.limestone.baseline import read_baseline
from lamina.engines.store.limestone.catalog import CATALOG, COMPACTED, PREVIOUS, Catalog, load
from lamina.engines.store.limestone.detached import DetachedFiles
from lamina.engines.store.limestone.manifest import END_MARKS_SINCE, read_version
from lamina.engines.store.limestone.newest import Newest
from lamina.engines.store.limestone.overlooked import Overlooked
from lamina.engines.store.limestone.snippets import Snippet, SnippetScan, State
from lamina.engines.store.limestone.source import Source, damaged
from lamina.errors import WrongFormat
from lamina.log.files import Files

_PWAL: Final = "pwal_"
_ACTIVE_SIZE: Final = len("pwal_0000")
_COMPACTED_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class LimestoneFolder:
    """What was read. Nothing of it is needed from the folder any more."""

    format_version: int
    durable_epoch: int
    max_epoch: int
    """The largest of the durable epoch and every epoch in a begin mark, void or not."""
    repairs: list[str]
    """What was dropped, left out or used in place of something else, each naming file and byte. Nothing is lost."""
    losses: list[str]
    """What the folder shows to be lost, or may be lost: tell whoever owns it."""
    blobs: int
    """References to blobs in live entries. The blobs themselves are not read."""
    entries: Newest
    """Live entries (storage, key, value), by storage, then by the bytes of the key; again each time."""


def read_folder(files: Files, folder: str) -> LimestoneFolder:
    """Read a folder of the limestone library. It is not changed; its entries are held in memory.

    Raises: WrongFormat if it is none, or of a version that is not known; Corruption, naming file, byte and epoch, if
    committed data cannot be read; LogLocked if another process uses it; DiskError.
    """
    source = Source(files, folder)
    source.check_unlocked()
    reading = _Reading(source)
    reading.read()
    source.check_unlocked()
    return LimestoneFolder(
        format_version=reading.format_version,
        durable_epoch=reading.durable,
        max_epoch=reading.max_epoch,
        repairs=reading.repairs,
        losses=reading.losses,
        blobs=reading.newest.blobs(),
        entries=reading.newest,
    )


@dataclass(slots=True)
class _Inputs:
    baseline: str | None = None
    live: list[str] = field(default_factory=list)
    detached: list[str] = field(default_factory=list)


class _Reading:
    def __init__(self, source: Source) -> None:
        self._source = source
        self.repairs: list[str] = []
        self.losses: list[str] = []
        self.newest = Newest()
        self.format_version = read_version(source, self.repairs)
        self.durable = epochs.read_durable(source, self.repairs)
        self.max_epoch = self.durable
        self._catalog = load(source, self.format_version, self.repairs)
        self._not_durable = 0
        self._overlooked = Overlooked(self._catalog.max_epoch)

    def read(self) -> None:
        inputs = choose_inputs(self._source, self._catalog, self.repairs)
        if inputs.baseline is not None:
            read_baseline(self._source, inputs.baseline, self.durable, self.newest)
        can_compare = bool(self._catalog.compacted and inputs.detached)
        for name in inputs.live:
            self._read_live(name, self._catalog.max_epoch if can_compare else -1)
        detached = DetachedFiles(
            self._source,
            boundary=self._catalog.max_epoch,
            durable=self.durable,
            format_version=self.format_version,
            newest=self.newest,
            overlooked=self._overlooked,
        )
        for name in inputs.detached:
            detached.read(name)
        self.max_epoch = max(self.max_epoch, detached.max_epoch)
        self.repairs += detached.repairs
        self.losses += detached.losses + self._overlooked.settle(self.newest)
        if self._not_durable and epochs.is_lost(self._source):
            self.losses.append(
                f"{epochs.EPOCH_FILE}, byte 0: it is missing: no session is known to be durable, and "
                f"{self._not_durable} were left out"
            )

    def _read_live(self, name: str, boundary: int) -> None:
        """``boundary``: what sessions up to it wrote is compared with what was merged."""
        file = self._source.open(name)
        try:
            scan = SnippetScan(file, name, self.durable)
            for snippet, entry in scan:
                if entry is None:
                    self._close(name, snippet, scan)
                elif snippet.epoch <= boundary:
                    self._overlooked.take(name, snippet.epoch, entry)
                else:
                    self.newest.take(entry)
        finally:
            file.close()
        self.max_epoch = max(self.max_epoch, scan.max_epoch)
        self.repairs += scan.dropped

    def _close(self, name: str, snippet: Snippet, scan: SnippetScan) -> None:
        """A session that is durable had come to its end: if its end mark is missing, more can be.

        Only formats before 6 have none. Files of those are renamed when a later version opens them, so an active file
        is not one of them, nor is one that has had an end mark before.
        """
        self._not_durable += snippet.state is State.NOT_DURABLE
        if snippet.state is not State.COUNTS or snippet.is_ended:
            return
        is_active = len(name) == _ACTIVE_SIZE and self.format_version >= END_MARKS_SINCE
        if scan.has_end_marks or is_active:
            self.losses.append(
                f"{name}, byte {snippet.offset}: the session of epoch {snippet.epoch}, which is durable, has no end "
                f"mark: entries can be missing behind the {snippet.entries} that were read"
            )


def choose_inputs(source: Source, catalog: Catalog, repairs: list[str]) -> _Inputs:
    """Raises: Corruption if the compacted file is missing; WrongFormat if it is one that is not known."""
    for name, version in catalog.compacted:
        if name != COMPACTED or version != _COMPACTED_VERSION:
            reason = f"it names {name}, version {version}, which no known limestone writes"
            raise WrongFormat(CATALOG, reason)
    inputs = _Inputs()
    if COMPACTED in source:
        inputs.baseline = COMPACTED
        if not catalog.compacted:
            repairs.append(f"{COMPACTED}, byte 0: the catalog does not name it: used all the same")
        if PREVIOUS in source:
            repairs.append(f"{PREVIOUS}, byte 0: a compaction was stopped and left it: not used")
    elif PREVIOUS in source:
        inputs.baseline = PREVIOUS
        repairs.append(f"{COMPACTED}, byte 0: it is missing, a compaction was stopped: {PREVIOUS} was used")
    elif catalog.compacted:
        raise damaged(COMPACTED, 0, "it is missing, and the catalog says that it holds what was compacted")
    for name in sorted(source.names):
        if not name.startswith(_PWAL) or name in (COMPACTED, PREVIOUS) or source.is_folder(name):
            continue
        (inputs.detached if name in catalog.detached else inputs.live).append(name)
    return inputs
