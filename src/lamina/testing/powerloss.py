"""PowerLoss: run something against it, then look at every disk that a power cut could have left behind.

The method: remember every operation. After any of them the power may go. What was synced is there. Of everything
else, each sector of a file may have arrived or not, in any order, in any of the versions it had since the last sync; a
file may have its new length but zeros for content; and each name made, changed or removed since the folder's last sync
may be so or not. A test opens each such disk and checks what was promised.

    disk = PowerLoss()
    log = Log.open("data", files=disk, threaded=False)
    position = log.append(b"kept", until=Level.SYNCED)
    disk.note(position)                                  # promised from here on
    for state in disk.states():
        with Log.open("data", files=state.files, threaded=False) as log:
            times = [record.time_ns for record in log.reader.read()]
        assert all(position in times for position in state.notes)

Two models of the file system. ``strict``: what POSIX promises and no more. ``journalled``: names change in order, and
syncing a file carries all earlier changes of names with it, as ext4 and XFS do.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from math import prod
from typing import Literal

from lamina.log.files.memory import Content, MemoryFiles

SECTOR = 512
Model = Literal["strict", "journalled"]


@dataclass(frozen=True, slots=True)
class PowerLossState:
    """A disk after a power cut."""

    files: MemoryFiles
    point: int
    """How many operations had been called when the power went."""
    notes: list[object]
    """What the run had noted by then."""
    is_kill: bool
    """Nothing was lost: this is what a killed process leaves, not a power cut."""
    label: str


@dataclass(slots=True)
class _Inode:
    """Content that is safe, and what it has been since."""

    safe: bytes = b""
    versions: list[bytes] = field(default_factory=list)

    @property
    def now(self) -> bytes:
        return self.versions[-1] if self.versions else self.safe


_Names = tuple[tuple[str, int], ...]
_Outcome = tuple[bytes, str]  # content, and in words what became of it
_NameChange = tuple[str | None, str | None, int]  # name that goes, name that comes, inode
_NameStep = tuple[_NameChange, ...]  # changes that happen together or not at all


class PowerLoss(MemoryFiles):
    """A disk in memory that remembers what was done to it."""

    def __init__(self, contents: dict[str, bytes] | None = None, model: Model = "strict") -> None:
        super().__init__(contents)
        self.model = model
        self._operations: list[tuple[str, int, bytes | int | _NameStep]] = []
        self._notes: list[tuple[int, object]] = []
        self._start = {path: content.number for path, content in self.names.items()}
        self._start_data = {content.number: bytes(content.data) for content in self.names.values()}

    def note(self, fact: object) -> None:
        """Remember that ``fact`` held (say, that a record was acknowledged) before whatever is done next."""
        self._notes.append((len(self._operations), fact))

    @property
    def points(self) -> int:
        """Operations so far."""
        return len(self._operations)

    def do_append(self, content: Content, data: bytes) -> None:
        super().do_append(content, data)
        self._operations.append(("append", content.number, data))

    def do_truncate(self, content: Content, size: int) -> None:
        super().do_truncate(content, size)
        self._operations.append(("truncate", content.number, size))

    def do_sync(self, content: Content) -> None:
        super().do_sync(content)
        self._operations.append(("sync", content.number, 0))

    def do_link(self, path: str, content: Content) -> None:
        super().do_link(path, content)
        self._operations.append(("names", 0, ((None, path, content.number),)))

    def do_rename(self, old: str, new: str) -> None:
        number = self.names[old].number
        super().do_rename(old, new)
        self._operations.append(("names", 0, ((old, new, number),)))

    def do_rename_all(self, names: dict[str, str]) -> None:
        step = tuple((old, new, self.names[old].number) for old, new in names.items())
        super().do_rename_all(names)
        self._operations.append(("names", 0, step))

    def do_remove(self, path: str) -> None:
        number = self.names[path].number
        super().do_remove(path)
        self._operations.append(("names", 0, ((path, None, number),)))

    def do_sync_folder(self, folder: str) -> None:
        super().do_sync_folder(folder)
        self._operations.append(("sync_folder", 0, 0))

    # -- the states ----------------------------------------------------------------------------------------------

    def states(self, *, per_point: int = 200, seed: int = 0, at: int | None = None) -> Iterator[PowerLossState]:
        """Every distinct disk that a power cut at any point (or just ``at`` that one) could leave.

        Where a point allows more than ``per_point`` disks, they are drawn at random with ``seed``, after each thing
        that can happen to each file and name was taken once.
        """
        rng = random.Random(seed)
        seen: set[bytes] = set()
        disk = _Disk(dict(self._start), dict(self._start_data), self.model)
        for point in range(len(self._operations) + 1):
            if point:
                disk.do(*self._operations[point - 1])
            if at not in (None, point):
                continue
            notes = [fact for when, fact in self._notes if when <= point]
            for names, label, is_kill in disk.outcomes(per_point, rng):
                digest = _digest(names, len(notes), is_kill)
                if digest not in seen:
                    seen.add(digest)
                    yield PowerLossState(MemoryFiles(names), point, notes, is_kill, label)


def _digest(names: dict[str, bytes], *more: object) -> bytes:
    summary = hashlib.blake2b(repr(more).encode(), digest_size=16)
    for path in sorted(names):
        summary.update(path.encode() + b"\0" + len(names[path]).to_bytes(8) + names[path])
    return summary.digest()


class _Disk:
    """The disk at one point: what is safe and what is not yet."""

    def __init__(self, names: dict[str, int], data: dict[int, bytes], model: Model) -> None:
        self.model = model
        self.names = names
        self.pending: list[_NameStep] = []
        self.inodes = {number: _Inode(safe) for number, safe in data.items()}

    def do(self, kind: str, number: int, what: bytes | int | _NameStep) -> None:
        if kind == "names":
            assert isinstance(what, tuple)
            for _, _, new in what:
                self.inodes.setdefault(new, _Inode())
            self.pending.append(what)
            return
        inode = self.inodes.setdefault(number, _Inode())
        if kind == "append":
            assert isinstance(what, bytes)
            inode.versions.append(inode.now + what)
        elif kind == "truncate":
            assert isinstance(what, int)
            inode.versions.append(inode.now[:what] + bytes(max(what - len(inode.now), 0)))
        elif kind == "sync":
            inode.safe, inode.versions = inode.now, []
            if self.model == "journalled":
                self._settle_names()
        else:
            self._settle_names()

    def _settle_names(self) -> None:
        self.names = _apply(self.names, self.pending)
        self.pending = []

    def outcomes(self, most: int, rng: random.Random) -> Iterator[tuple[dict[str, bytes], str, bool]]:
        """Disks after a cut here: their files, in words what became of them, and whether nothing was lost."""
        everything = _apply(self.names, self.pending)
        yield {path: self.inodes[number].now for path, number in everything.items()}, "everything kept", True
        named = {tuple(sorted(names.items())): label for names, label in self._name_outcomes()}
        unsynced = [number for number, inode in self.inodes.items() if inode.versions]
        contents = {number: list(_content_outcomes(self.inodes[number], rng)) for number in unsynced}
        for pairs, chosen in self._choose(list(named), contents, most, rng):
            words = [named[pairs], *(label for _, label in chosen.values())]
            disk = {path: chosen[n][0] if n in chosen else self.inodes[n].safe for path, n in pairs}
            yield disk, "; ".join(words), False

    def _choose(
        self, named: list[_Names], contents: dict[int, list[_Outcome]], most: int, rng: random.Random
    ) -> Iterator[tuple[_Names, dict[int, _Outcome]]]:
        """All combinations if they are few. If not: each outcome of each part once, then a random sample."""
        if len(named) * prod(map(len, contents.values())) <= most:
            for pairs in named:
                for chosen in product(*contents.values()):
                    yield pairs, dict(zip(contents, chosen, strict=True))
            return
        for turn in range(max([len(named), *map(len, contents.values())])):
            yield named[turn % len(named)], {n: given[turn % len(given)] for n, given in contents.items()}
        for _ in range(most):
            yield rng.choice(named), {n: rng.choice(given) for n, given in contents.items()}

    def _name_outcomes(self) -> Iterator[tuple[dict[str, int], str]]:
        count = len(self.pending)
        if self.model == "journalled":
            for kept in range(count, -1, -1):
                yield _apply(self.names, self.pending[:kept]), f"{kept} of {count} names changed"
            return
        sizes = range(count, -1, -1) if count <= 6 else (count, count - 1, 1, 0)
        for size in sizes:
            for subset in combinations(range(count), size):
                yield _apply(self.names, [self.pending[i] for i in subset]), f"names changed: {subset} of {count}"


def _apply(names: dict[str, int], steps: list[_NameStep]) -> dict[str, int]:
    names = dict(names)
    for old, new, number in chain.from_iterable(steps):
        if old is not None:
            names.pop(old, None)
        if new is not None:
            names[new] = number
    return names


def _content_outcomes(inode: _Inode, rng: random.Random) -> Iterator[tuple[bytes, str]]:
    """What may be in a file that was not synced since ``inode.safe``."""
    safe, now = inode.safe, inode.now
    yield safe, "unsynced bytes lost"
    yield now, "unsynced bytes kept"
    for number, version in enumerate(inode.versions[:-1]):
        yield version, f"writes {number + 2} to {len(inode.versions)} lost"
        if len(version) > len(safe):
            padded = version[: len(now)] + bytes(max(len(now) - len(version), 0))
            yield padded, f"content after write {number + 1}, length after the last"
    longest = max((safe, *inode.versions), key=len)
    start = min(map(len, (safe, *inode.versions)))
    for cut in _cuts(start, len(now), rng):
        yield now[:cut], f"cut at byte {cut}"
    yield safe[: len(now)] + bytes(max(len(now) - len(safe), 0)), "length kept, zeros for content"
    sectors = list(range(start // SECTOR, (len(longest) + SECTOR - 1) // SECTOR))
    for lost in sectors:
        yield _mix(inode, len(now), {lost}, rng, old=False), f"sector {lost} lost"
        if len(sectors) > 2:
            yield _mix(inode, len(now), {*sectors} - {lost}, rng, old=False), f"only sector {lost} kept"
    for _ in range(min(6, 2 ** len(sectors))):
        lost_some = {sector for sector in sectors if rng.random() < 0.5}
        size = rng.choice([len(now), rng.randint(min(start, len(now)), len(now))])
        yield _mix(inode, size, lost_some, rng, old=True), f"sectors {sorted(lost_some)} lost or old, {size} bytes"


def _cuts(start: int, end: int, rng: random.Random) -> list[int]:
    """Every sector boundary, and bytes near the ends and in between."""
    sectors = list(range((start // SECTOR + 1) * SECTOR, end, SECTOR))
    inside = [cut for cut in (start + 1, start + 7, start + 16, end - 1, end - 5) if start < cut < end]
    return sorted({*sectors, *inside, *(rng.randint(start, end) for _ in range(6) if end > start)})


def _mix(inode: _Inode, size: int, lost: set[int], rng: random.Random, *, old: bool) -> bytes:
    """Compose a file from sectors: lost ones are as they were when last synced, or (``old``) at some time since."""
    out = bytearray(size)
    for sector in range((size + SECTOR - 1) // SECTOR):
        source = inode.now
        if sector in lost:
            source = rng.choice([inode.safe, *inode.versions[:-1]]) if old else inode.safe
        start = sector * SECTOR
        piece = source[start : min(start + SECTOR, size)]
        out[start : start + len(piece)] = piece
    return bytes(out)
