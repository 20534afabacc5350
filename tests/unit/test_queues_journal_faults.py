"""Folders that a crash or a bad disk left, and disks that refuse (cases J 69 to 81)."""

from __future__ import annotations

import asyncio
import errno

import pytest

from journal_lab import LOSS, NOW, JournalLab, handle, mid, number_of
from lamina.engines.queues.journal import records
from lamina.engines.queues.message import Message
from lamina.errors import DiskError, DiskFull, LogClosed, StorageError, WrongFormat
from lamina.log import interval
from lamina.log.formats import HEADER
from lamina.log.reserve import Reserve

KEPT = "Vb-bEFX5mO1fSFUT"
OTHER = "p0TsmuaVtRyGA-Nd"


def sent(count: int) -> JournalLab:
    lab = JournalLab()
    for number in range(count):
        lab.put(b"body of %d" % (number + 1))
    return lab


def test_j69_torn_state_line() -> None:
    lab = sent(3)
    whole = lab.content("queue.log")
    lines = whole.splitlines(keepends=True)
    for cut in range(1, len(lines[2])):
        lab.put_content("queue.log", b"".join(lines[:2]) + lines[2][:cut])
        lab.restart()
        assert lab.store.size(lab.queue) == 3, "its message is whole, and may have been confirmed"
        is_all_but_its_end = cut == len(lines[2]) - 1  # then it counts, and nothing is left to be told
        assert lab.kinds() == ["torn_state_line", *["unconfirmed_messages_kept"][is_all_but_its_end:]]
        assert not lab.problems[0].is_error, "a crash leaves it so"
        assert (lab.problems[0].file, lab.problems[0].offset) == (
            "queue.log",
            len(whole) - 1 if is_all_but_its_end else len(lines[0] + lines[1]),
        )
        kept = [name for name in lab.names() if name.startswith("queue.log.torn-")]
        assert [lab.content(name) for name in kept] == ([] if is_all_but_its_end else [lines[2][:cut]])
        for name in [*lab.copies(), *kept]:
            lab.disk.remove(f"{lab.folder}/{name}")


def _messages(count: int) -> bytes:
    """As the lab writes them."""
    lab = sent(count)
    return lab.content(lab.message_files()[0])


def test_a_cut_line_that_still_parses_does_not_count() -> None:
    lab = sent(3)
    text = f"read_file={KEPT} read_msg=0 read_byte=0 write_file={KEPT} write_msg=2\n"
    torn = f"read_file={KEPT} read_msg=0 read_byte=0 write_file={KEPT} write_msg=1"  # was to be 12
    content = lab.content(lab.message_files()[0])
    lab.disk.remove(f"{lab.folder}/{lab.message_files()[0]}")
    lab.put_content(f"messages.{KEPT}.log", content)
    lab.put_content("queue.log", (text + torn).encode())
    lab.restart()
    assert lab.store.size(lab.queue) == 2
    assert lab.kinds() == ["torn_state_line", "uncommitted_tail_truncated"]


def test_a_line_whose_checksum_is_wrong_does_not_count() -> None:
    lab = sent(2)
    lines = lab.content("queue.log").splitlines(keepends=True)
    lab.put_content("queue.log", lines[0] + lines[1].replace(b"write_msg=2", b"write_msg=1"))
    lab.restart()
    assert lab.store.size(lab.queue) == 2
    assert lab.kinds() == ["torn_state_line", "unconfirmed_messages_kept"]
    assert lab.problems[0].is_error, "no crash leaves a whole line with a wrong checksum"


def test_j70_message_without_commit() -> None:
    lab = sent(2)
    name = lab.message_files()[0]
    uncommitted = records.encode(NOW * 10**9, Message(mid(3), NOW, b"", b"never confirmed"))
    for tail in (uncommitted[:20], bytes(30), b"\x01"):
        lab.put_content(name, MESSAGES_OF_TWO + tail)
        lab.restart()
        assert lab.store.size(lab.queue) == 2
        assert lab.kinds() == ["uncommitted_tail_truncated"]
        assert (lab.problems[0].file, lab.problems[0].offset) == (name, len(MESSAGES_OF_TWO))
        assert lab.content(name) == MESSAGES_OF_TWO
        (kept,) = (each for each in lab.names() if each.startswith(f"{name}.torn-"))
        assert lab.content(kept) == tail
        lab.disk.remove(f"{lab.folder}/{kept}")
        lab.restart()
    lab.sent = 8
    lab.put()
    assert lab.drain() == [1, 2, 9]
    assert lab.kinds() == []


def test_a_whole_message_without_commit_counts_for_its_line_may_be_what_went_bad() -> None:
    lab = sent(2)
    name = lab.message_files()[0]
    uncommitted = records.encode(NOW * 10**9, Message(mid(3), NOW, b"", b"perhaps confirmed"))
    lab.put_content(name, MESSAGES_OF_TWO + uncommitted + b"torn")
    lab.restart()
    assert lab.store.size(lab.queue) == 3
    assert lab.kinds() == ["unconfirmed_messages_kept", "uncommitted_tail_truncated"]
    assert lab.content(name) == MESSAGES_OF_TWO + uncommitted
    assert not any(problem.is_error for problem in lab.problems)
    lab.restart()
    assert lab.drain() == [1, 2, 3]
    assert lab.kinds() == []


MESSAGES_OF_TWO = _messages(2)


def two_files() -> JournalLab:
    """m2 m3 m4 in the read file, m5 m6 in the write file."""
    lab = sent(4)
    lab.receive()
    lab.put()
    lab.put()
    return lab


def test_j71_write_file_missing() -> None:
    lab = two_files()
    lab.disk.remove(f"{lab.folder}/messages.{lab.last_line().state.write_file}.log")
    lab.restart()
    assert lab.store.size(lab.queue) == 4
    assert [(problem.kind, problem.lost, problem.is_error) for problem in lab.problems] == [
        ("write_file_missing", 2, True)
    ]
    lab.put()
    assert lab.drain() == [2, 3, 4, LOSS, 7]


def test_j72_read_file_missing() -> None:
    lab = two_files()
    lab.disk.remove(f"{lab.folder}/messages.{lab.last_line().state.read_file}.log")
    lab.restart()
    assert lab.store.size(lab.queue) == 3
    assert [(problem.kind, problem.lost) for problem in lab.problems] == [("read_file_missing", 3)]
    lab.put()
    assert lab.drain() == [5, 6, LOSS, 7]


def test_j73_both_missing() -> None:
    lab = two_files()
    for name in lab.message_files():
        lab.disk.remove(f"{lab.folder}/{name}")
    lab.restart()
    assert lab.store.size(lab.queue) == 1
    assert sorted((problem.kind, problem.lost) for problem in lab.problems) == [
        ("read_file_missing", 3),
        ("write_file_missing", 2),
    ]
    lab.put()
    assert lab.drain() == [LOSS, 7]
    lab.restart()
    assert lab.store.size(lab.queue) == 0
    assert lab.kinds() == []


def test_j74_empty_queue_log_with_a_copy() -> None:
    lab = sent(3)
    lab.receive()
    lab.restart()
    lab.store.size(lab.queue)
    assert len(lab.copies()) == 1
    lab.put_content("queue.log", b"")
    lab.restart()
    assert lab.store.size(lab.queue) == 2
    assert lab.kinds() == ["state_from_copy"]
    assert lab.drain() == [2, 3]


def test_a_copy_does_not_make_later_messages_disappear() -> None:
    lab = sent(2)
    lab.restart()
    lab.sent = 2
    lab.put()  # the copy knows of two
    lab.put_content("queue.log", b"read_fi")
    lab.restart()
    assert lab.store.size(lab.queue) == 3
    assert lab.kinds() == ["torn_state_line", "state_from_copy"]


def test_a_copy_from_before_a_rotation_does_not_make_the_new_file_disappear() -> None:
    lab = two_files()
    newest = lab.copies()[-1]
    before = lab.content(newest).splitlines(keepends=True)[-2]  # of the read file alone
    lab.put_content(newest, before)
    lab.put_content("queue.log", b"")
    lab.restart()
    assert lab.drain() == [2, 3, 4, 5, 6]
    assert lab.kinds() == ["state_from_copy"]


def test_j75_only_line_torn_no_copy() -> None:
    lab = sent(3)
    lab.receive()
    lab.put_content("queue.log", lab.lines()[0][:30])
    lab.restart()
    assert lab.store.size(lab.queue) == 3
    assert lab.kinds() == ["torn_state_line", "state_rebuilt_from_messages"]
    assert lab.drain() == [1, 2, 3]


def test_two_message_files_without_any_state_are_read_in_the_order_of_their_times() -> None:
    lab = two_files()
    for name in [*lab.copies(), "queue.log"]:
        lab.disk.remove(f"{lab.folder}/{name}")
    lab.restart()
    assert lab.store.size(lab.queue) == 6
    assert lab.kinds() == ["state_rebuilt_from_messages"]
    assert lab.problems[0].is_error
    lab.put()
    assert lab.drain() == [1, 2, 3, 4, 5, 6, 7]


def test_j77_kill_between_state_and_delete_at_the_switch() -> None:
    lab = two_files()
    old = lab.last_line().state.read_file
    content = lab.content(f"messages.{old}.log")
    assert [lab.receive() for _ in range(3)] == [2, 3, 4]
    lab.put_content(f"messages.{old}.log", content)
    lab.restart()
    assert lab.store.size(lab.queue) == 2
    assert lab.kinds() == ["orphan_file_removed"]
    assert len(lab.message_files()) == 1
    assert lab.drain() == [5, 6]


def test_a_half_done_compaction_is_undone() -> None:
    lab = sent(1)
    lab.put_content("queue.log.new", b"read_file=")
    lab.restart()
    assert lab.store.size(lab.queue) == 1
    assert lab.kinds() == []
    assert "queue.log.new" not in lab.names()


def test_j78_state_ahead_of_data() -> None:
    lab = sent(3)
    lab.put_content(lab.message_files()[0], MESSAGES_OF_TWO)
    lab.restart()
    assert lab.store.size(lab.queue) == 3
    assert [(problem.kind, problem.lost) for problem in lab.problems] == [("state_ahead_of_data", 1)]
    lab.sent = 8
    lab.put()
    assert lab.drain() == [1, 2, LOSS, 9]


@pytest.mark.parametrize("part", [b"body of 2", b"\x01\0\0\0"])
def test_j79_unreadable_message_line(part: bytes) -> None:
    lab = sent(3)
    lab.put(b"body of 4")
    lab.receive()  # so that the head is read from the disk
    content = bytearray(lab.content(lab.message_files()[0]))
    at = content.index(b"body of 2") if part[:1] == b"b" else _second_record(bytes(content)) + 16
    content[at] ^= 0x40
    lab.put_content(lab.message_files()[0], bytes(content))
    lab.restart()
    assert lab.store.size(lab.queue) == 3
    assert lab.drain() == [LOSS, 3, 4]
    assert [(problem.kind, problem.lost, problem.is_error) for problem in lab.problems] == [("bad_message", 1, True)]
    start, end = _second_record(MESSAGES_OF_FOUR), _second_record(MESSAGES_OF_FOUR, b"body of 2")
    assert (lab.problems[0].file, lab.problems[0].offset) == (lab.message_files()[0], start)
    (kept,) = (name for name in lab.names() if ".broken-" in name)
    assert lab.content(kept) == bytes(content[start:end])
    assert lab.store.size(lab.queue) == 0
    lab.restart()
    assert lab.store.size(lab.queue) == 0
    assert lab.kinds() == []


def _second_record(content: bytes, after: bytes = b"body of 1") -> int:
    return content.index(b"\x01\0\0\0", content.index(after))


def _of_four() -> bytes:
    lab = sent(3)
    lab.put(b"body of 4")
    return lab.content(lab.message_files()[0])


MESSAGES_OF_FOUR = _of_four()


def test_the_marker_of_a_loss_is_the_same_until_it_is_acknowledged() -> None:
    lab = sent(3)
    content = bytearray(lab.content(lab.message_files()[0]))
    content[content.index(b"body of 1")] ^= 1
    lab.put_content(lab.message_files()[0], bytes(content))
    seen = set()
    for _ in range(3):
        lab.restart()
        head = lab.store.head(lab.queue)
        assert head is not None and head.is_loss and head.is_marker
        seen.add(head.id)
        assert lab.kinds() == ["bad_message"]
        assert not [name for name in lab.names() if ".broken-" in name], "nothing went yet"
    assert len(seen) == 1
    assert lab.drain() == [LOSS, 2, 3]


def test_each_bad_place_has_its_marker_and_its_bytes_are_kept_once() -> None:
    lab = JournalLab(quota=100, max_file_messages=200)
    for number in range(1, 8):
        lab.put(b"body of %d" % number)
    name = lab.message_files()[0]
    content = bytearray(lab.content(name))
    for number in (2, 3, 5, 7):
        content[content.index(b"body of %d" % number)] ^= 1
    lab.put_content(name, bytes(content))
    lab.restart()
    assert [number_of(message) for message in lab.store.messages(lab.queue)] == [1, LOSS, 4, LOSS, 6, LOSS]
    assert lab.store.size(lab.queue) == 7
    assert lab.drain() == [1, LOSS, 4, LOSS, 6, LOSS]
    assert [problem.lost for problem in lab.problems] == [2, 1, 1]
    assert lab.store.size(lab.queue) == 0
    kept = b"".join(lab.content(each) for each in lab.names() if each.startswith(f"{name}.broken-"))
    assert [kept.count(b"ody of %d" % number) for number in range(1, 8)] == [0, 1, 1, 0, 1, 0, 1]


def test_a_marker_of_a_loss_is_not_acknowledged_unless_its_bytes_are_kept() -> None:
    lab = sent(3)
    content = bytearray(lab.content(lab.message_files()[0]))
    content[content.index(b"body of 1")] ^= 1
    lab.put_content(lab.message_files()[0], bytes(content))
    lab.restart()
    fault = lab.disk.fail("create", only=".broken-", error=errno.ENOSPC)
    assert lab.store.head(lab.queue) is not None
    with pytest.raises(DiskFull, match=handle(lab)):
        lab.store.drop_head(lab.queue)
    assert fault.struck == 1
    lab.disk.heal()
    assert lab.drain() == [LOSS, 2, 3]


def test_a_bad_message_at_the_end_does_not_stop_the_next() -> None:
    lab = sent(2)
    content = bytearray(lab.content(lab.message_files()[0]))
    content[content.index(b"body of 2")] ^= 1
    lab.put_content(lab.message_files()[0], bytes(content))
    lab.restart()
    lab.sent = 2
    lab.put()
    assert lab.drain() == [1, LOSS, 3]
    assert lab.kinds() == ["bad_message"]


def test_a_file_of_a_later_version_is_refused_and_left_alone() -> None:
    lab = sent(2)
    content = lab.content(lab.message_files()[0])
    lab.put_content(lab.message_files()[0], HEADER.pack(b"lmqm", 2) + content[8:])
    lab.restart()
    with pytest.raises(WrongFormat, match=handle(lab)):
        lab.store.head(lab.queue)
    assert lab.store.size(lab.queue) == 2


# -- disks that refuse -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["messages.", "queue.log"])
@pytest.mark.parametrize("taken", [0, 10])
def test_j80_io_error_on_append(file: str, taken: int) -> None:
    lab = sent(1)
    lab.disk.fail("append", only=file, taken=taken)
    with pytest.raises(DiskError, match=handle(lab)):
        lab.put()
    lab.disk.heal()
    assert "write_refused" in lab.kinds()
    lab.put()
    assert lab.drain() == [1, 3]


def test_j81_short_write() -> None:
    lab = sent(1)
    lab.disk.fail("append", only="messages.", taken=10, error=0)
    lab.disk.fail("append", nth=2, only="messages.", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        lab.put()
    lab.disk.heal()
    lab.put()
    assert lab.drain() == [1, 3]


def test_a_short_write_alone_is_no_error() -> None:
    lab = sent(1)
    lab.disk.fail("append", only="messages.", taken=10, error=0)
    lab.put()
    lab.restart()
    assert lab.drain() == [1, 2]


@pytest.mark.parametrize("operation", ["create", "append", "sync", "sync_folder"])
def test_a_first_write_that_is_refused_leaves_nothing(operation: str) -> None:
    lab = JournalLab()
    lab.disk.fail(operation, only=lab.folder)
    with pytest.raises(DiskError):
        lab.put()
    lab.disk.heal()
    lab.restart()
    assert lab.store.size(lab.queue) == 0
    lab.put()
    assert lab.drain() == [2]


def test_what_was_refused_does_not_count_even_if_it_could_not_be_cut_off() -> None:
    lab = sent(1)
    lab.disk.fail("sync", only="queue.log")
    lab.disk.fail("truncate", times=9)
    with pytest.raises(DiskError):
        lab.put()
    lab.disk.heal()
    assert lab.store.size(lab.queue) == 1
    lab.put()
    lab.restart()
    assert lab.drain() == [1, 3]


def test_a_failed_sync_is_not_tried_again() -> None:
    lab = sent(1)
    lab.disk.fail("sync", only="messages.")
    lab.disk.calls.clear()
    with pytest.raises(DiskError):
        lab.put()
    assert lab.calls("sync", "messages.") == 1
    lab.store.push()
    assert lab.calls("sync", "messages.") == 1


def test_one_queue_that_is_refused_does_not_concern_the_others() -> None:
    lab = sent(1)
    other = lab.new_queue(bytes(24))
    broken = lab.store.put(lab.queue, Message(mid(2), NOW, b"", b"refused"))
    fine = lab.store.put(other, Message(mid(3), NOW, b"", b"kept"))
    lab.disk.fail("append", only=lab.folder)
    lab.store.push()
    lab.store.settle(fine)
    with pytest.raises(DiskError):
        lab.store.settle(broken)
    assert lab.store.rebuilds == 1
    assert not lab.store.is_kept()
    assert lab.store.is_kept()
    assert lab.receive(other) == 3
    assert lab.drain() == [1]


def test_settled_tells_coroutines_the_same() -> None:
    lab = sent(1)

    async def story() -> None:
        await lab.store.settled(lab.store.put(lab.queue, Message(mid(2), NOW, b"", b"kept")))
        position = lab.store.put(lab.queue, Message(mid(3), NOW, b"", b"refused"))
        lab.disk.fail("append")
        with pytest.raises(DiskError):
            await lab.store.reached(position)

    asyncio.run(story())
    lab.disk.heal()
    assert lab.drain() == [1, 2]


def test_no_error_and_no_problem_names_an_id() -> None:
    lab = sent(1)
    lab.disk.fail("append", times=9, only=lab.folder)
    lab.disk.fail("read", times=9, only=lab.folder)
    texts = []
    with pytest.raises(StorageError) as caught:
        lab.put()
    texts.append(f"{caught.value} {caught.value.facts} {caught.value.__cause__}")
    lab.restart()
    with pytest.raises(StorageError) as caught:
        lab.store.head(lab.queue)
    texts.append(f"{caught.value} {caught.value.facts} {caught.value.__cause__}")
    texts += [str(problem) for problem in lab.problems]
    for text in texts:
        assert lab.folder.rpartition("/")[2] not in text


def test_a_full_disk_does_not_keep_a_queue_from_being_read() -> None:
    lab = sent(3)
    lab.restart()
    lab.disk.fail("create", times=99, error=errno.ENOSPC)
    message = lab.store.head(lab.queue)
    assert message is not None
    assert message.id == mid(1)
    assert lab.kinds() == ["tidying_failed"]
    assert lab.drain() == [1, 2, 3]
    lab.disk.heal()
    lab.restart()
    assert lab.store.size(lab.queue) == 0


def test_a_full_disk_gets_the_room_that_was_kept_for_it() -> None:
    lab = sent(1)
    Reserve(lab.disk, "messages/.reserve", lab.clock, 1000)
    assert ".reserve" in lab.disk.list("messages")
    lab.disk.fail("append", only="queue.log", error=errno.ENOSPC)
    lab.put()
    assert ".reserve" not in lab.disk.list("messages")
    assert lab.drain() == [1, 2]


def test_a_closed_store_takes_nothing() -> None:
    lab = sent(1)
    lab.store.close()
    lab.store.close()
    with pytest.raises(LogClosed):
        lab.store.size(lab.new_queue())


def test_closing_writes_what_is_pending_and_tells_what_is_refused() -> None:
    lab = JournalLab(sync=interval(1000))
    lab.store.put(lab.queue, Message(mid(1), NOW, b"", b"pending"))
    lab.store.close()
    lab.restart()
    assert lab.drain() == [1]
    lab.store.put(lab.queue, Message(mid(2), NOW, b"", b"refused"))
    lab.disk.fail("append")
    with pytest.raises(DiskError):
        lab.store.close()


def test_under_an_interval_a_failed_sync_is_told_and_the_queue_goes_on() -> None:
    lab = JournalLab(sync=interval(1000))
    lab.put()
    lab.disk.fail("sync")
    lab.store.sync()
    assert lab.kinds() == ["sync_failed"]
    lab.disk.heal()
    lab.put()
    lab.store.sync()
    assert lab.drain() == [1, 2]
