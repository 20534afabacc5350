"""Compactions that a file asks for: ctrl/start_compaction, ctrl/compaction_result. Rules R-TRG1 to R-TRG5 and R-THR1 to
R-THR4 of the store, and that closing never waits for a request."""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lamina.engines.store import trigger
from lamina.engines.store.api import Store
from lamina.engines.store.options import StoreOptions
from lamina.errors import Stopped
from lamina.testing import FaultyFiles, MemoryFiles
from store_lab import FOLDER

START = f"{FOLDER}/ctrl/start_compaction"
RESULT = f"{FOLDER}/ctrl/compaction_result"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigger, "_LOOK_S", 0.005)


@contextmanager
def opened(files: MemoryFiles | FaultyFiles, **options: float) -> Iterator[Store]:
    made: dict[str, float] = {"epoch_ms": 1, **options}
    with Store.open(FOLDER, files=files, options=StoreOptions(**made)) as store:  # type: ignore[arg-type]
        yield store


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


def test_w12_by_dead_bytes_it_compacts_when_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigger, "_LEAST_BYTES", 50_000)
    files = MemoryFiles()
    with opened(files, compact_dead_ratio=0.5) as store:
        store.put(1, b"once", b"v" * 10_000)
        time.sleep(0.05)
        assert store.engine.catalog.generation == 0
        for _ in range(30):
            store.put(1, b"again and again", b"v" * 10_000)
        until(lambda: store.engine.catalog.generation > 0)
        assert store.get(1, b"once") == b"v" * 10_000
