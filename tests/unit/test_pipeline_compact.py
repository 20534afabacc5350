"""Compaction in tasks: whatever the history, however it is divided, the bytes are those of one process, and what is
wrong is told in the same words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from compaction_lab import FOLDER, History, both, elsewhere, forged, parts_of
from lamina.engines.store import codec, sorted_file
from lamina.engines.store.codec import CLEAR
from lamina.engines.store.compacting import compact
from lamina.engines.store.compaction_task import Outcome, Task
from lamina.errors import Stopped
from lamina.log import frame, kernel
from lamina.log.formats import PWAL
from lamina.log.scan import HEADER_SIZE
from lamina.pipeline.compaction import distributed, following
from lamina.pipeline.compaction.piece import Gather, Gathered
from lamina.pipeline.compaction.plan import Sizes, divide
from lamina.testing import MemoryFiles

SMALL = Sizes(piece_bytes=1000, range_entries=10, most_runs=2)


def outcome_of(history: History, task: Task, sizes: Sizes) -> Outcome:
    outcome = both(history.disk, task, sizes)
    assert isinstance(outcome, Outcome), outcome
    history.commit(task, outcome)
    return outcome


# -- the same bytes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_the_bytes_are_those_of_one_process(seed: int) -> None:
    history = History(random.Random(seed))
    for _ in range(4):
        outcome_of(history, history.generation(), history.sizes())


@pytest.mark.parametrize("seed", range(10))
def test_old_parts_of_all_sizes_are_kept_touched_or_taken_along(seed: int) -> None:
    history = History(random.Random(1000 + seed), keys=3000)
    kept = written = 0
    for number in range(8):
        part_bytes = [600, 20_000, 3000][number % 3]
        few = history.chance.choice([1, 1, 30])
        task = history.generation(few, part_bytes=part_bytes, memory_bytes=1 << 20)
        outcome = outcome_of(history, task, history.sizes())
        kept, written = kept + outcome.parts_kept, written + outcome.parts_written
    assert kept and written


def puts(history: History, epoch: int, numbers: Sequence[int], size: int = 100) -> str:
    """A rotated file with one session."""
    entries = [codec.put(1, b"%05d" % number, b"v" * size, epoch, 0) for number in numbers]
    name = f"pwal_0000.{epoch:014d}.{epoch}"
    records = history.records([codec.begin(epoch), *entries, codec.end(epoch, len(entries))])
    history.disk.write(f"{FOLDER}/{name}", PWAL.header + records)
    return name


def task_of(history: History, epoch: int, name: str, part_bytes: int) -> Task:
    return Task(
        folder=FOLDER,
        inputs=(name,),
        after=history.catalog.epoch,
        until=epoch,
        catalog=history.catalog,
        generation=history.catalog.generation + 1,
        part_bytes=part_bytes,
    )


@pytest.mark.parametrize(("number", "is_taken_along"), [(3, False), (90, True)])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_small_part_is_taken_along_only_behind_an_open_one(
    number: int, is_taken_along: bool, is_damaged: bool
) -> None:
    """And nobody minds that it is damaged if it is kept."""
    history = History(random.Random(5))
    outcome_of(history, task_of(history, 1, puts(history, 1, range(100)), 7500), SMALL)
    assert [part.entries for part in history.catalog.parts] == [49, 49, 2]
    small = history.catalog.parts[-1]
    if is_damaged:
        content = bytearray(history.disk.contents()[f"{FOLDER}/{small.name}"])
        content[sorted_file.EMPTY + 20] ^= 1
        history.disk.write(f"{FOLDER}/{small.name}", bytes(content))
    outcome = both(history.disk, task_of(history, 2, puts(history, 2, range(number, number + 3), 0), 7500), SMALL)
    if is_taken_along and is_damaged:
        assert isinstance(outcome, str) and small.name in outcome
    else:
        assert isinstance(outcome, Outcome)
        assert (small in outcome.parts) != is_taken_along


def test_without_inputs_or_entries_nothing_is_written() -> None:
    history = History(random.Random(3))
    outcome_of(history, history.generation(), SMALL)
    before = parts_of(history.disk)
    outcome = outcome_of(history, replace(history.generation(), inputs=()), SMALL)
    assert outcome.parts_written == 0
    assert {name: content for name, content in parts_of(history.disk).items() if name in before} == before


def test_a_clear_alone_rewrites_what_it_concerns() -> None:
    history = History(random.Random(8), keys=500)
    outcome_of(history, history.generation(60, part_bytes=3000), SMALL)
    epoch = history.epoch + 1
    name = f"pwal_0000.{epoch:014d}.{epoch}"
    records = [codec.begin(epoch), codec.about_storage(CLEAR, 1, epoch, 0), codec.end(epoch, 1)]
    history.disk.write(f"{FOLDER}/{name}", PWAL.header + history.records(records))
    task = replace(history.generation(1, part_bytes=3000), inputs=(name,), voids=())
    outcome = outcome_of(history, task, SMALL)
    assert outcome.parts_kept and outcome.parts_written
    assert not any(part.first[7] == 1 == part.last[7] for part in outcome.parts)


def test_records_of_another_time_zone_are_written_as_in_one_process() -> None:
    history = History(random.Random(8))
    task = history.generation(10)
    path = f"{FOLDER}/{task.inputs[0]}"
    content = bytearray(history.disk.contents()[path])
    found = kernel.scan(bytes(content), HEADER_SIZE, len(content))
    at = HEADER_SIZE
    for offset, length in zip(found.offsets, found.lengths, strict=True):
        content[at + 13 : at + 15] = b"\0\x3c"
        end = offset + length
        content[end : end + 4] = frame.CRC.pack(kernel.crc32c(bytes(content[at:end])))
        at = end + 4
    history.disk.write(path, bytes(content))
    assert outcome_of(history, task, SMALL).parts_written


def test_what_one_process_had_done_so_far_is_done_again_the_same() -> None:
    history = History(random.Random(21), keys=500)
    task = history.generation(60, part_bytes=3000, memory_bytes=5000)
    disk = MemoryFiles(history.disk.contents())
    with pytest.raises(Stopped):
        compact(disk, task, is_stopped=lambda: f"{FOLDER}/pwal_compacted.1.2" in disk.contents())
    assert f"{FOLDER}/compaction_progress" in disk.contents()
    outcome = elsewhere(disk, task, SMALL)
    assert outcome == outcome_of(history, task, SMALL)
    assert f"{FOLDER}/compaction_progress" not in disk.contents()
    assert parts_of(disk) == parts_of(history.disk)


# -- pieces ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(50))
def test_pieces_cover_all_inputs_once_in_order(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice([0, 3, HEADER_SIZE, chance.randrange(5000)]) for _ in range(chance.randrange(12))]
    groups = divide([str(number) for number in range(len(sizes))], sizes, chance.choice([1, 100, 1000, 0]))
    stretches = [stretch for group in groups for stretch in group]
    assert sorted({stretch.source for stretch in stretches}) == list(range(len(sizes)))
    for source, size in enumerate(sizes):
        of_source = [stretch for stretch in stretches if stretch.source == source]
        assert of_source[0].begin == HEADER_SIZE and of_source[0].start == HEADER_SIZE
        assert of_source[-1].border == size
        for before, after in pairwise(of_source):
            assert before.border == after.begin and after.start is None
    assert [stretch.source for stretch in stretches] == sorted(stretch.source for stretch in stretches)


def test_a_piece_that_begins_inside_a_value_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    again = 0

    def follow(works: list[Gather], results: list[Gathered]) -> list[Gather]:
        nonlocal again
        found = following.follow(works, results)
        again += len(found)
        return found

    monkeypatch.setattr(distributed, "follow", follow)
    history = History(random.Random(2))
    history.payload = lambda floor: codec.put(  # type: ignore[method-assign]
        1, history.key(), forged(history.chance) * 30, floor, history.chance.randrange(99)
    )
    outcome_of(history, history.generation(40), Sizes(piece_bytes=2000, range_entries=10))
    assert again > 1


def test_a_session_may_be_longer_than_many_pieces() -> None:
    history = History(random.Random(2), keys=5000)
    made = [history.session(1, 1, 2000), history.session(2, 1, 3), history.session(3, 1, 4000)]
    history.disk.write(f"{FOLDER}/pwal_0000.{3:014d}.3", PWAL.header + b"".join(made))
    task = replace(history.generation(1), inputs=(f"pwal_0000.{3:014d}.3",), memory_bytes=10_000)
    assert outcome_of(history, task, Sizes(piece_bytes=3000, range_entries=100, most_runs=3)).entries_live > 100


# -- what is wrong ---------------------------------------------------------------------------------------------------


def spoil(history: History, path: str) -> None:
    """Damage a file in one of many ways."""
    chance = history.chance
    content = bytearray(history.disk.contents()[path])
    at = chance.randrange(len(content))
    way = chance.randrange(6)
    if way == 0:
        content[at] ^= 1 << chance.randrange(8)
    elif way == 1:
        del content[at:]
    elif way == 2:
        content[at : at + 30] = bytes(30)
    elif way == 3:
        at = chance.choice(record_ends(bytes(content)))
        content[at:at] = history.records([chance.choice([codec.begin(1), codec.end(4, 1), b"\x09", b"", b"\x03no"])])
    elif way == 4:
        ends = record_ends(bytes(content))
        start, end = sorted((chance.choice(ends), chance.choice(ends)))
        del content[start:end]
    else:
        content[: HEADER_SIZE - 2] = chance.choice([bytes(HEADER_SIZE - 2), b"something else"])
    history.disk.write(path, bytes(content))


def record_ends(content: bytes) -> list[int]:
    found = kernel.scan(content, HEADER_SIZE, len(content))
    ends = [offset + length + 4 for offset, length in zip(found.offsets, found.lengths, strict=True)]
    return [HEADER_SIZE, *ends]


@pytest.mark.parametrize("seed", range(100))
def test_damage_of_an_input_is_told_in_the_same_words(seed: int) -> None:
    history = History(random.Random(seed))
    task = history.generation(12)
    spoil(history, f"{FOLDER}/{history.chance.choice(task.inputs)}")
    both(history.disk, task, history.sizes())


@pytest.mark.parametrize("seed", range(40))
def test_damage_of_an_old_part_is_told_in_the_same_words(seed: int) -> None:
    history = History(random.Random(seed), keys=400)
    outcome_of(history, history.generation(60, part_bytes=3000, voids=()), SMALL)
    task = history.generation(history.chance.choice([1, 12]), part_bytes=history.chance.choice([3000, 1 << 20]))
    spoil(history, f"{FOLDER}/{history.chance.choice(history.catalog.parts).name}")
    both(history.disk, task, history.sizes())


def test_an_input_that_is_gone_and_a_part_that_is_gone() -> None:
    history = History(random.Random(4))
    outcome_of(history, task_of(history, 1, puts(history, 1, range(100)), 5000), SMALL)
    task = task_of(history, 2, puts(history, 2, range(100)), 5000)
    for name in (task.inputs[0], history.catalog.parts[1].name):
        disk = MemoryFiles({k: v for k, v in history.disk.contents().items() if k != f"{FOLDER}/{name}"})
        found = both(disk, task, SMALL)
        assert isinstance(found, str) and name in found
