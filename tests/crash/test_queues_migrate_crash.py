"""Power cuts and kills while messages go from one store to the other: run again, and all are there, in order."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from itertools import count

import pytest

from lamina.engines.queues import codec, ids, migration_mark, store_files
from lamina.engines.queues.journal.home import JournalOptions
from lamina.engines.queues.journal.store import JournalStore
from lamina.engines.queues.looking import look
from lamina.engines.queues.message import Message, Queue
from lamina.engines.queues.migrating import MigrationReport, migrate
from lamina.engines.queues.proving import dump_of
from lamina.engines.queues.tending import move, open_to_tend
from lamina.errors import BadOption, Corruption, StorageError
from lamina.log import ALWAYS, kernel
from lamina.log.files.memory import Content, MemoryFiles
from lamina.log.formats import QUEUE_STORE
from lamina.testing import Fault, FaultyFiles, ManualClock, PowerLoss

FOLDER = "data/queues"
DISKS = int(os.environ.get("LAMINA_DISKS", "800")) * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
NOW_S = 1_700_000_000
DIRECTIONS = ["journal", "memory"]
STEPS = {
    "journal": ["marked", "some copied", "copied", "committed", "proven", "removed", "unmarked"],
    "memory": ["marked", "committed", "proven", "journals removed", "removed", "unmarked"],
}

Seen = dict[bytes, tuple[object, ...]]


class Killed(BaseException):
    """No handler of ours catches it."""


class Drawn:
    """Chance that is the same every time."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def __call__(self, size: int) -> bytes:
        return self._random.randbytes(size)


def queues_of(amount: int, seed: int = 7) -> list[tuple[Queue, list[Message]]]:
    """In the order of their ids; one is empty, one is suspended, one met its quota."""
    rng = random.Random(seed)
    made = []
    for number in range(amount):
        queue = Queue(rng.randbytes(24), rng.randbytes(48), rng.randbytes(24), None, number == 2, 86_400 * number)
        if number == 1:
            queue.skey, queue.ttl = rng.randbytes(48), 3600
        sent = [
            Message(rng.randbytes(24), NOW_S + each, b"f" * (each % 3), rng.randbytes(rng.choice([0, 9, 700])))
            for each in range(0 if number == 3 else 1 + number % 4)
        ]
        if number == 0:
            sent += [
                Message(rng.randbytes(24), NOW_S, b"", b"short-lived", 1),
                Message(rng.randbytes(24), 5, b"", None),
            ]
        made.append((queue, sent))
    return sorted(made, key=lambda pair: pair[0].rid)


def in_memory(amount: int) -> dict[str, bytes]:
    """A dump with the first half, and a log with the second."""
    queues = queues_of(amount)
    half, rest = queues[: amount // 2], queues[amount // 2 :]
    stamp = 10**9 * NOW_S
    records = [
        record
        for queue, sent in rest
        for record in (codec.create(queue), *(codec.message(queue.rid, message) for message in sent))
    ]
    dump = b"".join(dump_of(half, 10_000, stamp))
    log = QUEUE_STORE.header + kernel.encode_many(stamp + 1, records)
    return {f"{FOLDER}/{store_files.dump_name(3)}": dump, f"{FOLDER}/{store_files.log_name(4).name}": log}


def in_journals(amount: int) -> dict[str, bytes]:
    """A dump without messages, and a folder for each queue that has some."""
    files = MemoryFiles()
    files.make_folder(FOLDER)
    queues = queues_of(amount)
    store = JournalStore(
        f"{FOLDER}/messages", files, ManualClock(), Drawn(3), sync=ALWAYS, options=JournalOptions(), tell=print
    )
    for queue, sent in queues:
        for message in sent:
            store.put(queue, message)
    store.close()
    dump = b"".join(dump_of([(queue, []) for queue, _ in queues], 10_000, 10**9 * NOW_S))
    return {**files.contents(), f"{FOLDER}/{store_files.dump_name(3)}": dump}


def before(to: str, amount: int) -> dict[str, bytes]:
    return in_memory(amount) if to == "journal" else in_journals(amount)


def run(files: MemoryFiles, to: str, step: Callable[[str], None] = lambda name: None) -> MigrationReport:
    return migrate(FOLDER, to, files=files, clock=ManualClock(), random=Drawn(9), step=step)


def seen(files: MemoryFiles, to: str) -> Seen:
    """All that a client could ever be told, from the store that it should be in."""
    looked = look(files, FOLDER)
    assert looked.store == to
    return facts([(queue, looked.messages(queue)) for queue in looked.state.queues.values()])


def facts(queues: list[tuple[Queue, list[Message]]]) -> Seen:
    return {
        queue.rid: (codec.create(queue), *(codec.message(queue.rid, message) for message in sent))
        for queue, sent in queues
    }


def check_done(files: MemoryFiles, to: str, amount: int) -> None:
    assert seen(files, to) == facts(queues_of(amount))
    names = files.list(FOLDER)
    assert migration_mark.NAME not in names
    found = store_files.find(names)
    assert (len(found.dumps), found.logs, found.savings) == (1, [], [])
    assert ("messages" in names) is (to == "journal")
    assert not [path for path in files.contents() if ".aside" in path]


@pytest.mark.parametrize("to", DIRECTIONS)
class TestMigration:
    def test_all_is_there_in_order_and_both_counts_are_told(self, to: str) -> None:
        files = MemoryFiles(before(to, 6))
        report = run(files, to)
        sent = sum(len(messages) for _, messages in queues_of(6))
        assert (report.before.queues, report.before.messages) == (6, sent)
        assert report.after == report.before
        assert not (report.was_resumed or report.was_there or report.warnings)
        check_done(files, to, 6)

    def test_there_and_back_again_is_the_same(self, to: str) -> None:
        back = "memory" if to == "journal" else "journal"
        files = MemoryFiles(before(to, 6))
        there = run(files, to)
        assert run(files, back).after == there.before
        check_done(files, back, 6)

    def test_a_second_time_changes_nothing(self, to: str) -> None:
        files = MemoryFiles(before(to, 6))
        first = run(files, to)
        contents = files.contents()
        again = run(files, to)
        assert again.was_there
        assert again.after == first.after
        assert files.contents() == contents

    def test_killed_at_any_step_it_says_so_and_goes_on_when_run_again(self, to: str) -> None:
        met = set()
        for stop_at in count():
            files = MemoryFiles(before(to, 70))
            steps: list[str] = []

            def stop(name: str, steps: list[str] = steps, stop_at: int = stop_at) -> None:
                steps.append(name)
                if len(steps) > stop_at:
                    raise Killed

            try:
                run(files, to, stop)
                break
            except Killed:
                met.add(steps[-1])
            files.drop_locks()
            if steps[-1] != "unmarked":
                with pytest.raises(BadOption, match=f"a migration to the store {to} is under way"):
                    look(files, FOLDER)
                assert run(files, to).was_resumed
            check_done(files, to, 70)
        assert met == set(STEPS[to])

    def test_the_other_way_is_refused_until_it_has_come_to_its_end(self, to: str) -> None:
        files = MemoryFiles(before(to, 6))

        def stop(name: str) -> None:
            raise Killed

        with pytest.raises(Killed):
            run(files, to, stop)
        files.drop_locks()
        contents = files.contents()
        with pytest.raises(BadOption, match="is under way"):
            run(files, "memory" if to == "journal" else "journal")
        assert files.contents() == contents

    @pytest.mark.parametrize("model", ["strict", "journalled"])
    def test_every_power_cut_leaves_what_another_run_makes_whole(self, to: str, model: str) -> None:
        disk = PowerLoss(before(to, 5), model=model)  # type: ignore[arg-type]
        wanted = facts(queues_of(5))
        run(disk, to)
        disk.note("done")
        disks = marked = 0
        per_point = max(DISKS // 2 // disk.points, 2)
        for state in disk.states(per_point=per_point):
            files = state.files
            is_marked = migration_mark.NAME in files.list(FOLDER)
            if not is_marked:
                looked = look(files, FOLDER)  # before the first step, or behind the last
                assert facts([(queue, looked.messages(queue)) for queue in looked.state.queues.values()]) == wanted
            if state.notes:
                assert not is_marked
            report = run(files, to)
            assert report.was_resumed is is_marked, state.label
            assert seen(files, to) == wanted, state.label
            disks, marked = disks + 1, marked + is_marked
        assert marked > disks // 4

    def test_a_power_cut_behind_a_kill_takes_nothing_that_the_next_run_found_written(self, to: str) -> None:
        """What a killed run wrote may not be on the disk; the next run must not take it for safe."""
        wanted = facts(queues_of(5))
        kills = 0
        for operations in count():
            disk = Mortal(before(to, 5))
            disk.left = operations
            try:
                run(disk, to)
                break
            except Killed:
                kills += 1
            disk.left = None
            disk.drop_locks()
            run(disk, to)
            for state in disk.states(at=disk.points, per_point=10):
                assert seen(state.files, to) == wanted, (operations, state.label)
        assert kills > 10

    @pytest.mark.parametrize("operation", ["append", "create", "sync", "rename", "remove", "sync_folder"])
    def test_a_disk_that_fails_is_told_and_another_run_makes_it_whole(self, to: str, operation: str) -> None:
        failed = 0
        for nth in count(1):
            files = MemoryFiles(before(to, 5))
            fault, faulty = Fault(operation, nth=nth, error=errno.ENOSPC, times=1000), FaultyFiles(files)
            faulty.faults.append(fault)
            try:
                migrate(FOLDER, to, files=faulty, clock=ManualClock(), random=Drawn(9))
            except StorageError as error:
                assert fault.struck
                assert not [queue for queue, _ in queues_of(5) if ids.show(queue.rid)[8:] in f"{error} {error.facts}"]
                failed += 1
            if not fault.struck:
                break
            run(files, to)
            check_done(files, to, 5)
        assert failed


class Mortal(PowerLoss):
    """Its process dies after so many operations."""

    left: int | None = None

    def do_append(self, content: Content, data: bytes) -> None:
        self._live()
        super().do_append(content, data)

    def do_sync(self, content: Content) -> None:
        self._live()
        super().do_sync(content)

    def do_link(self, path: str, content: Content) -> None:
        self._live()
        super().do_link(path, content)

    def do_rename(self, old: str, new: str) -> None:
        self._live()
        super().do_rename(old, new)

    def do_rename_all(self, names: dict[str, str]) -> None:
        self._live()
        super().do_rename_all(names)

    def do_remove(self, path: str) -> None:
        self._live()
        super().do_remove(path)

    def do_sync_folder(self, folder: str) -> None:
        self._live()
        super().do_sync_folder(folder)

    def _live(self) -> None:
        if self.left is not None:
            if not self.left:
                raise Killed
            self.left -= 1


def test_a_queue_that_was_copied_is_not_copied_twice() -> None:
    files = MemoryFiles(in_memory(70))

    def stop(name: str) -> None:
        if name == "some copied":
            raise Killed

    with pytest.raises(Killed):
        run(files, "journal", stop)
    files.drop_locks()
    copied = {path: data for path, data in files.contents().items() if path.endswith(".log") and "/messages." in path}
    assert copied
    run(files, "journal")
    assert {path: files.contents()[path] for path in copied} == copied


def test_it_refuses_to_finish_when_messages_are_missing_and_removes_nothing() -> None:
    files = MemoryFiles(in_memory(6))
    old = set(files.contents())

    def lose_one(name: str) -> None:
        if name == "copied":
            path = min(path for path in files.contents() if path.endswith("/queue.log"))
            files.remove(path)

    with pytest.raises(Corruption, match=r"6 queues and \d+ messages"):
        run(files, "journal", lose_one)
    assert old <= set(files.contents())
    files.drop_locks()
    run(files, "journal")
    check_done(files, "journal", 6)


def test_a_damaged_message_is_not_left_out_unless_that_is_wanted() -> None:
    contents = in_journals(6)
    files_of_messages = [path for path in contents if "/messages." in path and path.endswith(".log")]
    path = max(files_of_messages, key=lambda path: len(contents[path]))
    data = bytearray(contents[path])
    data[40] ^= 1
    contents[path] = bytes(data)
    files = MemoryFiles(contents)
    with pytest.raises(Corruption, match="1 messages cannot be read"):
        run(files, "memory")
    assert migration_mark.NAME not in files.list(FOLDER)
    report = migrate(FOLDER, "memory", files=files, clock=ManualClock(), random=Drawn(), force=True)
    sent = sum(len(messages) for _, messages in queues_of(6))
    assert report.after.messages == sent - 1
    assert any("cannot be read" in warning for warning in report.warnings)


@pytest.mark.parametrize("store", ["memory", "journal"])
def test_a_power_cut_while_messages_are_moved_to_another_queue_loses_none(store: str) -> None:
    """Some may be in both; moved again, each is in the other queue once."""
    disk = PowerLoss(in_memory(5) if store == "memory" else in_journals(5))
    made = queues_of(5)
    source, target = (pick(made, size)[0][0] for size in (2, 1))
    wanted = [message.id for rid in (target, source) for message in dict(pick(made))[rid]]

    def moved(files: MemoryFiles) -> tuple[list[bytes], list[bytes]]:
        engine = open_to_tend(FOLDER, files=files, clock=ManualClock(), random=Drawn(4), threaded=False)
        move(engine, engine.state.queues[source], engine.state.queues[target])
        engine.close()
        return found(files)

    def found(files: MemoryFiles) -> tuple[list[bytes], list[bytes]]:
        engine = open_to_tend(FOLDER, files=files, clock=ManualClock(), random=Drawn(4), threaded=False)
        ids = [
            [message.id for message in engine.messages.messages(engine.state.queues[rid])] for rid in (source, target)
        ]
        engine.close()
        return ids[0], ids[1]

    assert moved(disk) == ([], wanted)
    in_both = 0
    for state in disk.states(per_point=max(DISKS // 2 // disk.points, 2)):
        left, there = found(state.files)
        assert set(left) | set(there) == set(wanted), state.label
        in_both += bool(set(left) & set(there))
        assert moved(state.files) == ([], wanted), state.label
    assert in_both


def pick(made: list[tuple[Queue, list[Message]]], size: int | None = None) -> list[tuple[bytes, list[Message]]]:
    """Queues that take messages, with those that wait there; of this ``size``."""
    open_ones = [(queue.rid, sent) for queue, sent in made if not queue.is_off and not (sent and sent[-1].is_marker)]
    return [(rid, sent) for rid, sent in open_ones if size is None or len(sent) == size]
