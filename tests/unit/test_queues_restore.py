"""Promises of restoring the queues: what is loaded, passed over and refused. Cases L of the specification."""

from __future__ import annotations

import errno
import json

import pytest

from lamina.engines.queues import codec, ids
from lamina.engines.queues.restoring import Restored, RestoreRefused, restore
from lamina.engines.queues.state import State
from lamina.errors import DiskError, WrongFormat
from lamina.log import kernel
from lamina.log.formats import QUEUE_STORE, TOPIC
from lamina.testing import FaultyFiles, MemoryFiles
from queue_lab import Lab
from queues_store_lab import (
    FOLDER,
    NOW,
    START_NS,
    TTL,
    StoreLab,
    ack,
    create,
    delete,
    dump_of,
    expire,
    file_of,
    id_of,
    marker,
    message,
    messages_of,
    seen,
)

Warned = list[tuple[str, str, int | None]]


def path(name: str) -> str:
    return f"{FOLDER}/smp-server-store-{name}"


def disk(**contents: bytes) -> MemoryFiles:
    """Files by number and kind: ``log4=...``, ``dump3=...``, ``saving3=...``."""
    files = MemoryFiles({f"{FOLDER}/lamina.lock": b""})
    for key, data in contents.items():
        kind = key.rstrip("0123456789")
        suffix = {"log": "log", "dump": "dump", "saving": "dump.saving"}[kind]
        files.write(path(f"{key[len(kind) :]}.{suffix}"), data)
    return files


def restored(files: MemoryFiles, *, force: bool = False, keeps_messages: bool = True) -> Restored:
    return restore(files, FOLDER, now=NOW, ttl=TTL, force=force, keeps_messages=keeps_messages)


def warned(found: Restored | RestoreRefused) -> Warned:
    return [(each.kind, each.file.removeprefix("smp-server-store-"), each.record) for each in found.warnings]


def refused(files: MemoryFiles) -> RestoreRefused:
    before = files.contents()
    with pytest.raises(RestoreRefused) as caught:
        restored(files)
    assert files.contents() == before, "a refusal changed something"
    return caught.value


def loaded(found: Restored) -> list[str]:
    return [name.removeprefix("smp-server-store-") for name in found.load_order]


def test_l28_fresh() -> None:
    found = restored(disk())
    assert (found.load_order, found.warnings, found.ignored) == ([], [], [])
    assert (found.next_number, found.last_time, found.records, seen(found.state)) == (0, 0, 0, {})
    assert StoreLab(MemoryFiles()).names() == ["smp-server-store-0.log"]


def test_l29_normal() -> None:
    files = disk(
        dump3=dump_of(create("a"), message("a", "m1")),
        log4=file_of(message("a", "m2"), ack("a", "m1"), create("b"), message("b", "b1"), first_ns=START_NS + 100),
    )
    found = restored(files)
    assert loaded(found) == ["3.dump", "4.log"]
    assert (messages_of(found.state, "a"), messages_of(found.state, "b")) == ([b"m2"], [b"b1"])
    assert (found.next_number, found.warnings) == (5, [])
    assert not found.wants_dump
    assert not found.was_forced
    assert found.last_time == START_NS + 103
    assert found.records == 7
    assert found.state.messages == 2
    assert found.state.senders[id_of("sender of a")] is found.state.queues[id_of("a")]


def test_l36_numbers_as_numbers() -> None:
    found = restored(
        disk(
            dump8=dump_of(create("a")),
            log9=file_of(message("a", "m1")),
            log10=file_of(ack("a", "m1"), message("a", "m2")),
            log11=file_of(message("a", "m3")),
        )
    )
    assert loaded(found) == ["8.dump", "9.log", "10.log", "11.log"]
    assert messages_of(found.state, "a") == [b"m2", b"m3"]
    assert found.next_number == 12


@pytest.mark.parametrize("name", ["saving40", "dump40", "log40"])
def test_the_next_number_is_larger_than_that_of_any_file(name: str) -> None:
    files = disk(log0=file_of(), dump0=dump_of(), **{name: dump_of()})
    assert restored(files, force=True).next_number == 41


def test_l43_torn_record() -> None:
    whole = file_of(create("a"), message("a", "m1"), message("a", "m2"))
    found = restored(disk(log0=whole[:-3], log1=file_of(message("a", "m3"), first_ns=START_NS + 100)))
    assert messages_of(found.state, "a") == [b"m1", b"m3"]
    assert warned(found) == [("torn_tail", "0.log", None)]
    assert found.wants_dump


def test_l44_every_cut() -> None:
    lab = StoreLab(MemoryFiles())
    files = lab.files
    assert isinstance(files, MemoryFiles)
    records = [create("a"), *(message("a", f"m{number}") for number in range(15)), ack("a", "m0"), create("b")]
    records += [message("b", "m0"), delete("a")]
    ends, states = [], [seen(State())]
    for record in records:
        lab.do(record)
        ends.append(len(files.contents()[path("0.log")]))
        states.append(lab.seen())
    whole = files.contents()[path("0.log")]
    for cut in range(len(whole) + 1):
        found = restored(disk(log0=whole[:cut]))
        assert seen(found.state) == states[sum(end <= cut for end in ends)], cut
        assert {kind for kind, _, _ in warned(found)} <= {"torn_tail"}


def test_a_torn_tail_in_every_log_is_dropped() -> None:
    log0 = file_of(create("a"), message("a", "m1"), message("a", "m2"))[:-1]
    log1 = file_of(message("a", "m3"), message("a", "m4"), first_ns=START_NS + 100)[:-30]
    found = restored(disk(log0=log0, log1=log1))
    assert messages_of(found.state, "a") == [b"m1", b"m3"]
    assert warned(found) == [("torn_tail", "0.log", None), ("torn_tail", "1.log", None)]


def test_a_log_that_never_got_its_header_is_an_empty_one() -> None:
    for header in (b"", QUEUE_STORE.header[:3], bytes(8), bytes(600)):
        found = restored(disk(log0=file_of(create("a")), log1=header, log2=file_of(create("b"))))
        assert len(found.state.queues) == 2
        assert found.next_number == 3


def test_records_behind_a_lost_header_are_damage() -> None:
    damaged = bytes(8) + file_of(create("a"))[8:]
    assert warned(refused(disk(log0=damaged))) == [("bad_record", "0.log", 1)]
    assert len(restored(disk(log0=damaged), force=True).state.queues) == 1


def test_l45_bad_record_inside() -> None:
    unreadable = kernel.encode_many(START_NS + 1, [b"no record"])
    log = file_of(create("a")) + unreadable + kernel.encode_many(START_NS + 2, [message("a", "m1")])
    error = refused(disk(log0=file_of(), log1=log))
    assert warned(error) == [("bad_record", "1.log", 2)]
    assert "smp-server-store-1.log, record 2" in str(error)
    assert (error.kind, error.record) == ("bad_record", 2)
    found = restored(disk(log0=file_of(), log1=log), force=True)
    assert messages_of(found.state, "a") == [b"m1"]
    assert warned(found) == [("bad_record", "1.log", 2)]
    assert found.wants_dump
    assert found.was_forced


def test_a_flipped_byte_inside_is_damage_and_with_force_only_that_record_is_lost() -> None:
    records = [create("a"), *(message("a", f"m{number}") for number in range(5))]
    whole = bytearray(file_of(*records))
    whole[len(file_of(*records[:3])) + 40] ^= 1
    error = refused(disk(log0=bytes(whole)))
    assert warned(error) == [("bad_record", "0.log", 4)]
    found = restored(disk(log0=bytes(whole)), force=True)
    assert messages_of(found.state, "a") == [b"m0", b"m1", b"m3", b"m4"]


def test_every_flipped_byte_of_what_was_synced_is_damage() -> None:
    lab = StoreLab(MemoryFiles())
    assert isinstance(lab.files, MemoryFiles)
    lab.do(create("a"))
    safe = len(lab.files.contents()[path("0.log")])
    lab.do(message("a", "m1"))
    lab.engine.close()
    whole = lab.files.contents()[path("0.log")]
    for at in range(8, safe):
        data = bytearray(whole)
        data[at] ^= 0x55
        with pytest.raises(RestoreRefused):
            restored(disk(log0=bytes(data)))


def test_a_sector_that_the_disk_had_not_written_yet_is_a_torn_tail() -> None:
    records = [create("a"), *(message("a", f"m{number}", body=bytes(range(1, 200))) for number in range(20))]
    whole = bytearray(file_of(*records))
    whole[1024:1536] = bytes(512)
    found = restored(disk(log0=bytes(whole)))
    assert warned(found) == [("torn_tail", "0.log", None)]
    kept = messages_of(found.state, "a")
    assert kept == [b"m%d" % number for number in range(len(kept))]
    assert 0 < len(kept) < 6


def test_records_that_the_next_log_vouches_for_must_be_there() -> None:
    lab = StoreLab(MemoryFiles())
    assert isinstance(lab.files, MemoryFiles)
    lab.do(create("a"))
    safe = len(lab.files.contents()[path("0.log")])
    lab.do(message("a", "m1"))
    lab.engine.log.rotate(begin_next=True)  # type: ignore[union-attr]
    files = MemoryFiles(lab.files.contents())
    files.write(path("0.log"), files.contents()[path("0.log")][:safe])
    assert warned(refused(files)) == [("lost_records", "0.log", None)]
    assert messages_of(restored(files, force=True).state, "a") == []
    files.remove(path("0.log"))
    assert warned(refused(files)) == [("missing_log", "0.log", None)], "a log that somebody took away is missed"


def test_l46_missing_log() -> None:
    files = disk(
        dump3=dump_of(create("a")),
        log4=file_of(message("a", "m1")),
        log6=file_of(message("a", "m2")),
    )
    error = refused(files)
    assert warned(error) == [("missing_log", "5.log", None)]
    assert "smp-server-store-5.log" in str(error)
    found = restored(files, force=True)
    assert loaded(found) == ["3.dump", "4.log", "6.log"]
    assert messages_of(found.state, "a") == [b"m1", b"m2"]
    assert found.next_number == 7


DUMP = dump_of(create("a"), message("a", "m1"), create("b"))
BROKEN = {
    "empty": b"",
    "torn": DUMP[:-3],
    "without its end": DUMP[: -len(kernel.encode_many(0, [codec.end(2, 1)]))],
    "cut in the middle": DUMP[:60],
    "zeros": bytes(len(DUMP)),
    "flipped": DUMP[:50] + bytes([DUMP[50] ^ 1]) + DUMP[51:],
    "with a wrong count": file_of(create("a"), message("a", "m1"), codec.end(1, 2)),
    "of a message without its queue": file_of(message("a", "m1"), codec.end(0, 1)),
    "with something behind its end": file_of(codec.end(0, 0), create("a")),
    "with a record of a log": file_of(create("a"), ack("a", "m1"), codec.end(1, 0)),
    "with what is no record": file_of(create("a"), b"?", codec.end(1, 0)),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_l47_broken_newest_dump(broken: bytes) -> None:
    files = disk(
        dump3=dump_of(create("a"), message("a", "m0")),
        log4=file_of(message("a", "m1"), first_ns=START_NS + 100),
        dump4=broken,
        log5=file_of(message("a", "m2"), first_ns=START_NS + 200),
    )
    found = restored(files)
    assert loaded(found) == ["3.dump", "4.log", "5.log"]
    assert messages_of(found.state, "a") == [b"m0", b"m1", b"m2"]
    assert found.ignored == [("smp-server-store-4.dump", "broken dump")]
    assert [each[:2] for each in warned(found)] == [("broken_dump", "4.dump")]
    assert found.next_number == 6
    assert found.wants_dump


@pytest.mark.parametrize("gone", ["3.dump", "4.log"])
def test_l47_broken_newest_dump_without_what_was_before(gone: str) -> None:
    files = disk(dump3=dump_of(create("a")), log4=file_of(create("b")), dump4=DUMP[:-3], log5=file_of(create("c")))
    files.remove(path(gone))
    error = refused(files)
    assert [each[:2] for each in warned(error)][-1] == ("broken_dump", "4.dump")
    found = restored(files, force=True)
    assert loaded(found)[0] == "4.dump", "what can be read of it"
    assert set(found.state.queues) == {id_of("a"), id_of("b"), id_of("c")}


def test_a_broken_dump_alone_is_refused() -> None:
    for broken in BROKEN.values():
        assert refused(disk(dump0=broken)).kind == "broken_dump"


def test_the_first_dump_may_be_broken_if_all_logs_are_there() -> None:
    found = restored(disk(log0=file_of(create("a")), dump0=b"", log1=file_of(create("b"))))
    assert loaded(found) == ["0.log", "1.log"]


def test_l49_overlap() -> None:
    files = disk(dump4=dump_of(create("a"), message("a", "m1")), log5=file_of(message("a", "m1"), message("a", "m2")))
    found = restored(files)
    assert messages_of(found.state, "a") == [b"m1", b"m2"]
    assert warned(found) == [("duplicate_message", "5.log", 1)]


def test_l50_log_edits_dump() -> None:
    dump = dump_of(
        create("a"), message("a", "m1"), message("a", "m2"), create("b", is_off=True), create("c"), message("c", "m3")
    )
    log = file_of(ack("a", "m2"), ack("a", "m1"), codec.suspend(id_of("a")), delete("c"), message("c", "m4"))
    found = restored(disk(dump4=dump, log5=log))
    assert messages_of(found.state, "a") == [b"m2"]
    assert found.state.queues[id_of("a")].is_off
    assert found.state.queues[id_of("b")].is_off
    assert warned(found) == [("ack_not_head", "5.log", 1), ("unknown_queue", "5.log", 5)]
    assert found.deleted == {id_of("c")}


def test_l51_expired_at_restore() -> None:
    dump = dump_of(create("a"), message("a", "old", ts=NOW - TTL - 1), message("a", "edge", ts=NOW - TTL), create("b"))
    log = file_of(message("a", "older", ts=1), message("a", "young"), marker("a", "mark", ts=1))
    found = restored(disk(dump4=dump, log5=log))
    assert messages_of(found.state, "a") == [b"edge", b"young", b"mark"]
    assert (found.expired, found.warnings) == (2, [])
    assert len(found.state.queues) == 2


def test_acknowledging_what_has_expired_meanwhile_is_no_warning() -> None:
    dump = dump_of(create("a"), message("a", "old", ts=1), message("a", "older", ts=1), message("a", "young"))
    found = restored(disk(dump4=dump, log5=file_of(ack("a", "old"), expire("a", "older"), expire("a", "left out"))))
    assert messages_of(found.state, "a") == [b"young"]
    assert found.warnings == []


def test_the_lifetime_of_a_message_or_a_queue_comes_before_the_servers() -> None:
    log = file_of(
        create("a", ttl=0),
        message("a", "kept for ever", ts=1),
        message("a", "short", ts=NOW - 11, ttl=10),
        create("b", ttl=100),
        message("b", "gone", ts=NOW - 101),
        message("b", "kept", ts=NOW - 101, ttl=1000),
    )
    found = restored(disk(log0=log))
    assert (messages_of(found.state, "a"), messages_of(found.state, "b")) == ([b"kept for ever"], [b"kept"])


def test_l54_foreign_files() -> None:
    files = disk(dump3=dump_of(create("a")), log4=file_of())
    foreign = ["notes.txt", "smp-server-store-4.log.bak", "smp-server-store-x.dump", "smp-server-store-05.log"]
    ours = ["smp-server-store-4.log.index", "reserve", "checkpoint", "smp-server-store-4.log.torn-20260101T000000.0Z"]
    for name in foreign + ours:
        files.write(f"{FOLDER}/{name}", b"whatever")
    files.make_folder(f"{FOLDER}/messages")
    lab = StoreLab(files)
    assert (lab.engine.restored.warnings, lab.engine.restored.ignored) == ([], [])
    assert lab.dumper.dump() is not None
    for name in foreign:
        assert files.contents()[f"{FOLDER}/{name}"] == b"whatever"


# -- beside the cases ------------------------------------------------------------------------------------------------


def test_without_messages_only_queues_are_restored() -> None:
    dump = dump_of(create("a"), message("a", "m1"))
    log = file_of(ack("a", "m1"), message("a", "m2"), marker("a", "m3"), expire("a", "m9"), message("b", "m4"))
    found = restored(disk(dump4=dump, log5=log), keeps_messages=False)
    assert messages_of(found.state, "a") == []
    assert (found.state.messages, found.warnings) == (0, [])


def test_a_queue_that_was_created_again_is_not_among_the_deleted() -> None:
    found = restored(disk(log0=file_of(create("a"), delete("a"), create("a"), create("b"), delete("b"), delete("c"))))
    assert found.deleted == {id_of("b"), id_of("c")}


def test_no_id_key_or_body_stands_in_a_warning() -> None:
    secret = message("nobody", "secret id", body=b"secret body")
    found = restored(
        disk(log0=file_of(create("a"), secret, ack("a", "secret id"), message("a", "m"), message("a", "m")))
    )
    text = json.dumps([str(each) for each in found.warnings])
    assert len(found.warnings) == 3
    assert ids.handle(id_of("nobody")) in text
    for hidden in (id_of("nobody"), id_of("secret id"), id_of("a"), b"secret"):
        assert ids.show(hidden.ljust(24, b".")) not in text
        assert hidden.decode() not in text


def test_many_warnings_are_counted_and_damage_is_told_all_the_same() -> None:
    log = file_of(*[ack("nobody", "m")] * 1500) + kernel.encode_many(START_NS + 5000, [b"?"])
    found = restored(disk(log0=log), force=True)
    assert (len(found.warnings), found.more_warnings) == (1001, 500)
    assert warned(found)[-1] == ("bad_record", "0.log", 1501)


def test_a_file_of_another_kind_is_refused() -> None:
    other = TOPIC.header + file_of()[8:]
    for files in (disk(log0=other), disk(dump0=other), disk(log0=file_of(), dump0=other)):
        with pytest.raises(WrongFormat):
            restored(files)


def test_what_was_loaded_is_synced_before_it_is_served() -> None:
    files = FaultyFiles(disk(dump3=dump_of(create("a")), log4=file_of(), log5=file_of()))
    restore(files, FOLDER, now=NOW, ttl=TTL)
    synced = [where.rpartition("-")[2] for call, where in files.calls if call == "sync"]
    assert synced == ["3.dump", "4.log", "5.log"]
    assert files.calls[-1] == ("sync_folder", FOLDER)
    files.fail("sync", error=errno.EIO)
    with pytest.raises(DiskError):
        restore(files, FOLDER, now=NOW, ttl=TTL)


def test_progress_goes_up_to_all_bytes() -> None:
    files = disk(
        dump3=dump_of(create("a")), log4=file_of(*[message("a", f"m{n}", body=bytes(9000)) for n in range(90)])
    )
    told: list[tuple[int, int]] = []
    found = restore(files, FOLDER, now=NOW, ttl=TTL, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert len(told) > 2
    assert told[-1] == (found.bytes, found.bytes)


def test_what_was_received_behind_what_a_start_left_out_does_not_come_back() -> None:
    """The start that leaves them out says so in its log: the next one, without a dump in between, finds the same."""
    lab = Lab(quota=9)
    client = lab.client()
    rid, sid = client.new()
    for body, ttl in ((b"first", 1000), (b"short", 10), (b"third", 1000)):
        client.ask("Q.SEND", sid, body, "TTL", ttl)
    lab.clock.advance(20)
    lab.restart()
    client = lab.client()
    for body in (b"first", b"third"):
        message = client.ask("Q.GET", rid)
        assert message[3] == body
        client.ask("Q.ACK", rid, message[0])
    lab.restart()
    assert lab.client().ask("Q.GET", rid) is None
    assert lab.engine.restored.warnings == []
