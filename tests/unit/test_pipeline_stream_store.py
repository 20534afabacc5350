"""Streaming the store, and streams beside writers that rotate, clean and compact: without Spark."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import lamina
from lamina.errors import Gap
from lamina.log import LogOptions
from lamina.log.naming import FileName
from lamina.pipeline.streaming.track import Track
from unit.test_pipeline_stream import Query, looks_always

__all__ = ["looks_always"]

LIVE_S = 2.0


class Entries(Query):
    """Of the store: keys."""

    columns = ("epoch", "time_ns", "key")

    def __init__(self, path: Path, **options: str) -> None:
        super().__init__(path, view="store_entries", **options)


def test_an_entry_of_the_store_is_given_when_it_is_durable(tmp_path: Path) -> None:
    with lamina.open(tmp_path, store=lamina.StoreOptions(epoch_ms=3_600_000)) as data:
        store = data.store
        store.put(1, b"first", b"")
        query = Entries(tmp_path)
        assert query.batch() == [b"first"]
        with store.session(wait=False) as one:
            one.put(1, b"second", b"")
        assert query.batch() == []
        with store.session(wait=False) as one:
            one.put(1, b"third", b"")
        query.restart()
        assert query.batch() == []
        store.put(1, b"fourth", b"")
        assert sorted(query.batch()) == [b"first", b"fourth", b"second", b"third"][1:]
        assert query.batch() == []


def test_what_never_became_durable_is_not_given(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    with lamina.open(before, store=lamina.StoreOptions(epoch_ms=3_600_000)) as data:
        data.store.put(1, b"kept", b"")
        with data.store.session(wait=False) as one:
            one.put(1, b"void", b"")
        shutil.copytree(before, after)  # as a crash leaves it
    query = Entries(after)
    assert query.batch() == [b"kept"]
    with lamina.open(after) as data:
        data.store.put(1, b"new", b"")
        assert query.rest() == [b"new"]
        query.restart()
        assert query.rest() == []
    assert sorted(Entries(after).rest()) == [b"kept", b"new"]


def test_entries_of_many_sessions_come_once_through_rotations_limits_and_restarts(tmp_path: Path) -> None:
    rng = random.Random(11)
    written: list[bytes] = []
    given: list[bytes] = []
    with lamina.open(tmp_path, store=lamina.StoreOptions(epoch_ms=3_600_000)) as data:
        store = data.store
        store.put(1, b"0", b"")
        query = Entries(tmp_path, maxRecordsPerTrigger="7")
        written.append(b"0")
        for _ in range(60):
            with store.session(wait=rng.random() < 0.5) as one:
                for _ in range(rng.choice([1, 3, 20])):
                    written.append(b"%d" % len(written))
                    one.put(1, written[-1], bytes(rng.choice([0, 3000])))
            if rng.random() < 0.2:
                store.rotate()
            if rng.random() < 0.3:
                query.restart()
            given += query.batch()
        store.put(1, b"last", b"")
        given += query.rest()
    assert sorted(given) == sorted([*written, b"last"])


def test_a_store_that_was_compacted_under_the_stream_is_a_loss_unless_it_waits(tmp_path: Path) -> None:
    with lamina.open(tmp_path, store=lamina.StoreOptions(epoch_ms=3_600_000)) as data:
        store = data.store
        store.put(1, b"a", b"")
        fast, slow = Entries(tmp_path, consumer="slow"), Entries(tmp_path)
        assert fast.batch() == slow.batch() == [b"a"]
        for key in (b"b", b"c"):
            store.put(1, key, b"")
            store.rotate()
        store.compact()
        store.clean_up()
        store.put(1, b"d", b"")
        assert slow.batch() == [b"b", b"c", b"d"]
        del fast
        shutil.rmtree(tmp_path / "store/consumers")
        for key in (b"e", b"f"):
            store.put(1, key, b"")
            store.rotate()
        store.compact()
        store.clean_up()
        store.put(1, b"g", b"")
        with pytest.raises(Gap):
            slow.batch()


def test_a_batch_is_read_again_though_its_file_is_renamed_under_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between listing the folder and opening what was listed; and what is written next is in no file yet."""
    with lamina.open(tmp_path, store=lamina.StoreOptions(epoch_ms=3_600_000)) as data:
        data.store.put(1, b"a", b"")
        query = Entries(tmp_path)
        start, end = query.offset, query.plan()
        assert start is not None
        rows = query.read(start, end)
        query.restart()
        open_newest = Track._open

        def rotate_and_open(track: Track, name: FileName) -> object:
            if name.stream.startswith("pwal") and not name.is_closed:
                data.store.rotate()
            return open_newest(track, name)

        monkeypatch.setattr(Track, "_open", rotate_and_open)
        assert [row[-1] for row in query.read(start, end)] == [row[-1] for row in rows] == [b"a"]


# -- beside a writer -------------------------------------------------------------------------------------------------


class Messages(Query):
    """Of topics: what was published."""

    columns = ("topic", "time_ns", "fields")

    def __init__(self, path: Path, **options: str) -> None:
        super().__init__(path, view="topic", **options)


def follow(query: Query, write: Callable[[], None], rng: random.Random) -> Counter[object]:
    """Read while another thread writes for a while; with limits, restarts, and batches that are read twice."""
    is_over = threading.Event()
    problems: list[BaseException] = []

    def run() -> None:
        try:
            while not is_over.is_set():
                write()
        except BaseException as problem:
            problems.append(problem)

    writer = threading.Thread(target=run)
    writer.start()
    given: Counter[object] = Counter()

    def step() -> bool:
        if rng.random() < 0.1:
            query.reader.stop()
            query.restart()
        limit = ReadMaxRows(rng.choice([1, 20, 500])) if rng.random() < 0.5 else ReadAllAvailable()
        end = query.plan(limit)
        assert query.offset is not None
        if end == query.offset:
            return False
        rows = query.read(query.offset, end)
        if rng.random() < 0.2:
            query.restart()
            assert sorted(map(str, query.read(query.offset, end))) == sorted(map(str, rows))
        given.update(str(row[-1]) for row in rows)
        query.reader.commit(end)
        query.offset = end
        return True

    try:
        end_at = time.monotonic() + LIVE_S
        while time.monotonic() < end_at:
            step()
    finally:
        is_over.set()
        writer.join()
    assert problems == []
    quiet = 0
    while quiet < 3:
        quiet = 0 if step() else quiet + 1
    return given


def test_topics_that_grow_rotate_and_come_are_given_once(tmp_path: Path) -> None:
    rng = random.Random(time.time_ns())
    written: list[str] = []
    with lamina.open(tmp_path, topics=LogOptions(segment_bytes=3000)) as data:

        def write() -> None:
            numbers = [str(len(written) + number) for number in range(20)]
            data.topic(f"t{len(written) // 2000}").publish_many({"n": number} for number in numbers)
            written.extend(numbers)

        write()
        query = Messages(tmp_path, consumer="test")
        given = follow(query, write, rng)
    assert given == Counter(str([("n", number.encode())]) for number in written)


def test_a_store_that_rotates_and_compacts_is_given_once(tmp_path: Path) -> None:
    rng = random.Random(time.time_ns())
    written: list[bytes] = []
    with lamina.open(tmp_path, store=lamina.StoreOptions(epoch_ms=5)) as data:
        store = data.store

        def write() -> None:
            with store.session(wait=rng.random() < 0.2) as one:
                for _ in range(rng.choice([1, 5, 40])):
                    written.append(b"%d" % len(written))
                    one.put(1, written[-1], bytes(rng.choice([0, 500])))
            if rng.random() < 0.1:
                store.rotate()
            if rng.random() < 0.01:
                store.compact()
                store.clean_up()

        write()
        query = Entries(tmp_path, consumer="test")
        query.plan()
        given = follow(query, write, rng)
        store.put(1, b"last", b"")
        given.update(map(str, query.rest()))
    assert given == Counter(map(str, [*written, b"last"]))
