"""Promises of Log: positions, levels, group commit, rotation."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from lab import Lab
from lamina.errors import BadOption, LogClosed, LogFailed, LogLocked, RecordTooLarge, ReservedPayload
from lamina.log import ALWAYS, OS, Level, Log, LogOptions, interval
from lamina.log.formats import JOBS, PLAIN, TOPIC
from lamina.log.frame import LAST_TIME
from lamina.log.naming import JOURNAL, PWAL, STORED, TIMED, parse


def test_records_come_back_in_the_order_they_were_appended() -> None:
    lab = Lab()
    lab.append(b"a", b"", b"c" * 3000)
    assert lab.payloads() == [b"a", b"", b"c" * 3000]


def test_positions_grow_even_when_the_clock_goes_back() -> None:
    lab = Lab()
    (first,) = lab.append(b"a")
    lab.clock.jump(-3600)
    positions = lab.append(b"b", b"c")
    lab.reopen()
    positions += lab.append(b"d")
    assert first < positions[0] < positions[1] < positions[2]
    assert lab.payloads() == [b"a", b"b", b"c", b"d"]


def test_records_of_one_call_have_consecutive_positions() -> None:
    lab = Lab()
    last = lab.log.append_many([b"a", b"b", b"c"], until=Level.WRITTEN)
    assert [record.time_ns for record in lab.log.reader.read()] == [last - 2, last - 1, last]


def test_an_empty_batch_changes_nothing() -> None:
    lab = Lab()
    (position,) = lab.append(b"a")
    assert lab.log.append_many([]) == position
    assert lab.log.stats.calls == 1


def test_append_without_until_returns_before_anything_is_written() -> None:
    lab = Lab()
    position = lab.log.append(b"a")
    assert lab.log.written < position
    lab.log.wait(position)
    assert lab.log.written == position


def test_always_is_answered_only_after_a_sync() -> None:
    lab = Lab(sync=ALWAYS)
    lab.log.wait(lab.log.append(b"a"))
    calls = [call for call, path in lab.files.calls if path.endswith("001.log")]
    assert calls.index("sync") > calls.index("append")


def test_os_never_syncs_by_itself() -> None:
    lab = Lab(sync=OS)
    lab.log.wait(lab.log.append(b"a"))
    lab.clock.advance(3600)
    lab.log.run_round()
    assert lab.log.stats.syncs == 0
    assert lab.log.synced < lab.log.written


def test_interval_syncs_when_the_interval_has_passed_and_not_before() -> None:
    lab = Lab(sync=interval(1000))
    position = lab.log.append(b"a")
    lab.log.wait(position)
    lab.clock.advance(0.9)
    assert lab.log.run_round() == pytest.approx(0.1)
    assert lab.log.synced < position
    lab.clock.advance(0.2)
    lab.log.run_round()
    assert lab.log.synced == position


def test_the_level_reached_is_never_overstated() -> None:
    lab = Lab(sync=OS)
    position = lab.log.append(b"a", until=Level.WRITTEN)
    assert (lab.log.written, lab.log.synced < position) == (position, True)
    lab.log.wait(position, Level.SYNCED)
    assert lab.log.synced == position
    assert lab.log.stats.syncs == 1


def test_one_call_may_be_safer_than_its_log() -> None:
    lab = Lab(sync=OS)
    lab.log.append(b"a", sync=ALWAYS)
    lab.log.run_round()
    assert lab.log.synced == lab.log.position


def test_one_call_may_be_less_safe_than_its_log_but_is_synced_within_a_second() -> None:
    lab = Lab(sync=ALWAYS)
    position = lab.log.append(b"a", sync=OS, until=Level.WRITTEN)
    assert lab.log.synced < position
    lab.clock.advance(1.1)
    lab.log.run_round()
    assert lab.log.synced == position


def test_calls_that_gathered_share_one_write_and_one_sync() -> None:
    lab = Lab(sync=ALWAYS)
    positions = [lab.log.append(b"%d" % number) for number in range(50)]
    lab.log.wait(positions[-1])
    assert (lab.log.stats.calls, lab.log.stats.writes, lab.log.stats.syncs) == (50, 1, 1)


def test_waiting_for_a_position_never_appended_is_a_mistake_of_the_caller() -> None:
    lab = Lab()
    with pytest.raises(ValueError, match="never appended"):
        lab.log.wait(lab.log.position + 1)  # type: ignore[arg-type]


def test_a_payload_over_the_limit_is_refused_and_nothing_of_its_batch_is_kept() -> None:
    lab = Lab(max_payload=10)
    with pytest.raises(RecordTooLarge, match="payload 1 of the batch has 11 bytes"):
        lab.log.append_many([b"fine", b"x" * 11])
    lab.append(b"x" * 10)
    assert lab.payloads() == [b"x" * 10]


@pytest.mark.parametrize("format", [PLAIN, JOBS, TOPIC], ids=lambda each: each.name)
def test_a_payload_with_the_form_of_a_mark_is_refused(format) -> None:
    lab = Lab(format=format)
    for mark in (format.watermark(7), format.gap(7)):
        with pytest.raises(ReservedPayload):
            lab.log.append(mark)
        lab.append(mark + b"\0")
    assert lab.payloads() == [format.watermark(7) + b"\0", format.gap(7) + b"\0"]


def test_a_full_segment_is_synced_before_the_next_one_is_used() -> None:
    lab = Lab(sync=OS, segment_bytes=100)
    for number in range(5):
        lab.log.append(b"%d" % number * 50, until=Level.WRITTEN)
    calls = [(call, path[-7:-4]) for call, path in lab.files.calls if path.endswith(".log")]
    for number in ("001", "002"):
        following = f"{int(number) + 1:03d}"
        assert calls.index(("sync", number)) < calls.index(("create", following))
    assert lab.payloads() == [b"%d" % number * 50 for number in range(5)]


def test_the_folder_is_synced_when_a_file_appears_before_anything_is_written_to_it() -> None:
    lab = Lab()
    lab.append(b"a")
    calls = [call for call, path in lab.files.calls if not path.endswith(".index")]
    created = calls.index("create")
    assert "sync_folder" in calls[created : calls.index("sync", created)]


def test_segments_rotate_by_size_and_the_size_is_a_minimum() -> None:
    lab = Lab(segment_bytes=200)
    lab.append(*[b"x" * 60] * 6)
    sizes = [len(lab.data(name)) for name in lab.names()]
    assert len(sizes) == 3
    assert all(size >= 200 for size in sizes[:-1])


def test_a_batch_is_never_split_over_two_files() -> None:
    lab = Lab(segment_bytes=100)
    lab.append(b"x")
    last = lab.log.append_many([b"y" * 40] * 10, until=Level.SYNCED)
    assert len({record.file for record in lab.log.reader.read(since=last - 9)}) == 1


def test_segments_rotate_by_age_also_without_new_traffic() -> None:
    lab = Lab(segment_age_s=60)
    lab.append(b"a")
    assert lab.log.run_round() == pytest.approx(60)
    lab.clock.advance(61)
    lab.log.run_round()
    assert lab.log.stats.rotations == 1
    lab.append(b"b")
    assert lab.names() == ["000000001.log", "000000002.log"]
    assert lab.payloads() == [b"a", b"b"]


def test_rotate_on_request_names_the_sealed_file_and_makes_no_empty_one() -> None:
    lab = Lab()
    assert lab.log.rotate() is None
    lab.append(b"a")
    assert lab.log.rotate() == "000000001.log"
    assert lab.log.rotate() is None
    assert lab.names() == ["000000001.log"]
    lab.append(b"b")
    assert lab.payloads() == [b"a", b"b"]


def test_a_time_named_file_is_named_by_its_first_record() -> None:
    lab = Lab(family=TIMED, format=TOPIC, segment_bytes=100)
    lab.append(*[b"x" * 60] * 4)
    for name in lab.names(".dat"):
        parsed = parse(name)
        assert parsed is not None
        assert lab.log.reader.first_time(parsed) == parsed.number
        first = lab.data(name)[8 : 8 + 15]
        assert int.from_bytes(first[1:9]) - 62135596800 == parsed.number // 10**9
        assert int.from_bytes(first[9:13]) == parsed.number % 10**9


def test_store_logs_go_on_by_number() -> None:
    lab = Lab(family=STORED, segment_bytes=64)
    lab.append(*[b"x" * 60] * 11)
    assert [name.number for name in lab.log.reader.segments()] == list(range(11))


def test_writing_goes_on_in_the_same_file_after_an_orderly_stop() -> None:
    lab = Lab()
    lab.append(b"a")
    assert lab.reopen().report.was_clean
    lab.append(b"b")
    assert lab.names() == ["000000001.log"]
    assert lab.payloads() == [b"a", b"b"]


def test_writing_goes_on_in_a_new_file_after_a_crash() -> None:
    lab = Lab()
    lab.append(b"a")
    assert not lab.restart().report.was_clean
    lab.append(b"b")
    assert lab.names() == ["000000001.log", "000000002.log"]
    assert lab.payloads() == [b"a", b"b"]


def test_opening_and_closing_without_writing_changes_no_log_file() -> None:
    lab = Lab()
    lab.append(b"a")
    lab.reopen()
    before = lab.disk.contents()
    lab.reopen()
    assert lab.disk.contents() == before


def test_a_closed_log_refuses_and_closing_twice_does_nothing() -> None:
    lab = Lab()
    lab.append(b"a")
    lab.log.close()
    lab.log.close()
    with pytest.raises(LogClosed):
        lab.log.append(b"b")


def test_closing_writes_and_syncs_what_nobody_waited_for() -> None:
    lab = Lab(sync=OS)
    lab.log.append(b"a")
    lab.log.close()
    assert lab.log.synced == lab.log.position
    lab.log = lab.open()
    assert lab.payloads() == [b"a"]


def test_a_second_writer_is_refused_at_once_naming_the_holder() -> None:
    lab = Lab()
    with pytest.raises(LogLocked, match="this process"):
        lab.open()
    lab.reopen()


def test_when_enough_gathered_the_next_append_writes_it() -> None:
    lab = Lab(sync=OS, gather_bytes=1000)
    for _ in range(20):
        lab.log.append(b"x" * 100)
    assert lab.log.stats.writes >= 2


def test_the_position_of_a_reopened_log_can_be_waited_for() -> None:
    lab = Lab()
    (position,) = lab.append(b"a")
    lab.reopen()
    assert lab.log.position == position
    lab.log.wait(lab.log.position)
    lab.log.wait(lab.log.append_many([], until=Level.SYNCED))


def test_one_call_may_ask_for_a_sync_by_the_clock_that_its_log_does_not_do() -> None:
    lab = Lab(sync=OS)
    position = lab.log.append(b"a", sync=interval(20), until=Level.WRITTEN)
    lab.clock.advance(0.03)
    lab.log.run_round()
    assert lab.log.synced == position


def test_a_stamp_past_the_last_time_a_record_can_have_is_refused() -> None:
    lab = Lab()
    lab.append(b"a")
    lab.clock.wall_ns = LAST_TIME
    lab.append(b"b")
    with pytest.raises(LogFailed, match="2262"):
        lab.append(b"c")
    assert lab.payloads() == [b"a", b"b"]


@pytest.mark.parametrize("family", [JOURNAL, PWAL], ids=lambda each: each.name)
def test_families_whose_files_are_made_by_their_engine_are_refused_at_open(family) -> None:
    with pytest.raises(BadOption):
        Lab(family=family)


@pytest.mark.parametrize("wrong", ["synced", 99, True])
def test_a_level_that_is_none_is_a_mistake_of_the_caller_not_a_promise(wrong) -> None:
    lab = Lab(sync=OS)
    with pytest.raises(TypeError):
        lab.log.append(b"a", until=wrong)
    with pytest.raises(TypeError):
        lab.log.wait(lab.log.append(b"a"), wrong)
    with pytest.raises(TypeError):
        lab.log.append(b"a", sync="always")  # type: ignore[arg-type]


class TestThreads:
    def test_appenders_in_many_threads_lose_nothing_and_share_syncs(self, tmp_path) -> None:
        with Log.open(str(tmp_path)) as log:

            def work(number: int) -> None:
                for turn in range(30):
                    log.append(b"%d.%d" % (number, turn), until=Level.SYNCED)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            found = [record.payload for record in log.reader.read()]
            assert sorted(found) == sorted(b"%d.%d" % (n, t) for n in range(16) for t in range(30))
            for number in range(16):
                mine = [payload for payload in found if payload.startswith(b"%d." % number)]
                assert mine == [b"%d.%d" % (number, turn) for turn in range(30)]
            assert log.stats.syncs < log.stats.calls

    def test_a_record_nobody_waits_for_is_written_soon_by_the_commit_thread(self, tmp_path) -> None:
        with Log.open(str(tmp_path), options=LogOptions(sync=OS)) as log:
            position = log.append(b"a")
            follower = log.reader.read().follow(timeout=10)
            assert next(follower).time_ns == position

    def test_the_commit_thread_syncs_by_the_clock(self, tmp_path) -> None:
        with Log.open(str(tmp_path), options=LogOptions(sync=interval(20))) as log:
            position = log.append(b"a", until=Level.WRITTEN)
            for _ in range(500):
                if log.synced >= position:
                    return
                threading.Event().wait(0.02)
            pytest.fail("nothing was synced though the interval passed many times")

    def test_coroutines_are_told_when_their_level_holds(self, tmp_path) -> None:
        async def run(log: Log) -> None:
            async def one(number: int) -> None:
                position = log.append(b"%d" % number)
                await log.reached(position, Level.SYNCED)
                assert log.synced >= position

            await asyncio.gather(*(one(number) for number in range(100)))

        with Log.open(str(tmp_path)) as log:
            asyncio.run(run(log))
            assert log.stats.syncs < 100
            assert len(list(log.reader.read())) == 100

    def test_waiting_gives_up_after_its_time(self) -> None:
        lab = Lab()
        position = lab.log.append(b"a")
        gate = threading.Event()
        lab.files.before = lambda call, path: (gate.wait(10), None)[1] if call == "sync" else None
        leader = threading.Thread(target=lambda: lab.log.wait(position))
        leader.start()
        try:
            with pytest.raises(TimeoutError):
                while True:  # until the other thread has taken the lead
                    lab.log.wait(position, timeout=0.05)
        finally:
            gate.set()
            leader.join()
        lab.log.wait(position)


def test_a_log_closes_while_its_commit_thread_is_about_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread has taken the log off its list and waits for the lock that closing holds."""
    log = Log.open(str(tmp_path), options=LogOptions(sync=OS))
    began, may_go_on = threading.Event(), threading.Event()
    run_round = log.run_round

    def late(**words: bool) -> float | None:
        began.set()
        may_go_on.wait(5)
        return run_round(**words)

    monkeypatch.setattr(log, "run_round", late)
    log.append(b"x")
    log.nudge()
    assert began.wait(5)
    closing = threading.Thread(target=log.close, daemon=True)
    closing.start()
    while not isinstance(log.failure, LogClosed):
        closing.join(0.001)
    may_go_on.set()
    closing.join(10)
    assert not closing.is_alive()
