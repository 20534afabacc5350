"""What is told, and to whom, when messages of a journal are lost; and folders of queues that the log does not know."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import lamina
from journal_lab import NOW, mid
from lamina.cli import doctor_logs
from lamina.cli.doctor_finding import PROBLEM, WARNING
from lamina.cli.log import verify as log_verify
from lamina.cli.main import EXIT_DAMAGE
from lamina.clock import ManualClock
from lamina.engines.queues import ids
from lamina.engines.queues.journal import records
from lamina.engines.queues.journal.home import JournalOptions
from lamina.engines.queues.journal.store import JournalStore
from lamina.engines.queues.message import LOST, Message, Queue
from lamina.engines.queues.migrating import migrate
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.upkeep import Upkeep
from lamina.errors import Corruption, LaminaError
from lamina.log import LogOptions, interval
from lamina.log.files.real import RealFiles
from lamina.server import restored
from lamina.server.life import Life
from lamina.server.resp import queue_commands
from lamina.testing import MemoryFiles

JOURNAL = QueueOptions(store="journal")


def made(data: Path, count: int = 3) -> lamina.NewQueue:
    with lamina.open(data, queues=JOURNAL) as opened:
        queue = opened.queues.create()
        for number in range(1, count + 1):
            opened.queue(queue.sid).send(b"body of %d" % number)
    return queue


def message_file(data: Path) -> Path:
    (path,) = (data / "queues/messages").rglob("messages.*.log")
    return path


def flip(path: Path, what: bytes) -> int:
    content = bytearray(path.read_bytes())
    at = content.index(what)
    content[at] ^= 4
    path.write_bytes(bytes(content))
    return at


def test_the_recipient_is_given_a_mark_where_a_message_was_lost(tmp_path: Path) -> None:
    queue = made(tmp_path)
    flip(message_file(tmp_path), b"body of 2")
    with lamina.open(tmp_path, queues=JOURNAL) as opened:
        box = opened.queue(queue.rid)
        first = box.receive()
        assert first is not None
        mark = box.ack(first)
        assert mark is not None
        assert (mark.is_loss, mark.is_quota, mark.body, mark.flags) == (True, False, None, LOST)
        third = box.ack(mark)
        assert third is not None
        assert (third.body, third.is_loss) == (b"body of 3", False)
    assert [path.name for path in message_file(tmp_path).parent.iterdir() if ".broken-" in path.name]


def test_a_mark_of_a_loss_over_resp() -> None:
    id = bytes(24)
    shown = queue_commands.shown(Message(id, 5, LOST, None), 3)
    assert shown == b"*4\r\n$32\r\n%b\r\n:5\r\n$4\r\nlost\r\n_\r\n" % ids.wire(id)
    assert b"$5\r\nquota\r\n" in queue_commands.shown(Message(id, 5, b"", None), 3)


def test_a_mark_of_a_loss_is_a_record_of_its_own_in_a_message_file() -> None:
    mark = records.loss("A" * 16, 60, NOW)
    record = records.encode(NOW * 10**9, mark)
    found = records.decode(record[16:-4])
    assert found is not None and found.is_loss
    assert (found.id, found.ts) == (mark.id, NOW)
    assert records.loss("A" * 16, 60, NOW + 1).id == mark.id
    assert records.loss("A" * 16, 61, NOW).id != mark.id


def test_health_start_and_metrics_tell_of_damage_with_file_and_byte(tmp_path: Path) -> None:
    made(tmp_path)
    path = message_file(tmp_path)
    flip(path, b"body of 1")
    engine = open_engine(str(tmp_path / "queues"), options=JOURNAL, threaded=False)
    life = Life()
    life.tell_damage("queue messages", lambda: [str(each) for each in engine.keeper.damage])
    assert life.damage == {}
    (queue,) = engine.state.queues.values()
    assert engine.head(queue) is not None
    ((name, found),) = life.damage.items()
    assert name == "queue messages"
    assert f"bad_message, 1 messages lost: {path.name}, byte 8" in found[0]
    assert life.as_dict()["damage"] == {name: found}
    assert path.name not in str(life.as_dict(with_names=False)), "a health check is not for operators alone"
    assert (engine.keeper.stats.damaged, engine.keeper.stats.lost) == (1, 1)
    with life.restoring("queues") as told:
        restored.tell_queues(engine, told)
    assert told.report.warnings == found
    engine.close()


def test_messages_that_were_lost_are_not_migrated_in_silence(tmp_path: Path) -> None:
    made(tmp_path)
    flip(message_file(tmp_path), b"body of 2")
    with pytest.raises(Corruption, match="1 messages cannot be read"):
        migrate(str(tmp_path / "queues"), "memory")


# -- folders of queues that the log does not know --------------------------------------------------------------------


def opened_journals(root: str, files: MemoryFiles) -> JournalStore:
    options = JournalOptions(quota=3, max_file_messages=4)
    clock = ManualClock(NOW * 10**9)
    return JournalStore(root, files, clock, bytes, sync=interval(50), options=options, tell=lambda problem: None)


def test_folders_of_queues_that_the_log_does_not_know_are_set_aside_and_brought_back(tmp_path: Path) -> None:
    folder, files = tmp_path / "queues", RealFiles()
    log = LogOptions(sync=interval(50))
    engine = open_engine(str(folder), options=JOURNAL, log=log, threaded=False)
    sent = []
    for number in range(5):
        queue, _ = engine.create()
        engine.send(queue, b"body of %d" % number)
        sent.append(queue.rid)
    engine.close()
    logs = [path for path in folder.iterdir() if path.name.startswith("smp-server-store-")]
    shutil.copytree(folder, tmp_path / "kept")
    for path in logs:
        path.unlink()
    other = open_engine(str(folder), options=JOURNAL, log=log, threaded=False)
    queue, position = other.create()
    other.settle(position)
    assert other.keeper.aside_count() == 0
    care = Upkeep(other)
    assert care.set_orphans_aside() == 5
    assert {problem.kind for problem in other.keeper.damage} == {"queue_set_aside"}
    assert other.keeper.aside_count() == 5
    assert care.set_orphans_aside() == 0
    other.close()
    for path in folder.glob("smp-server-store-*"):
        path.unlink()
    for path in (tmp_path / "kept").glob("smp-server-store-*"):
        shutil.copy(path, folder)
    again = open_engine(str(folder), options=JOURNAL, log=log, files=files, threaded=False)
    assert again.keeper.aside_count() == 0
    got = []
    for rid in sent:
        message = again.head(again.state.queues[rid])
        assert message is not None
        got.append(message.body)
    assert got == [b"body of %d" % number for number in range(5)]
    assert not list((folder / "messages").glob(".aside-*"))
    again.close()


def test_a_folder_that_was_set_aside_does_not_replace_one_that_is_there() -> None:
    files = MemoryFiles()
    store = opened_journals("messages", files)
    queue = Queue(bytes(range(24)), None, bytes(24), None)
    for number in (1, 2):
        store.settle(store.put(queue, Message(mid(number), NOW, b"", b"body")))
        if number == 1:
            assert store.set_aside(queue.rid, ".aside-1")
            queue = Queue(queue.rid, None, bytes(24), None)
    assert store.bring_back(lambda rid: True) == 0
    assert store.aside_count() == 1
    assert [message.id for message in store.messages(queue)] == [mid(2)]


def test_what_is_of_no_queue_survives_a_migration_to_memory(tmp_path: Path) -> None:
    folder = tmp_path / "queues"
    made(tmp_path)
    kept = message_file(tmp_path)
    (kept.parent / f"{kept.name}.broken-20261115T061700.123456789Z").write_bytes(b"damage that was kept")
    unknown = Queue(bytes(range(24)), None, bytes(24), None)
    store = JournalStore(
        str(folder / "messages"),
        RealFiles(),
        ManualClock(NOW * 10**9),
        lambda size: bytes(size),
        sync=interval(50),
        options=JournalOptions(),
        tell=lambda problem: None,
    )
    store.settle(store.put(unknown, Message(mid(1), NOW, b"", b"of nobody")))
    store.close()
    migrate(str(folder), "memory")
    rest = b"".join(path.read_bytes() for path in folder.rglob("aside-*/**/*") if path.is_file())
    assert b"of nobody" in rest
    assert b"damage that was kept" in rest
    assert not (folder / "messages").exists()


# -- who looks from outside --------------------------------------------------------------------------------------------


def verified(*args: object) -> Result:
    return CliRunner().invoke(log_verify, [str(each) for each in args], standalone_mode=False)


def test_log_verify_and_doctor_name_file_and_byte_of_a_journal(tmp_path: Path) -> None:
    queue = made(tmp_path)
    messages = message_file(tmp_path)
    flip(messages, b"body of 2")
    state = messages.parent / "queue.log"
    lines = state.read_bytes().splitlines(keepends=True)
    flip(state, lines[1])
    bad = [(messages.name, 8 + len(_first_record(messages))), ("queue.log", len(lines[0]))]
    rid = ids.parse(queue.rid.encode())
    assert rid is not None
    whose = f"queue {ids.handle(rid)}, "
    for folder, before in ((messages.parent, ""), (tmp_path / "queues", whose), (tmp_path, whose)):
        done = verified(folder, "--json")
        assert done.return_value == EXIT_DAMAGE, done.output
        told = json.loads(done.output)
        damage = told["findings" if folder == tmp_path else "damage"]
        assert sorted((each["file"], each["offset"]) for each in damage) == sorted((before + n, at) for n, at in bad)
        shown = verified(folder)
        assert shown.return_value == EXIT_DAMAGE
        where = "queues/" if folder == tmp_path else ""
        for name, at in bad:
            assert f"damage: {where}{before}{name}, byte {at}: " in shown.output
    above = verified(tmp_path / "queues/messages")
    assert isinstance(above.exception, LaminaError), "it is refused, and not called whole"
    found = [each for each in doctor_logs.look(str(tmp_path), deep=True) if each.level == PROBLEM]
    assert sorted(each.text.split(": ")[0] for each in found) == sorted(f"{whose}{name}, byte {at}" for name, at in bad)
    assert {each.about for each in found} == {"queues"}


def _first_record(path: Path) -> bytes:
    content = path.read_bytes()
    return content[8 : content.index(b"\x01\0\0\0", 9)]


def test_a_whole_journal_is_whole_to_log_verify_and_doctor(tmp_path: Path) -> None:
    made(tmp_path)
    for folder in (message_file(tmp_path).parent, tmp_path / "queues", tmp_path):
        done = verified(folder)
        assert (done.return_value, "no damage" in done.output.splitlines()) == (0, True), done.output
    assert not [each for each in doctor_logs.look(str(tmp_path), deep=True) if each.level == PROBLEM]


def test_doctor_tells_of_folders_that_were_set_aside(tmp_path: Path) -> None:
    made(tmp_path)
    messages = message_file(tmp_path).parent
    aside = (
        tmp_path / "queues/messages/.aside-20261115T061700.123456Z" / messages.relative_to(tmp_path / "queues/messages")
    )
    aside.parent.mkdir(parents=True)
    messages.rename(aside)
    (found,) = (each for each in doctor_logs.look(str(tmp_path)) if each.about == "journals")
    assert found.level == WARNING
    assert ".aside-20261115T061700.123456Z" in found.text
