"""One queue's folder: what is on disk after which command (cases J 55 to 68)."""

from __future__ import annotations

import pytest

from journal_lab import DAY_S, NOW, TTL_S, JournalLab, mid
from lamina.engines.queues.journal import copies
from lamina.engines.queues.journal.home import JournalOptions
from lamina.engines.queues.message import Message
from lamina.errors import BadOption, NoMessage
from lamina.log.files.real import RealFiles


def test_j55_no_folder_until_the_first_write() -> None:
    lab = JournalLab()
    assert lab.store.head(lab.queue) is None
    assert lab.store.size(lab.queue) == 0
    assert lab.names() == []
    lab.put()
    assert len(lab.message_files()) == 1
    assert len(lab.lines()) == 1
    lab.put()
    lab.receive()
    assert len(lab.lines()) == 3


def test_j56_state_line() -> None:
    lab = JournalLab()
    lab.put()
    name = lab.message_files()[0].removeprefix("messages.").removesuffix(".log")
    text = lab.content("queue.log").decode()
    assert text.startswith(f"read_file={name} read_msg=0 read_byte=0 write_file={name} write_msg=1 ")
    assert text.endswith("\n")
    assert "  " not in text


def test_j57_compaction_on_open() -> None:
    lab = JournalLab()
    for _ in range(3):
        lab.put()
    before = lab.content("queue.log")
    lab.restart()
    assert lab.store.size(lab.queue) == 3
    assert len(lab.lines()) == 1
    assert [lab.content(name) for name in lab.copies()] == [before]
    assert lab.drain() == [1, 2, 3]


def test_j58_rotation() -> None:
    lab = JournalLab()
    lab.put()
    lab.put()
    assert lab.receive() == 1
    lab.put()
    assert lab.receive() == 2
    lab.put()
    assert len(lab.message_files()) == 1
    lab.put()
    assert len(lab.message_files()) == 2
    assert [lab.receive(), lab.receive()] == [3, 4]
    assert len(lab.message_files()) == 1
    assert lab.drain() == [5]


def test_rotation_compacts_the_state() -> None:
    lab = JournalLab()
    for _ in range(4):
        lab.put()
    lab.receive()
    lab.put()
    assert len(lab.lines()) == 1
    assert len(lab.copies()) == 1


def test_j59_switch_at_delivery() -> None:
    lab = JournalLab(max_file_messages=8)
    for _ in range(4):
        lab.put()
    while lab.receive():
        pass
    # As another program leaves it: all of the one file was received, and writing has moved on.
    old = lab.last_line().state
    content = lab.content(lab.message_files()[0])
    new = "p0TsmuaVtRyGA-Nd"
    lab.put_content(f"messages.{new}.log", content)
    line = f"read_file={old.read_file} read_msg=4 read_byte={old.read_byte} write_file={new} write_msg=2\n"
    lab.put_content("queue.log", line.encode())
    lab.restart()
    assert lab.store.size(lab.queue) == 2
    assert lab.drain() == [1, 2]
    assert lab.message_files() == [f"messages.{new}.log"]


def test_j60_last_of_the_file_acknowledged_then_rotation() -> None:
    lab = JournalLab()
    for number in range(1, 5):
        lab.put()
        assert lab.receive() == number
    lab.put()
    assert lab.receive() == 5


def test_j61_end_of_the_same_file_is_not_the_end_of_the_file() -> None:
    lab = JournalLab()
    lab.put()
    before = lab.message_files()
    assert lab.receive() == 1
    assert lab.receive() is None
    assert lab.message_files() == before
    lab.put()
    assert lab.receive() == 2


def test_j62_quota_over_two_files() -> None:
    lab = JournalLab()
    for _ in range(3):
        lab.put()
    lab.receive()
    lab.put()
    lab.receive()
    lab.put()
    assert len(lab.message_files()) == 2
    assert lab.store.size(lab.queue) == 3
    assert lab.send() == "QUOTA"
    lab.restart()
    assert lab.store.size(lab.queue) == 4
    assert lab.drain() == [3, 4, 5, 6]


def test_quota_is_sticky_until_the_queue_is_empty() -> None:
    lab = JournalLab()
    assert [lab.send() for _ in range(4)] == ["OK", "OK", "OK", "QUOTA"]
    assert lab.store.is_closed(lab.queue)
    lab.receive()
    lab.restart()
    assert lab.send() == "QUOTA"
    assert lab.store.size(lab.queue) == 3
    assert lab.drain() == [2, 3, 4]
    assert lab.send() == "OK"


def test_keeping_up_never_meets_the_quota() -> None:
    lab = JournalLab()
    for number in range(1, 51):
        assert lab.send() == "OK"
        assert lab.receive() == number
    assert lab.kinds() == []
    assert len(lab.message_files()) == 1


def test_j63_limits_changed() -> None:
    lab = JournalLab(max_file_messages=8)
    for _ in range(6):
        lab.put()
        lab.receive()
    for _ in range(3):
        lab.put()
    assert len(lab.message_files()) == 2
    lab.restart(max_file_messages=4)
    for _ in range(6):
        lab.put()
        assert len(lab.message_files()) == 2
    assert len(lab.drain()) == 9
    assert len(lab.message_files()) == 1
    before = lab.message_files()
    lab.put()
    assert lab.message_files() != before


def test_j64_bad_limits() -> None:
    with pytest.raises(BadOption, match="quota = 4 cannot be"):
        JournalOptions(quota=4, max_file_messages=4)


def test_j65_redelivery_from_memory() -> None:
    lab = JournalLab()
    lab.put()
    lab.put()
    lab.restart()
    first = lab.store.head(lab.queue)
    before = lab.calls("read")
    assert lab.store.head(lab.queue) is first
    assert lab.calls("read") == before


def test_a_message_that_was_just_sent_is_never_read() -> None:
    lab = JournalLab()
    lab.put()
    before = lab.calls("read")
    assert lab.receive() == 1
    assert lab.calls("read") == before


def test_j66_copies_kept() -> None:
    day = DAY_S * 1_000_000_000
    now = NOW * 1_000_000_000
    ages = (12, 9, 6.5, 5, 2, 1, 0.5, 0.1)
    names = [copies.name_at(round(now - age * day), ()) for age in ages]
    going = copies.to_remove([*names, "queue.log"], now, 3, 7)
    assert going == [names[0], names[3], names[4]]
    assert copies.to_remove([name for name in names if name not in going], now, 3, 7) == []


def test_copies_are_bounded_however_often_a_queue_is_opened() -> None:
    lab = JournalLab()
    for _ in range(20):
        lab.put()
        lab.receive()
        lab.restart()
        lab.store.size(lab.queue)
        lab.clock.advance(DAY_S)
    assert len(lab.copies()) == 5


def test_two_copies_of_one_moment_have_two_names() -> None:
    lab = JournalLab(max_file_messages=100)
    for _ in range(3):
        lab.put()
        lab.put()
        lab.drain()
        lab.restart()
        lab.store.size(lab.queue)
    assert len(lab.copies()) == 3


def test_a_busy_queue_that_is_never_reopened_compacts() -> None:
    lab = JournalLab(max_file_messages=1000, compact_lines=10)
    for _ in range(20):
        lab.put()
        lab.receive()
        assert len(lab.lines()) <= 11
    assert len(lab.copies()) == 3


def test_j67_idle_queue_frees_space() -> None:
    lab = JournalLab()
    lab.put(b"x" * 1000)
    lab.receive()
    assert lab.store.clean(lab.queue) > 1000
    assert lab.message_files() == []
    lab.restart()
    assert lab.store.size(lab.queue) == 0
    assert lab.kinds() == []
    lab.put()
    assert lab.receive() == 2
    assert lab.store.clean(lab.queue) > 0
    assert lab.store.clean(lab.queue) == 0


def test_cleaning_keeps_what_was_not_received() -> None:
    lab = JournalLab()
    for body in (b"secret one", b"two", b"three"):
        lab.put(body)
    lab.receive()
    freed = lab.store.clean(lab.queue)
    assert freed > 0
    assert len(lab.message_files()) == 1
    assert b"secret" not in lab.content(lab.message_files()[0])
    lab.restart()
    assert lab.store.size(lab.queue) == 2
    assert lab.drain() == [2, 3]


def test_cleaning_of_two_files_keeps_what_was_not_received() -> None:
    lab = JournalLab()
    for _ in range(4):
        lab.put()
    lab.receive()
    lab.put()
    assert len(lab.message_files()) == 2
    assert lab.store.clean(lab.queue) > 0
    assert len(lab.message_files()) == 2
    lab.put()
    assert lab.drain() == [2, 3, 4, 5, 6]
    assert lab.kinds() == []


def test_a_queue_of_which_nothing_was_received_is_not_cleaned() -> None:
    lab = JournalLab()
    lab.put()
    assert lab.store.clean(lab.queue) == 0
    assert lab.drain() == [1]


def test_j68_idle_handles_closed() -> None:
    lab = JournalLab()
    queues = [lab.new_queue(number.to_bytes(24)) for number in range(1000)]
    for queue in queues[:300]:
        lab.put(queue=queue)
    assert lab.store.open_count == 300
    lab.clock.advance(100)
    lab.put(queue=queues[0])
    lab.clock.advance(100)
    assert lab.store.close_idle(150) == 299
    assert lab.store.open_count == 1
    assert lab.receive(queues[7]) == 8


def test_descriptors_are_bounded(tmp_path: object) -> None:
    import os

    lab = JournalLab(most_open=10)
    lab.store.close()
    from lamina.engines.queues.journal.store import JournalStore

    base = len(os.listdir("/proc/self/fd"))
    store = JournalStore(
        f"{tmp_path}/root",
        RealFiles(),
        lab.clock,
        lab.random,
        sync=lab.sync,
        options=JournalOptions(most_open=10),
        tell=lab.problems.append,
    )
    for number in range(50):
        queue = lab.new_queue(number.to_bytes(24))
        store.settle(store.put(queue, Message(mid(number), NOW, b"", b"body")))
        assert len(os.listdir("/proc/self/fd")) <= base + 2 * 10 + 5
    assert store.open_count == 10
    store.close()
    assert len(os.listdir("/proc/self/fd")) <= base
    assert lab.problems == []


def test_a_queue_that_is_known_to_be_empty_is_not_opened() -> None:
    lab = JournalLab()
    lab.queue.size = 0
    before = len(lab.disk.calls)
    assert lab.store.head(lab.queue) is None
    assert lab.store.size(lab.queue) == 0
    assert not lab.store.is_closed(lab.queue)
    assert lab.store.messages(lab.queue) == []
    assert lab.store.drop_expired(lab.queue, NOW, TTL_S)[0] == 0
    assert len(lab.disk.calls) == before


def test_a_queue_that_is_found_empty_is_closed_again() -> None:
    lab = JournalLab()
    lab.put()
    lab.receive()
    lab.restart()
    assert lab.store.size(lab.queue) == 0
    assert lab.store.open_count == 0


def test_opening_reads_no_message_file_where_the_line_says_all() -> None:
    lab = JournalLab()
    lab.put()
    lab.restart()
    lab.disk.calls.clear()
    assert lab.store.size(lab.queue) == 1
    assert lab.calls("read", "messages.") == 0
    assert lab.calls("read", "queue.log") == 1


def test_delivery_changes_nothing_on_disk() -> None:
    lab = JournalLab()
    lab.put()
    lab.put()
    lab.restart()
    lab.store.size(lab.queue)
    memory = lab.disk.inner
    before = memory.contents()  # type: ignore[attr-defined]
    lab.store.head(lab.queue)
    lab.store.push()
    assert memory.contents() == before  # type: ignore[attr-defined]


def test_only_the_head_is_dropped_and_only_if_there_is_one() -> None:
    lab = JournalLab()
    with pytest.raises(NoMessage):
        lab.store.drop_head(lab.queue)
    lab.put()
    lab.receive()
    with pytest.raises(NoMessage):
        lab.store.drop_head(lab.queue)


def test_expiry_from_the_head_with_one_line() -> None:
    lab = JournalLab()
    lab.put()
    lab.put()
    lab.clock.advance(2)
    lab.put()
    before = len(lab.lines())
    count, position = lab.store.drop_expired(lab.queue, NOW + TTL_S + 1, TTL_S)
    lab.store.settle(position)
    assert count == 2
    assert len(lab.lines()) == before + 1
    assert lab.drain() == [3]


def test_a_message_may_have_a_lifetime_of_its_own_and_a_marker_has_none() -> None:
    lab = JournalLab()
    lab.put(ttl=10)
    lab.put(None)
    lab.restart()
    assert lab.store.drop_expired(lab.queue, NOW + 10, TTL_S)[0] == 0
    assert lab.store.drop_expired(lab.queue, NOW + 11, TTL_S)[0] == 1
    assert lab.store.drop_expired(lab.queue, NOW + 10 * TTL_S, TTL_S)[0] == 0
    assert lab.store.is_closed(lab.queue)


def test_browsing_shows_what_is_on_disk_and_what_is_pending() -> None:
    lab = JournalLab()
    for _ in range(4):
        lab.put()
    lab.receive()
    for number in (5, 6):
        lab.store.put(lab.queue, Message(mid(number), NOW, b"", b"pending"))
    assert [message.id for message in lab.store.messages(lab.queue)] == [mid(number) for number in range(2, 7)]
    assert lab.store.size(lab.queue) == 5
