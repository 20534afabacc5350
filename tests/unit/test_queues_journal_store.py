"""All queues together: how many are open, what is synced when, and several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from journal_lab import NOW, ROOT, JournalLab, mid, number_of
from lamina.engines.queues.journal.home import JournalOptions
from lamina.engines.queues.journal.store import JournalStore
from lamina.engines.queues.message import Message, Queue
from lamina.log import ALWAYS, OS, interval
from lamina.log.writer import Log


def queues_of(lab: JournalLab, count: int) -> list[Queue]:
    return [lab.new_queue(number.to_bytes(24)) for number in range(count)]


def sent_to(lab: JournalLab, queue: Queue, number: int) -> int:
    return lab.store.put(queue, Message(mid(number), NOW, b"", b"body"))


def test_one_push_writes_each_queue_once() -> None:
    lab = JournalLab()
    one, two = queues_of(lab, 2)
    for number in range(1, 4):
        sent_to(lab, one, number)
        sent_to(lab, two, number)
    lab.disk.calls.clear()
    lab.store.push()
    assert lab.calls("append", "messages.") == 2
    assert lab.calls("append", "queue.log") == 2
    lab.disk.calls.clear()
    lab.store.push()
    assert lab.disk.calls == []


def test_every_message_is_synced_before_the_first_line_is_written() -> None:
    lab = JournalLab()
    queues = queues_of(lab, 3)
    for queue in queues:
        lab.put(queue=queue)
    for queue in queues:
        sent_to(lab, queue, 2)
    lab.disk.calls.clear()
    lab.store.push()
    steps = [
        (name, "line" if path.endswith("queue.log") else "message")
        for name, path in lab.disk.calls
        if name in ("append", "sync")
    ]
    assert steps == (
        [("append", "message")] * 3 + [("sync", "message")] * 3 + [("append", "line")] * 3 + [("sync", "line")] * 3
    )


def test_a_folder_above_many_new_queues_is_synced_once() -> None:
    lab = JournalLab()
    for queue in queues_of(lab, 5):
        sent_to(lab, queue, 1)
    lab.disk.calls.clear()
    lab.store.push()
    assert sum(call == ("sync_folder", ROOT) for call in lab.disk.calls) == 1


def test_under_an_interval_nothing_is_synced_until_it_is_time() -> None:
    lab = JournalLab(sync=interval(1000))
    for number in range(1, 9):
        lab.put()
        assert lab.receive() == number
    assert lab.calls("sync", "queue.log") == lab.calls("sync", "messages.A") == 0
    assert len(lab.message_files()) == 2  # the old one goes when the state that does not name it is synced
    lab.store.sync()
    assert lab.calls("sync", "queue.log") > 0
    assert len(lab.message_files()) == 1
    lab.disk.calls.clear()
    lab.store.sync()
    assert lab.calls("sync") == 0


def test_what_a_closed_queue_has_not_synced_is_synced_in_time() -> None:
    lab = JournalLab(sync=interval(1000), most_open=2)
    for queue in queues_of(lab, 5):
        lab.put(queue=queue)
    assert lab.store.open_count == 2
    lab.disk.calls.clear()
    lab.store.sync()
    assert lab.calls("sync", "queue.log") == 5
    assert lab.calls("sync", "/messages.") == 5


def test_what_was_deleted_meanwhile_need_not_be_synced() -> None:
    lab = JournalLab(sync=OS, most_open=1)
    one, two = queues_of(lab, 2)
    lab.put(queue=one)
    lab.put(queue=two)
    lab.store.delete(one)
    lab.store.sync()
    assert lab.kinds() == []


@pytest.mark.parametrize("sync", [ALWAYS, OS])
def test_the_queue_that_is_in_use_is_not_the_one_that_is_closed(sync: object) -> None:
    lab = JournalLab(sync=sync, most_open=1)  # type: ignore[arg-type]
    queues = queues_of(lab, 4)
    for number in range(1, 5):
        for queue in queues:
            sent_to(lab, queue, number)
    lab.store.push()
    assert lab.store.open_count == 1
    for queue in queues:
        assert [number_of(each) for each in lab.store.messages(queue)] == [1, 2, 3, 4]
        assert [lab.receive(queue) for _ in range(5)] == [1, 2, 3, 4, None]
    assert lab.kinds() == []


def test_more_changes_than_may_be_open_are_pushed_early() -> None:
    lab = JournalLab(most_open=3)
    positions = [sent_to(lab, queue, 1) for queue in queues_of(lab, 10)]
    assert positions == list(range(1, 11))
    assert lab.store.open_count <= 3
    assert lab.store.stats.written == 9


def test_positions_grow_with_every_change() -> None:
    lab = JournalLab()
    first = sent_to(lab, lab.queue, 1)
    second = sent_to(lab, lab.queue, 2)
    third = lab.store.drop_head(lab.queue)
    assert first < second < third == lab.store.newest_position()
    assert not lab.store.is_kept()
    lab.store.settle(third)
    assert lab.store.is_kept()
    assert not isinstance(lab.store.log, Log)


def test_a_queue_that_was_read_anew_is_the_same_queue() -> None:
    lab = JournalLab()
    lab.put()
    again = lab.new_queue()
    assert lab.store.size(again) == 1
    assert lab.receive(again) == 1
    assert again.size == 0


def test_a_queue_may_be_forgotten() -> None:
    lab = JournalLab()
    position = sent_to(lab, lab.queue, 1)
    lab.store.forget(lab.rid)
    lab.store.settle(position)
    assert lab.store.open_count == 0
    lab.store.forget(lab.rid)
    assert lab.drain() == [1]


def test_many_threads_at_once(tmp_path: object) -> None:
    lab = JournalLab()
    store = JournalStore(
        f"{tmp_path}/root",
        lab.disk.inner.__class__(),
        lab.clock,
        lab.random,
        sync=interval(1000),
        options=JournalOptions(quota=50, max_file_messages=51, most_open=3, open_lines=1),
        tell=lab.problems.append,
    )
    queues = queues_of(lab, 8)
    is_over, has_failed = threading.Event(), threading.Event()
    got: dict[int, list[int]] = {number: [] for number in range(len(queues))}

    def send(at: int) -> None:
        for number in range(1, 101):
            store.settle(store.put(queues[at], Message(mid(number), NOW, b"", b"body")))

    def receive(at: int) -> None:
        while len(got[at]) < 100 and not has_failed.is_set():
            with store.lock:
                message = store.head(queues[at])
                if message is not None:
                    store.drop_head(queues[at])
                    got[at].append(number_of(message))
            store.push()

    def keep_syncing(_: int) -> None:
        while not is_over.is_set():
            store.sync()
            store.close_idle(0)

    def guarded(act: Callable[[int], None], at: int) -> None:
        try:
            act(at)
        except BaseException:
            has_failed.set()  # nobody waits for what will not come
            raise

    syncing = threading.Thread(target=guarded, args=(keep_syncing, 0))
    acts = [(act, at) for at in range(len(queues)) for act in (send, receive)]
    threads = [threading.Thread(target=guarded, args=each) for each in acts]
    for thread in [syncing, *threads]:
        thread.start()
    for thread in threads:
        thread.join()
    is_over.set()
    syncing.join()
    assert not has_failed.is_set()
    assert all(numbers == list(range(1, 101)) for numbers in got.values())
    assert [problem for problem in lab.problems if problem.is_error] == []
    store.close()
