"""Compactions that a file asks for: ctrl/start_compaction, ctrl/compaction_result. Rules R-TRG1 to R-TRG5 and R-THR1 to
R-THR4 of the store, and that closing never waits for a request."""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lamina.engines.store import compaction_worker, trigger
from lamina.engines.store.api import Store
from lamina.engines.store.options import StoreOptions
from lamina.errors import Stopped, TooOld
from lamina.log.history import Base, History
from lamina.testing import FaultyFiles, MemoryFiles
from store_lab import FOLDER

START = f"{FOLDER}/ctrl/start_compaction"
RESULT = f"{FOLDER}/ctrl/compaction_result"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigger, "_LOOK_S", 0.005)


@contextmanager
def opened(files: MemoryFiles | FaultyFiles, history: History | None = None, **options: float) -> Iterator[Store]:
    made = StoreOptions(**{"epoch_ms": 1, **options})  # type: ignore[arg-type]
    with Store.open(FOLDER, files=files, options=made, history=history) as store:
        yield store


def size_of(files: MemoryFiles) -> int:
    """Bytes of all files of the store, but for what ``ctrl`` holds."""
    return sum(len(content.data) for path, content in list(files.names.items()) if "/ctrl/" not in path)


def until(what: Any) -> None:
    end = time.monotonic() + 10
    while not what():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)


def result(files: MemoryFiles) -> dict[str, Any]:
    until(lambda: RESULT in files.names)
    found: dict[str, Any] = json.loads(bytes(files.names[RESULT].data))
    return found


def close_in_time(store: Store, seconds: float = 5) -> None:
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(seconds)
    assert not closing.is_alive(), "closing hangs"


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("lamina-store")}


def test_trg1_thr1_thr2_one_thread_is_there_while_the_store_is_open() -> None:
    before = threads()
    with opened(MemoryFiles()):
        assert "lamina-store-compaction" in threads()
    assert threads() == before


def test_thr3_the_folder_ctrl_is_made_when_it_is_missing() -> None:
    files = MemoryFiles()
    with opened(files):
        assert f"{FOLDER}/ctrl" in files.folders
    files.folders.discard(f"{FOLDER}/ctrl")
    with opened(files):
        assert f"{FOLDER}/ctrl" in files.folders


def test_thr3_the_folder_ctrl_is_made_again_while_the_store_is_open() -> None:
    files = MemoryFiles()
    with opened(files) as store:
        store.put(1, b"k", b"v")
        files.remove_empty_folder(f"{FOLDER}/ctrl")
        until(lambda: f"{FOLDER}/ctrl" in files.folders)
        files.write(START, b"")
        assert result(files)["outcome"] == "done"


def test_thr3_the_folder_ctrl_may_go_while_a_compaction_runs() -> None:
    files = MemoryFiles()
    with opened(files) as store:
        store.put(1, b"k", b"v")
        compact = store.compactions.compact

        def compact_without_ctrl(progress: Any) -> Any:
            for path in [path for path in files.names if path.startswith(f"{FOLDER}/ctrl/")]:
                files.remove(path)
            files.remove_empty_folder(f"{FOLDER}/ctrl")
            return compact(progress)

        store.compactions.compact = compact_without_ctrl  # type: ignore[assignment]
        files.write(START, b"")
        assert result(files)["outcome"] == "done"


@pytest.mark.parametrize("is_in_the_way", [False, True])
def test_a_clean_up_does_not_depend_on_the_folder_ctrl(
    caplog: pytest.LogCaptureFixture, *, is_in_the_way: bool
) -> None:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    with opened(files, compact_every_s=0.01) as store:
        if is_in_the_way:
            disk.remove_empty_folder(f"{FOLDER}/ctrl")
            disk.write(f"{FOLDER}/ctrl", b"a file")
        files.fail("create", only="ctrl", times=1 << 30, error=errno.EACCES)
        store.put(1, b"k", b"v")
        until(lambda: store.engine.catalog.generation == 1)
        until(lambda: not [name for name in disk.list(FOLDER) if name.startswith("pwal_0")])
        assert RESULT not in disk.names
        until(lambda: store.put(1, b"k", b"v2") and store.engine.catalog.generation > 3)
    if is_in_the_way:
        assert len([record for record in caplog.records if "make the folder" in record.getMessage()]) == 1


@pytest.mark.parametrize("text", [b"", b"{}", b'{"by": "me"}', b"not json", b"[1, 2]", b"\xff\xfe", b"x" * 100_000])
def test_trg2_trg3_thr4_the_file_starts_a_compaction_and_the_result_tells(text: bytes) -> None:
    files = MemoryFiles()
    with opened(files) as store:
        store.put(1, b"k", b"v")
        files.write(START, text)
        found = result(files)
        assert START not in files.names
        assert found["outcome"] == "done" and found["generation"] == 1 and len(found["inputs"]) == 1
        assert found["asked"] == ({"by": "me"} if text == b'{"by": "me"}' else {})
        assert store.engine.catalog.generation == 1
        report = trigger.report_of(found)
        assert report is not None and report.entries_live == 1 and isinstance(report.inputs, tuple)
        assert store.get(1, b"k") == b"v"


def test_trg3_with_nothing_new_the_result_says_so() -> None:
    files = MemoryFiles()
    with opened(files):
        files.write(START, b"")
        assert result(files)["outcome"] == "nothing to do"


def test_trg3_each_request_has_one_result() -> None:
    files = MemoryFiles()
    with opened(files) as store:
        for number in range(3):
            store.put(1, b"k", b"%d" % number)
            files.write(START, json.dumps({"id": number}).encode())
            found = result(files)
            assert (found["asked"], found["generation"]) == ({"id": number}, number + 1)
            files.remove(RESULT)


def test_trg4_a_request_beside_a_compaction_that_runs_waits_for_it() -> None:
    files = MemoryFiles()
    with opened(files) as store:
        store.put(1, b"k", b"v")
        asked = threading.Event()

        def progress(done: int, total: int) -> None:
            if not asked.is_set():
                asked.set()
                store.put(1, b"later", b"v")
                files.write(START, b"")
                until(lambda: START not in files.names)
                time.sleep(0.02)
                assert RESULT not in files.names

        store.compact(progress)
        assert result(files)["generation"] == 2


def test_trg5_progress_and_result_are_written_in_one_step() -> None:
    files = MemoryFiles()
    files.make_folder(f"{FOLDER}/ctrl")
    for number in range(3):
        trigger.put(files, f"{FOLDER}/ctrl", trigger.RESULT, {"number": number})
        assert trigger.get(files, f"{FOLDER}/ctrl", trigger.RESULT) == {"number": number}
    assert files.list(f"{FOLDER}/ctrl") == ["compaction_result"]
    assert trigger.get(files, f"{FOLDER}/ctrl", "absent") is None
    assert trigger.report_of({"outcome": "failed"}) is None


def test_a_compaction_that_fails_is_told_and_the_next_one_works() -> None:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    with opened(files) as store:
        store.put(1, b"k", b"v")
        files.fail("create", only="pwal_compacted", error=errno.ENOSPC)
        disk.write(START, b"")
        found = result(disk)
        assert found["outcome"] == "failed" and found["error"]["code"] == "disk_full"
        disk.remove(RESULT)
        disk.write(START, b"")
        assert result(disk)["outcome"] == "done"
        assert store.get(1, b"k") == b"v"


def test_a_request_that_cannot_be_removed_does_not_compact_without_end() -> None:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    with opened(files) as store:
        store.put(1, b"k", b"v")
        files.fail("remove", only="start_compaction", times=1 << 30, error=errno.EACCES)
        disk.write(START, b"")
        time.sleep(0.2)
        assert store.epoch < 20  # each compaction ends an epoch
        files.heal()
        assert result(disk)["outcome"] == "done"


def test_a_result_that_cannot_be_written_ends_nothing() -> None:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    with opened(files) as store:
        store.put(1, b"k", b"v")
        files.fail("create", only="compaction_result", error=errno.ENOSPC)
        disk.write(START, b"")
        until(lambda: store.engine.catalog.generation == 1)
        store.put(1, b"k", b"v2")
        disk.write(START, b"")
        assert result(disk)["generation"] == 2


def test_w07_closing_does_not_wait_for_a_compaction_that_waits_for_a_session() -> None:
    files = MemoryFiles()
    store = Store.open(FOLDER, files=files, options=StoreOptions(epoch_ms=1))
    session = store.channel(900).begin()
    session.put(1, b"k", b"v")
    files.write(START, b"")
    until(lambda: store.epoch > session.epoch)
    close_in_time(store)
    found = result(files)
    assert found["outcome"] == "stopped" and found["error"]["code"] == "stopped"
    assert store.engine.catalog.generation == 0


def test_w07_nor_for_one_that_waits_for_an_epoch_that_never_comes() -> None:
    files = MemoryFiles()
    store = Store.open(FOLDER, files=files, options=StoreOptions(epoch_ms=0))
    with store.channel(900).begin() as session:  # or there would be nothing to compact
        session.put(1, b"k", b"v")
    files.write(START, b"")
    until(lambda: START not in files.names)
    outcomes: list[type[BaseException]] = []

    def ask(what: Any) -> None:
        try:
            what()
        except BaseException as error:
            outcomes.append(type(error))

    asking = [threading.Thread(target=ask, args=(what,)) for what in (store.compact, store.rotate, store.rotate)]
    for thread in asking:
        thread.start()
    until(lambda: len(store.engine._rotations.queue) >= 3)
    close_in_time(store)
    for thread in asking:
        thread.join(5)
    assert outcomes == [Stopped, Stopped, Stopped]
    assert result(files)["outcome"] == "stopped"


def test_w07_nor_for_who_waits_for_an_epoch() -> None:
    store = Store.open(FOLDER, files=MemoryFiles(), options=StoreOptions(epoch_ms=0))
    told: list[BaseException] = []

    def wait() -> None:
        try:
            store.wait_durable(store.epoch + 10)
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: store.engine.waiters.wants(store.epoch + 10))
    assert not store.engine.waiters.wants(store.epoch)  # nobody hurries through epochs for it
    close_in_time(store)
    thread.join(5)
    assert len(told) == 1


def test_w12_by_time_it_compacts_and_cleans_up_by_itself() -> None:
    files = MemoryFiles()
    with opened(files, compact_every_s=0.01) as store:
        store.put(1, b"k", b"v")
        assert result(files)["asked"] == {"by": "itself"}
        until(lambda: not [name for name in files.list(FOLDER) if name.startswith("pwal_0")])
        generation = store.engine.catalog.generation
        time.sleep(0.05)
        assert store.engine.catalog.generation == generation  # nothing was written: nothing is done
        assert store.get(1, b"k") == b"v"


def test_w12_by_dead_bytes_it_compacts_when_it_is_worth_it() -> None:
    files = MemoryFiles()
    with opened(files) as store:
        store.put(1, b"once", b"v" * 10_000)
        for _ in range(90):
            store.put(1, b"again and again", b"v" * 10_000)
        time.sleep(0.05)
        assert store.engine.catalog.generation == 0, "it is mostly dead, and little"
        for number in range(30):
            store.put(1, b"again and again", b"v" * 9_999 + b"%d" % (number % 10))
        until(lambda: store.engine.catalog.generation > 0)
        assert store.get(1, b"once") == b"v" * 10_000


@pytest.mark.parametrize("length", [1500, 20_000])
def test_written_a_hundred_times_it_takes_twice_and_a_half_of_what_is_alive(length: int) -> None:
    """Of values of any size, once everything was written."""
    keys = [b"key %d" % number for number in range(1_100_000 // (length + 60) + 1)]
    fresh, files = MemoryFiles(), MemoryFiles()
    with opened(fresh, compact_dead_ratio=0) as store:
        with store.session() as session:
            session.put_many(1, [(key, b"v" * length) for key in keys])
        store.compact()
        store.clean_up()
    alive = size_of(fresh)
    assert alive > 1_000_000
    with opened(files) as store:
        for number in range(100):
            with store.session(wait=False) as session:
                session.put_many(1, [(key, (b"%d" % number).rjust(length)) for key in keys])
        store.wait_durable(session.epoch)
        until(lambda: size_of(files) <= 2.5 * alive)
        assert [found.value for found in store.scan(1)] == [b"99".rjust(length)] * len(keys)
    with opened(files) as store:
        assert store.engine.entries_read <= 1.5 * len(keys), "neither does a start read what is dead"


@pytest.mark.parametrize("by", ["remove", "clear", "drop"])
def test_what_a_few_bytes_delete_counts_with_what_it_frees(by: str) -> None:
    files = MemoryFiles()
    with opened(files) as store:
        with store.session() as session:
            session.put_many(1, [(b"%d" % number, bytes(20_000)) for number in range(100)])
            session.put(2, b"stays", b"v")
        store.compact()
        assert size_of(files) > 2_000_000
        with store.session() as session:
            if by == "remove":
                for number in range(100):
                    session.remove(1, b"%d" % number)
            elif by == "clear":
                session.clear_storage(1)
            else:
                session.remove_storage(1)
        until(lambda: size_of(files) < 100_000)
        assert [found.key for each in (1, 2) for found in store.scan(each)] == [b"stays"]


def test_what_is_alive_is_not_written_again_and_again() -> None:
    """All that compactions write is about what was written before."""
    files = MemoryFiles()
    with opened(files) as store:
        for number in range(200):  # none of it dead
            with store.session(wait=False) as session:
                session.put_many(1, [(b"%d-%d" % (number, each), bytes(1000)) for each in range(50)])
        store.wait_durable(session.epoch)
        time.sleep(0.1)
        assert store.engine.catalog.generation == 0
        written = 0
        for number in range(200):
            with store.session(wait=False) as session:
                session.put_many(1, [(b"%d-%d" % (number, each), bytes(1000)) for each in range(50)])
            written += 50 * 1000
        store.wait_durable(session.epoch)
        until(lambda: size_of(files) <= 2.3 * written)  # half of it dead, and what is around entries
        again = sum(run.report.bytes_after for run in store.compactions.runs if run.report is not None)
        assert again <= 1.2 * 2 * written


def test_at_a_start_it_cleans_up_what_a_run_before_left() -> None:
    files = MemoryFiles()
    with opened(files, compact_dead_ratio=0) as store:
        store.put(1, b"k", bytes(50_000))
        store.compact()
    assert [name for name in files.list(FOLDER) if name.startswith("pwal_0")]
    with opened(files) as store:
        until(lambda: not [name for name in files.list(FOLDER) if name.startswith("pwal_0")])
        assert store.get(1, b"k") == bytes(50_000)


def test_a_store_that_is_told_not_to_does_nothing_by_itself() -> None:
    files = MemoryFiles()
    with opened(files, compact_dead_ratio=0) as store:
        for number in range(3):
            store.put(1, b"k", bytes([number]) * 1_000_000)
        store.compact()
        time.sleep(0.05)
        assert [name for name in files.list(FOLDER) if name.startswith("pwal_0")]


def test_the_recent_past_stays_and_goes_when_it_is_over_or_room_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigger, "_CLEAN_S", 0.01)
    files, room = MemoryFiles(), 1 << 30
    history = History(keep_s=3600, most_bytes=lambda: room)
    with opened(files, history) as store:
        epochs = []
        for number in range(6):
            store.put(1, b"k", bytes([number]) * 600_000)
            epochs.append(store.last_epoch)
            time.sleep(0.02)
        until(lambda: store.engine.catalog.generation > 0 and history.bytes_of(FOLDER))
        for number, epoch in enumerate(epochs):
            assert store.as_of(epoch=epoch).get(1, b"k") == bytes([number]) * 600_000
    with opened(files, history) as store:  # and after a restart
        assert store.as_of(epoch=epochs[0]).get(1, b"k") == bytes(600_000)
        room = 0
        until(lambda: size_of(files) < 1_400_000)
        assert history.bytes == 0
        with pytest.raises(TooOld):
            store.as_of(epoch=epochs[0])
        assert store.get(1, b"k") == bytes([5]) * 600_000


def test_while_much_history_is_kept_a_compaction_waits_for_more() -> None:
    """It would free nothing, and leave a file for the past each time."""
    files, history = MemoryFiles(), History()
    history.bases(FOLDER, [Base(0, {}, 160_000_000)], 1 << 62, 1 << 61)
    assert history.bytes_of(FOLDER) == 160_000_000
    with opened(files, history) as store:
        for number in range(8):
            store.put(1, b"k", bytes([number]) * 1_000_000)
        time.sleep(0.05)
        assert store.engine.catalog.generation == 0
        for number in range(5):
            store.put(1, b"k", bytes([number]) * 1_000_000)
        until(lambda: store.engine.catalog.generation == 1)


def test_a_small_compaction_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = compaction_worker.elsewhere.ask
    monkeypatch.setattr(compaction_worker.elsewhere, "ask", lambda *args: asked.append(args[0]) or ask(*args))
    with Store.open(str(tmp_path / "store"), options=StoreOptions(compact_dead_ratio=0)) as store:
        store.put(1, b"k", bytes(1000))
        store.compact()
        assert not asked
        store.put(1, b"k", bytes(compaction_worker.SMALL))
        store.compact()
        assert len(asked) == 1
        assert store.get(1, b"k") == bytes(compaction_worker.SMALL)
