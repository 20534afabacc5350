"""Promises of backups whose disk or data folder rots: it is found, named, healed where it can be, and never trimmed."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

import lamina
from history_lab import History, Seen, open_data, seen
from lamina.cli.backup import backup as backup_command
from lamina.cli.restore import restore as restore_command
from lamina.clock import ManualClock
from lamina.errors import BadOption, Corruption, DiskError, DiskFull, LaminaError, WrongFormat
from lamina.log import frame
from lamina.log import manifest as log_manifest
from lamina.log.files import Files
from lamina.log.files.faulty import FaultyFiles
from lamina.log.files.memory import MemoryFiles
from lamina.log.files.real import RealFiles
from lamina.log.naming import INDEX_SUFFIX, parse
from lamina.log.scan import FileScan
from lamina.pipeline.backing import making, manifest, opening, reread
from lamina.pipeline.backing.checking import check_generation, newest_whole, verify
from lamina.pipeline.backing.collecting import Time
from lamina.pipeline.backing.contents import Contents
from lamina.pipeline.backing.making import BackupReport, back_up
from lamina.pipeline.backing.manifest import Content, Generation
from lamina.pipeline.backing.place import Backup
from lamina.pipeline.backing.pruning import prune
from lamina.pipeline.backing.restoring import restore

BACKUP = "/backup"
Change = Callable[[bytes], bytes]

CHANGES: dict[str, Change] = {
    "first byte": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "a bit in the middle": lambda data: (
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :]
    ),
    "last byte": lambda data: data[:-1] + bytes([data[-1] ^ 0x80]),
    "a sector of zeros": lambda data: bytes(min(512, len(data))) + data[512:],
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"\0",
}


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path / "data", 7)
    yield made
    made.close()


def still(clock: ManualClock) -> Time:
    return Time(clock.now_ns, lambda seconds: None)


def backed_up(history: History, files: MemoryFiles | None = None, **options: Any) -> BackupReport:
    to = str(to_of(history)) if files is None else BACKUP
    given = None if files is None else cast(Files, files)
    return back_up(str(history.path), to, files=given, clock=still(history.clock), **options)


def to_of(history: History) -> Path:
    return history.path.with_name("backup")


def place(history: History) -> Backup:
    return Backup(RealFiles(), str(to_of(history)))


def in_memory(files: MemoryFiles | FaultyFiles) -> Backup:
    return Backup(cast(Files, files), BACKUP)


def opened(path: Path, at: int) -> Seen:
    with open_data(path, ManualClock(at)) as data:
        return seen(data)


def contents(files: MemoryFiles) -> dict[str, bytes]:
    """By their digest."""
    return {path.rpartition("/")[2]: data for path, data in files.contents().items() if "/contents/" in path}


def put(files: MemoryFiles, digest: str, data: bytes) -> None:
    """What rot does: no write that anybody sees."""
    files.names[f"{BACKUP}/contents/{digest}"].data[:] = data


def flip(path: Path, at: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.chmod(0o600)
    path.write_bytes(data)


def grown(history: History, files: MemoryFiles | None = None, count: int = 3) -> list[str]:
    """Generations in which most files have grown, so that they are of several contents."""
    names = []
    for _ in range(count):
        history.steps(25)
        history.data.topic("orders").publish({"n": "1"})
        names.append(backed_up(history, files).generation)
    return names


def backed_up_sealed(history: History) -> tuple[str, str]:
    """A generation, and a file of it that is not written to any more."""
    history.steps(60)
    for _ in range(60):
        history.data.topic("sealed").publish({"n": "x" * 100})
    made = backed_up(history)
    paths = [file.path for file in place(history).find(None).files if file.path.startswith("topics/sealed/")]
    return made.generation, next(path for path in paths if path.endswith(".dat"))


def content_of(history: History, path: str, generation: str | None = None) -> Path:
    """Where the backup has the end of a file."""
    found = place(history).find(generation)
    file = next(each for each in found.files if each.path.startswith(path))
    return to_of(history) / "contents" / file.contents[-1].sha256


def remove_what_only_the_past_needs(queues: Path) -> None:
    """As cleaning does: written down in the manifest of the log first."""
    names = [parsed for path in queues.iterdir() if (parsed := parse(path.name))]
    newest = {max(each for each in names if each.is_dump == is_dump).name for is_dump in (True, False)}
    gone = [each.name for each in names if each.name not in newest]
    assert log_manifest.note(RealFiles(), str(queues), gone=gone)
    for name in gone:
        (queues / name).unlink()
        (queues / (name + INDEX_SUFFIX)).unlink(missing_ok=True)


# -- rot in the backup -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_rot_in_any_content_is_healed_by_the_next_backup_in_all_generations(history: History, change: str) -> None:
    files = MemoryFiles()
    names = grown(history, files)
    right = contents(files)
    for digest, data in right.items():
        put(files, digest, CHANGES[change](data))
    report = backed_up(history, files)
    assert report.is_whole and len(report.rot) == len(right) and all(rot.is_healed for rot in report.rot)
    assert {digest: data for digest, data in contents(files).items() if digest in right} == right
    assert verify(in_memory(files)).is_whole
    for rot in report.rot:
        assert set(rot.generations) <= {*names} and rot.generations, "the new one never had it"
        digest = rot.file.removeprefix("contents/")
        was, wrong = right[digest], CHANGES[change](right[digest])
        first = next(
            (at for at, (a, b) in enumerate(zip(was, wrong, strict=False)) if a != b), min(len(was), len(wrong))
        )
        ends = [
            (file.path, sum(each.bytes for each in file.contents[:at]) + first)
            for name in rot.generations
            for file in in_memory(files).find(name).files
            for at, content in enumerate(file.contents)
            if content.sha256 == digest
        ]
        assert (rot.path, rot.byte) in ends


def test_a_content_that_is_gone_is_healed_also_where_only_an_old_generation_needs_it(history: History) -> None:
    files = MemoryFiles()
    grown(history, files)
    right = contents(files)
    for digest in right:
        files.remove(f"{BACKUP}/contents/{digest}")
    report = backed_up(history, files)
    assert report.is_whole and verify(in_memory(files)).is_whole


def test_a_sector_that_cannot_be_read_is_healed_too(history: History) -> None:
    memory = MemoryFiles()
    grown(history, memory, 1)
    digest = next(iter(in_memory(memory).find(None).contents()))
    disk = FaultyFiles(cast(Files, memory))
    disk.fail("read", only=digest, times=10**6)

    def written_anew(operation: str, path: str) -> None:  # and so elsewhere on the disk
        if operation == "rename":
            disk.heal()

    disk.before = written_anew
    report = back_up(str(history.path), BACKUP, files=cast(Files, disk), clock=still(history.clock))
    assert report.is_whole and [rot.file for rot in report.rot] == [f"contents/{digest}"]
    assert verify(in_memory(memory)).is_whole


def test_what_nobody_can_heal_is_named_with_its_generations_until_they_are_pruned(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reread, "AT_LEAST", 0)
    files = MemoryFiles()
    history.steps(40)
    history._queue()
    first = backed_up(history, files).generation
    history.data.queues.dump()
    history.data.queues.dump()
    remove_what_only_the_past_needs(history.path / "queues")
    second = backed_up(history, files).generation
    only_first = {
        content.sha256: file.path
        for file in in_memory(files).find(first).files
        for content in file.contents
        if content.sha256 not in in_memory(files).find(second).contents()
    }
    assert only_first
    for digest in only_first:
        put(files, digest, CHANGES["a bit in the middle"](contents(files)[digest]))
    for shares in (1, reread.MOST_SHARES, reread.MOST_SHARES):  # also when it is the turn of others
        report = backed_up(history, files, shares=shares)
        assert not report.is_whole
        assert {rot.file.removeprefix("contents/"): rot.path for rot in report.rot} == only_first
        for rot in report.rot:
            assert rot.generations == [first] and not rot.is_healed and rot.byte > 0
        found = verify(in_memory(files))
        assert {name for damage in found.damage for name in damage.generations} == {first}
        assert found.newest_whole == report.generation
    prune(in_memory(files), 2)
    assert backed_up(history, files).is_whole


def test_a_rotten_content_that_the_data_folder_lost_as_well_is_not_shared_with_the_new_generation(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sealed file that is another one now, under the same inode: the old generation is broken, the new one is not."""
    monkeypatch.setattr(making, "_TAIL", 16)
    first, path = backed_up_sealed(history)
    content = content_of(history, path)
    flip(content, 60)
    flip(history.path / path, 40)
    report = backed_up(history)
    (rot,) = report.rot
    assert rot.generations == [first] and rot.path == path and not rot.is_healed
    newest = place(history).find(None)
    assert content.name not in newest.contents()
    assert [each.path for each in report.damage] == [path], "and what is wrong in the data folder is said as well"


def test_what_is_there_already_is_read_before_it_is_shared(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under another inode, or asked for in full: the digest alone does not say that the bytes are there."""
    monkeypatch.setattr(reread, "share_of", lambda contents, begin, shares, at_least: ([], (0, 1)))  # not its turn
    files = MemoryFiles()
    history.steps(40)
    history.close()
    backed_up(history, files)
    right = contents(files)
    shutil.copytree(history.path, history.path.with_name("moved"))
    history.path = history.path.with_name("moved")
    for digest, data in right.items():
        put(files, digest, CHANGES["last byte"](data))
    for options in ({"is_moved": True}, {"is_full": True}):
        report = backed_up(history, files, **options)
        assert report.is_whole and verify(in_memory(files)).is_whole
        assert {rot.file.removeprefix("contents/") for rot in report.rot} == {*right}
        for digest, data in right.items():
            put(files, digest, CHANGES["last byte"](data))
    report = backed_up(history, files, is_moved=True, is_full=True)
    assert right.items() <= contents(files).items()
    history.reopen()


def test_other_bytes_never_take_the_place_of_a_content() -> None:
    files = MemoryFiles()
    files.make_folder(f"{BACKUP}/contents")
    held = Contents(cast(Files, files), BACKUP)
    content = held.add([b"the ", b"right"]).content
    put(files, content.sha256, b"the wr0ng")
    assert held.heal(content, [b"the wrong"]) is None
    assert contents(files) == {content.sha256: b"the wr0ng"}
    assert held.heal(content, [b"the right"]) == 4
    assert contents(files) == {content.sha256: b"the right"} and held.problem_with(content) == ""


@pytest.mark.parametrize(
    ("operation", "only", "number", "expected"),
    [
        ("append", ".new", errno.ENOSPC, DiskFull),
        ("create", ".new", errno.ENOSPC, DiskFull),
        ("sync", ".new", errno.EIO, DiskError),
        ("rename", ".new", errno.EIO, DiskError),
        ("sync_folder", "contents", errno.EIO, DiskError),
    ],
)
def test_healing_that_fails_changes_nothing_and_the_next_backup_heals(
    history: History, operation: str, only: str, number: int, expected: type[Exception]
) -> None:
    memory = MemoryFiles()
    history.steps(30)
    backed_up(history, memory)
    right = contents(memory)
    rotten = {digest: CHANGES["a bit in the middle"](data) for digest, data in right.items()}
    for digest, data in rotten.items():
        put(memory, digest, data)
    disk = FaultyFiles(cast(Files, memory))
    disk.fail(operation, only=only, error=number, times=10**6)
    before = in_memory(memory).names()
    with pytest.raises(expected):
        back_up(str(history.path), BACKUP, files=cast(Files, disk), clock=still(history.clock))
    assert in_memory(memory).names() == before
    for digest, data in contents(memory).items():
        if digest in right:
            assert data in (right[digest], rotten[digest])
    disk.heal()
    assert backed_up(history, memory).is_whole and verify(in_memory(memory)).is_whole


# -- which share is read again -----------------------------------------------------------------------------------------


def some_contents(draw: random.Random, count: int) -> list[Content]:
    return [Content(draw.randbytes(32).hex(), draw.choice((0, 8, 100, 5000, 10**6))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_every_old_content_is_read_again_in_so_many_backups_while_others_come_and_go(seed: int) -> None:
    draw = random.Random(seed)
    shares, at_least = draw.choice((1, 2, 7, 30)), draw.choice((0, 1000, 10**6))
    there, next_share, since = some_contents(draw, 200), (0, 1), dict[str, int]()
    for _ in range(3 * shares + 10):
        chosen, next_share = reread.share_of(there, next_share, shares, at_least)
        for content in there:
            since[content.sha256] = since.get(content.sha256, 0) + 1
        for content in chosen:
            since[content.sha256] = 0
        assert max(since[content.sha256] for content in there) < shares
        there = [content for content in there if draw.random() < 0.97] + some_contents(draw, draw.randint(0, 9))


def test_a_backup_reads_no_more_again_than_its_share() -> None:
    draw = random.Random(1)
    there = [Content(draw.randbytes(32).hex(), 1000) for _ in range(3000)]
    chosen, following = reread.share_of(there, (4, 30), 30, 0)
    assert following == (5, 30) and 50 < len(chosen) < 150
    more, _ = reread.share_of(there, (4, 30), 30, 500 * (1000 + reread.OPENING))
    assert 500 <= len(more) < 650, "small shares are filled up, and no further"


@pytest.mark.parametrize(("before", "after"), [(30, 7), (7, 30), (30, 1), (1, 30), (30, 29)])
def test_with_another_number_of_shares_none_is_left_out(before: int, after: int) -> None:
    there = some_contents(random.Random(3), 500)
    for turn in range(before):
        unread = {content.sha256 for content in there}
        at = (turn, before)
        for _ in range(after):
            chosen, at = reread.share_of(there, at, after, 0)
            unread -= {content.sha256 for content in chosen}
        assert not unread


def test_rot_anywhere_is_found_within_the_stated_number_of_backups(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reread, "AT_LEAST", 0)
    files = MemoryFiles()
    grown(history, files)
    history.close()
    right = contents(files)
    rotten = [*right][::2]
    for digest in rotten:
        put(files, digest, CHANGES["first byte"](right[digest]))
    reports = [backed_up(history, files, shares=4) for _ in range(4)]
    found = [rot.file.removeprefix("contents/") for report in reports for rot in report.rot]
    assert sorted(found) == sorted(rotten), "each once"
    assert verify(in_memory(files)).is_whole
    assert sum(report.reread_bytes for report in reports) < 2 * sum(map(len, right.values()))
    assert max(report.reread_bytes for report in reports) < sum(map(len, right.values()))
    history.reopen()


@pytest.mark.parametrize("shares", [0, -1, 10_001])
def test_a_number_of_shares_that_cannot_be_is_refused(history: History, shares: int) -> None:
    with pytest.raises(BadOption, match="re-read"):
        backed_up(history, shares=shares)
    assert not to_of(history).exists()


# -- a damaged data folder ---------------------------------------------------------------------------------------------


def test_damage_anywhere_in_a_log_is_refused_or_reported_and_never_trimmed(history: History, tmp_path: Path) -> None:
    history.steps(120)
    history.data.topic("orders").publish_many([{"n": "x" * 50}] * 30)
    history.data.queues.dump()
    history.data.store.rotate()
    at, then = history.moment()
    history.close()
    whole = tmp_path / "whole"
    back_up(str(history.path), str(whole), clock=still(history.clock))
    files = [file for file in Backup(RealFiles(), str(whole)).find(None).files if file.identity != (0, 0)]
    classes = {"refused": 0, "reported": 0, "hints": 0}
    for number, file in enumerate(files):
        size = (history.path / file.path).stat().st_size
        for turn, place_ in enumerate((0, 9, size // 3, size // 2, size - 2)):
            data, to = tmp_path / "d", tmp_path / "b"
            shutil.rmtree(data, ignore_errors=True)
            shutil.rmtree(to, ignore_errors=True)
            shutil.copytree(history.path, data)
            flip(data / file.path, min(place_, size - 1), 1 << (number + turn) % 8)
            try:
                report = back_up(str(data), str(to), clock=still(history.clock))
            except LaminaError:
                classes["refused"] += 1
                continue
            newest = Backup(RealFiles(), str(to)).find(None)
            if report.is_whole:  # nothing that anybody relies on: an index, or the mark of an orderly end
                classes["hints"] += 1
                restore(str(to), str(tmp_path / "r"), clock=still(history.clock))
                assert opened(tmp_path / "r", at) == then
                shutil.rmtree(tmp_path / "r")
                continue
            classes["reported"] += 1
            assert {each.path for each in report.damage} == {file.path} == {each.path for each in newest.damage}
            (copied,) = [each for each in newest.files if each.path == file.path]
            assert copied.bytes == size, "every byte of it is there"
            assert 0 <= report.damage[0].byte <= size
            found = verify(Backup(RealFiles(), str(to)))
            assert {damage.path for damage in found.damage} == {file.path} and found.newest_whole is None
            with pytest.raises(Corruption, match="with-damage"):
                restore(str(to), str(tmp_path / "r"), clock=still(history.clock))
            restore(str(to), str(tmp_path / "r"), clock=still(history.clock), with_damage=True)
            assert (tmp_path / "r" / file.path).read_bytes() == (data / file.path).read_bytes()
            shutil.rmtree(tmp_path / "r")
    assert min(classes.values()) > 3, classes
    history.reopen()


@pytest.mark.parametrize("change", ["cut", "empty", "a sector of zeros", "a bit in the middle", "longer", "last byte"])
def test_a_dump_of_queues_is_complete_or_broken(history: History, change: str) -> None:
    for _ in range(20):
        history.data.queue(history.data.queues.create(ttl=0).sid).send(b"m" * 50)
    history.data.queues.dump()
    history.close()
    dump = max((history.path / "queues").glob("*.dump"))
    wrong = CHANGES[change](dump.read_bytes())
    dump.write_bytes(wrong)
    if change != "a bit in the middle":  # its header or its last record is bad: that is seen before it is copied
        with pytest.raises((Corruption, WrongFormat), match=dump.name):
            backed_up(history)
        assert not place(history).names()
        dump.unlink()
        history.reopen()
        return
    report = backed_up(history)
    assert not report.is_whole and [each.path for each in report.damage] == [f"queues/{dump.name}"]
    (kept,) = [each for each in place(history).find(None).files if each.path == f"queues/{dump.name}"]
    assert kept.bytes == len(wrong)
    again = backed_up(history)
    assert [each.path for each in again.damage] == [f"queues/{dump.name}"], "each time, until it is well again"
    dump.unlink()
    history.reopen()


def test_a_log_of_queues_that_a_crash_left_torn_is_no_damage(history: History) -> None:
    while len(history.queues) < 2:
        history._queue()
    history.steps(20)
    history.close()
    log = max((history.path / "queues").glob("*.log"))
    torn = log.with_name(f"smp-server-store-{int(log.name.split('-')[3][:-4]) + 1}.log")
    torn.write_bytes(log.read_bytes()[:8] + b"\x01\0\0\0half a rec")
    history.reopen()  # begins a new one behind it
    history.steps(20)
    report = backed_up(history)
    assert report.is_whole, report.damage
    assert verify(place(history)).is_whole


@pytest.mark.parametrize("part", ["jobs", "topics/orders", "topics/orders/groups", "queues", "store", "logs/plain"])
def test_rot_in_what_a_server_has_just_written_is_refused_and_no_torn_tail(history: History, part: str) -> None:
    """The last batch: no watermark vouches for it yet, but whole records behind the bad one do."""
    history.steps(120)
    for number in range(4):
        history.data.topic("orders").publish({"n": str(number)})
        history.data.log("plain").append(b"a record", until=lamina.Level.SYNCED)
        history._queue()
    backed_up(history)
    growing = "pwal_0000" if part == "store" else "*.dat" if part.startswith("topics") else "*.log"
    path = max((history.path / part).glob(growing), key=lambda each: each.name)
    ends = record_ends(path)
    flip(path, ends[-3] + 9)
    shutil.rmtree(to_of(history))
    with pytest.raises(Corruption, match=path.name):
        backed_up(history)


def record_ends(path: Path) -> list[int]:
    file = RealFiles().open(str(path))
    try:
        return [batch.record_offset(at) for batch in FileScan(file) for at in range(len(batch.times))] + [file.size()]
    finally:
        file.close()


def test_a_torn_tail_of_a_log_that_nobody_has_open_is_left_out_with_a_note(history: History) -> None:
    history.steps(60)
    at, then = history.moment()
    history.close()
    path = max((history.path / "topics" / "orders").glob("*.dat"))
    whole = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(whole + b"\x01\0\0\0half")
    report = backed_up(history)
    assert report.is_whole and [path.name in note and "8 bytes" in note for note in report.notes] == [True]
    restore(str(to_of(history)), str(history.path.with_name("then")), clock=still(history.clock))
    assert opened(history.path.with_name("then"), at) == then
    history.reopen()


@pytest.mark.parametrize("left", [b"", b"lm", bytes(8), bytes(100)])
def test_a_log_of_queues_that_a_crash_left_without_a_header_is_in_the_row_of_what_is_restored(
    history: History, left: bytes
) -> None:
    while not history.queues:
        history._queue()
    history.steps(30)
    history.close()
    log = max((history.path / "queues").glob("*.log"))
    log.with_name(f"smp-server-store-{int(log.name.split('-')[3][:-4]) + 1}.log").write_bytes(left)
    history.reopen()
    history.data.queue(history.data.queues.create().sid).send(b"behind it")
    at, then = history.moment()
    report = backed_up(history)
    assert report.is_whole and verify(place(history)).is_whole
    restore(str(to_of(history)), str(history.path.with_name("then")), clock=still(history.clock))
    assert opened(history.path.with_name("then"), at) == then


def test_a_sealed_file_that_rots_in_the_data_folder_stays_whole_in_the_backup(history: History) -> None:
    _, path = backed_up_sealed(history)
    at, then = history.moment()
    flip(history.path / path, 100)
    report = backed_up(history, is_full=True)
    assert [each.path for each in report.damage] == report.kept_whole == [path] and not report.is_whole
    assert verify(place(history)).is_whole
    restore(str(to_of(history)), str(history.path.with_name("then")), clock=still(history.clock))
    assert opened(history.path.with_name("then"), at) == then


def test_damage_is_reported_again_until_the_file_is_brought_back(history: History) -> None:
    _, name = backed_up_sealed(history)
    shutil.rmtree(to_of(history))
    path = history.path / name
    flip(path, 100)
    for _ in range(2):
        assert [each.path for each in backed_up(history).damage] == [name]
    flip(path, 100)  # in place, with the same inode
    assert backed_up(history, verify=True).is_whole
    assert newest_whole(place(history)) == place(history).find(None).name


# -- another generation instead ----------------------------------------------------------------------------------------


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("is_there", [False, True])
def test_a_damaged_generation_changes_nothing_at_the_target_and_the_newest_whole_one_is_offered(
    history: History, tmp_path: Path, is_there: bool
) -> None:
    history.steps(40)
    at, then = history.moment()
    first = backed_up(history).generation
    history.steps(40)
    history.data.queues.dump()
    history.data.topic("new").publish({"n": "1"})
    second = backed_up(history).generation
    old = place(history).find(first).contents()
    news = [digest for digest in place(history).find(second).contents() if digest not in old]
    assert len(news) > 3
    target = tmp_path / "targets" / "new"
    (target if is_there else target.parent).mkdir(parents=True)
    before = everything(target.parent)
    for digest in news:
        path = to_of(history) / "contents" / digest
        right = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(CHANGES["a bit in the middle"](right))
        for options in ({}, {"generation": second}):
            with pytest.raises(Corruption) as raised:
                restore(str(to_of(history)), str(target), clock=still(history.clock), **options)  # type: ignore[arg-type]
            assert everything(target.parent) == before
            command = f"lamina restore {to_of(history)} --to {target} --generation {first}"
            assert command in raised.value.hint
        assert verify(place(history)).newest_whole == first
        path.write_bytes(right)
    restore(str(to_of(history)), str(target), generation=first, clock=still(history.clock))
    assert opened(target, at) == then


def test_a_damaged_manifest_offers_the_newest_whole_generation_as_well(history: History, tmp_path: Path) -> None:
    first, second, third = grown(history, count=3)
    path = to_of(history) / "generations" / f"{third}.json"
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-20])
    flip(content_of(history, "topics/", second), 20)
    with pytest.raises(Corruption) as raised:
        restore(str(to_of(history)), str(tmp_path / "new"))
    assert f"--generation {first}" in raised.value.hint
    report = backed_up(history)
    assert [rot.generations for rot in report.rot if not rot.is_healed] == [[third]] and not report.is_whole


def test_where_no_generation_is_whole_the_error_says_so(history: History, tmp_path: Path) -> None:
    history.steps(20)
    backed_up(history)
    for path in (to_of(history) / "contents").iterdir():
        flip(path, 8)
    with pytest.raises(Corruption, match="no generation is whole"):
        restore(str(to_of(history)), str(tmp_path / "new"))
    assert verify(place(history)).newest_whole is None


# -- that it starts ----------------------------------------------------------------------------------------------------


def prove(history: History, tmp_path: Path, **options: Any) -> opening.OpenProof:
    told: list[tuple[int, int]] = []
    room = tmp_path / "room"
    room.mkdir(exist_ok=True)
    try:
        proof = opening.prove(
            str(to_of(history)), folder=str(room), progress=lambda *step: told.append(step), **options
        )
    finally:
        assert not [*room.iterdir()], "nothing is left of it"
    assert told == sorted(told) and told[-1][0] == told[-1][1]
    return proof


def test_what_would_be_restored_is_shown_to_start(history: History, tmp_path: Path) -> None:
    history.steps(120)
    backed_up(history)
    before = everything(to_of(history))
    proof = prove(history, tmp_path)
    assert proof.starts and {log.kind for log in proof.logs} == {"jobs", "topic", "groups", "queues", "store", "plain"}
    assert not [log for log in proof.logs if not log.holds or log.problem]
    assert proof.generation == place(history).find(None).name and everything(to_of(history)) == before


def test_a_journal_that_cannot_be_read_does_not_pass(tmp_path: Path) -> None:
    options = lamina.QueueOptions(store="journal", quota=9)
    with lamina.open(tmp_path / "data", queues=options) as data:
        sid = data.queues.create().sid
        for number in range(5):
            data.queue(sid).send(b"%d" % number)
    back_up(str(tmp_path / "data"), str(tmp_path / "backup"))
    assert [log.holds for log in opening.prove(str(tmp_path / "backup")).logs] == ["1 queues, 5 messages"]


def test_nothing_that_is_told_of_a_journal_is_half_of_a_capability(tmp_path: Path) -> None:
    options = lamina.QueueOptions(store="journal", quota=9)
    with lamina.open(tmp_path / "data", queues=options) as data:
        made = data.queues.create()
        data.queue(made.sid).send(b"0")
    (path,) = (tmp_path / "data" / "queues" / "messages").rglob("messages.*.log")
    flip(path, path.stat().st_size - 6)  # every line below has something to say of it
    folders = path.parent.relative_to(tmp_path / "data" / "queues" / "messages").parts
    to = tmp_path / "backup"
    told = [asked(backup_command, tmp_path / "data", "--to", to), asked(backup_command, "list", to)]
    told.append(asked(restore_command, to, "--to", tmp_path / "new"))
    for content in (to / "contents").iterdir():
        flip(content, 1)
    told += [asked(backup_command, "verify", to, *words) for words in ((), ("--json",), ("--open",))]
    told.append(asked(restore_command, to, "--to", tmp_path / "new", "--with-damage"))
    for content in (to / "contents").iterdir():
        flip(content, 1)
    told += [asked(backup_command, tmp_path / "data", "--to", to, *words) for words in (("--json",), ("--full",))]
    for found in told:
        said = f"{found.output} {found.exception}"
        assert made.rid not in said.replace("/", "") and folders[-1] not in said
    assert sum(path.name in f"{found.output} {found.exception}" for found in told) > 6


@pytest.mark.parametrize(
    ("log", "suffix"),
    [("jobs", ".log"), ("topics/orders", ".dat"), ("topics/orders/groups", ".dat"), ("queues", ".log")],
)
def test_a_generation_that_is_whole_and_does_not_start_is_found_by_opening_it(
    history: History, tmp_path: Path, log: str, suffix: str
) -> None:
    """Records whose checksums are right and that no engine understands."""
    history.steps(120)
    backed_up(history)
    generation = place(history).find(None)
    ours = [file for file in generation.files if file.path.rpartition("/")[0] == log and file.path.endswith(suffix)]
    odd = place(history).contents.add([frame.encode(history.clock.now_ns(), b"\xc1 what is this?")]).content
    file = replace(ours[-1], contents=(*ours[-1].contents, odd))
    files = [file if each is ours[-1] else each for each in generation.files]
    write_manifest(history, replace(generation, files=tuple(files)))
    assert verify(place(history)).is_whole
    proof = prove(history, tmp_path)
    assert not proof.starts and log in [one.log for one in proof.logs if one.problem]


def test_a_file_that_is_missing_in_the_middle_is_found_by_opening_it(history: History, tmp_path: Path) -> None:
    backed_up_sealed(history)
    generation = place(history).find(None)
    files = [each for each in generation.files if each.path.startswith("topics/sealed/") and each.path.endswith("dat")]
    left = [each for each in generation.files if each.path != files[1].path]
    write_manifest(history, replace(generation, files=tuple(left)))
    assert len(files) > 3
    proof = prove(history, tmp_path)
    assert [one.log for one in proof.logs if one.problem] == ["topics/sealed"]


def write_manifest(history: History, generation: Generation) -> None:
    path = to_of(history) / "generations" / f"{generation.name}.json"
    path.write_bytes(manifest.encode(generation))


# -- the commands ------------------------------------------------------------------------------------------------------


def asked(command: Any, *words: object) -> Result:
    return CliRunner().invoke(command, [*map(str, words)], standalone_mode=False)


def test_the_commands_tell_what_was_healed_and_what_is_broken_by_their_exit_codes(
    history: History, tmp_path: Path
) -> None:
    history.steps(60)
    history.close()
    to = to_of(history)
    assert asked(backup_command, history.path, "--to", to).return_value == 0
    content = content_of(history, "jobs/")
    flip(content, 50)
    healed = asked(backup_command, history.path, "--to", to, "--reread", 1)
    assert healed.return_value == 0 and "healed in the backup: jobs/" in healed.output and content.name in healed.output
    assert "byte " in healed.output
    opens = asked(backup_command, "verify", to, "--open", "--in", tmp_path, "--json")
    assert opens.return_value == 0 and json.loads(opens.output)["opened"]["starts"]
    assert "it starts" in asked(backup_command, "verify", to, "--open").output
    whole = place(history).find(None).name
    path = history.path / next(file.path for file in place(history).find(None).files if file.path.startswith("jobs/"))
    flip(path, path.stat().st_size - 10)
    flip(content, 50)
    broken = asked(backup_command, history.path, "--to", to, "--json")
    assert broken.return_value == 5
    report = json.loads(broken.output[broken.output.index("{") :])
    assert not report["is_whole"] and report["damage"] and report["rot"][0]["generations"]
    damaged = place(history).find(None).name
    assert damaged in asked(backup_command, "list", to).output.split("damaged in the data folder")[0]
    flip(content, 50)
    checked = asked(backup_command, "verify", to, "--open")
    assert checked.return_value == 6 and "not opened: " in checked.output
    assert f"lamina restore {to} --to NEW --generation {whole}" in checked.output
    refused = asked(restore_command, to, "--to", tmp_path / "new")
    assert isinstance(refused.exception, Corruption) and f"--generation {whole}" in refused.exception.hint
    assert not (tmp_path / "new").exists()
    assert asked(restore_command, to, "--to", tmp_path / "new", "--with-damage").return_value == 0
    assert isinstance(asked(backup_command, "verify", to, "--in", tmp_path).exception, BadOption)
    flip(path, path.stat().st_size - 10)
    history.reopen()


def test_a_generation_of_a_former_version_is_read(history: History) -> None:
    """Without what manifests say of damage and shares."""
    history.steps(20)
    backed_up(history)
    path = next((to_of(history) / "generations").iterdir())
    lines = path.read_bytes().splitlines(keepends=True)
    kept = b"".join(line for line in lines[:-1] if not line.startswith((b'"damage"', b'"reread"', b'"rotten"')))

    path.write_bytes(kept + b'"sha256": "%s"}\n' % hashlib.sha256(kept).hexdigest().encode())
    check_generation(place(history), place(history).find(None))
    assert backed_up(history).is_whole
