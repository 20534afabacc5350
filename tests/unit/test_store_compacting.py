"""Promises of compaction: the parts hold the newest of each key and nothing else, whatever memory it had; a compaction
that is cut short leaves all as it was, and the next one goes on from there."""

from __future__ import annotations

import errno
import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import codec, compaction_progress, sorted_file
from lamina.engines.store.catalog import PROGRESS, Catalog, Part
from lamina.engines.store.codec import ADD, CLEAR, DROP
from lamina.engines.store.compacting import Outcome, Task, compact
from lamina.engines.store.compaction_worker import Stopper, compact_elsewhere
from lamina.engines.store.sorted_file import SortedFile
from lamina.engines.store.storages import Storages
from lamina.errors import Corruption, DiskError, DiskFull, LogLocked, Stopped, StorageError
from lamina.log import kernel
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.log.formats import PWAL
from lamina.testing import FaultyFiles, MemoryFiles, PowerLoss

FOLDER = "store"
Entry = tuple[int, bytes, bytes | None, int, int]  # storage, key, value (None: remove), version
About = tuple[int, int, int, int]  # kind, storage, version


def payload_of(entry: Entry | About) -> bytes:
    if len(entry) == 4:
        kind, storage, major, minor = entry
        return codec.about_storage(kind, storage, major, minor)
    storage, key, value, major, minor = entry
    return codec.remove(storage, key, major, minor) if value is None else codec.put(storage, key, value, major, minor)


def session(epoch: int, entries: Sequence[Entry | About], time_ns: int = 0) -> bytes:
    payloads = [codec.begin(epoch), *map(payload_of, entries), codec.end(epoch, len(entries))]
    return kernel.encode_many(time_ns or epoch * 1_000_000, payloads)


def file_of(*sessions: bytes) -> bytes:
    return PWAL.header + b"".join(sessions)


def rotated(epoch: int, channel: int = 0) -> str:
    return f"pwal_{channel:04d}.{epoch:014d}.{epoch}"


@dataclass
class Lab:
    """A store's folder, and the plain way to what is in it."""

    files: MemoryFiles = field(default_factory=lambda: MemoryFiles({f"{FOLDER}/lamina.lock": b""}))
    catalog: Catalog = field(default_factory=Catalog)
    newest: dict[bytes, tuple[bytes, bytes | None]] = field(default_factory=dict)
    cleared: dict[int, bytes] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    until: int = 0

    def write(self, epoch: int, *sessions: Sequence[Entry | About], channel: int = 0) -> str:
        """A rotated file with sessions of one epoch."""
        name = rotated(epoch, channel)
        times = [epoch * 1_000_000 + number * 10_000 for number in range(len(sessions))]
        made = [session(epoch, entries, time_ns) for entries, time_ns in zip(sessions, times, strict=True)]
        self.files.write(f"{FOLDER}/{name}", file_of(*made))
        self.inputs.append(name)
        self.until = max(self.until, epoch)
        for entry in [entry for entries in sessions for entry in entries]:
            self._take(entry)
        return name

    def _take(self, entry: Entry | About) -> None:
        if len(entry) == 4:
            kind, storage, major, minor = entry
            if kind != ADD:
                self.cleared[storage] = max(self.cleared.get(storage, b""), codec.pack_version((major, minor)))
            return
        storage, key, value, major, minor = entry
        place, version = codec.place(storage, key), codec.pack_version((major, minor))
        if place not in self.newest or version >= self.newest[place][0]:
            self.newest[place] = version, value

    def live(self) -> dict[bytes, bytes]:
        """Place and value of all that is there."""
        return {
            place: value
            for place, (version, value) in sorted(self.newest.items())
            if value is not None and version >= self.cleared.get(codec.storage_of(place), b"")
        }

    def task(self, **facts: int) -> Task:
        task = Task(
            folder=FOLDER,
            inputs=tuple(self.inputs),
            after=self.catalog.epoch,
            until=self.until,
            catalog=self.catalog,
            generation=self.catalog.generation + 1,
        )
        return replace(task, **facts)  # type: ignore[arg-type]

    def compact(self, files: Files | None = None, **facts: int) -> Outcome:
        """And commit."""
        task = self.task(**facts)
        outcome = compact(files or self.files, task)
        self.commit(task, outcome)
        return outcome

    def commit(self, task: Task, outcome: Outcome) -> None:
        self.catalog = Catalog(task.generation, task.until, outcome.parts, outcome.storages)
        self.inputs = []
        compaction_progress.remove(self.files, FOLDER)

    def parts(self, outcome: Outcome | None = None) -> dict[bytes, bytes]:
        """Place and item of all that is in the parts, which are what they say."""
        found: dict[bytes, bytes] = {}
        last = b""
        for part in (outcome or self.catalog).parts:
            file = SortedFile.open(self.files, FOLDER, part.name, part)
            content = self.files.contents()[f"{FOLDER}/{part.name}"]
            assert part.crc == kernel.crc32c(content)
            pairs = list(file.walk())
            assert pairs[0][0] > last
            last = pairs[-1][0]
            found.update(pairs)
        return found

    def values(self) -> dict[bytes, bytes]:
        """Place and value of puts in the parts that no clear which is remembered has made void."""
        cleared = self.catalog.storages.cleared
        return {
            place: codec.value_of(item)
            for place, item in self.parts().items()
            if codec.is_put(item) and codec.version_of(item) >= cleared.get(codec.storage_of(place), b"")
        }

    def names(self) -> set[str]:
        return set(self.files.list(FOLDER)) - {"lamina.lock"}


def entries_of(numbers: Sequence[int], epoch: int, size: int = 100, storage: int = 1) -> list[Entry]:
    return [(storage, b"%06d" % number, b"%d" % epoch * size, epoch, at) for at, number in enumerate(numbers)]


# -- against a model -------------------------------------------------------------------------------------------------

keys = st.one_of(st.binary(max_size=2), st.integers(0, 200).map(lambda number: b"key %d" % number))
puts = st.tuples(st.integers(0, 2), keys, st.one_of(st.none(), st.binary(max_size=200)))
abouts = st.tuples(st.sampled_from([CLEAR, ADD, DROP]), st.integers(0, 2))
generations = st.lists(
    st.lists(st.lists(st.one_of(puts, puts, puts, abouts), max_size=40), min_size=1, max_size=4), min_size=1, max_size=4
)


@settings(max_examples=120, deadline=None)
@given(
    generations,
    st.randoms(use_true_random=False),
    st.one_of(st.integers(1, 5000), st.just(1 << 30)),
    st.one_of(st.integers(100, 5000), st.just(1 << 30)),
)
def test_the_parts_hold_what_is_newest(
    generations: list[list[list[tuple[int, bytes, bytes | None] | tuple[int, int]]]],
    chance: random.Random,
    memory_bytes: int,
    part_bytes: int,
) -> None:
    lab = Lab()
    epoch = 0
    for files in generations:
        for channel, entries in enumerate(files):
            epoch += 1
            floor = lab.catalog.epoch + 1
            made: list[Entry | About] = []
            for number, entry in enumerate(entries):
                # Above the floor, else in any order, and some before their time.
                major, minor = chance.randint(floor, epoch + 2), chance.randint(0, 3) * 1000 + number
                if len(entry) == 3:
                    made.append((entry[0], entry[1], entry[2], major, minor))
                else:
                    made.append((entry[0], entry[1], major, minor))
            lab.write(epoch, made, channel=channel)
        lab.compact(memory_bytes=memory_bytes, part_bytes=part_bytes)
        assert lab.values() == lab.live()
        for item in lab.parts().values():
            if not codec.is_put(item):  # needed: something older may still come
                assert codec.version(codec.version_of(item)).major > 0
        assert not [name for name in lab.names() if name.startswith("run")]


# -- what is kept, what goes -----------------------------------------------------------------------------------------


def test_removes_and_clears_up_to_the_boundary_are_spent_and_later_ones_kept() -> None:
    lab = Lab()
    lab.write(5, [(1, b"a", b"old", 5, 0), (1, b"b", b"old", 5, 1), (2, b"c", b"old", 5, 2), (3, b"d", b"old", 5, 3)])
    lab.compact()
    lab.write(
        7, [(1, b"a", None, 7, 0), (1, b"b", None, 8, 0), (CLEAR, 2, 7, 1), (DROP, 3, 8, 1), (1, b"never", None, 7, 2)]
    )
    outcome = lab.compact()
    (item,) = lab.parts().values()
    assert (codec.is_put(item), codec.version(codec.version_of(item))) == (False, (8, 0))
    assert outcome.storages.cleared == {3: codec.pack_version((8, 1))}
    assert outcome.storages.there == {3: (codec.pack_version((8, 1)), False)}
    # What is above the boundary still works on what comes below it.
    lab.write(8, [(1, b"b", b"new", 8, 1), (3, b"d", b"too old", 8, 0), (3, b"e", b"equal", 8, 1)])
    lab.compact()
    assert {place[8:]: codec.value_of(item) for place, item in lab.parts().items()} == {b"b": b"new", b"e": b"equal"}
    assert lab.catalog.storages == Storages()


def test_times_and_versions_are_kept() -> None:
    lab = Lab()
    lab.write(5, [(1, b"a", b"first", 5, 3)])
    lab.compact()
    lab.write(6, [(1, b"b", b"second", 6, 9)])
    lab.compact()
    first, second = lab.parts().values()
    assert (codec.time_of(first), codec.version(codec.version_of(first))) == (5_000_001, (5, 3))
    assert (codec.time_of(second), codec.version(codec.version_of(second))) == (6_000_001, (6, 9))


def test_storages_that_are_there_are_remembered() -> None:
    lab = Lab()
    lab.write(5, [(ADD, 1, 5, 0), (ADD, 2, 5, 1), (DROP, 2, 5, 2)])
    outcome = lab.compact()
    assert outcome.storages.there == {1: (codec.pack_version((5, 0)), True)}
    assert outcome.parts == ()


def test_only_sessions_that_count_are_taken() -> None:
    lab = Lab()
    name = rotated(9)
    sessions = [session(epoch, [(1, b"%d" % epoch, b"", epoch, 0)]) for epoch in range(3, 12)]
    lab.files.write(f"{FOLDER}/{name}", file_of(*sessions))
    lab.inputs, lab.until = [name], 9
    task = replace(lab.task(), after=4, voids=((6, 7), (11, 11)))
    outcome = compact(lab.files, task)
    assert [place[8:] for place in lab.parts(outcome)] == [b"5", b"8", b"9"]
    assert (outcome.entries_read, outcome.entries_live) == (3, 3)


def test_parts_that_got_nothing_new_are_kept() -> None:
    lab = Lab()
    lab.write(1, entries_of(range(0, 2000, 2), 1))
    before = lab.compact(part_bytes=20_000)
    assert len(before.parts) > 5
    inside = before.parts[2].first
    lab.write(2, [(1, inside[8:] + b"!", b"new", 2, 0)])
    after = lab.compact(part_bytes=20_000)
    assert [part for part in before.parts if part not in after.parts] == [before.parts[2]]
    assert (after.parts_kept, after.parts_written) == (len(before.parts) - 1, 1)
    assert after.parts[2].name == "pwal_compacted.2.0"
    assert lab.values() == lab.live()


def test_what_comes_before_the_first_and_behind_the_last_part_finds_its_place() -> None:
    lab = Lab()
    lab.write(1, entries_of(range(100, 900), 1))
    before = lab.compact(part_bytes=20_000)
    lab.write(2, [(0, b"", b"first", 2, 0), (9, b"z", b"last", 2, 1)])
    after = lab.compact(part_bytes=20_000)
    assert after.parts[1:-1] == before.parts[1:-1]
    assert lab.values() == lab.live()


def test_a_clear_concerns_the_parts_of_its_storage() -> None:
    lab = Lab()
    entries = [entry for storage in (1, 2, 3) for entry in entries_of(range(400), 1, storage=storage)]
    lab.write(1, entries)
    before = lab.compact(part_bytes=10_000)
    lab.write(2, [(CLEAR, 2, 2, 0)])
    after = lab.compact(part_bytes=10_000)
    assert lab.values() == lab.live()
    kept = [part for part in before.parts if part in after.parts]
    assert kept == [part for part in before.parts if not part.first[7] <= 2 <= part.last[7]]
    assert len(kept) > 10
    # Once it was worked in, it concerns nobody any more.
    lab.write(3, [(5, b"", b"", 3, 0)])
    assert lab.compact(part_bytes=10_000).parts_kept >= len(after.parts) - 1


def test_everything_removed_leaves_no_part() -> None:
    lab = Lab()
    lab.write(1, entries_of(range(100), 1))
    lab.compact(part_bytes=2_000)
    lab.write(2, [(1, b"%06d" % number, None, 2, number) for number in range(100)])
    outcome = lab.compact()
    assert (outcome.parts, outcome.entries_live, outcome.bytes_after) == ((), 0, 0)


def test_nothing_new_keeps_everything_and_writes_nothing() -> None:
    lab = Lab()
    lab.write(1, entries_of(range(100), 1))
    before = lab.compact(part_bytes=2_000)
    lab.write(2, [])
    names = lab.names()
    outcome = compact(lab.files, lab.task())
    assert outcome.parts == before.parts
    assert lab.names() == names


def test_a_part_ends_with_the_record_that_brings_it_to_its_size() -> None:
    lab = Lab()
    lab.write(1, entries_of(range(520), 1))
    outcome = lab.compact(part_bytes=20_000)
    record = kernel.encode_many(1, [codec.put(1, b"%06d" % 1, b"1" * 100, 1, 1)])
    each = -(-(20_000 - sorted_file.EMPTY) // len(record))  # so many bring it to 20 000 or above
    assert [part.entries for part in outcome.parts] == [each] * (520 // each) + [520 % each]


@pytest.mark.parametrize("part_bytes", [0, 1, sorted_file.EMPTY, sorted_file.EMPTY + 1])
def test_a_part_has_one_record_at_least(part_bytes: int) -> None:
    lab = Lab()
    lab.write(1, entries_of(range(5), 1))
    assert [part.entries for part in lab.compact(part_bytes=part_bytes).parts] == [1] * 5
    assert lab.values() == lab.live()


def test_small_rests_do_not_pile_up() -> None:
    lab = Lab()
    lab.write(1, entries_of(range(520), 1))
    first = lab.compact(part_bytes=20_000)
    for epoch in range(2, 40):
        lab.write(epoch, entries_of([epoch * 13 % 600], epoch, size=300))
        outcome = lab.compact(part_bytes=20_000)
        assert max(part.bytes for part in outcome.parts) < 21_000
    assert len(outcome.parts) <= 2 * len(first.parts)
    assert lab.values() == lab.live()


def test_memory_that_is_too_small_is_spilled() -> None:
    lab = Lab()
    chance = random.Random(3)
    for epoch in range(1, 5):
        lab.write(epoch, *[entries_of([chance.randrange(5000) for _ in range(3000)], epoch) for _ in range(2)])
    files = FaultyFiles(lab.files)
    outcome = lab.compact(files, memory_bytes=300_000)
    runs = {path for operation, path in files.calls if operation == "create" and "/run." in path}
    assert len(runs) > 4
    assert lab.values() == lab.live()
    assert outcome.entries_read == 24_000
    assert not [name for name in lab.names() if name.startswith("run")]


def test_many_working_files_become_one() -> None:
    lab = Lab()
    chance = random.Random(3)
    for epoch in range(1, 50):
        lab.write(epoch, entries_of([chance.randrange(5000) for _ in range(200)], epoch))
    files = FaultyFiles(lab.files)
    lab.compact(files, memory_bytes=1)
    runs = [path for operation, path in files.calls if operation == "create" and "/run." in path]
    assert len(runs) == 50  # one for each input, and one of 32
    assert lab.values() == lab.live()
    assert not [name for name in lab.names() if name.startswith("run")]


def test_inputs_are_never_changed() -> None:
    lab = Lab()
    lab.write(1, entries_of(range(100), 1))
    lab.write(2, entries_of(range(50), 2))
    before = lab.files.contents()
    compact(lab.files, lab.task())
    after = lab.files.contents()
    assert {path: after[path] for path in before} == before


def test_progress_rises_to_the_end() -> None:
    lab = Lab()
    lab.write(1, entries_of(range(5000), 1))
    lab.compact(part_bytes=100_000)
    lab.write(2, entries_of(range(0, 5000, 3), 2))
    said: list[tuple[int, int]] = []
    compact(lab.files, lab.task(part_bytes=100_000), progress=lambda done, total: said.append((done, total)))
    done = [each for each, _ in said]
    assert done == sorted(done)
    assert len({total for _, total in said}) == 1
    assert said[-1][0] == said[-1][1]
    assert len(said) > 10


# -- damage ----------------------------------------------------------------------------------------------------------


def test_damage_in_a_session_that_counts_is_refused() -> None:
    lab = Lab()
    name = lab.write(5, [(1, b"a", b"value", 5, 0)], [(1, b"b", b"value", 5, 1)])
    path = f"{FOLDER}/{name}"
    whole = lab.files.contents()[path]
    names = lab.names()
    for at in range(8, len(whole)):
        lab.files.write(path, whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
        try:
            compact(lab.files, lab.task())
        except Corruption as error:
            assert error.file == name and error.offset <= at
            assert lab.names() == names
        else:
            # A begin that cannot be read: nobody can know whether it counts, if nothing is behind it.
            assert at >= len(whole) - len(session(5, [(1, b"b", b"value", 5, 1)]))
            lab.commit(lab.task(), Outcome(parts=(), storages=Storages()))
            lab.catalog, lab.inputs = Catalog(), [name]
            for part in [each for each in lab.names() if each.startswith("pwal_compacted")]:
                lab.files.remove(f"{FOLDER}/{part}")


def test_a_session_that_counts_and_has_no_end_is_refused_with_its_epoch() -> None:
    lab = Lab()
    name = lab.write(5, [(1, b"a", b"value", 5, 0)])
    path = f"{FOLDER}/{name}"
    lab.files.write(path, lab.files.contents()[path][:-10])
    with pytest.raises(Corruption, match="epoch 5") as caught:
        compact(lab.files, lab.task())
    assert caught.value.file == name


def test_a_torn_rest_behind_the_last_session_is_passed_over() -> None:
    lab = Lab()
    name = lab.write(5, [(1, b"a", b"value", 5, 0)])
    path = f"{FOLDER}/{name}"
    whole = lab.files.contents()[path]
    rest = session(6, [(1, b"b", b"value", 6, 0)])
    for size in range(len(rest)):
        lab.files.write(path, whole + rest[:size])
        outcome = compact(lab.files, replace(lab.task(), voids=((6, 6),), until=7))
        assert [place[8:] for place in lab.parts(outcome)] == [b"a"]
        compaction_progress.remove(lab.files, FOLDER)


def test_a_session_that_counts_behind_damage_is_refused() -> None:
    lab = Lab()
    name = lab.write(5, [(1, b"a", b"value", 5, 0)])
    path = f"{FOLDER}/{name}"
    whole = lab.files.contents()[path]
    void = bytearray(session(6, [(1, b"b", b"value", 6, 0)]))
    void[40] ^= 1
    lab.files.write(path, whole + void + session(7, [(1, b"c", b"value", 7, 0)]))
    with pytest.raises(Corruption, match="epoch 7") as caught:
        compact(lab.files, replace(lab.task(), voids=((6, 6),), until=7))
    assert (caught.value.file, caught.value.offset >= len(whole)) == (name, True)
    lab.files.write(path, whole + void + session(8, [(1, b"c", b"value", 8, 0)]))
    outcome = compact(lab.files, replace(lab.task(), voids=((6, 6),), until=7))
    assert [place[8:] for place in lab.parts(outcome)] == [b"a"]


def test_damage_in_a_part_is_refused_and_only_if_it_is_read() -> None:
    lab = Lab()
    lab.write(1, entries_of(range(1000), 1))
    before = lab.compact(part_bytes=20_000)
    path = f"{FOLDER}/{before.parts[1].name}"
    content = bytearray(lab.files.contents()[path])
    content[5000] ^= 1
    lab.files.write(path, bytes(content))
    lab.write(2, [(1, before.parts[0].first[8:], b"new", 2, 0)])
    compact(lab.files, lab.task(part_bytes=20_000))
    names = lab.names() - {PROGRESS, "pwal_compacted.2.0"}
    lab.write(3, [(1, before.parts[1].first[8:], b"new", 3, 0)])
    with pytest.raises(Corruption) as caught:
        compact(lab.files, lab.task(part_bytes=20_000))
    assert caught.value.file == before.parts[1].name
    # The first part was rewritten before that, and need not be again.
    assert lab.names() - {PROGRESS, "pwal_compacted.2.0"} == names | {rotated(3)}


def test_a_missing_input_is_an_error() -> None:
    lab = Lab()
    lab.write(1, entries_of(range(10), 1))
    lab.inputs.append(rotated(2))
    with pytest.raises(DiskError, match=rotated(2)):
        compact(lab.files, lab.task())


# -- cut short, and gone on with -------------------------------------------------------------------------------------


def lab_with_parts() -> Lab:
    lab = Lab()
    lab.write(1, entries_of(range(1500), 1))
    lab.compact(part_bytes=20_000)
    chance = random.Random(5)
    lab.write(2, entries_of([chance.randrange(700) for _ in range(300)], 2), [(1, b"000003", None, 2, 999)])
    lab.write(3, entries_of([chance.randrange(700) for _ in range(300)], 3), entries_of([1400], 3))
    return lab


SMALL = {"memory_bytes": 60_000, "part_bytes": 20_000}


def same(one: Outcome, other: Outcome) -> bool:
    """But for how the parts are cut."""
    return one.storages == other.storages and one.entries_live == other.entries_live


class Countdown:
    """Stops something at the n-th look."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def looks_at(lab: Lab) -> int:
    """How often a compaction looks whether it shall stop."""
    forever = Countdown(1 << 30)
    compact(MemoryFiles(lab.files.contents()), lab.task(**SMALL), is_stopped=forever)
    return (1 << 30) - forever.left


def test_a_compaction_that_is_stopped_anywhere_can_be_gone_on_with() -> None:
    whole = lab_with_parts()
    expected = compact(whole.files, whole.task(**SMALL))
    resumed = looks = 0
    while True:
        lab = lab_with_parts()
        before = lab.files.contents()
        try:
            compact(lab.files, lab.task(**SMALL), is_stopped=Countdown(looks))
        except Stopped as error:
            assert error.code == "stopped"
        else:
            break
        finished = check_left(lab, before)
        resumed += bool(finished)
        files = FaultyFiles(lab.files)
        outcome = compact(files, lab.task(**SMALL))
        made = {path for operation, path in files.calls if operation == "create"}
        assert not made & {f"{FOLDER}/{name}" for name in finished}, "what was finished is not made again"
        assert same(outcome, expected)
        assert lab.parts(outcome) == whole.parts(expected)
        looks += 1
    assert resumed > 3


def check_left(lab: Lab, before: dict[str, bytes]) -> list[str]:
    """Nothing was changed, and nothing is left but parts to go on from. Returns those."""
    after = lab.files.contents()
    assert {path: after[path] for path in before} == before
    new = {path.rpartition("/")[2] for path in after} - {path.rpartition("/")[2] for path in before}
    new.discard("compaction.lock")
    done = compaction_progress.load(lab.files, lab.task(**SMALL))
    named = {part.name for part in done.parts if part not in lab.catalog.parts} if done else set()
    assert new == (named | {PROGRESS} if done else set())
    return sorted(named)


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, DiskFull), (errno.EIO, DiskError)])
@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename", "sync_folder", "open", "read", "list"])
def test_a_disk_that_fails_anywhere_changes_nothing(operation: str, number: int, error: type[StorageError]) -> None:
    nth = 0
    while True:
        nth += 1
        lab = lab_with_parts()
        before = lab.files.contents()
        files = FaultyFiles(lab.files)
        fault = files.fail(operation, nth=nth, error=number, taken=7)
        try:
            compact(files, lab.task(**SMALL))
        except error:
            assert fault.struck
        else:
            assert not fault.struck
            break
        check_left(lab, before)
        compact(lab.files, lab.task(**SMALL))
    assert nth > 1


def test_another_task_removes_what_was_left() -> None:
    lab = lab_with_parts()
    with pytest.raises(Stopped):
        compact(lab.files, lab.task(**SMALL), is_stopped=Countdown(looks_at(lab) * 3 // 4))
    assert compaction_progress.load(lab.files, lab.task(**SMALL)) is not None
    lab.write(4, entries_of(range(3), 4))
    files = FaultyFiles(lab.files)
    compact(files, lab.task(**SMALL))
    assert f"{FOLDER}/pwal_compacted.2.0" in {path for operation, path in files.calls if operation == "create"}
    lab.commit(lab.task(), Outcome(parts=compact(lab.files, lab.task(**SMALL)).parts, storages=Storages()))
    assert lab.values() == lab.live()


@pytest.mark.parametrize("change", ["cut", "other", "gone", "progress", "torn progress"])
def test_what_was_left_is_checked(change: str) -> None:
    lab = lab_with_parts()
    with pytest.raises(Stopped):
        compact(lab.files, lab.task(**SMALL), is_stopped=Countdown(looks_at(lab) * 3 // 4))
    part = f"{FOLDER}/pwal_compacted.2.0"
    content = lab.files.contents()
    changes: dict[str, Callable[[], None]] = {
        "cut": lambda: lab.files.write(part, content[part][:-1]),
        "other": lambda: lab.files.write(part, content[part][:-30] + bytes(30)),
        "gone": lambda: lab.files.remove(part),
        "progress": lambda: lab.files.write(f"{FOLDER}/{PROGRESS}", b"nothing"),
        "torn progress": lambda: lab.files.write(f"{FOLDER}/{PROGRESS}", content[f"{FOLDER}/{PROGRESS}"][:-9]),
    }
    changes[change]()
    task = lab.task(**SMALL)
    lab.commit(task, compact(lab.files, task))
    assert lab.values() == lab.live()


def test_what_was_unfinished_is_known() -> None:
    lab = lab_with_parts()
    assert compaction_progress.unfinished(lab.files, FOLDER) is None
    with pytest.raises(Stopped):
        compact(lab.files, lab.task(**SMALL), is_stopped=Countdown(looks_at(lab) * 3 // 4))
    made = compaction_progress.unfinished(lab.files, FOLDER)
    assert made is not None
    assert (made.generation, made.epoch, made.merged) == (2, 3, tuple(lab.inputs))
    lab.files.write(f"{FOLDER}/{PROGRESS}", b"nothing")
    assert compaction_progress.unfinished(lab.files, FOLDER) is None


def test_parts_that_were_committed_are_never_leftovers() -> None:
    lab = lab_with_parts()
    stale = {name: lab.files.contents()[f"{FOLDER}/{name}"] for name in lab.names() if name.startswith("pwal_comp")}
    lab.files.write(f"{FOLDER}/pwal_compacted.2.77", b"left by a crash")
    lab.files.write(f"{FOLDER}/run.2.0", b"left by a crash")
    lab.files.write(f"{FOLDER}/run.3", b"of the store itself")
    lab.files.write(f"{FOLDER}/{PROGRESS}.tmp", b"left by a crash")
    compact(lab.files, lab.task(**SMALL))
    assert {"pwal_compacted.2.77", "run.2.0", f"{PROGRESS}.tmp"}.isdisjoint(lab.names())
    assert lab.files.contents()[f"{FOLDER}/run.3"] == b"of the store itself"
    assert {name: lab.files.contents()[f"{FOLDER}/{name}"] for name in stale} == stale


def test_a_compaction_that_was_not_committed_is_there_at_once() -> None:
    lab = lab_with_parts()
    first = compact(lab.files, lab.task(**SMALL))
    files = FaultyFiles(lab.files)
    second = compact(files, lab.task(**SMALL))
    assert (second.parts, second.storages) == (first.parts, first.storages)
    assert not [path for operation, path in files.calls if operation == "append"]


def test_two_compactions_never_run_at_once() -> None:
    lab = lab_with_parts()

    def progress(done: int, total: int) -> None:
        with pytest.raises(LogLocked):
            compact(lab.files, lab.task(**SMALL))

    compact(lab.files, lab.task(**SMALL), progress=progress)
    compact(lab.files, lab.task(**SMALL))


def test_a_generation_that_is_not_new_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="generation"):
        replace(Lab().task(), generation=0)


def test_what_was_returned_survives_a_power_cut() -> None:
    lab = Lab()
    lab.write(1, entries_of(range(40), 1))
    disk = PowerLoss(lab.files.contents())
    outcome = compact(disk, lab.task(part_bytes=2_000))
    disk.note(outcome)
    seen = 0
    for state in disk.states():
        for name in lab.inputs:
            assert state.files.contents()[f"{FOLDER}/{name}"] == lab.files.contents()[f"{FOLDER}/{name}"]
        for noted in state.notes:
            assert isinstance(noted, Outcome)
            for part in noted.parts:
                SortedFile.open(state.files, FOLDER, part.name, part).close()
            seen += 1
        state.files.drop_locks()
        if state.point % 5 == 0:
            again = compact(state.files, lab.task(part_bytes=2_000))
            assert again.entries_live == outcome.entries_live
    assert seen


# -- elsewhere -------------------------------------------------------------------------------------------------------


def real_lab(folder: Path) -> tuple[Lab, Task]:
    lab = lab_with_parts()
    for path, content in lab.files.contents().items():
        (folder / path.rpartition("/")[2]).write_bytes(content)
    return lab, replace(lab.task(**SMALL), folder=str(folder))


def test_the_other_process_compacts_as_this_one_does(tmp_path: Path) -> None:
    lab, task = real_lab(tmp_path)
    said: list[int] = []
    there = compact_elsewhere(RealFiles(), task, lambda done, total: said.append(done))
    here = compact_elsewhere(lab.files, lab.task(**SMALL))
    assert there == here
    assert said == sorted(said) and len(said) > 3
    for part in there.parts:
        assert (tmp_path / part.name).read_bytes() == lab.files.contents()[f"{FOLDER}/{part.name}"]


def test_the_other_process_tells_why_it_could_not(tmp_path: Path) -> None:
    lab, task = real_lab(tmp_path)
    damaged = tmp_path / lab.inputs[0]
    content = bytearray(damaged.read_bytes())
    content[300] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(Corruption) as caught:
        compact_elsewhere(RealFiles(), task)
    assert (caught.value.file, 8 <= caught.value.offset <= 300) == (lab.inputs[0], True)
    damaged.unlink()
    with pytest.raises(DiskError) as missing:
        compact_elsewhere(RealFiles(), task)
    assert missing.value.facts["errno"] == "ENOENT"
    damaged.write_bytes(b"lmto" + content[4:])
    with pytest.raises(StorageError) as wrong:
        compact_elsewhere(RealFiles(), task)
    assert wrong.value.code == "wrong_format"


def test_stopping_ends_the_other_process_and_leaves_what_can_be_gone_on_with(tmp_path: Path) -> None:
    lab, task = real_lab(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    stopper = Stopper()

    def progress(done: int, total: int) -> None:
        if done > total * 3 // 4:
            stopper.stop()

    with pytest.raises(Stopped):
        compact_elsewhere(RealFiles(), task, progress, stopper)
    left = {path.name for path in tmp_path.iterdir()} - before - {"compaction.lock"}
    done = compaction_progress.load(RealFiles(), task)
    named = {part.name for part in done.parts if part not in task.catalog.parts} | {PROGRESS} if done else set()
    assert left == named
    assert compact_elsewhere(RealFiles(), task).entries_live == compact(lab.files, lab.task(**SMALL)).entries_live


def test_the_other_process_ends_with_the_one_that_asked(tmp_path: Path) -> None:
    lab = Lab()
    lab.write(1, entries_of(range(60_000), 1))
    for path, content in lab.files.contents().items():
        (tmp_path / path.rpartition("/")[2]).write_bytes(content)
    task = replace(lab.task(memory_bytes=1_000_000, part_bytes=100_000), folder=str(tmp_path))
    result = subprocess.run(
        [sys.executable, "-P", "-m", "lamina.engines.store.compaction_worker"],
        input=json.dumps(task.as_dict()).encode() + b"\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert b"outcome" not in result.stdout and b"error" not in result.stdout
    left = {path.name for path in tmp_path.iterdir()} - {"compaction.lock", "lamina.lock", *lab.inputs}
    done = compaction_progress.load(RealFiles(), task)
    assert left == ({part.name for part in done.parts} | {PROGRESS} if done else set())


def test_a_task_and_an_outcome_survive_the_way() -> None:
    part = Part("pwal_compacted.3.0", 10, 7, 1, bytes(8), bytes(9), bytes(16))
    storages = Storages()
    storages.take(DROP, 5, bytes(15) + b"\1")
    catalog = Catalog(3, 7, (part,), storages, (rotated(2),), 99)
    task = Task(folder="f", inputs=(rotated(8),), after=7, until=9, voids=((8, 8),), catalog=catalog, generation=4)
    assert Task.from_dict(task.as_dict()) == task
    assert Task.from_dict(task.as_dict()).identity() == task.identity()
    outcome = Outcome(parts=(part,), storages=storages, entries_read=3, parts_kept=1)
    assert Outcome.from_dict(outcome.as_dict()) == outcome
    for other in (
        replace(task, until=10),
        replace(task, inputs=()),
        replace(task, voids=()),
        replace(task, generation=5),
        replace(task, catalog=replace(catalog, parts=())),
    ):
        assert other.identity() != task.identity()
    # A later crash, a clean-up: the result is the same.
    later = replace(task, voids=((8, 8), (12, 13)), catalog=replace(catalog, merged=(), time_ns=0))
    assert later.identity() == task.identity()
    assert catalogs.decode(catalogs.encode(catalog)) == catalog
