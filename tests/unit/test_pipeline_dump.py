"""Promises of the job ``dump``: the bytes of the engine's own fold for every history, one commit, and no leftovers."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from lamina.cli.pipeline_dump import dump as command
from lamina.clock import ManualClock, SystemClock
from lamina.engines.queues import folding, migration_mark
from lamina.engines.queues.fold_worker import Stopper
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.restoring import RestoreRefused, restore
from lamina.engines.queues.tending import open_to_tend
from lamina.engines.queues.upkeep import Upkeep
from lamina.errors import BadOption, LaminaError, LogLocked
from lamina.log import consumers, lock
from lamina.log.files.real import RealFiles
from lamina.log.formats import QUEUE_STORE
from lamina.log.naming import STORED
from lamina.pipeline.jobs.dump import dump
from lamina.pipeline.running import LocalRunner
from lamina.pipeline.upkeep import folding_tasks
from lamina.pipeline.upkeep.folding import fold_on
from queues_store_lab import NOW, START_NS, TTL, Seen, create, dump_of, file_of, message, seen
from upkeep_lab import BUCKET, DUMP, LOG, PIECE, Outcome, contents, folded_by_the_engine, some_store, store


def on_runner(
    folder: Path, found: dict[str, bytes], number: int, *, keeps_messages: bool = True, force: bool = False
) -> Outcome:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in found.items():
        (folder / name).write_bytes(data)
    try:
        report = fold_on(LocalRunner(), piece=PIECE, bucket=BUCKET)(
            RealFiles(),
            str(folder),
            number,
            now=NOW,
            ttl=TTL,
            clock=ManualClock(),
            step=lambda name: None,
            stopper=Stopper(),
            keeps_messages=keeps_messages,
            force=force,
        )
    except LaminaError as error:
        return type(error).__name__, (error.message, error.facts)
    finally:
        assert not (folder / "_tmp").exists()
        assert {path.name for path in folder.iterdir()} - {DUMP.format(number)} == found.keys()
    return "", (report, (folder / DUMP.format(number)).read_bytes())


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts tasks that were run: the engine's own fold is not what is tested here."""
    tasks: list[int] = []
    fold = folding_tasks.fold

    def counted(task: folding_tasks.Folding) -> folding_tasks.Folded:
        tasks.append(task.number)
        return fold(task)

    monkeypatch.setattr(folding_tasks, "fold", counted)
    return tasks


@pytest.mark.parametrize("keeps_messages", [True, False])
@pytest.mark.parametrize("group", range(3))
def test_the_same_bytes_for_every_history(tmp_path: Path, group: int, keeps_messages: bool, divided: list[int]) -> None:
    for seed in range(group * 12, group * 12 + 12):
        found = store(random.Random(seed))
        number = max(int(name.split("-")[3].split(".")[0]) for name in found)
        wanted = folded_by_the_engine(found, number, keeps_messages=keeps_messages)
        divided.clear()
        assert on_runner(tmp_path / "queues", found, number, keeps_messages=keeps_messages) == wanted, seed
        assert wanted[0] or max(divided) > 2, f"{seed}: it was not divided"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("group", range(3))
def test_damage_is_refused_or_passed_over_alike(tmp_path: Path, group: int, force: bool) -> None:
    refused = 0
    for seed in range(group * 20, group * 20 + 20):
        draw = random.Random(seed)
        found = store(draw)
        number = max(int(name.split("-")[3].split(".")[0]) for name in found)
        name = draw.choice(sorted(found))
        data = bytearray(found[name])
        for _ in range(draw.randint(1, 2)):
            act = draw.random()
            if act < 0.6:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            elif act < 0.8:
                del data[draw.randrange(len(data)) :]
                data += b"\0"
            else:
                at = draw.randrange(len(data))
                data[at : at + 40] = bytes(len(data[at : at + 40]))
        found[name] = bytes(data)
        if draw.random() < 0.1 and len(found) > 2:
            del found[name]
        wanted = folded_by_the_engine(found, number, force=force)
        assert on_runner(tmp_path / "queues", found, number, force=force) == wanted, seed
        refused += bool(wanted[0])
    assert force or refused


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("nothing", b""),
        ("a torn header", b"lm"),
        ("only a header", QUEUE_STORE.header),
        ("zeros", bytes(8)),
        ("another format", b"lmto\0\0\0\1"),
        ("a later version", b"lmqs\0\0\0\x09"),
        ("no record", file_of(b"\xc0")),
        ("a dump's end", file_of(create("x"), b"\x93\xa3END\x01\x00")),
    ],
)
def test_odd_logs(tmp_path: Path, name: str, data: bytes) -> None:
    for found in (
        {LOG.format(0): file_of(create("a")), LOG.format(1): data},
        {DUMP.format(0): dump_of(create("a")), LOG.format(1): data, LOG.format(2): file_of(create("b"))},
    ):
        assert on_runner(tmp_path / "queues", found, 2) == folded_by_the_engine(found, 2)


def test_a_log_behind_knows_what_is_missing_at_the_end(tmp_path: Path) -> None:
    log = file_of(create("a"), message("a", "m1"))
    behind = file_of(QUEUE_STORE.watermark(START_NS + 1), create("b"), first_ns=START_NS + 1)
    whole = {LOG.format(0): log, LOG.format(1): behind}
    for found in (whole, {**whole, LOG.format(0): log[:-1]}):
        assert on_runner(tmp_path / "queues", found, 0) == folded_by_the_engine(found, 0)
    assert folded_by_the_engine(whole, 0)[0] == ""
    assert folded_by_the_engine(found, 0)[0] == "RestoreRefused"
    assert folded_by_the_engine(found, 0, force=True)[0] == ""


@pytest.mark.parametrize(
    "data",
    [
        dump_of(),
        dump_of(create("a"), create("a"), create("b")),
        dump_of(create("a"), message("b", "m")),
        file_of(create("a")),
        file_of(create("a"), b"\x93\xa3END\x02\x00"),
        file_of(create("a"), b"\x93\xa3END\x01\x00", create("b"), b"\x93\xa3END\x02\x00"),
        file_of(b"\x93\xa3END\x00\x00", create("b"), b"\x93\xa3END\x01\x00"),
        b"",
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_odd_dumps(tmp_path: Path, data: bytes, force: bool) -> None:
    log = file_of(create("c"), create("a"), first_ns=START_NS + 100)
    for found in ({DUMP.format(3): data, LOG.format(4): log}, {DUMP.format(3): data}):
        assert on_runner(tmp_path / "queues", found, 4, force=force) == folded_by_the_engine(found, 4, force=force)


# -- the job ---------------------------------------------------------------------------------------------------------


def data_folder(path: Path, found: dict[str, bytes]) -> Path:
    (path / "queues").mkdir(parents=True)
    for name, data in found.items():
        (path / "queues" / name).write_bytes(data)
    return path


def names(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "queues").iterdir() if path.name != STORED.lock_name)


def found_by_a_server(data: Path) -> Seen:
    return seen(restore(RealFiles(), str(data / "queues"), now=NOW, ttl=TTL).state)


def test_the_job_leaves_one_dump(tmp_path: Path) -> None:
    found = some_store()
    data = data_folder(tmp_path / "data", found)
    known = found_by_a_server(data)
    _, wanted = folded_by_the_engine(found, 2)
    assert isinstance(wanted, tuple)
    report = dump(str(data), now=NOW * 10**9, ttl=TTL)
    assert names(data) == [DUMP.format(2)]
    assert (data / "queues" / DUMP.format(2)).read_bytes() == wanted[1]
    assert found_by_a_server(data) == known
    counts = restore(RealFiles(), str(data / "queues"), now=NOW, ttl=TTL).state
    assert (report.number, report.queues, report.messages) == (2, len(known), counts.messages)
    assert report.bytes_before == sum(map(len, found.values())) and report.bytes_after == len(wanted[1])
    assert sorted(report.removed) == sorted(found) and report.store == "memory" and report.engine == "local"
    again = dump(str(data / "queues"), now=NOW * 10**9, ttl=TTL)
    assert names(data) == [DUMP.format(3)] and again.queues == report.queues
    engine = open_engine(str(data / "queues"), clock=ManualClock(NOW * 10**9), threaded=False)
    assert seen(engine.state) == known and engine.restored.warnings == []
    engine.close()


def test_without_a_ttl_only_what_says_so_itself_expires(tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data", some_store())
    kept = restore(RealFiles(), str(data / "queues"), now=NOW, ttl=0).state.messages
    assert kept > restore(RealFiles(), str(data / "queues"), now=NOW, ttl=TTL).state.messages
    assert dump(str(data), now=NOW * 10**9).messages == kept


def test_a_live_owner_is_named(tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data", some_store())
    held = lock.take(RealFiles(), str(data / "queues"), STORED.lock_name)
    before = names(data)
    for engine in ("local", "spark"):  # told before a session is started
        with pytest.raises(LogLocked, match=r"this process is writing here.*dumps by itself"):
            dump(str(data), engine=engine)
    held.release()
    assert names(data) == before


def test_what_cannot_be_read_is_refused_unless_forced(tmp_path: Path) -> None:
    found = some_store()
    spoiled = bytearray(found[LOG.format(1)])
    spoiled[300] ^= 1
    data = data_folder(tmp_path / "data", {**found, LOG.format(1): bytes(spoiled)})
    with pytest.raises(RestoreRefused, match=LOG.format(1)):
        dump(str(data), now=NOW * 10**9)
    assert names(data) == sorted(found)
    known = seen(restore(RealFiles(), str(data / "queues"), now=NOW, ttl=0, force=True).state)
    dump(str(data), now=NOW * 10**9, force=True)
    assert seen(restore(RealFiles(), str(data / "queues"), now=NOW, ttl=0).state) == known


def test_a_migration_under_way_is_refused(tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data", some_store())
    line = f"to=journal queues=0 messages=0 digest={'0' * 64}\n"
    (data / "queues" / migration_mark.NAME).write_text(line)
    with pytest.raises(BadOption, match="under way"):
        dump(str(data))


@pytest.mark.parametrize("more", [{"now": 4_000_000_000 * 10**9}, {"ttl": -1}])
def test_bad_options(tmp_path: Path, more: dict[str, int]) -> None:
    data = data_folder(tmp_path / "data", some_store())
    with pytest.raises(BadOption):
        dump(str(data), **more)  # type: ignore[arg-type]


def test_what_a_consumer_has_yet_to_read_stays(tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data", some_store())
    consumers.save(RealFiles(), str(data / "queues"), "reader", START_NS + 199, 2 * NOW * 10**9, now_ns=1)
    report = dump(str(data), now=NOW * 10**9)
    assert report.removed == [DUMP.format(0), LOG.format(1)]
    assert names(data) == ["consumers", DUMP.format(2), LOG.format(2)]


def journals(path: Path) -> Path:
    """Queues in the store ``journal``, and one whose folder a crash left behind its deletion."""
    engine = open_engine(
        str(path / "queues"),
        options=QueueOptions(store="journal"),
        clock=ManualClock(NOW * 10**9),
        threaded=False,
        random=random.Random(1).randbytes,
    )
    made = [engine.create()[0] for _ in range(5)]
    for queue in made:
        _, position = engine.send(queue, b"body")
        engine.keeper.settle(position)
    engine.delete(made[2])
    engine.close()
    return path


def test_in_the_store_journal_dumps_have_no_messages_and_folders_of_deleted_queues_go(tmp_path: Path) -> None:
    data = journals(tmp_path / "one")
    other, folders = tmp_path / "other", data / "queues" / "messages"
    shutil.copytree(data, other)
    assert len({path.parent for path in folders.rglob("*.log")}) == 5
    report = dump(str(data), now=NOW * 10**9)
    engine = open_to_tend(str(other / "queues"), clock=ManualClock(NOW * 10**9), threaded=False)
    Upkeep(engine).dump()
    engine.close()
    assert (report.store, report.queues, report.messages) == ("journal", 4, 0)
    assert len({path.parent for path in folders.rglob("*.log")}) == 4
    assert contents(data) == contents(other)


# -- interrupted -----------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, lamina.log.rewrite as rewrite
from lamina.pipeline.upkeep import folding_tasks
from lamina.pipeline.jobs import dump

def kill(*arguments, **more):
    os.kill(os.getpid(), signal.SIGKILL)

place = {place!r}
if place == "folding":
    folding_tasks.fold = kill
elif place == "before the commit":
    rewrite.put_in_place = kill
else:
    rewrite.remove = kill
dump.dump({data!r}, now={now})
"""


@pytest.mark.parametrize("place", ["folding", "before the commit", "behind the commit"])
def test_killed_anywhere_the_old_files_count_or_the_new_one(tmp_path: Path, place: str) -> None:
    data, other = data_folder(tmp_path / "one", some_store()), data_folder(tmp_path / "other", some_store())
    known = found_by_a_server(data)
    script = KILLED.format(place=place, data=str(data), now=NOW * 10**9)
    ended = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert (DUMP.format(2) in names(data)) == (place == "behind the commit")
    assert "_tmp" in names(data) or place == "behind the commit"
    assert found_by_a_server(data) == known
    report, wanted = dump(str(data), now=NOW * 10**9), dump(str(other), now=NOW * 10**9)
    assert names(data) == [DUMP.format(report.number)]
    assert found_by_a_server(data) == known
    if place != "behind the commit":
        assert contents(data) == contents(other) and wanted.number == report.number


def test_a_server_opens_what_a_killed_job_left(tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data", some_store())
    left = data / "queues" / "_tmp" / "dump-12ab"
    left.mkdir(parents=True)
    (left / "part-00000-ff").write_bytes(b"half")
    engine = open_engine(str(data / "queues"), clock=ManualClock(NOW * 10**9), threaded=False)
    engine.close()
    dump(str(data), now=NOW * 10**9)
    assert "_tmp" not in names(data)


def test_tasks_that_are_run_twice_are_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = some_store()
    wanted = folded_by_the_engine(found, 2)

    def twice(run: Callable[[object], object]) -> Callable[[object], object]:
        return lambda task: (run(task), run(task))[1]

    for name in ("sort", "fold"):
        monkeypatch.setattr(folding_tasks, name, twice(getattr(folding_tasks, name)))
    assert on_runner(tmp_path / "queues", found, 2) == wanted


def test_it_can_be_given_up(tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data", some_store())
    stopper, before = Stopper(), names(data)
    stopper.stop()
    with pytest.raises(folding.FoldStopped):
        fold_on(LocalRunner())(
            RealFiles(),
            str(data / "queues"),
            2,
            now=NOW,
            ttl=0,
            keeps_messages=True,
            force=False,
            clock=SystemClock(),
            step=lambda name: None,
            stopper=stopper,
        )
    assert names(data) == before


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data", some_store())
    at = ["--data", str(data), "--now", str(NOW * 10**9), "--ttl", "21d"]
    facts = json.loads(CliRunner().invoke(command, [*at, "--json"]).output)
    assert facts["number"] == 2 and facts["engine"] == "local" and facts["expired"] > 0
    assert CliRunner().invoke(command, at).output.startswith("dump 3: ")


def test_a_folder_without_queues_is_told(tmp_path: Path) -> None:
    (tmp_path / "queues").mkdir()
    with pytest.raises(BadOption, match="holds no queues"):
        dump(str(tmp_path))
    assert not list((tmp_path / "queues").iterdir())
