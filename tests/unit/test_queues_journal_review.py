"""What a journal promises at its edges: tidying that fails half way, syncs that break off, queues never at rest."""

from __future__ import annotations

import errno
import threading

import pytest

from journal_lab import NOW, ROOT, JournalLab, mid, number_of
from lamina.clock import ManualClock
from lamina.engines.queues import upkeep
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.journal import paths
from lamina.engines.queues.journal.state_line import parse
from lamina.engines.queues.message import Message, Queue
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.upkeep import Upkeep
from lamina.errors import BadOption, DiskError, DiskFull, StorageError
from lamina.log import OS, LogOptions, interval
from lamina.testing import FaultyFiles, MemoryFiles

WAIT_S = 30  # for a thread that should answer at once


def reopen_folder(lab: JournalLab) -> None:
    """Closed, and opened anew by whoever uses the queue next."""
    lab.store.forget(lab.rid)
    lab.queue = lab.new_queue()


def waiting(lab: JournalLab) -> list[int]:
    return [number_of(message) for message in lab.store.messages(lab.queue)]


def folders_that_lead_to(folder: str) -> set[str]:
    """All whose names must be synced for a new queue to be found after a power cut."""
    return {ROOT, *paths.parents_of(ROOT, folder), folder}


def synced_folders(lab: JournalLab) -> set[str]:
    return {path for operation, path in lab.disk.calls if operation == "sync_folder"}


# -- compacting ------------------------------------------------------------------------------------------------------


def test_what_is_answered_after_compacting_at_open_failed_behind_its_rename_is_there_after_a_restart() -> None:
    lab = JournalLab(open_lines=1, quota=100, max_file_messages=200)
    for _ in range(5):
        lab.put()
    reopen_folder(lab)
    fault = lab.disk.fail("sync_folder", only=lab.folder, nth=2)
    assert lab.store.size(lab.queue) == 5
    assert fault.struck == 1
    assert lab.kinds() == ["tidying_failed"]
    assert len(lab.lines()) == 1  # it was renamed already
    lab.disk.heal()
    lab.put()
    lab.restart()
    assert lab.store.size(lab.queue) == 6
    assert lab.kinds() == []
    assert lab.drain() == [1, 2, 3, 4, 5, 6]


def test_a_queue_with_a_change_in_every_sync_is_compacted_and_its_files_stay_few() -> None:
    most_lines, most_files = 20, 7
    lab = JournalLab(sync=interval(1000), compact_lines=most_lines)
    is_due = False

    def change_during_the_sync(operation: str, path: str) -> None:
        nonlocal is_due
        if operation == "sync" and is_due:
            is_due = False
            lab.put()
            lab.receive()

    lab.disk.before = change_during_the_sync
    for _ in range(10):
        for _ in range(20):
            lab.put()
            lab.receive()
        is_due = True
        lab.store.sync()
        assert not is_due, "there was no sync to come in between"
        assert len(lab.lines()) <= most_lines
        assert len(lab.message_files()) <= most_files
    assert len(lab.copies()) <= 5
    last = lab.put()
    lab.restart()
    assert [message.id for message in lab.store.messages(lab.queue)] == [last]
    assert "sync_failed" not in lab.kinds()


def test_a_copy_that_fails_for_want_of_room_leaves_no_torn_copy() -> None:
    lab = JournalLab(open_lines=1, quota=100, max_file_messages=200)
    for _ in range(6):
        lab.put()
        lab.put()
        lab.clock.advance(60)
        reopen_folder(lab)
        lab.store.size(lab.queue)
    lab.put()
    lab.put()
    before = {name: lab.content(name) for name in lab.copies()}
    assert before
    for _ in range(5):  # so often that torn ones would have driven out all good ones
        lab.clock.advance(60)
        reopen_folder(lab)
        fault = lab.disk.fail("append", error=errno.ENOSPC, times=99, taken=10)
        assert lab.store.size(lab.queue) == 14
        assert fault.struck
        lab.disk.heal()
    assert {name: lab.content(name) for name in lab.copies()} == before
    assert set(lab.kinds()) == {"tidying_failed"}
    reopen_folder(lab)
    assert lab.store.size(lab.queue) == 14
    newest = lab.content(lab.copies()[-1])
    assert newest not in before.values()
    assert all(parse(line) is not None for line in newest.splitlines())


# -- names of folders ------------------------------------------------------------------------------------------------


def test_all_folders_above_a_queue_are_synced_although_the_push_that_made_them_was_refused() -> None:
    lab = JournalLab()
    lab.disk.fail("append", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        lab.put()
    lab.disk.heal()
    lab.disk.calls.clear()
    lab.put()
    assert synced_folders(lab) >= folders_that_lead_to(lab.folder)
    assert len(folders_that_lead_to(lab.folder)) == 6


def test_all_folders_above_a_queue_are_synced_although_another_queue_that_made_them_was_refused() -> None:
    lab = JournalLab()
    refused, kept = lab.new_queue(bytes(24)), lab.new_queue(bytes(23) + b"\1")
    lab.disk.calls.clear()
    first = lab.store.put(refused, Message(mid(1), NOW, b"", b"refused"))
    second = lab.store.put(kept, Message(mid(2), NOW, b"", b"kept"))
    lab.disk.fail("append", error=errno.ENOSPC)
    lab.store.push()
    lab.store.settle(second)
    with pytest.raises(DiskFull):
        lab.store.settle(first)
    made_by_the_other, folder = (lab.store.layout.folder(ROOT, each.rid) for each in (refused, kept))
    assert paths.parents_of(ROOT, made_by_the_other) == paths.parents_of(ROOT, folder)
    assert synced_folders(lab) >= folders_that_lead_to(folder)


# -- cleaning and syncing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most_open", [1, 2])
def test_a_refused_clean_loses_nothing(most_open: int) -> None:
    lab = JournalLab(most_open=most_open, open_lines=16)
    for _ in range(3):
        lab.put()
    assert lab.receive() == 1
    lab.disk.fail("create", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        lab.store.clean(lab.queue)
    lab.disk.heal()
    assert waiting(lab) == [2, 3]
    assert lab.kinds() == ["write_refused"]
    lab.restart()
    assert waiting(lab) == [2, 3]
    assert lab.store.clean(lab.queue) > 0
    assert lab.drain() == [2, 3]


def test_a_sync_that_is_broken_off_by_another_error_is_told_and_a_later_one_works() -> None:
    lab = JournalLab(sync=interval(1000))
    lab.put()
    doubtful = lab.store.newest_position()

    def no_memory(operation: str, path: str) -> None:
        if operation == "sync":
            raise MemoryError

    lab.disk.before = no_memory
    lab.store.sync()
    assert lab.kinds() == ["sync_failed"]
    with pytest.raises(StorageError, match="broken off by MemoryError"):
        lab.store.has_synced(doubtful)
    lab.disk.before = lambda operation, path: None
    lab.put()
    later = lab.store.newest_position()
    assert not lab.store.has_synced(later)
    lab.disk.calls.clear()
    lab.store.sync()
    assert lab.store.has_synced(later)
    assert lab.calls("sync", "messages.") > 0
    assert lab.calls("sync", "queue.log") > 0
    with pytest.raises(StorageError):  # what was told of it stays so
        lab.store.has_synced(doubtful)
    assert lab.store.close_idle(-1) == 1  # nothing keeps its files open
    assert lab.drain() == [1, 2]


# -- the engine around it --------------------------------------------------------------------------------------------


def opened(files: FaultyFiles, store: str) -> QueueEngine:
    options = QueueOptions(store=store)
    log = LogOptions(sync=OS)
    return open_engine("queues", options=options, log=log, files=files, clock=ManualClock(), threaded=False)


def test_under_the_policy_os_journals_are_synced_all_the_same_in_a_thread_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "_TIDY_S", 0.001)
    engine = opened(FaultyFiles(MemoryFiles()), "journal")
    care = Upkeep(engine)
    called = threading.Event()
    callers: list[threading.Thread] = []

    def noted_sync() -> None:
        callers.append(threading.current_thread())
        called.set()

    with monkeypatch.context() as patch:
        patch.setattr(engine.keeper, "sync", noted_sync)
        care.start()
        try:
            assert called.wait(WAIT_S)
        finally:
            care.stop()
    assert {thread.name for thread in callers} == {"lamina-queues-sync"}
    assert not callers[0].is_alive()
    engine.close()


def test_a_folder_of_messages_that_cannot_be_listed_is_not_taken_for_an_empty_one() -> None:
    files = FaultyFiles(MemoryFiles())
    engine = opened(files, "journal")
    position = engine.keeper.put(Queue(bytes(24), None, bytes(24), None), Message(mid(1), NOW, b"", b"body"))
    engine.keeper.settle(position)
    engine.close()
    fault = files.fail("list", only=ROOT, error=errno.EIO)
    with pytest.raises(DiskError, match="list the folder"):
        opened(files, "memory")
    assert fault.struck == 1
    files.heal()
    with pytest.raises(BadOption, match="in journals"):  # and the lock was let go
        opened(files, "memory")
