"""``lamina store``, run as a program: beside a process that has the store open, and on the folder that one has left."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lamina
import prefork
from lamina.engines.store import trigger
from lamina.engines.store.api import Store
from lamina.errors import DiskFull
from lamina.log.files.real import RealFiles

LAMINA = [sys.executable, "-m", "lamina"]


def run(*arguments: object, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return prefork.run("store", *arguments, input=input)


def lines(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    """What was printed as JSON."""
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def one(*arguments: object, code: int = 0) -> dict[str, Any]:
    (found,) = lines(*arguments, "--json", code=code)
    return found


def refused(code: int, error: str, *arguments: object) -> str:
    """It ends with this exit code and this error, and says what to do. Returns what is on standard error."""
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    text = done.stderr.decode()
    assert text.startswith(f"error {error}: ")
    assert "\n  " in text, "no hint"
    return text


def fill(folder: Path) -> None:
    with lamina.open(folder) as data:
        for number in range(3):
            with data.store.session() as session:
                session.put(1, b"a", b"%d" % number)
                session.put(1, b"b%d" % number, b"\xff\x00")
                session.put(2, b"", b"other")
        data.store.remove(1, b"b0")


EXPORTED = [
    {"storage": 1, "key": b"a".hex(), "value": b"2".hex()},
    {"storage": 1, "key": b"b1".hex(), "value": "ff00"},
    {"storage": 1, "key": b"b2".hex(), "value": "ff00"},
    {"storage": 2, "key": "", "value": b"other".hex()},
]


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def held(data: Path) -> Iterator[tuple[Path, Store]]:
    """This process has it open."""
    with lamina.open(data) as folder:
        yield data, folder.store


class TestReading:
    def test_beside_a_writer_all_is_seen_and_nothing_changed(self, held: tuple[Path, Store]) -> None:
        data, store = held
        store.put(1, b"new", b"v")
        before = state(data)
        assert one("get", data, 1, "new")["entry"]["value"] == b"v".hex()
        assert run("get", data, 1, "new").stdout == b"v\n"
        assert [line["key"] for line in lines("scan", data, 1, "--json")] == [
            key.hex() for key in (b"a", b"b1", b"b2", b"new")
        ]
        assert len(lines("export", data, "--jsonl")) == 5
        assert one("verify", data)["sound"]
        facts = one("inspect", data)
        assert facts["entries"] == 5
        assert facts["storages"] == [{"storage": 1, "entries": 4}, {"storage": 2, "entries": 1}]
        assert facts["writer"]
        assert run("gc", data, "--dry-run").returncode == 0
        assert state(data) == before

    def test_entries_come_in_order_and_the_folder_of_the_store_will_do(self, data: Path) -> None:
        assert lines("export", data, "--jsonl") == EXPORTED
        assert lines("export", data / "store") == EXPORTED

    def test_ranges_and_limits(self, data: Path) -> None:
        def keys(*words: object) -> list[str]:
            return [bytes.fromhex(line["key"]).decode() for line in lines("scan", data, 1, "--json", *words)]

        assert keys("--from", "b") == ["b1", "b2"]
        assert keys("--from", "a", "--to", "b2") == ["a", "b1"]
        assert keys("--limit", 2) == ["a", "b1"]
        assert keys("--from", b"b2".hex(), "--hex") == ["b2"]
        assert run("scan", data, 1).stdout == b"a\t2\nb1\t0xff00\nb2\t0xff00\n"
        assert run("scan", data, 1, "--hex", "--limit", 1).stdout == b"61\t32\n"
        assert lines("scan", data, 99, "--json") == []

    def test_values_as_bytes_and_keys_that_are_not_there(self, data: Path) -> None:
        assert run("get", data, 1, "b1", "--raw").stdout == b"\xff\x00"
        done = run("get", data, 1, "b0")
        assert (done.returncode, done.stdout.startswith(b"no such key")) == (3, True)
        done = run("get", data, 1, "b0", "--raw")
        assert (done.returncode, done.stdout) == (3, b"")
        assert one("get", data, 1, "b0", code=3)["entry"] is None

    def test_the_past_by_epoch_and_by_time(self, data: Path) -> None:
        epoch = one("get", data, 1, "a")["entry"]["version"][0]
        assert one("get", data, 1, "a", "--as-of", epoch - 1)["entry"]["value"] == b"1".hex()
        assert lines("export", data, "--as-of", "-1d") == []
        assert "yet to come" in refused(2, "bad_entry", "export", data, "--as-of", "2100-01-01")
        assert "not durable yet" in refused(2, "bad_entry", "get", data, 1, "a", "--as-of", 10**6)
        refused(2, "bad_option", "get", data, 1, "a", "--as-of", "yesterday")
        refused(2, "bad_option", "get", data, 1, "a", "--as-of", "9" * 30)

    def test_words_that_cannot_be(self, data: Path, tmp_path: Path) -> None:
        refused(2, "bad_option", "get", data, 1, "xyz", "--hex")
        assert run("get", data, "one", "k").returncode == 2
        assert run("get", data, str(1 << 64), "k").returncode == 2
        refused(1, "disk_error", "get", tmp_path / "nowhere", 1, "k")
        assert "holds no store" in refused(2, "bad_option", "export", tmp_path)
        assert not (tmp_path / "nowhere").exists()

    def test_damage_is_told_and_nothing_is_exported_as_if_it_was_whole(self, data: Path) -> None:
        path = data / "store" / "pwal_0000"
        content = bytearray(path.read_bytes())
        content[60] ^= 1
        path.write_bytes(content)
        said = refused(6, "corruption", "export", data)
        assert path.name in said and "lamina store repair" in said and "lamina log" not in said
        assert one("verify", data, code=6)["damage"][0]["file"] == path.name
        assert one("inspect", data, code=6)["entries"] is None
        assert one("repair", data, code=6)["left"]
        assert path.read_bytes() == content
        report = one("repair", data, "--accept-loss", "--yes", code=5)
        assert report["lost"][0]["file"] == path.name
        assert one("verify", data)["sound"]
        assert one("repair", data) == {"done": [], "lost": [], "left": []}
        assert run("export", data).returncode == 0

    def test_a_file_that_is_missing_is_to_be_put_back(self, data: Path) -> None:
        with lamina.open(data) as folder:
            folder.store.rotate()
        next((data / "store").glob("pwal_0000.*")).unlink()
        said = refused(6, "corruption", "put", data, 1, "k", "v")
        assert "put it back from a backup" in said and "lamina store repair --accept-loss" in said

    def test_export_takes_the_word_that_all_others_take(self, data: Path) -> None:
        assert lines("export", data, "--json") == lines("export", data, "--jsonl") == EXPORTED

    def test_the_logs_own_repair_leaves_a_store_alone(self, data: Path) -> None:
        path = data / "store" / "pwal_0000"
        path.write_bytes(path.read_bytes()[:-5])
        before = state(data)
        for words in ((), ("--yes",)):
            done = prefork.run("log", "repair", data / "store", *words)
            assert done.returncode == 2
            assert b"error bad_option: " in done.stderr and b"lamina store repair" in done.stderr
        assert b"lamina log repair" not in prefork.run("log", "verify", data / "store").stdout
        assert state(data) == before


class TestWriting:
    def test_a_store_is_made_by_the_first_write(self, tmp_path: Path) -> None:
        data = tmp_path / "new"
        assert one("put", data, 7, "key", "value")["epoch"] >= 1
        assert run("put", data, 7, "long", "-", input=b"\xff" * 100_000).returncode == 0
        assert run("put", data, 7, "00ff", "61", "--hex").returncode == 0
        assert run("get", data, 7, "long", "--raw").stdout == b"\xff" * 100_000
        assert run("put", data, 7, "line", "-", input=b"tea\n").returncode == 0
        assert run("get", data, 7, "line", "--raw").stdout == b"tea\n"
        assert run("get", data, 7, "00ff", "--hex").stdout == b"61\n"
        assert run("remove", data, 7, "key").returncode == 0
        assert run("get", data, 7, "key").returncode == 3

    def test_what_another_process_has_open_is_left_alone(self, held: tuple[Path, Store]) -> None:
        data, _ = held
        for words in (("put", data, 1, "k", "v"), ("remove", data, 1, "k"), ("repair", data), ("gc", data)):
            assert "a server has it open" in refused(1, "log_locked", *words)
        assert "S.COMPACT CLEAN" in refused(1, "log_locked", "gc", data)
        assert "store.back_up" in refused(1, "log_locked", "backup", data, "--to", data / "backup")

    def test_removing_needs_a_store(self, tmp_path: Path) -> None:
        refused(1, "disk_error", "remove", tmp_path / "nowhere", 1, "k")


class TestCompacting:
    def test_without_a_server_it_is_done_here(self, data: Path) -> None:
        report = one("compact", data)
        assert (report["outcome"], report["entries_live"], report["parts_written"]) == ("done", 4, 1)
        assert one("compact", data)["outcome"] == "nothing to do"
        assert b"nothing to do" in run("compact", data).stdout
        run("put", data, 1, "new", "x")
        assert b"1 new entry read; 5 live entries in all" in run("compact", data).stdout
        run("remove", data, 1, "new")
        assert lines("export", data) == EXPORTED

    def test_a_running_store_is_asked_and_answers_each_who_asks(self, held: tuple[Path, Store]) -> None:
        data, store = held
        found: list[dict[str, Any]] = []
        askers = [threading.Thread(target=lambda: found.append(one("compact", data))) for _ in range(3)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        assert sorted(report["outcome"] for report in found) == ["done", "nothing to do", "nothing to do"]
        assert store.engine.catalog.generation == 1
        assert sorted(path.name for path in (data / "store" / "ctrl").iterdir()) == ["compaction_result"]
        assert lines("export", data) == EXPORTED

    def test_a_compaction_that_fails_is_an_error(
        self, held: tuple[Path, Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data, store = held

        def fails(*_: object) -> None:
            raise DiskFull("the disk is full", hint="make room")

        monkeypatch.setattr(store.compactions, "compact", fails)
        done = run("compact", data, "--json")
        assert done.returncode == 1
        assert b"the disk is full\n  make room" in done.stderr
        assert json.loads(done.stdout)["error"]["code"] == "disk_full"

    def test_a_server_that_goes_away_is_told(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with lamina.open(data) as folder:
            store = folder.store
            store._trigger.stop()  # nobody looks for questions
            asker = subprocess.Popen([*LAMINA, "store", "compact", str(data)], stderr=subprocess.PIPE)
            deadline = time.monotonic() + 60
            while trigger.get(RealFiles(), str(data / "store" / "ctrl"), trigger.START) is None:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        _, said = asker.communicate(timeout=60)
        assert asker.returncode == 1
        assert b"is gone" in said
        assert list((data / "store" / "ctrl").iterdir()) == []

    def test_cleaning_up_removes_what_was_compacted_and_keeps_the_past_that_is_wanted(self, data: Path) -> None:
        before = one("get", data, 1, "a")
        run("compact", data)
        planned = one("gc", data, "--dry-run")
        assert planned["removed"] and not planned["is_done"]
        kept = one("gc", data, "--keep", before["epoch"], "--yes")
        assert kept["kept"]
        assert one("get", data, 1, "a", "--as-of", before["epoch"])["entry"] == before["entry"]
        assert one("gc", data, "--keep", "-1d")["removed"] == []
        done = one("gc", data, "--yes")
        assert done["is_done"] and set(done["removed"]) <= set(planned["removed"])
        refused(1, "too_old", "get", data, 1, "a", "--as-of", before["epoch"])
        assert lines("export", data) == EXPORTED
        assert b"nothing to remove" in run("gc", data).stdout

    def test_history_that_is_shorter_than_what_is_to_be_kept_stays(self, data: Path) -> None:
        run("compact", data)
        assert one("gc", data, "--yes")["removed"]
        oldest = one("verify", data)["compacted_epoch"]
        assert one("put", data, 1, "a", "later")["epoch"] > oldest
        run("compact", data)
        refused(1, "too_old", "get", data, 1, "a", "--as-of", "-7d")
        for words in ((), ("--dry-run",)):
            report = one("gc", data, "--keep", "-7d", "--yes", *words)
            assert not any(name.startswith(("pwal", "compaction")) for name in report["removed"])
            assert report["is_done"] is not bool(words)
        assert one("get", data, 1, "a", "--as-of", oldest)["entry"]["value"] == b"2".hex()

    def test_an_epoch_that_is_yet_to_come_cannot_be_kept(self, data: Path) -> None:
        run("compact", data)
        before = state(data)
        last = one("verify", data)["durable_epoch"]
        said = refused(2, "bad_entry", "gc", data, "--keep", 9999)
        assert "epoch 9999 is not durable yet" in said and f"the last one is {last}" in said
        refused(2, "bad_entry", "gc", data, "--keep", 9999, "--dry-run")
        refused(2, "bad_entry", "gc", data, "--keep", "2100-01-01")
        assert state(data) == before
        assert run("gc", data, "--keep", last, "--yes").returncode == 0


class TestBackups:
    def test_a_backup_is_made_checked_and_restored(self, data: Path, tmp_path: Path) -> None:
        backup = tmp_path / "backup"
        made = one("backup", data, "--to", backup)
        checked = one("check", backup)
        assert checked == {"is_whole": True, "problems": [], **made}
        assert lines("export", backup) == EXPORTED
        run("put", data, 1, "later", "x")
        assert one("restore", backup, "--to", tmp_path / "again") == made
        assert lines("export", tmp_path / "again") == EXPORTED
        assert run("put", tmp_path / "again", 1, "k", "v").returncode == 0
        assert one("check", backup)["is_whole"]

    def test_a_backup_is_never_changed_and_a_folder_in_use_never_overwritten(self, data: Path, tmp_path: Path) -> None:
        backup = tmp_path / "backup"
        assert run("backup", data, "--to", backup, "--copy").returncode == 0
        before = state(backup)
        for words in (("put", backup, 1, "k", "v"), ("compact", backup), ("gc", backup), ("repair", backup)):
            refused(2, "bad_option", *words)
        refused(2, "bad_option", "backup", data, "--to", backup)
        refused(2, "bad_option", "restore", backup, "--to", data)
        refused(2, "bad_option", "restore", backup, "--to", data / "store")
        assert state(backup) == before
        assert lines("export", data) == EXPORTED

    def test_a_backup_that_is_not_whole_is_told_and_not_restored(self, data: Path, tmp_path: Path) -> None:
        backup = tmp_path / "backup"
        run("backup", data, "--to", backup)
        victim = next(backup.glob("pwal_0000*"))
        content = victim.read_bytes()
        victim.unlink()  # a name of the store's own file: it must not be changed
        victim.write_bytes(content[:-1])
        report = one("check", backup, code=6)
        assert victim.name in report["problems"][0]
        refused(6, "corruption", "restore", backup, "--to", tmp_path / "again")
        assert not (tmp_path / "again").exists()
        assert one("check", tmp_path, code=6)["is_whole"] is False
        for words in (("export", backup), ("restore", backup, "--to", tmp_path / "again")):
            said = refused(6, "corruption", *words)
            assert "take another backup" in said and "repair" not in said
        for command in ("verify", "inspect"):
            done = run(command, backup)
            assert done.returncode == 6
            assert b"damage found; take another backup" in done.stdout and b"repair" not in done.stdout

    def test_a_backup_can_be_looked_at_and_is_known_for_one(self, data: Path, tmp_path: Path) -> None:
        backup = tmp_path / "backup"
        run("backup", data, "--to", backup)
        for command in ("verify", "inspect"):
            assert b"backup_manifest" not in run(command, backup).stdout
            assert one(command, backup)["foreign"] == []

    def test_a_backup_never_goes_into_the_store(self, data: Path, tmp_path: Path) -> None:
        (tmp_path / "other-name").symlink_to(data)
        before = state(data)
        for place in (data / "store" / "backup", data / "store" / "ctrl" / "deep", tmp_path / "other-name/store/new"):
            assert "in the folder of the store" in refused(2, "bad_option", "backup", data, "--to", place)
        assert state(data) == before
        assert run("backup", data, "--to", data / "backup").returncode == 0

    def test_a_backup_that_is_not_there_is_no_damage(self, tmp_path: Path) -> None:
        nowhere = tmp_path / "nowhere"
        for words in (("check", nowhere), ("restore", nowhere, "--to", tmp_path / "again")):
            assert "cannot open the backup: No such file" in refused(1, "disk_error", *words)
        assert not (tmp_path / "again").exists()


class TestImporting:
    def test_what_is_no_folder_of_limestone_is_refused_and_nothing_is_made(self, data: Path, tmp_path: Path) -> None:
        target = tmp_path / "imported"
        (tmp_path / "empty").mkdir()
        refused(6, "wrong_format", "import", tmp_path / "empty", "--to", target)
        refused(6, "wrong_format", "import", data / "store", "--to", target)
        refused(1, "disk_error", "import", tmp_path / "nowhere", "--to", target)
        assert run("import", data).returncode == 2
        assert not target.exists()

    def test_a_store_that_is_there_is_never_overwritten(self, data: Path, tmp_path: Path) -> None:
        source = tmp_path / "limestone"
        source.mkdir()
        (source / "limestone-manifest.json").write_text('{"format_version": "1.0", "persistent_format_version": 7}')
        refused(2, "bad_option", "import", source, "--to", data)
        refused(2, "bad_option", "import", source, "--to", data / "store")
        refused(2, "bad_option", "export", source)
        assert lines("export", data) == EXPORTED
