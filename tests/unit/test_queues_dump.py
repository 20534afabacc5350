"""Promises of dumps: what they hold, what they remove and when, and that nothing else changes when one fails."""

from __future__ import annotations

import errno
import logging
import sys
import tracemalloc
from pathlib import Path

import pytest

import queue_lab
from integration.resp_wire import Error
from lamina.engines.queues import codec, store_files
from lamina.engines.queues.dumping import Dumper, DumpReport
from lamina.engines.queues.folding import FoldReport, FoldStopped, fold
from lamina.engines.queues.restoring import RestoreRefused, restore
from lamina.engines.queues.upkeep import Upkeep
from lamina.errors import DiskError, DiskFull, StorageError
from lamina.log import kernel
from lamina.log.files.real import RealFiles
from lamina.log.history import History
from lamina.log.survey import survey
from lamina.log.writer import Log
from lamina.testing import FaultyFiles, MemoryFiles
from queues_store_lab import (
    FOLDER,
    NOW,
    START_NS,
    TTL,
    Seen,
    StoreLab,
    ack,
    create,
    dump_of,
    file_of,
    id_of,
    marker,
    message,
    messages_of,
    seen,
)
from waiting import wait_until

BODY = b"body" * 500


class Killed(BaseException):
    """The process ends here."""


def kill_at(place: str) -> object:
    def step(name: str) -> None:
        if name == place:
            raise Killed

    return step


def after_kill(lab: StoreLab) -> StoreLab:
    """A start after the process was killed: only what is in the files counts."""
    files = lab.files.inner if isinstance(lab.files, FaultyFiles) else lab.files
    assert isinstance(files, MemoryFiles)
    return StoreLab(MemoryFiles(files.contents()))


def with_messages(files: MemoryFiles | FaultyFiles | None = None) -> StoreLab:
    """One dump and one log, as after the first dump."""
    lab = StoreLab(MemoryFiles() if files is None else files)
    lab.do(create("a"), message("a", "m1"), create("b", is_off=True), message("b", "m2"))
    assert dumped(lab).number == 0
    lab.do(message("a", "m3"), ack("a", "m1"))
    return lab


def dumped(lab: StoreLab, **more: bool) -> DumpReport:
    report = lab.dumper.dump(**more)
    assert report is not None
    return report


def short(names: list[str]) -> list[str]:
    return [name.removeprefix("smp-server-store-") for name in names]


def test_l30_two_records_a_message() -> None:
    lab = queue_lab.Lab()
    client = lab.client()
    rid, sid = client.new()
    log = lab.engine.log
    assert isinstance(log, Log)
    before = log.stats.records
    [id] = client.send(sid, "m1")
    assert log.stats.records == before + 1
    client.ask("Q.SUB", rid)
    assert [pushed[2] for pushed in client.pushed()] == [id]
    assert log.stats.records == before + 1
    client.ask("Q.ACK", rid, id)
    assert log.stats.records == before + 2


def test_l32_log_n_goes_too() -> None:
    lab = with_messages()
    assert short(lab.names()) == ["0.dump", "1.log"]
    report = dumped(lab)
    assert report.number == 1
    assert short(lab.names()) == ["1.dump", "2.log"]
    assert short(report.removed) == ["0.dump", "1.log"]
    assert not [name for name in lab.files.list(FOLDER) if name.endswith(".index")]


def test_l35_suspended_kept() -> None:
    lab = with_messages()
    dumped(lab)
    again = after_kill(lab)
    assert again.engine.state.queues[id_of("b")].is_off
    assert messages_of(again.engine.state, "b") == [b"m2"]


def test_l35_suspended_kept_for_clients() -> None:
    lab = queue_lab.Lab()
    client = lab.client()
    rid, sid = client.new()
    [id] = client.send(sid, "m1")
    client.ask("Q.OFF", rid)
    lab.restart(dump=True)
    client = lab.client()
    refused = client.ask("Q.SEND", sid, "m2")
    assert isinstance(refused, Error)
    assert refused.startswith(b"AUTH ")
    assert client.ask("Q.GET", rid)[0] == id


def test_l37_killed_after_the_log_switch() -> None:
    lab = with_messages()
    with pytest.raises(Killed):
        lab.make_dumper(step=kill_at("rotated")).dump()
    lab.do(message("a", "m4"))
    again = after_kill(lab)
    assert short(again.engine.restored.load_order) == ["0.dump", "1.log", "2.log"]
    assert again.seen() == lab.seen()
    assert (again.engine.restored.warnings, again.engine.restored.ignored) == ([], [])
    assert again.engine.restored.wants_dump
    dumped(again)
    assert short(again.names()) == ["3.dump", "4.log"]


def test_l38_killed_while_dumping() -> None:
    files = FaultyFiles(MemoryFiles())
    lab = with_messages(files)

    contents: dict[str, bytes] = {}

    def keep(operation: str, path: str) -> None:
        """What cleans up after an error is not run in a process that was killed."""
        assert isinstance(files.inner, MemoryFiles)
        if operation == "append" and path.endswith(".saving") and ("append", path) in files.calls:
            contents.update(files.inner.contents())
            raise Killed

    files.before = keep
    with pytest.raises(Killed):
        lab.dumper.dump()
    again = StoreLab(MemoryFiles(contents))
    assert short(again.engine.restored.load_order) == ["0.dump", "1.log", "2.log"]
    assert again.engine.restored.ignored == [("smp-server-store-1.dump.saving", "in-progress dump")]
    assert [each.kind for each in again.engine.restored.warnings] == ["ignored_file"]
    assert again.seen() == lab.seen()
    assert "smp-server-store-1.dump.saving" in dumped(again).removed
    assert short(again.names()) == ["3.dump", "4.log"]


def test_l39_killed_before_the_rename() -> None:
    files = FaultyFiles(MemoryFiles())
    lab = with_messages(files)
    contents: dict[str, bytes] = {}

    def keep(operation: str, path: str) -> None:
        assert isinstance(files.inner, MemoryFiles)
        if operation == "rename":
            contents.update(files.inner.contents())

    files.before = keep
    dumped(lab)
    again = StoreLab(MemoryFiles(contents))
    assert short(again.engine.restored.load_order) == ["0.dump", "1.log", "2.log"]
    assert again.engine.restored.ignored == [("smp-server-store-1.dump.saving", "in-progress dump")]
    assert again.seen() == lab.seen()


@pytest.mark.parametrize(
    ("place", "ignored"),
    [
        ("renamed", ["0.dump", "1.log"]),
        ("dumps removed", ["1.log"]),
        ("logs removed", []),
    ],
)
def test_l40_killed_before_removing(place: str, ignored: list[str]) -> None:
    lab = with_messages()
    with pytest.raises(Killed):
        lab.make_dumper(step=kill_at(place)).dump()
    again = after_kill(lab)
    assert short(again.engine.restored.load_order) == ["1.dump", "2.log"]
    assert short([file for file, _ in again.engine.restored.ignored]) == ignored
    assert [each.kind for each in again.engine.restored.warnings] == ["ignored_file"] * len(ignored)
    assert again.seen() == lab.seen()
    dumped(again)
    assert short(again.names()) == ["3.dump", "4.log"]


def test_l41_two_failed_dumps() -> None:
    files = FaultyFiles(MemoryFiles())
    lab = with_messages(files)
    for number in range(2):
        files.fail("sync", only=".saving")
        with pytest.raises(DiskError):
            lab.dumper.dump()
        files.heal()
        lab.do(message("a", f"later {number}"))
    assert short(lab.names()) == ["0.dump", "1.log", "2.log", "3.log"]
    again = after_kill(lab)
    assert short(again.engine.restored.load_order) == ["0.dump", "1.log", "2.log", "3.log"]
    assert again.seen() == lab.seen()
    dumped(lab)
    assert short(lab.names()) == ["3.dump", "4.log"]


FAILING = [
    *(("append", ".saving", nth) for nth in (1, 2, 3)),
    *((operation, ".saving", 1) for operation in ("create", "sync", "rename")),
    *((operation, "store-2", 1) for operation in ("create", "append", "sync")),
]


@pytest.mark.parametrize(("operation", "only", "nth"), FAILING)
def test_l42_disk_full_while_dumping(operation: str, only: str, nth: int, caplog: pytest.LogCaptureFixture) -> None:
    files = FaultyFiles(MemoryFiles())
    lab = with_messages(files)
    before = lab.seen()
    files.fail(operation, error=errno.ENOSPC, only=only, nth=nth)
    with pytest.raises(DiskFull), caplog.at_level(logging.ERROR, "lamina.queues"):
        lab.dumper.dump()
    files.heal()
    assert "no dump" in caplog.text
    assert not [name for name in lab.names() if name.endswith((".saving", "1.dump"))]
    assert {"smp-server-store-0.dump", "smp-server-store-1.log"} <= set(lab.names())
    assert lab.seen() == before
    lab.do(message("a", "after it"))
    dumped(lab)
    assert after_kill(lab).seen() == lab.seen()


def test_l53_double_round_trip() -> None:
    lab = StoreLab(MemoryFiles())
    lab.do(create("all", skey=b"sender's", is_off=True, ttl=12345), message("all", "m1", body=b"\0" * 300, ttl=99999))
    lab.do(marker("all", "m2"), create("none"))
    first = lab.seen()
    for _ in range(2):
        dumped(lab)
        lab.engine.close()
        lab = StoreLab(lab.files)
        assert lab.seen() == first
        dumped(lab)
        assert lab.engine.restored.load_order[0].endswith(".dump")


# -- what a dump holds -----------------------------------------------------------------------------------------------


def folded(files: MemoryFiles, number: int, *, keeps_messages: bool = True) -> tuple[FoldReport, Seen]:
    report = fold(files, FOLDER, number, now=NOW, ttl=TTL, keeps_messages=keeps_messages)
    name = f"{FOLDER}/{store_files.dump_name(number)}"
    alone = MemoryFiles({name: files.contents()[name]})
    found = restore(alone, FOLDER, now=NOW, ttl=TTL)
    assert (found.warnings, found.expired) == ([], 0)
    assert (report.queues, report.messages) == (len(found.state.queues), found.state.messages)
    assert report.bytes == len(files.contents()[name])
    return report, seen(found.state)


def test_expired_messages_are_left_out_and_counted() -> None:
    dump = dump_of(
        create("a"), message("a", "old", ts=1), message("a", "young"), create("b"), message("b", "old", ts=1)
    )
    log = file_of(message("b", "m1"), create("c"), message("c", "old", ts=1), first_ns=START_NS + 50)
    files = MemoryFiles({f"{FOLDER}/smp-server-store-3.dump": dump, f"{FOLDER}/smp-server-store-4.log": log})
    report, found = folded(files, 4)
    assert (report.queues, report.messages, report.expired) == (3, 2, 3)
    assert len(found) == 3


def test_queues_that_no_log_touched_are_copied_as_they_are() -> None:
    records = [create("a", skey=b"k"), message("a", "m1"), marker("a", "m2"), create("b")]
    files = MemoryFiles(
        {
            f"{FOLDER}/smp-server-store-3.dump": dump_of(*records),
            f"{FOLDER}/smp-server-store-4.log": file_of(create("c"), first_ns=START_NS + 50),
        }
    )
    folded(files, 4)
    data = files.contents()[f"{FOLDER}/smp-server-store-4.dump"]
    places = [data.index(record) for record in records]
    assert places == sorted(places)


def test_without_messages_a_dump_holds_queues_only() -> None:
    dump = dump_of(create("a"), message("a", "m1"), create("b"), message("b", "m1"))
    log = file_of(codec.secure(id_of("a"), b"key"), message("a", "m2"), ack("a", "m1"), first_ns=START_NS + 50)
    files = MemoryFiles({f"{FOLDER}/smp-server-store-3.dump": dump, f"{FOLDER}/smp-server-store-4.log": log})
    report, _ = folded(files, 4, keeps_messages=False)
    assert (report.queues, report.messages) == (2, 0)


def peak_of_folding(folder: Path, queues: int) -> int:
    folder.mkdir()
    records = [one for number in range(queues) for one in (create(f"{number}"), message(f"{number}", "m", body=BODY))]
    (folder / "smp-server-store-3.dump").write_bytes(dump_of(*records))
    (folder / "smp-server-store-4.log").write_bytes(file_of(ack("7", "m"), create("x"), first_ns=START_NS + 10**6))
    tracemalloc.start()
    try:
        report = fold(RealFiles(), str(folder), 4, now=NOW, ttl=TTL)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (report.queues, report.messages) == (queues + 1, queues - 1)
    return peak


def test_folding_needs_no_more_memory_for_a_larger_store(tmp_path: Path) -> None:
    peak_of_folding(tmp_path / "first", 300)  # whatever is allocated once
    small, large = (peak_of_folding(tmp_path / str(count), count) for count in (800, 3200))
    assert large < 1.3 * small


def test_a_dump_says_how_far_the_log_had_come() -> None:
    lab = with_messages()
    newest = lab.engine.log.position
    dumped(lab)
    assert isinstance(lab.files, MemoryFiles)
    lab.files.remove(f"{FOLDER}/smp-server-store-2.log")
    assert restore(lab.files, FOLDER, now=NOW, ttl=TTL, force=True).last_time == newest


def test_a_store_that_was_dumped_and_restarted_often_looks_whole_to_the_kernel() -> None:
    lab = with_messages()
    for number in range(4):
        lab.do(message("a", f"x{number}"))
        dumped(lab)
        lab.engine.close()
        lab = StoreLab(lab.files)
        lab.do(message("a", f"y{number}"))
        found = survey(lab.files, FOLDER, beside_writer=False)
        assert (found.damage, found.torn) == ([], [])


def test_an_empty_store_can_be_dumped_again_and_again() -> None:
    lab = StoreLab(MemoryFiles())
    assert [dumped(lab).number for _ in range(3)] == [0, 1, 2]
    assert after_kill(lab).seen() == {}


def test_folding_falls_back_from_a_broken_dump_as_restoring_does() -> None:
    files = MemoryFiles(
        {
            f"{FOLDER}/smp-server-store-3.dump": dump_of(create("a")),
            f"{FOLDER}/smp-server-store-4.log": file_of(message("a", "m1"), first_ns=START_NS + 50),
            f"{FOLDER}/smp-server-store-4.dump": dump_of(create("a"), message("a", "m1"))[:-1],
            f"{FOLDER}/smp-server-store-5.log": file_of(message("a", "m2"), first_ns=START_NS + 99),
        }
    )
    _, found = folded(files, 5)
    assert [each[0] for each in found[id_of("a")][-1]] == [id_of("m1"), id_of("m2")]  # type: ignore[attr-defined]
    files.remove(f"{FOLDER}/smp-server-store-3.dump")
    with pytest.raises(RestoreRefused):
        fold(files, FOLDER, 5, now=NOW, ttl=TTL)


def test_folding_refuses_what_restoring_refuses_and_passes_over_it_when_forced() -> None:
    bad = file_of(create("a")) + kernel.encode_many(START_NS + 1, [b"?", message("a", "m1")])
    files = MemoryFiles({f"{FOLDER}/smp-server-store-0.log": bad})
    with pytest.raises(RestoreRefused, match=r"store-0.log, record 2"):
        fold(files, FOLDER, 0, now=NOW, ttl=TTL)
    assert list(files.contents()) == [f"{FOLDER}/smp-server-store-0.log"]
    lab = StoreLab(files, force=True)
    assert messages_of(lab.engine.state, "a") == [b"m1"]
    dumped(lab)
    assert after_kill(lab).seen() == lab.seen(), "and with that the damage is over"
    lab.engine.log.append(b"?")  # type: ignore[union-attr]
    with pytest.raises(RestoreRefused):
        lab.dumper.dump()


def test_what_was_safe_and_is_damaged_at_the_end_of_a_log_is_no_torn_tail() -> None:
    lab = with_messages()
    path = f"{FOLDER}/smp-server-store-1.log"
    assert isinstance(lab.files, MemoryFiles)
    lab.files.open(path, write=True).content.data[-1] ^= 1
    before = lab.seen()
    with pytest.raises(RestoreRefused, match=r"store-1.log, byte \d+: records that were safe are missing at its end"):
        lab.dumper.dump()
    assert short(lab.names()) == ["0.dump", "1.log", "2.log"], "nothing that may still be mended is gone"
    assert lab.seen() == before


# -- one at a time, and told -----------------------------------------------------------------------------------------


def test_a_trigger_during_a_dump_is_dropped() -> None:
    lab = with_messages()
    inner: list[DumpReport | None] = []
    dumper: Dumper = lab.make_dumper(step=lambda name: inner.append(dumper.dump()))
    assert dumper.dump() is not None
    assert inner
    assert set(inner) == {None}


def test_commands_go_on_while_a_dump_is_written() -> None:
    lab = with_messages()
    dumper = lab.make_dumper(step=lambda name: lab.do(message("a", f"during {name}")))
    assert dumper.dump() is not None
    assert after_kill(lab).seen() == lab.seen()
    assert len(messages_of(lab.engine.state, "a")) == 6


def test_the_info_line_says_what_was_done(caplog: pytest.LogCaptureFixture) -> None:
    lab = with_messages()
    with caplog.at_level(logging.INFO, "lamina.queues"):
        report = dumped(lab)
    assert [record.getMessage() for record in caplog.records] == [str(report)]
    assert str(report) == (
        f"dump 1: 2 queues, 2 messages, 0 expired left out, {report.bytes} bytes, paused 0.000 s, took 0.000 s, "
        "removed smp-server-store-0.dump, smp-server-store-1.log"
    )


def test_a_cancelled_dump_leaves_nothing_and_no_other_begins_but_the_last() -> None:
    lab = with_messages()
    dumper: Dumper = lab.make_dumper(step=lambda name: dumper.cancel() if name == "rotated" else None)
    with pytest.raises(FoldStopped):
        dumper.dump()
    assert short(lab.names()) == ["0.dump", "1.log", "2.log"]
    assert dumper.dump() is None
    lab.dumper.cancel()
    assert dumped(lab, at_stop=True).number == 2


def test_what_cannot_be_removed_goes_with_the_next_dump(caplog: pytest.LogCaptureFixture) -> None:
    files = FaultyFiles(MemoryFiles())
    lab = with_messages(files)
    files.fail("remove", only="store-0.dump", times=2)  # its index goes first
    with pytest.raises(DiskError):
        lab.dumper.dump()
    files.heal()
    assert after_kill(lab).seen() == lab.seen()
    dumped(lab)
    assert short(lab.names()) == ["2.dump", "3.log"]


def test_records_that_were_refused_are_in_no_dump() -> None:
    files = FaultyFiles(MemoryFiles())
    lab = with_messages(files)
    before = lab.seen()
    lab.engine.do(message("a", "refused"))
    files.fail("append", error=errno.ENOSPC, only="store-1.log")
    with pytest.raises(StorageError):
        lab.dumper.dump()
    files.heal()
    assert lab.seen() == before
    dumped(lab)
    assert after_kill(lab).seen() == before


def test_l34_pause_does_not_grow() -> None:
    """By what is done in it, not by the clock (bench/ has that): the same calls for 16 times as many queues."""
    work = {}
    for times in (1, 4, 16):
        lab = queue_lab.Lab(files=FaultyFiles(MemoryFiles()))
        client = lab.client()
        for _ in range(10 * times):
            _, sid = client.new()
            client.send(sid, "m1", "m2")
        calls: list[str] = []
        lab.files.before = lambda operation, path, calls=calls: calls.append(operation)
        events = 0

        def count(*event: object) -> None:
            nonlocal events
            events += 1

        sys.setprofile(count)
        try:
            lab.upkeep.dumper._rotate()
        finally:
            sys.setprofile(None)
        lab.files.before = lambda operation, path: None
        lab.engine.close()
        work[times] = (sorted(calls), events)
    assert work[1][0] == work[4][0] == work[16][0]
    assert work[16][1] < 2 * work[1][1]


def test_with_history_what_tells_the_wanted_past_stays_and_older_goes() -> None:
    """Logs from the newest dump on that is older than the history, and that dump: they tell every moment of it. Of
    dumps since, those stay that are as far apart as the history is long: others would take more than they spare."""
    lab = with_messages()  # 0.dump, and 1.log
    for number in range(2, 5):
        lab.clock.advance(100)
        lab.do(message("a", f"n{number}"))
        lab.make_dumper(history=History(150)).dump()
    assert short(lab.names()) == ["0.dump", "1.log", "2.dump", "2.log", "3.dump", "3.log", "4.log"]
    seen = lab.seen()
    again = after_kill(lab)
    assert again.seen() == seen
    restored = again.engine.restored
    assert short(restored.load_order) == ["3.dump", "4.log"]
    assert restored.wants_dump  # nobody said that the past is wanted
    kept = restore(lab.files, lab.folder, now=NOW, ttl=TTL, keeps_history=True)
    assert not kept.wants_dump and kept.warnings == []
    dumped(again)
    assert short(again.names()) == ["5.dump", "6.log"]


def test_files_for_the_past_go_when_it_is_over_or_has_to_give_way() -> None:
    lab, room = with_messages(), 1 << 30
    history = History(150, lambda: room)
    dumper = lab.make_dumper(history=history)
    lab.clock.advance(100)
    lab.do(message("a", "n"))
    dumper.dump()
    before = short(lab.names())
    assert before == ["0.dump", "1.dump", "1.log", "2.log"] and history.bytes_of(lab.folder) > 0
    assert dumper.tidy() == [] and short(lab.names()) == before
    seen = lab.seen()
    lab.clock.advance(151)
    assert short(sorted(dumper.tidy())) == ["0.dump", "1.log"]
    assert short(lab.names()) == ["1.dump", "2.log"] and history.bytes == 0
    lab.do(message("a", "m"))
    lab.clock.advance(1)
    dumper.dump()
    assert short(lab.names()) == ["1.dump", "2.dump", "2.log", "3.log"]
    room = 0
    assert history.is_over(lab.folder)
    assert short(sorted(dumper.tidy())) == ["1.dump", "2.log"] and not history.is_over(lab.folder)
    assert after_kill(lab).seen() != seen


def test_the_upkeep_lets_the_past_go(monkeypatch: pytest.MonkeyPatch) -> None:
    lab, room = queue_lab.Lab(files=MemoryFiles()), 1 << 30
    history = History(3600, lambda: room)
    upkeep = Upkeep(lab.engine, history=history)
    _, sid = lab.client().new()
    lab.client().send(sid, "m1")
    upkeep.dump()
    assert "smp-server-store-0.log" in lab.files.list(lab.engine.folder)
    upkeep.start()
    try:
        room = 0
        wait_until(lambda: "smp-server-store-0.log" not in lab.files.list(lab.engine.folder))
    finally:
        upkeep.stop()
    lab.engine.close()
