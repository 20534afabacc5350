"""A data folder and the names of logs in it."""

from __future__ import annotations

import contextlib
import errno
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import lamina
from lamina.clock import ManualClock
from lamina.data import Data, folder_name
from lamina.errors import BadName, BadOption, DiskError, LaminaError, LogClosed, LogFailed, LogLocked, StorageError
from lamina.log import ALWAYS, OS, LogOptions
from lamina.log.files.faulty import FaultyFiles
from lamina.log.files.memory import MemoryFiles
from lamina.log.sync import Level
from lamina.log.writer import Log
from waiting import wait_until

# -- names of folders ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("events", "events"),
        ("Events_2-b", "Events_2-b"),
        ("a.b.c", "a.b.c"),
        ("a.", "a."),
        (".", "%2E"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("/", "%2F"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
        ("a\0b", "a%00b"),
        ("a b", "a%20b"),
        ("a\nb", "a%0Ab"),
        ("%", "%25"),
        ("%2E", "%252E"),
        ("é", "%C3%A9"),
        ("日本", "%E6%97%A5%E6%9C%AC"),
        ("C:\\x", "C%3A%5Cx"),
        ("~", "%7E"),
        ("*?", "%2A%3F"),
    ],
    ids=ascii,
)
def test_odd_characters_are_percent_encoded(name: str, folder: str) -> None:
    assert folder_name(name) == folder


def test_a_name_that_is_no_text_is_a_bad_name() -> None:
    with pytest.raises(BadName):
        folder_name("\udcff")


def test_an_empty_name_is_a_bad_name() -> None:
    with pytest.raises(BadName):
        folder_name("")


def test_a_name_of_255_bytes_is_accepted() -> None:
    assert folder_name("x" * 255) == "x" * 255


@pytest.mark.parametrize("name", ["x" * 256, "é" * 43, "." + "x" * 253, "x" * 100_000])
def test_a_name_that_is_too_long_when_encoded_is_a_bad_name(name: str) -> None:
    with pytest.raises(BadName):
        folder_name(name)


def test_a_character_that_no_file_system_can_hold_is_a_bad_name() -> None:
    with pytest.raises(BadName):
        folder_name("\ud800")


def encoded(name: str) -> str | None:
    try:
        return folder_name(name)
    except BadName:
        return None


@given(st.text(min_size=1, max_size=80))
@example("..")
@example("...")
def test_a_folder_name_is_always_one_safe_path_component(name: str) -> None:
    folder = encoded(name)
    assert folder is None or (re.fullmatch(r"[A-Za-z0-9_%-][A-Za-z0-9_.%-]*", folder) and len(folder) <= 255)


NAMES = st.text(min_size=1, max_size=20) | st.text("./%2EFea", min_size=1, max_size=8)


@given(NAMES, NAMES)
@example(".", "%2E")
@example("a/b", "a%2Fb")
@example("é", "e\u0301")
@example("..", "%2E.")
def test_two_names_never_share_a_folder(one: str, other: str) -> None:
    folders = encoded(one), encoded(other)
    assert one == other or None in folders or folders[0] != folders[1]


def test_text_and_the_raw_bytes_of_that_text_never_share_a_folder() -> None:
    text, raw = "é", "\udcc3\udca9"
    folders = encoded(text), encoded(raw)
    assert None in folders or folders[0] != folders[1]


# -- the data folder -----------------------------------------------------------------------------------------------


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def data(files: FaultyFiles) -> Iterator[Data]:
    with lamina.open("data", files=files, clock=ManualClock()) as opened:
        yield opened


def test_a_log_of_a_name_is_opened_once(data: Data) -> None:
    assert data.log("events") is data.log("events")


def test_two_names_are_two_logs(data: Data) -> None:
    assert data.log("events") is not data.log("audit")


def test_a_log_lives_in_a_folder_of_its_name(data: Data, files: FaultyFiles) -> None:
    data.log("a/b").append(b"x", until=Level.SYNCED)
    assert "000000001.log" in files.list("data/logs/a%2Fb")


def test_a_bad_name_makes_no_folder(data: Data, files: FaultyFiles) -> None:
    with pytest.raises(BadName):
        data.log("x" * 300)
    assert files.inner.names == {}  # type: ignore[attr-defined]


def test_opening_a_data_folder_makes_nothing_until_a_log_is_wanted(data: Data, files: FaultyFiles) -> None:
    looks = [("open", "data/lamina.json"), ("list", "data")]
    assert files.calls == looks, "it looks whether a later version made the folder, or another program"


def test_closing_closes_every_log(files: FaultyFiles) -> None:
    with Data("data", files=files) as data:
        logs = [data.log(name) for name in ("a", "b", "c")]
    assert all(isinstance(log.failure, LogClosed) for log in logs)


def test_closing_lets_every_folder_go(files: FaultyFiles) -> None:
    with Data("data", files=files) as data:
        data.log("a")
    with Data("data", files=files) as again:
        assert again.log("a").failure is None


def test_closing_twice_does_nothing(files: FaultyFiles) -> None:
    data = Data("data", files=files)
    data.log("a")
    data.close()
    data.close()


def test_closing_keeps_what_was_appended(files: FaultyFiles) -> None:
    with Data("data", files=files) as data:
        data.log("a").append(b"kept")
    with Data("data", files=files) as again:
        assert [record.payload for record in again.log("a").reader.read()] == [b"kept"]


def with_a_log_that_cannot_be_closed_in_order(files: FaultyFiles) -> Data:
    data = Data("data", files=files)
    data.log("a").append(b"x", until=Level.WRITTEN)
    files.fail("append", only="/a/", error=errno.ENOSPC, times=1000)
    files.fail("sync", only="/a/", times=1000)
    data.log("a").append(b"nobody waits for this one")
    return data


def test_closing_tells_what_kept_records_out_of_a_log(files: FaultyFiles) -> None:
    data = with_a_log_that_cannot_be_closed_in_order(files)
    with pytest.raises(LaminaError):
        data.close()


@pytest.mark.parametrize("operation", ["append", "sync"])
def test_closing_a_log_tells_that_its_last_record_was_kept_out(files: FaultyFiles, operation: str) -> None:
    log = Log.open("log", files=files, threaded=False)
    log.append(b"x", until=Level.SYNCED)
    log.append(b"nobody waits for this one")
    files.fail(operation, error=errno.ENOSPC)
    with pytest.raises(StorageError):
        log.close()


def test_a_log_that_cannot_be_closed_in_order_keeps_no_other_open(files: FaultyFiles) -> None:
    data = with_a_log_that_cannot_be_closed_in_order(files)
    logs = [data.log(name) for name in ("a", "b", "c")]
    with contextlib.suppress(LaminaError):
        data.close()
    assert all(isinstance(log.failure, LogClosed) for log in logs)


def test_the_folder_of_a_log_is_locked_for_others(data: Data, files: FaultyFiles) -> None:
    data.log("a")
    with Data("data", files=files) as other, pytest.raises(LogLocked):
        other.log("a")


def test_a_log_that_was_closed_by_itself_is_opened_again(data: Data) -> None:
    first = data.log("a")
    first.close()
    assert data.log("a").failure is None


def test_a_log_that_failed_is_opened_again(data: Data, files: FaultyFiles) -> None:
    files.fail("sync", error=errno.EIO, only=".log")
    with pytest.raises(LogFailed):
        data.log("a").append(b"x", until=Level.SYNCED)
    files.heal()
    assert data.log("a").failure is None


def test_threads_that_ask_at_once_get_the_same_log(data: Data, files: FaultyFiles) -> None:
    files.before = lambda operation, path: time.sleep(0.05) if operation == "list" else None
    start = threading.Barrier(3)
    got: list[object] = []

    def ask() -> None:
        start.wait()
        try:
            got.append(data.log("events"))
        except LaminaError as error:
            got.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [data.log("events")] * 3


def test_other_options_for_an_open_log_are_refused(tmp_path) -> None:
    with lamina.open(tmp_path) as data:
        log = data.log("a", LogOptions(sync=OS))
        assert data.log("a") is log
        assert data.log("a", LogOptions(sync=OS)) is log
        with pytest.raises(BadOption):
            data.log("a", LogOptions(sync=ALWAYS))


# -- links ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["jobs", "topics", "queues", "store"])
def test_the_folder_of_an_engine_is_opened_without_following_a_link(tmp_path: Path, engine: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / engine).symlink_to(elsewhere)
    with lamina.open(tmp_path / "data") as data:
        with pytest.raises(DiskError, match=f"{engine}: cannot open the folder: it is a symbolic link") as refused:
            getattr(data, engine)
        assert "name the real file or folder" in refused.value.hint
    assert not list(elsewhere.iterdir()), "nothing is written elsewhere"


@pytest.mark.parametrize("place", ["logs/mine", "topics/orders"])
def test_a_log_of_a_data_folder_is_opened_without_following_a_link(tmp_path: Path, place: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "data" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with lamina.open(tmp_path / "data") as data, pytest.raises(DiskError, match="it is a symbolic link"):
        if place.startswith("logs"):
            data.log("mine")
        else:
            data.topic("orders").publish({"f": "v"})
    assert not list(elsewhere.iterdir()), "nothing is written elsewhere"


def test_a_data_folder_may_be_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with lamina.open(tmp_path / "link") as data:
        data.store.put(1, b"tea", b"41")
    assert (tmp_path / "real" / "store").is_dir()


# -- the recent past -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"history_s": -1}, {"history_percent": 101}, {"history_s": "1h"}])
def test_what_history_cannot_be_is_told(wrong: dict[str, object]) -> None:
    with pytest.raises(BadOption, match="history_"):
        lamina.open("data", files=MemoryFiles(), **wrong)  # type: ignore[arg-type]


def test_the_store_of_a_program_compacts_by_itself_and_keeps_the_last_hour(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as data:
        data.store.put(1, b"k", b"before")
        first = data.store.last_epoch
        for number in range(5):
            data.store.put(1, b"k", bytes([number]) * 700_000)
        wait_until(lambda: data.history.bytes > 0)
        before = data.store.as_of(epoch=first).get(1, b"k")
        assert data.store.engine.catalog.generation > 0 and before == b"before"
    with lamina.open(tmp_path, history_s=0) as data:
        data.store.get(1, b"k")
        wait_until(lambda: [name for name in (tmp_path / "store").iterdir() if name.name.startswith("pwal_0")] == [])


def test_history_is_a_part_of_the_disk_that_the_folder_is_on() -> None:
    disk = MemoryFiles()
    disk.size = 1_000_000
    with lamina.open("data", files=disk) as data:
        assert (data.history.keep_s, data.history.limit) == (3600, 100_000)
    with lamina.open("data", files=disk, history_s=5, history_percent=50) as data:
        assert (data.history.keep_s, data.history.limit) == (5, 500_000)
