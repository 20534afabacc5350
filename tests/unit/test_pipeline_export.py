"""Promises of the job ``export``: every record once, for any reader, wherever a run is cut short."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import lamina
import queues_store_lab
from lamina.cli.pipeline_export import export as command
from lamina.clock import ManualClock
from lamina.engines.store.compactions import Compactions
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.options import StoreOptions
from lamina.errors import BadOption, Corruption, DiskError, Gap, LogLocked, MissingExtra, WrongFormat
from lamina.log import LogOptions, consumers, rewrite
from lamina.log.files.real import RealFile, RealFiles
from lamina.log.writer import Log
from lamina.pipeline import tables
from lamina.pipeline.exporting import manifest, target
from lamina.pipeline.jobs.export import export

START = 1_700_000_000 * 10**9
HOUR = 3600.0
Rows = list[tuple[str, int]]


class Lab:
    """A data folder with plain logs of small segments, and a folder to export to."""

    def __init__(self, path: Path) -> None:
        self.data, self.out = path / "data", path / "out"
        self.clock = ManualClock(START)
        self.logs: dict[str, Log] = {}

    def append(self, count: int = 10, *, log: str = "a", every_s: float = 1.0) -> None:
        if log not in self.logs:
            options = LogOptions(segment_bytes=1500)
            folder = str(self.data / "logs" / log)
            self.logs[log] = Log.open(folder, clock=self.clock, options=options, threaded=False)
        for number in range(count):
            self.clock.advance(every_s)
            self.logs[log].append(b"payload %d" % number)
        self.logs[log].run_round()

    def export(self, **options: Any) -> Any:
        return export(str(self.data), str(self.out), **options)

    def written(self) -> Rows:
        """What the logs hold."""
        return rows_of(tables.scan(str(self.data), "records").read_all())

    def exported(self) -> Rows:
        """What a program finds that knows nothing of lamina."""
        return plain(self.out / "records")

    def files(self, view: str = "records") -> list[str]:
        return sorted(str(path.relative_to(self.out / view)) for path in (self.out / view).rglob("*.parquet"))

    def close(self) -> None:
        for log in self.logs.values():
            log.close()


def rows_of(table: pa.Table) -> Rows:
    return sorted(zip(table["log"].to_pylist(), table["time_ns"].to_pylist(), strict=True))


def plain(folder: Path) -> Rows:
    if not folder.exists():
        return []
    return rows_of(pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive").to_table(["log", "time_ns"]))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.close()


def leftovers(lab: Lab) -> list[Path]:
    return list((lab.out / "_tmp").rglob("*")) if (lab.out / "_tmp").exists() else []


# -- what is there afterwards ----------------------------------------------------------------------------------------


def test_rows_are_those_of_the_view_by_day_of_utc(lab: Lab) -> None:
    lab.append(60, every_s=HOUR)
    report = lab.export()
    found = pyarrow.dataset.dataset(lab.out / "records", partitioning="hive").to_table().sort_by("time_ns")
    wanted = tables.scan(str(lab.data), "records").read_all()
    assert found.drop_columns("date").equals(wanted)
    assert found["date"].to_pylist() == [str(moment.date()) for moment in wanted["time"].to_pylist()]
    assert (report.rows, report.total_rows, report.logs) == (60, 60, 1)
    assert report.days == ["2023-11-14", "2023-11-15", "2023-11-16", "2023-11-17"]
    assert (report.first_ns, report.last_ns) == (wanted["time_ns"][0].as_py(), wanted["time_ns"][-1].as_py())
    part = pq.ParquetFile(lab.out / "records" / lab.files()[0])
    assert part.metadata.row_group(0).column(0).compression == "ZSTD"
    assert not leftovers(lab)


def test_a_second_run_adds_what_is_new_and_a_third_changes_nothing(lab: Lab) -> None:
    lab.append(30)
    assert lab.export().rows == 30
    lab.append(7)
    lab.append(5, log="b")
    report = lab.export()
    assert (report.rows, report.logs, report.batch, report.total_rows) == (12, 2, 2, 42)
    assert lab.exported() == lab.written()
    before = {path: path.stat().st_mtime_ns for path in lab.out.rglob("*.json")}
    assert lab.export().batch == 2
    assert {path: path.stat().st_mtime_ns for path in lab.out.rglob("*.json")} == before


def test_only_files_from_the_position_on_are_opened(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.append(600)
    lab.export()
    lab.append(3)
    opened: Counter[str] = Counter()
    real = RealFiles.open

    def spy(self: RealFiles, path: str, *, write: bool = False) -> RealFile:
        opened[os.path.basename(path)] += 1
        return real(self, path, write=write)

    monkeypatch.setattr(RealFiles, "open", spy)
    assert lab.export().rows == 3
    segments = [name for name in os.listdir(lab.data / "logs" / "a") if name.endswith(".log")]
    touched = [name for name in opened if name.endswith(".log")]
    assert len(segments) > 12 and len(touched) <= 5, touched  # by halving


def test_small_files_grow_until_they_are_large_and_then_stay(lab: Lab) -> None:
    seen: dict[str, bytes] = {}
    for _ in range(25):
        lab.append(60, every_s=0.001)
        lab.export(merge_below=9000)
        now = {name: (lab.out / "records" / name).read_bytes() for name in lab.files()}
        for name, data in seen.items():
            assert len(data) < 9000 or now[name] == data
        seen = now
    sizes = [len(data) for data in seen.values()]
    assert len(sizes) > 2 and sum(size < 9000 for size in sizes) <= 1
    assert lab.exported() == lab.written()


def test_small_files_are_left_alone_if_that_is_wanted(lab: Lab) -> None:
    for _ in range(3):
        lab.append(5)
        lab.export(merge_below=0)
    assert len(lab.files()) == 3 and lab.exported() == lab.written()


def test_many_small_logs_share_a_file(lab: Lab) -> None:
    for number in range(30):
        lab.append(2, log=f"log{number}")
    report = lab.export(merge_below=0)
    assert (report.rows, report.logs, report.files) == (60, 30, 1)
    assert lab.exported() == lab.written()


def test_the_same_logs_give_the_same_bytes(lab: Lab, tmp_path: Path) -> None:
    outs = [tmp_path / "first", tmp_path / "second"]
    for _ in range(3):
        lab.append(50, every_s=900)
        for out in outs:
            export(str(lab.data), str(out))
    first, second = ({str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.parquet")} for out in outs)
    assert first == second and len(first) == 3


def test_columns_can_be_chosen_also_without_the_time(lab: Lab) -> None:
    lab.append(50, every_s=HOUR)
    lab.export(columns=["payload", "size"])
    found = pyarrow.dataset.dataset(lab.out / "records").to_table()
    assert found.schema.names == ["payload", "size"] and found.num_rows == 50
    assert len(lab.files()) == 4


def test_a_range_of_time(lab: Lab) -> None:
    lab.append(10)
    times = [at for _, at in lab.written()]
    assert lab.export(since=times[2], until=times[6]).rows == 4
    assert lab.export(until=times[6]).rows == 0
    lab.append(5, log="later")
    assert lab.export().rows == 9
    assert lab.exported() == [row for row in lab.written() if row[1] >= times[2]]


def test_anew_replaces_all_of_it(lab: Lab) -> None:
    lab.append(30)
    lab.export(columns=["time_ns"])
    lab.append(30)
    report = lab.export(incremental=False)
    assert report.is_full and report.rows == 60 and report.batch == 2
    assert lab.exported() == lab.written() and not leftovers(lab)
    lab.append(1)
    assert lab.export().rows == 1 and lab.exported() == lab.written()


# -- views -----------------------------------------------------------------------------------------------------------


def test_a_topic_and_its_states(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with lamina.open(str(tmp_path / "data")) as data:
        orders = data.topic("orders")
        orders.publish_many([{"number": str(number)} for number in range(10)])
        data.topic("other").publish({"a": "b"})
        assert export(str(tmp_path / "data"), str(out), view="topic", topic="ord*").rows == 10
        orders.publish({"number": "10"})
        assert export(str(tmp_path / "data"), str(out), view="topic", topic="ord*").rows == 1
        assert export(str(tmp_path / "data"), str(out), view="topic").rows == 1
        found = pyarrow.dataset.dataset(out / "topic").to_table().sort_by("time_ns")
        of_orders = found.filter(pyarrow.compute.equal(found["topic"], "orders"))["fields"].to_pylist()
        assert of_orders == [[("number", b"%d" % number)] for number in range(11)]
        wanted = tables.scan(str(tmp_path / "data"), "topic").read_all().sort_by("time_ns")
        assert found.equals(wanted)
        for more in (12, 13):
            report = export(str(tmp_path / "data"), str(out), view="topic_state")
            assert report.is_full and report.rows == more
            found = pyarrow.dataset.dataset(out / "topic_state").to_table()
            assert found.num_rows == more
            orders.publish({"number": "more"})


def test_a_state_of_nothing_is_a_table_without_rows(lab: Lab, tmp_path: Path) -> None:
    lab.append(1)
    lab.export(view="job_state")
    found = pyarrow.dataset.dataset(lab.out / "job_state").to_table()
    assert found.num_rows == 0 and "id" in found.schema.names


class Store:
    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(START)
        options = StoreOptions(epoch_ms=0)
        self.engine = StoreEngine.open(str(folder), clock=self.clock, options=options)
        self.written: list[bytes] = []

    def put(self, count: int, *, channel: int = 0) -> None:
        for _ in range(count):
            self.engine.switch_epoch()
            key = b"key %d" % len(self.written)
            session = self.engine.channel(channel).begin()
            session.put(1, key, b"value")
            session.end()
            self.written.append(key)
            self.clock.advance(1)

    def _switching(self) -> None:
        engine = self.engine

        def nudge() -> None:
            if engine.is_urgent():
                engine.switch_epoch()
            else:
                engine.settle()

        engine.nudge = nudge

    def rotate(self) -> None:
        self._switching()
        self.engine.rotate(timeout=5)
        self.clock.advance(1)

    def compact(self) -> None:
        self._switching()
        Compactions(self.engine).compact()
        self.clock.advance(1)


def keys(folder: Path) -> list[bytes]:
    return sorted(pyarrow.dataset.dataset(folder).to_table(["key"])["key"].to_pylist())


def test_of_a_store_closed_files_are_exported_once_and_what_compaction_wrote_is_not(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    store = Store(data / "store")
    options: dict[str, Any] = {"view": "store_entries", "consumer": "exporter"}
    store.put(5)
    assert export(str(data), str(out), **options).rows == 0
    store.rotate()
    store.put(3, channel=1)
    assert export(str(data), str(out), **options).rows == 5
    store.put(2)
    store.compact()
    store.put(1)
    assert export(str(data), str(out), **options).rows == 5
    store.compact()
    store.compact()
    assert export(str(data), str(out), **options).rows == 1
    assert keys(out / "store_entries") == sorted(store.written)
    durable = pyarrow.dataset.dataset(out / "store_entries").to_table(["is_durable"])["is_durable"].to_pylist()
    assert all(durable)
    store.engine.close()


def test_what_compaction_may_have_taken_is_a_gap(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    store = Store(data / "store")
    store.put(5)
    store.rotate()
    assert export(str(data), str(out), view="store_entries").rows == 5
    store.put(5)
    store.compact()
    with pytest.raises(Gap, match="were compacted"):
        export(str(data), str(out), view="store_entries")
    report = export(str(data), str(out), view="store_entries", allow_gaps=True)
    assert report.gaps
    store.put(1)
    store.rotate()
    assert export(str(data), str(out), view="store_entries").rows == 1
    store.engine.close()


def test_of_queues_what_was_logged_is_exported_once_whatever_is_dumped(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    queues = queues_store_lab.StoreLab(RealFiles(), str(data / "queues"))
    total = 0

    def send(count: int) -> None:
        nonlocal total
        for _ in range(count):
            total += 1
            queues.clock.advance(1)
            queues.do(queues_store_lab.message("a", f"m{total}"))

    queues.do(queues_store_lab.create("a"))
    send(5)
    assert export(str(data), str(out), view="queue_events").rows == 6
    queues.dumper.dump()
    send(5)
    assert export(str(data), str(out), view="queue_events").rows == 5  # a dump has all of it, once more
    send(5)
    queues.dumper.dump()
    send(1)
    with pytest.raises(Gap, match="of queues, which now begins with"):
        export(str(data), str(out), view="queue_events")
    assert export(str(data), str(out), view="queue_events", allow_gaps=True, consumer="me").rows == 1
    send(5)
    queues.dumper.dump()
    send(5)
    assert export(str(data), str(out), view="queue_events", consumer="me").rows == 10
    found = pyarrow.dataset.dataset(out / "queue_events").to_table()
    times = found["time_ns"].to_pylist()
    assert len(times) == len(set(times)) == 1 + total - 5
    queues.engine.close()


# -- cut short -------------------------------------------------------------------------------------------------------


class Dead(BaseException):
    """The process is gone: nothing more happens to the disk."""


CHANGES = {
    RealFiles: ("create", "rename", "remove", "make_folder", "rename_folder", "remove_folder", "remove_empty_folder",
                "sync_folder"),
    RealFile: ("append", "sync"),
}  # fmt: skip


@contextmanager
def at_each_change(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]) -> Iterator[None]:
    """Nothing is synced meanwhile: a process that dies takes no bytes with it, and the tests are done sooner."""

    def before(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def changed(*given: Any, **more: Any) -> Any:
            act(name)
            return None if name.startswith("sync") else real(*given, **more)

        return changed

    with monkeypatch.context() as patch:
        for owner, names in CHANGES.items():
            for name in names:
                patch.setattr(owner, name, before(getattr(owner, name), name))
        yield


def changes_of(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> int:
    count = [0]

    def act(name: str) -> None:
        count[0] += name != "append"

    with at_each_change(monkeypatch, act):
        run()
    return count[0]


def dies_at(monkeypatch: pytest.MonkeyPatch, nth: int, run: Callable[[], object]) -> None:
    count = [0]

    def act(name: str) -> None:
        count[0] += name != "append"  # a part is staged until long after its last byte
        if count[0] >= nth:
            raise Dead

    with at_each_change(monkeypatch, act), suppress(Dead):
        run()


@pytest.mark.parametrize("is_full", [False, True])
def test_wherever_it_dies_the_next_run_has_every_record_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_full: bool
) -> None:
    lab.append(20, every_s=HOUR)
    lab.export()
    lab.append(20, every_s=HOUR)
    shutil.copytree(lab.out, tmp_path / "before")
    total = changes_of(monkeypatch, lambda: lab.export(incremental=not is_full))
    assert total > 20
    for nth in range(1, total + 1):
        shutil.rmtree(lab.out)
        shutil.copytree(tmp_path / "before", lab.out)
        dies_at(monkeypatch, nth, lambda: lab.export(incremental=not is_full))
        found = lab.exported()
        assert len(found) == len(set(found))
        lab.append(1)
        changes_of(monkeypatch, lab.export)
        assert lab.exported() == lab.written(), f"died at change {nth} of {total}"
        assert not leftovers(lab)


def test_a_reader_never_finds_a_row_twice_nor_misses_one_that_it_had(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.append(40, every_s=HOUR)
    lab.export()
    before = set(lab.exported())
    lab.append(40, every_s=HOUR)
    looks = [0]

    def look(name: str) -> None:
        found = lab.exported()
        assert len(found) == len(set(found)) and before <= set(found)
        looks[0] += 1

    with at_each_change(monkeypatch, look):
        lab.export()
    assert looks[0] > 25 and lab.exported() == lab.written()


def test_a_disk_error_changes_nothing_and_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.append(20)
    lab.export()
    before = lab.exported()
    lab.append(20)

    def fail(name: str) -> None:
        if name == "append":
            raise OSError(28, "No space left on device")

    with at_each_change(monkeypatch, fail), pytest.raises(lamina.errors.DiskFull):
        lab.export()
    assert lab.exported() == before and not leftovers(lab)
    lab.export()
    assert lab.exported() == lab.written()


EXPORTER = """
import sys
from lamina.pipeline.jobs.export import export
print("ready", flush=True)
while True:
    export(sys.argv[1], sys.argv[2], merge_below=20000)
"""


def test_killed_at_random_while_records_are_appended(tmp_path: Path) -> None:
    draw = random.Random(7)
    lab = Lab(tmp_path)
    lab.append(20)
    for _ in range(10):
        child = subprocess.Popen([sys.executable, "-c", EXPORTER, str(lab.data), str(lab.out)], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        dies = time.monotonic() + draw.uniform(0.01, 0.5)
        while time.monotonic() < dies:
            lab.append(draw.randrange(1, 30), log=draw.choice("abc"), every_s=draw.choice((0.001, 1000.0)))
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
        found = lab.exported()
        assert len(found) == len(set(found))
    lab.export()
    assert lab.exported() == lab.written() and len(lab.exported()) > 500
    assert not leftovers(lab)
    lab.close()


# -- what was removed ------------------------------------------------------------------------------------------------


def remove_oldest(lab: Lab, count: int) -> None:
    folder = lab.data / "logs" / "a"
    names = sorted(name for name in os.listdir(folder) if name.endswith(".log"))
    rewrite.remove(RealFiles(), str(folder), names[:count])


def test_records_that_were_removed_before_their_export_are_an_error_that_names_them(lab: Lab) -> None:
    lab.append(100)
    lab.export()
    lab.append(100)
    remove_oldest(lab, 2)
    assert lab.export().gaps == []  # all of these were exported
    lab.append(300)
    remove_oldest(lab, 8)
    before = lab.exported()
    with pytest.raises(Gap, match=r"records after 2023-11-14T.* up to 2023-11-14T.* are gone: of logs/a") as caught:
        lab.export()
    assert "--allow-gaps" in caught.value.hint and lab.exported() == before
    report = lab.export(allow_gaps=True)
    (gap,) = report.gaps
    assert gap["log"] == "logs/a" and gap["after_ns"] == before[-1][1]
    assert set(lab.exported()) == set(before) | set(lab.written())
    assert lab.export().gaps == []


def test_a_file_that_goes_while_it_is_exported_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.append(100)
    is_first = [True]

    def act(name: str) -> None:
        if name == "make_folder" and (lab.out / "_lamina").exists() and is_first[0]:
            is_first[0] = False
            with monkeypatch.context() as patch:
                patch.undo()
                for path in sorted((lab.data / "logs" / "a").glob("*.log"))[:1]:
                    path.unlink()

    with at_each_change(monkeypatch, act), pytest.raises(Gap, match="removed while it was exported"):
        lab.export()
    assert not is_first[0] and lab.exported() == []


def test_as_a_consumer_it_says_how_far_it_is(lab: Lab) -> None:
    lab.append(20)
    lab.export(consumer="parquet")
    folder = str(lab.data / "logs" / "a")
    (one,) = consumers.find(RealFiles(), folder)
    assert (one.name, one.position) == ("parquet", lab.written()[-1][1])
    lab.append(20)
    lab.export(consumer="parquet", consumer_expiry_s=60)
    (one,) = consumers.find(RealFiles(), folder)
    assert one.position == lab.written()[-1][1] and one.expires_ns - one.written_ns == 60 * 10**9


def test_a_consumer_holds_everything_before_it_looks(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.append(20)
    lab.export(until=lab.written()[4][1] + 1)
    (reached,) = {at for _, at in lab.exported()[4:]}
    seen: list[int] = []

    def look(name: str) -> None:
        seen.extend(one.position for one in consumers.find(RealFiles(), str(lab.data / "logs" / "a")))

    with at_each_change(monkeypatch, look):
        lab.export(consumer="parquet")
    assert len(seen) > 10 and seen[0] == reached
    (one,) = consumers.find(RealFiles(), str(lab.data / "logs" / "a"))
    assert one.position == lab.written()[-1][1]


# -- mistakes --------------------------------------------------------------------------------------------------------


def test_mistakes_are_told_before_anything_is_written(lab: Lab, tmp_path: Path) -> None:
    lab.append(3)
    for options, text in (
        ({"view": "recrods"}, "did you mean records"),
        ({"columns": ["time", "paylod"]}, "did you mean payload"),
        ({"columns": ["time", "time"]}, "each once"),
        ({"columns": []}, "each once"),
        ({"format": "parqet"}, "did you mean parquet"),
        ({"since": "yesterday"}, "since: 'yesterday' is not a time"),
        ({"since": START + 5, "until": START}, "exchange the two"),
        ({"merge_below": -1}, "less than nothing"),
        ({"view": "job_state", "since": START}, "has no beginning"),
        ({"view": "job_state", "format": "delta"}, "as parquet"),
        ({"view": "job_state", "consumer": "me"}, "nobody has to wait"),
        ({"engine": "flink"}, "one of auto"),
    ):
        with pytest.raises(BadOption) as caught:
            lab.export(**options)
        assert text in str(caught.value)
    for to, text in (
        (lab.data / "out", "in the data folder itself"),
        (lab.data, "in the data folder itself"),
        ("s3://bucket/out", "shared storage"),
    ):
        with pytest.raises(BadOption, match=text):
            export(str(lab.data), str(to))
    with pytest.raises(BadOption, match="no folder of lamina's"):
        export(str(tmp_path), str(tmp_path / "elsewhere"))
    assert not list(lab.out.rglob("*.parquet")) and not (lab.data / "out").exists()


def test_a_data_folder_with_the_name_of_the_view_is_not_overwritten(lab: Lab, tmp_path: Path) -> None:
    lab.append(3)
    lab.close()
    moved = shutil.move(lab.data, tmp_path / "records")
    with pytest.raises(BadOption, match="is the data folder, or holds it"):
        export(str(moved), str(tmp_path))


def test_a_folder_of_something_else_is_refused(lab: Lab, tmp_path: Path) -> None:
    lab.append(3)
    (lab.out / "records").mkdir(parents=True)
    (lab.out / "records" / "mine.parquet").write_bytes(b"")
    for incremental in (True, False):
        with pytest.raises(BadOption, match="no export has written"):
            lab.export(incremental=incremental)
    shutil.rmtree(lab.out)
    lab.export()
    with pytest.raises(BadOption, match="other columns: now without time_ns"):
        lab.export(columns=["time", "log", "file", "position", "size", "payload"])
    other = Lab(tmp_path / "other")
    other.append(3)
    with pytest.raises(BadOption, match="holds an export of"):
        export(str(other.data), str(lab.out))
    with pytest.raises(BadOption, match="holds an export of"):
        export(str(other.data), str(lab.out), incremental=False)
    other.close()
    shutil.rmtree(lab.out / "records")
    with pytest.raises(BadOption, match="is gone"):
        lab.export()
    lab.export(incremental=False)
    assert lab.exported() == lab.written()


def test_a_data_folder_that_was_moved(lab: Lab, tmp_path: Path) -> None:
    lab.append(3)
    lab.export()
    lab.append(3)
    lab.close()
    shutil.move(lab.data, tmp_path / "elsewhere")
    with pytest.raises(BadOption, match="--moved"):
        export(str(tmp_path / "elsewhere"), str(lab.out))
    assert export(str(tmp_path / "elsewhere"), str(lab.out), moved=True).rows == 3
    assert export(str(tmp_path / "elsewhere"), str(lab.out)).rows == 0


def test_two_at_once_are_refused(lab: Lab) -> None:
    lab.append(3)
    with target.locked(RealFiles(), str(lab.out), "records"), pytest.raises(LogLocked, match="another export of"):
        lab.export()
    assert lab.export().rows == 3


def test_a_manifest_that_cannot_be_read_is_told(lab: Lab) -> None:
    lab.append(3)
    lab.export()
    path = lab.out / "_lamina" / "records.json"
    whole = path.read_text()
    for text, problem in (
        (whole[:-5], Corruption),
        ("{}", Corruption),
        ("[1]", Corruption),
        (whole.replace('"version":1', '"version":2'), WrongFormat),
    ):
        path.write_text(text)
        with pytest.raises(problem, match=r"records\.json"):
            lab.export()
    path.write_text(whole)
    assert lab.export().rows == 0


def test_a_part_that_was_damaged_is_told_when_it_is_added_to(lab: Lab) -> None:
    lab.append(3)
    lab.export()
    (name,) = lab.files()
    (lab.out / "records" / name).write_bytes(b"PAR1 and nothing else")
    lab.append(3)
    with pytest.raises(DiskError, match="read the part"):
        lab.export()


def test_damage_in_a_log_is_told_and_nothing_is_exported(lab: Lab) -> None:
    lab.append(100)
    oldest = min((lab.data / "logs" / "a").glob("*.log"))
    data = bytearray(oldest.read_bytes())
    data[300] ^= 0x55
    oldest.write_bytes(data)
    with pytest.raises(Corruption, match=oldest.name):
        lab.export()
    assert lab.exported() == [] and manifest.load(RealFiles(), str(lab.out), "records") is None


# -- Delta and the command line --------------------------------------------------------------------------------------


def test_without_deltalake_the_error_says_what_to_install(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.append(3)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingExtra, match="pip install deltalake"):
        lab.export(format="delta")


def test_a_delta_table_has_every_record_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    deltalake = pytest.importorskip("deltalake")

    def exported() -> Rows:
        return rows_of(pa.table(deltalake.DeltaTable(str(lab.out / "records")).to_pyarrow_table()))

    lab.append(40, every_s=HOUR)
    assert lab.export(format="delta").rows == 40
    lab.append(40, every_s=HOUR)
    total = changes_of(monkeypatch, lambda: lab.export(format="delta"))
    assert exported() == lab.written()
    for nth in range(1, total + 1):
        lab.append(2)
        dies_at(monkeypatch, nth, lambda: lab.export(format="delta"))
        lab.append(1)
        lab.export(format="delta")
        assert exported() == lab.written(), f"died at change {nth} of {total}"
    lab.export(format="delta", incremental=False)
    assert exported() == lab.written()


def test_the_command(lab: Lab) -> None:
    lab.append(30, every_s=HOUR)
    given = ["--data", str(lab.data), "--to", str(lab.out), "--merge-below", "1MiB", "--consumer", "me"]
    done = CliRunner().invoke(command, [*given, "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["rows"] == 30 and report["engine"] == "local" and report["to"] == str(lab.out / "records")
    done = CliRunner().invoke(command, [*given, "--full"])
    assert done.exit_code == 0 and "30 rows of 1 logs" in done.stdout
    assert lab.exported() == lab.written()
    with pytest.raises(BadOption, match="is not a size"):
        CliRunner().invoke(command, [*given, "--merge-below", "many"], catch_exceptions=False)
