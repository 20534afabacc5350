"""A subscription to a queue inside a process: one subscriber, one message at a time, each until it is acknowledged."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lamina
from lamina.data import Data
from lamina.engines.queues.api import HeldQueue
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.seat import Seat
from lamina.engines.queues.subscription import Subscription
from lamina.engines.queues.views import NewQueue
from lamina.errors import DiskFull, LaminaError, NoMessage, QueueRefused, StorageError
from lamina.testing import FaultyFiles, MemoryFiles

SOON = 5.0  # seconds that something may take which happens at once on an idle machine


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture(params=["memory", "journal"])
def options(request: pytest.FixtureRequest) -> QueueOptions:
    return QueueOptions(store=request.param)


@pytest.fixture
def data(files: FaultyFiles, options: QueueOptions) -> Iterator[Data]:
    data = lamina.open("data", files=files, queues=options)
    yield data
    files.heal()
    data.close()


@pytest.fixture
def new(data: Data) -> NewQueue:
    return data.queues.create(key="mine")


@pytest.fixture
def out(data: Data, new: NewQueue) -> HeldQueue:
    return data.queue(new.sid)


@pytest.fixture
def box(data: Data, new: NewQueue) -> HeldQueue:
    return data.queue(new.rid, key="mine")


def in_thread(call: Callable[[], object]) -> Callable[..., Any]:
    """Start ``call`` in a thread; returns what waits for its outcome."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait(seconds: float = SOON) -> object:
        thread.join(seconds)
        assert outcome, "it is still waiting"
        return outcome[0]

    return wait


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not is_so():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.002)


def drain(box: HeldQueue) -> list[bytes | None]:
    with box.subscribe(timeout=0) as messages:
        return [message.body for message in messages]


def collecting(subscription: Subscription) -> tuple[list[bytes | None], Callable[..., Any]]:
    got: list[bytes | None] = []

    def collect() -> None:
        for message in subscription:
            got.append(message.body)

    return got, in_thread(collect)


def test_messages_come_in_order_and_once(box: HeldQueue, out: HeldQueue) -> None:
    for number in range(5):
        out.send(b"%d" % number)
    assert drain(box) == [b"0", b"1", b"2", b"3", b"4"]
    assert drain(box) == []


def test_it_waits_for_more(data: Data, box: HeldQueue, out: HeldQueue) -> None:
    subscription = box.subscribe()
    got, ending = collecting(subscription)
    for number in range(3):
        until(lambda: len(data.queues.sleepers))
        out.send(b"%d" % number)
        until(lambda number=number: len(got) > number)  # type: ignore[misc]
    subscription.close()
    ending()
    assert got == [b"0", b"1", b"2"]
    assert subscription.ended is None


def test_asking_for_the_next_acknowledges_the_one_before(box: HeldQueue, out: HeldQueue) -> None:
    out.send(b"1")
    out.send(b"2")
    with box.subscribe(timeout=0) as messages:
        assert next(messages).body == b"1"
        assert box.info().size == 2
        assert next(messages).body == b"2"
        assert box.info().size == 1
        with pytest.raises(StopIteration):
            next(messages)
        assert box.info().size == 0


def test_what_an_exception_left_comes_again(box: HeldQueue, out: HeldQueue) -> None:
    first = out.send(b"1")
    out.send(b"2")
    with pytest.raises(ZeroDivisionError), box.subscribe(timeout=0) as messages:
        for _ in messages:
            raise ZeroDivisionError
    head = box.receive()
    assert head is not None
    assert head.id == first
    assert drain(box) == [b"1", b"2"]


def test_what_a_loop_left_comes_again_in_the_next_loop(box: HeldQueue, out: HeldQueue) -> None:
    out.send(b"1")
    out.send(b"2")
    with box.subscribe(timeout=0) as messages:
        for _ in range(2):
            for message in messages:
                assert message.body == b"1"
                break
        assert [message.body for message in messages] == [b"1", b"2"]


def test_a_message_can_be_acknowledged_before_the_next_is_asked_for(box: HeldQueue, out: HeldQueue) -> None:
    for body in (b"1", b"2", b"3"):
        out.send(body)
    with box.subscribe(timeout=0) as messages:
        first = next(messages)
        messages.ack(first)
        with pytest.raises(NoMessage):
            messages.ack(first)
        assert box.info().size == 2
        assert next(messages).body == b"2"
    assert drain(box) == [b"2", b"3"]


def test_what_was_not_given_here_is_not_acknowledged(data: Data, box: HeldQueue, out: HeldQueue, new: NewQueue) -> None:
    out.send(b"1")
    second = out.send(b"2")
    with box.subscribe(timeout=0) as messages:
        next(messages)
        for id in (second, "A" * 32, "no id"):
            with pytest.raises(NoMessage):
                messages.ack(id)
    assert box.info().size == 2


def test_it_ends_when_nothing_comes_in_time(box: HeldQueue, out: HeldQueue) -> None:
    subscription = box.subscribe(timeout=0.01)
    assert list(subscription) == []
    assert subscription.ended is None
    out.send(b"later")
    assert next(subscription).body == b"later"


def test_a_newer_subscription_takes_over(data: Data, box: HeldQueue, out: HeldQueue, new: NewQueue) -> None:
    id = out.send(b"1")
    former = box.subscribe()
    message = next(former)
    newer = data.queue(new.rid, key="mine").subscribe(timeout=0)
    assert former.ended == "taken over"
    assert list(former) == []
    with pytest.raises(NoMessage):
        former.ack(message)
    assert [(message.id, message.body) for message in newer] == [(id, b"1")]
    assert newer.ended is None


def test_who_waits_is_told_that_another_took_over(data: Data, box: HeldQueue, out: HeldQueue) -> None:
    former = box.subscribe()
    got, ending = collecting(former)
    until(lambda: len(data.queues.sleepers))
    with box.subscribe(timeout=0) as newer:
        ending()
        out.send(b"for the newer")
        assert next(newer).body == b"for the newer"
    assert (got, former.ended) == ([], "taken over")


def test_closing_a_former_subscription_leaves_the_newer_one(box: HeldQueue, out: HeldQueue) -> None:
    former = box.subscribe()
    newer = box.subscribe(timeout=0)
    former.close()
    assert box.info().has_subscriber
    out.send(b"1")
    assert next(newer).body == b"1"
    newer.close()
    assert not box.info().has_subscriber


def test_who_subscribes_to_a_queue_that_is_deleted_is_told(data: Data, box: HeldQueue, out: HeldQueue) -> None:
    subscription = box.subscribe()
    got, ending = collecting(subscription)
    until(lambda: len(data.queues.sleepers))
    box.delete()
    ending()
    assert (got, subscription.ended) == ([], "deleted")
    assert list(subscription) == []


def test_what_is_in_hand_when_the_queue_is_deleted_cannot_be_acknowledged(box: HeldQueue, out: HeldQueue) -> None:
    out.send(b"1")
    subscription = box.subscribe()
    message = next(subscription)
    box.delete()
    with pytest.raises(QueueRefused):
        subscription.ack(message)
    assert subscription.ended == "deleted"


def test_closing_from_another_thread_ends_it(data: Data, box: HeldQueue, out: HeldQueue) -> None:
    out.send(b"1")
    subscription = box.subscribe()
    got, ending = collecting(subscription)
    until(lambda: got and len(data.queues.sleepers))
    subscription.close()
    ending()
    assert (got, subscription.ended) == ([b"1"], None)
    assert list(subscription) == []
    assert len(data.queues.sleepers) == 0


def test_who_gets_beside_a_subscriber_is_given_the_same(box: HeldQueue, out: HeldQueue) -> None:
    out.send(b"1")
    out.send(b"2")
    with box.subscribe(timeout=0) as messages:
        mine = next(messages)
        other = box.receive()
        assert other == mine
        assert next(messages).body == b"2"
        following = box.ack(other)  # it is gone already: nothing goes for it
        assert following is not None
        assert following.body == b"2"
        box.ack(following)
        assert list(messages) == []


def test_who_asked_before_and_is_late_acknowledges_nothing(box: HeldQueue, out: HeldQueue) -> None:
    """A coroutine was cancelled, and the thread that asks for it comes to do so when the next message was given."""
    for body in (b"1", b"2"):
        out.send(body)
    messages = box.subscribe(timeout=0)
    seat = messages._seat
    assert next(messages).body == b"1"
    late = seat.begin()
    assert next(messages).body == b"2"
    assert seat.next(late) == (None, 0, 0)
    head = box.receive()
    assert head is not None
    assert head.body == b"2"


def test_who_left_does_not_sit_down_any_more(box: HeldQueue) -> None:
    """A coroutine was cancelled, and the thread that sits down for it comes to do so later."""
    seat = Seat(box.held, lambda: None)
    seat.leave()
    seat.take()
    assert not box.info().has_subscriber


def test_a_wrong_key_does_not_take_over(data: Data, box: HeldQueue, out: HeldQueue, new: NewQueue) -> None:
    subscription = box.subscribe(timeout=0)
    for key in (None, "wrong"):
        with pytest.raises(QueueRefused):
            data.queue(new.rid, key=key).subscribe()
    out.send(b"1")
    assert next(subscription).body == b"1"


def test_a_restart_brings_again_what_was_not_acknowledged(files: FaultyFiles, options: QueueOptions) -> None:
    with lamina.open("data", files=files, queues=options) as data:
        rid, sid = data.queues.create()
        sent = [data.queue(sid).send(b"%d" % number) for number in range(3)]
        subscription = data.queue(rid).subscribe()
        assert [next(subscription).id for _ in range(2)] == sent[:2]
    with lamina.open("data", files=files, queues=options) as data, data.queue(rid).subscribe(timeout=0) as messages:
        assert [message.id for message in messages] == sent[1:]


# -- when the disk refuses -------------------------------------------------------------------------------------------


def fill_up(files: FaultyFiles) -> None:
    files.fail("append", error=errno.ENOSPC, times=10**9)


def test_an_acknowledgement_that_the_disk_refuses_is_told_and_tried_again(
    files: FaultyFiles, box: HeldQueue, out: HeldQueue
) -> None:
    out.send(b"1")
    out.send(b"2")
    with box.subscribe(timeout=0) as messages:
        first = next(messages)
        fill_up(files)
        for _ in range(2):
            with pytest.raises(DiskFull):
                next(messages)
            with pytest.raises(DiskFull):
                messages.ack(first)
        head = box.receive()
        assert head == first
        files.heal()
        assert next(messages).body == b"2"
        assert box.info().size == 1


def test_after_a_refused_acknowledgement_a_new_loop_gives_the_message_again(
    files: FaultyFiles, box: HeldQueue, out: HeldQueue
) -> None:
    out.send(b"1")
    out.send(b"2")
    with box.subscribe(timeout=0) as messages:
        for _ in range(2):
            with pytest.raises(DiskFull):
                for message in messages:
                    assert message.body == b"1"
                    fill_up(files)
            files.heal()
        assert [message.body for message in messages] == [b"1", b"2"]


def test_a_deletion_that_the_disk_refuses_ends_no_subscription(
    files: FaultyFiles, box: HeldQueue, out: HeldQueue
) -> None:
    out.send(b"1")
    with box.subscribe(timeout=0) as messages:
        fill_up(files)
        with pytest.raises(DiskFull):
            box.delete()
        files.heal()
        assert messages.ended is None
        assert next(messages).body == b"1"


def test_who_waits_is_not_given_what_the_disk_refused(
    data: Data, files: FaultyFiles, box: HeldQueue, out: HeldQueue
) -> None:
    with box.subscribe() as messages:
        got, ending = collecting(messages)
        until(lambda: len(data.queues.sleepers))
        fill_up(files)
        with pytest.raises(DiskFull):
            out.send(b"refused")
        files.heal()
        until(lambda: _sends(out, b"taken"))
        until(lambda: got)
    ending()
    assert got == [b"taken"]


def _sends(out: HeldQueue, body: bytes) -> bool:
    """On a disk that was full new things are taken again half a second later."""
    try:
        out.send(body)
    except DiskFull:
        return False
    return True


def test_a_refused_change_is_not_there_after_a_restart(files: FaultyFiles, options: QueueOptions) -> None:
    data = lamina.open("data", files=files, queues=options)
    rid, sid = data.queues.create()
    data.queue(sid).send(b"kept")
    fill_up(files)
    with pytest.raises(StorageError):
        data.queue(sid).send(b"refused")
    files.heal()
    data.close()
    with lamina.open("data", files=files, queues=options) as data:
        assert drain(data.queue(rid)) == [b"kept"]


def test_who_looks_is_not_given_what_the_disk_then_refuses(
    files: FaultyFiles, box: HeldQueue, out: HeldQueue, options: QueueOptions
) -> None:
    waits, goes_on = threading.Event(), threading.Event()

    def before(operation: str, path: str) -> None:
        if operation == "append" and not waits.is_set():
            waits.set()
            assert goes_on.wait(SOON)

    files.before = before
    fill_up(files)
    sending = in_thread(lambda: out.send(b"never"))
    assert waits.wait(SOON)
    receiving = in_thread(lambda: box.receive(timeout=0.05))
    if options.store == "memory":  # in a journal nobody can look while it is being written
        until(lambda: any(box.held.receiver.given.values()))
    goes_on.set()
    assert isinstance(sending(), LaminaError)
    assert receiving() is None
    files.heal()
