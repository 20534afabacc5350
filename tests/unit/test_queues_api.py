"""Queues inside a process: what is sent and received, who may, and what a caller is told when the disk refuses."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pytest

import lamina
from lamina.clock import ManualClock
from lamina.data import Data
from lamina.engines.queues import ids
from lamina.engines.queues.api import HeldQueue
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.views import NewQueue, QueueMessage
from lamina.errors import (
    BadOption,
    DiskFull,
    LogClosed,
    LogLocked,
    MessageTooLarge,
    NoMessage,
    QueueRefused,
    QuotaMet,
)
from lamina.testing import FaultyFiles, MemoryFiles

SOON = 5.0  # seconds that something may take which happens at once on an idle machine
NOBODYS = "A" * 32


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "journal"])
def options(request: pytest.FixtureRequest) -> QueueOptions:
    return QueueOptions(store=request.param, quota=3, max_file_messages=4)


@pytest.fixture
def data(files: FaultyFiles, clock: ManualClock, options: QueueOptions) -> Iterator[Data]:
    data = lamina.open("data", files=files, clock=clock, queues=options)
    yield data
    files.heal()
    data.close()


@pytest.fixture
def new(data: Data) -> NewQueue:
    return data.queues.create()


@pytest.fixture
def out(data: Data, new: NewQueue) -> HeldQueue:
    return data.queue(new.sid)


@pytest.fixture
def box(data: Data, new: NewQueue) -> HeldQueue:
    return data.queue(new.rid)


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


def bodies(box: HeldQueue) -> list[bytes | None]:
    """Receive and acknowledge all there is."""
    found, message = [], box.receive()
    while message is not None:
        found.append(message.body)
        message = box.ack(message)
    return found


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(QueueRefused) as caught:
        call()
    return str(caught.value)


# -- sending and receiving -------------------------------------------------------------------------------------------


def test_a_message_is_received_as_it_was_sent(box: HeldQueue, out: HeldQueue) -> None:
    id = out.send(b"\0tea\xff", flags=b"urgent")
    message = box.receive()
    assert message == QueueMessage(id, 1_700_000_000, b"urgent", b"\0tea\xff")
    assert message.time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert not message.is_quota


def test_an_empty_body_is_no_mark_of_the_quota(box: HeldQueue, out: HeldQueue) -> None:
    out.send(b"")
    message = box.receive()
    assert message is not None
    assert (message.body, message.is_quota) == (b"", False)


def test_an_empty_queue_gives_nothing(box: HeldQueue) -> None:
    assert box.receive() is None
    assert box.receive(timeout=0.01) is None
    assert box.receive(timeout=timedelta(milliseconds=10)) is None


def test_a_message_comes_again_until_it_is_acknowledged(box: HeldQueue, out: HeldQueue) -> None:
    first, second = out.send(b"1"), out.send(b"2")
    assert [getattr(box.receive(), "id", None) for _ in range(2)] == [first, first]
    following = box.ack(first)
    assert following is not None
    assert (following.id, following.body) == (second, b"2")
    assert box.ack(following) is None
    assert box.receive() is None


def test_only_what_was_given_here_is_acknowledged(data: Data, box: HeldQueue, out: HeldQueue, new: NewQueue) -> None:
    first, second = out.send(b"1"), out.send(b"2")
    other = data.queue(new.rid)
    for id in (first, second, NOBODYS, "no id", ""):
        with pytest.raises(NoMessage):
            other.ack(id)
    box.receive()
    with pytest.raises(NoMessage):
        box.ack(second)
    box.ack(first)
    with pytest.raises(NoMessage):
        box.ack(first)
    assert bodies(other) == [b"2"]


def test_who_receives_waits_for_a_message(box: HeldQueue, out: HeldQueue, data: Data) -> None:
    waiting = in_thread(lambda: box.receive(timeout=None))
    until(lambda: len(data.queues.sleepers))
    out.send(b"late")
    assert waiting().body == b"late"
    assert len(data.queues.sleepers) == 0


def test_everybody_who_waits_is_given_the_message(box: HeldQueue, out: HeldQueue, data: Data, new: NewQueue) -> None:
    waiting = [in_thread(lambda: data.queue(new.rid).receive(timeout=SOON)) for _ in range(3)]
    until(lambda: len(data.queues.sleepers._by_queue.get(ids.parse(new.rid.encode()) or b"", ())) == 3)
    out.send(b"one")
    assert [wait().body for wait in waiting] == [b"one"] * 3


def test_senders_at_the_same_time_lose_nothing(files: FaultyFiles) -> None:
    with lamina.open("data", files=files, queues=QueueOptions(quota=1000)) as data:
        rid, sid = data.queues.create()

        def send(name: int) -> list[str]:
            return [data.queue(sid).send(b"%d-%d" % (name, number)) for number in range(20)]

        sending = [in_thread(partial(send, name)) for name in range(4)]
        sent = [id for wait in sending for id in wait()]
        got = bodies(data.queue(rid))
    assert len(set(sent)) == 80
    for name in range(4):
        mine = [body for body in got if body is not None and body.startswith(b"%d-" % name)]
        assert mine == [b"%d-%d" % (name, number) for number in range(20)]


# -- quota, size, lifetime -------------------------------------------------------------------------------------------


def test_the_quota_closes_the_queue_until_all_was_received(box: HeldQueue, out: HeldQueue) -> None:
    for body in (b"1", b"2", b"3"):
        out.send(body)
    with pytest.raises(QuotaMet):
        out.send(b"4")
    assert box.info().is_closed
    for _ in range(2):
        box.receive()
        head = box.receive()
        assert head is not None
        box.ack(head)
        with pytest.raises(QuotaMet):
            out.send(b"5")
    last = box.receive()
    assert last is not None
    mark = box.ack(last)
    assert mark is not None
    assert (mark.is_quota, mark.body) == (True, None)
    assert box.ack(mark) is None
    out.send(b"6")
    assert bodies(box) == [b"6"]


def test_who_waits_is_given_the_mark_of_the_quota(files: FaultyFiles) -> None:
    with lamina.open("data", files=files, queues=QueueOptions(quota=1)) as data:
        rid, sid = data.queues.create()
        box, out = data.queue(rid), data.queue(sid)
        out.send(b"1")
        subscription = box.subscribe()
        assert next(subscription).body == b"1"
        with pytest.raises(QuotaMet):
            out.send(b"2")
        assert next(subscription).is_quota


def test_a_message_that_is_too_large_is_refused(files: FaultyFiles) -> None:
    with lamina.open("data", files=files, queues=QueueOptions(max_body=10)) as data:
        rid, sid = data.queues.create()
        data.queue(sid).send(b"x" * 10)
        with pytest.raises(MessageTooLarge):
            data.queue(sid).send(b"x" * 11)
        assert bodies(data.queue(rid)) == [b"x" * 10]


def test_a_message_goes_when_its_time_is_over(data: Data, clock: ManualClock) -> None:
    rid, sid = data.queues.create(ttl=timedelta(minutes=1))
    out, box = data.queue(sid), data.queue(rid)
    out.send(b"its own", ttl=10)
    out.send(b"that of the queue")
    out.send(b"for ever", ttl=0)
    assert box.info().ttl_s == 60
    clock.advance(11)
    head = box.receive()
    assert head is not None
    assert head.body == b"that of the queue"
    clock.advance(50)
    assert bodies(box) == [b"for ever"]
    assert data.queues.stats().expired == 2


@pytest.mark.parametrize("ttl", [-1, 1.5, True, 1 << 50, timedelta(seconds=-1), "1"])
def test_a_lifetime_that_cannot_be_is_refused(data: Data, out: HeldQueue, ttl: Any) -> None:
    with pytest.raises(BadOption):
        out.send(b"x", ttl=ttl)
    with pytest.raises(BadOption):
        data.queues.create(ttl=ttl)
    assert data.queues.count == 1


def test_a_part_of_a_second_counts_as_a_whole_one(data: Data) -> None:
    rid, _ = data.queues.create(ttl=timedelta(milliseconds=1))  # 0 would be for ever
    assert data.queue(rid).info().ttl_s == 1


@pytest.mark.parametrize("timeout", [-1, "1", True, float("nan"), float("inf")])
def test_a_timeout_that_cannot_be_is_refused(box: HeldQueue, timeout: Any) -> None:
    with pytest.raises(BadOption):
        box.receive(timeout=timeout)
    with pytest.raises(BadOption):
        box.subscribe(timeout=timeout)


def test_what_is_no_bytes_is_refused(data: Data, out: HeldQueue, box: HeldQueue) -> None:
    calls: list[Callable[[], object]] = [
        lambda: out.send("text"),  # type: ignore[arg-type]
        lambda: out.send(b"", flags="text"),  # type: ignore[arg-type]
        lambda: data.queue(b"A" * 32),  # type: ignore[arg-type]
        lambda: data.queue(NOBODYS, key=1),  # type: ignore[arg-type]
        lambda: box.secure(None),  # type: ignore[arg-type]
        lambda: box.ack(None),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(BadOption):
        data.queue(NOBODYS, key="\ud800")


# -- who may ---------------------------------------------------------------------------------------------------------


def test_ids_are_not_shown(data: Data, new: NewQueue, box: HeldQueue, out: HeldQueue) -> None:
    id = out.send(b"secret", flags=b"hidden")
    message = box.receive()
    shown = repr((new, box, out, message, box.info(), data.queues.stats(), box.aio)) + str(data.queues.sizes())
    for secret in (*new, id, "secret", "hidden"):
        assert secret not in shown
    assert ids.handle(ids.parse(new.rid.encode()) or b"") in repr(new)


def test_every_refusal_is_the_same(data: Data, new: NewQueue) -> None:
    keyed = data.queues.create(key="r", sender_key="s")
    off = data.queues.create()
    data.queue(off.rid).suspend()
    words = {
        refused(call)
        for call in (
            lambda: data.queue(NOBODYS).send(b""),
            lambda: data.queue("no id").receive(),
            lambda: data.queue("é").receive(),
            lambda: data.queue(new.rid).send(b""),  # the recipient's id does not send
            lambda: data.queue(new.sid).receive(),
            lambda: data.queue(new.sid).subscribe(),
            lambda: data.queue(new.sid).ack(NOBODYS),
            lambda: data.queue(new.sid).info(),
            lambda: data.queue(new.sid).secure("k"),
            lambda: data.queue(new.sid).suspend(),
            lambda: data.queue(new.sid).delete(),
            lambda: data.queue(new.sid, key="k").send(b""),  # no key is asked for
            lambda: data.queue(new.rid, key="k").receive(),
            lambda: data.queue(keyed.rid).receive(),
            lambda: data.queue(keyed.rid, key="s").receive(),
            lambda: data.queue(keyed.sid).send(b""),
            lambda: data.queue(keyed.sid, key="r").send(b""),
            lambda: data.queue(keyed.sid, key="").send(b""),
            lambda: data.queue(off.sid).send(b""),
        )
    }
    assert len(words) == 1
    assert data.queues.stats().messages == 0


def test_the_key_of_each_id_lets_in(data: Data) -> None:
    rid, sid = data.queues.create(key="für mich", sender_key=b"\0\xff")
    data.queue(sid, key=b"\0\xff").send(b"x")
    assert bodies(data.queue(rid, key="für mich")) == [b"x"]
    assert data.queue(rid, key="für mich".encode()).receive() is None


def test_a_queue_is_secured_once(data: Data, box: HeldQueue, out: HeldQueue, new: NewQueue) -> None:
    out.send(b"before")
    box.secure("K")
    box.secure("K")
    refused(lambda: box.secure("K2"))
    refused(lambda: out.send(b"without"))
    data.queue(new.sid, key="K").send(b"with")
    assert box.info().is_secured
    assert bodies(box) == [b"before", b"with"]


@pytest.mark.parametrize("key", ["", "x" * 513])
def test_a_key_that_cannot_be_is_refused(data: Data, box: HeldQueue, key: str) -> None:
    for call in (lambda: data.queues.create(key=key), lambda: box.secure(key)):
        with pytest.raises(BadOption):
            call()
    assert (data.queues.count, box.info().is_secured) == (1, False)


def test_a_suspended_queue_can_still_be_received(box: HeldQueue, out: HeldQueue) -> None:
    out.send(b"1")
    box.suspend()
    box.suspend()
    refused(lambda: out.send(b"2"))
    assert box.info().is_suspended
    assert bodies(box) == [b"1"]


def test_a_deleted_queue_is_gone(data: Data, box: HeldQueue, out: HeldQueue) -> None:
    out.send(b"1")
    waiting = in_thread(lambda: (box.ack(box.receive() or ""), box.receive(timeout=None)))
    until(lambda: len(data.queues.sleepers))
    box.delete()
    assert isinstance(waiting(), QueueRefused)
    for call in (lambda: out.send(b"2"), box.receive, box.info, box.delete, box.subscribe):
        refused(call)
    assert (data.queues.count, data.queues.sizes()) == (0, {})


# -- looking after them ----------------------------------------------------------------------------------------------


def test_a_queue_tells_about_itself(box: HeldQueue, out: HeldQueue, data: Data, new: NewQueue) -> None:
    empty = box.info()
    assert (empty.size, empty.head_id, empty.head_time, empty.has_subscriber) == (0, None, None, False)
    assert (empty.created, empty.ttl_s) == (date(2023, 11, 14), 21 * 86400)
    id = out.send(b"1")
    with box.subscribe():
        full = box.info()
    assert (full.size, full.head_id, full.has_subscriber) == (1, id, True)
    assert full.head_time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert not (full.is_closed or full.is_secured or full.is_suspended)
    assert data.queues.sizes() == {full.handle: 1}
    assert (data.queues.count, data.queues.stats().queues, data.queues.stats().messages) == (1, 1, 1)


def test_what_was_sent_is_there_after_a_restart(files: FaultyFiles, options: QueueOptions) -> None:
    for dumps in (False, True):
        with lamina.open("data", files=files, queues=options) as data:
            rid, sid = data.queues.create(key="r", sender_key="s", ttl=0)
            for body in (b"1", b"2", b"3"):
                data.queue(sid, key="s").send(body, flags=b"f")
            box = data.queue(rid, key="r")
            box.ack(box.receive() or "")
            if dumps:
                assert data.queues.dump() is not None
        with lamina.open("data", files=files, queues=options) as data:
            box = data.queue(rid, key="r")
            head = box.receive()
            assert head is not None
            assert (head.flags, box.info().ttl_s, box.info().is_secured) == (b"f", 0, True)
            assert bodies(box) == [b"2", b"3"]
            refused(data.queue(rid).receive)


def test_a_folder_that_was_killed_comes_back(files: FaultyFiles, options: QueueOptions) -> None:
    data = lamina.open("data", files=files, queues=options)
    rid, sid = data.queues.create()
    data.queue(sid).send(b"kept")
    disk = MemoryFiles(files.inner.contents())  # type: ignore[attr-defined]
    with lamina.open("data", files=disk, queues=options) as again:
        assert bodies(again.queue(rid)) == [b"kept"]
    data.close()


def test_closing_wakes_who_waits(files: FaultyFiles, options: QueueOptions) -> None:
    data = lamina.open("data", files=files, queues=options)
    rid, sid = data.queues.create()
    box, out, queues = data.queue(rid), data.queue(sid), data.queues
    subscription = box.subscribe()
    waiting = in_thread(lambda: box.receive(timeout=None)), in_thread(lambda: next(subscription))
    until(lambda: len(queues.sleepers._by_queue.get(ids.parse(rid.encode()) or b"", ())) == 2)
    data.close()
    assert all(isinstance(wait(), LogClosed) for wait in waiting)
    for call in (lambda: out.send(b""), box.receive, box.subscribe, queues.create, queues.dump, queues.sizes):
        with pytest.raises(LogClosed):
            call()
    with pytest.raises(LogClosed):
        data.queues  # noqa: B018


def test_a_folder_has_one_writer(files: FaultyFiles, options: QueueOptions) -> None:
    with lamina.open("data", files=files, queues=options) as data:
        data.queues.create()
        with lamina.open("data", files=files, queues=options) as other, pytest.raises(LogLocked):
            other.queues  # noqa: B018


def test_the_store_is_not_changed_by_the_way(files: FaultyFiles) -> None:
    with lamina.open("data", files=files) as data:
        data.queue(data.queues.create().sid).send(b"in memory")
    with lamina.open("data", files=files, queues=QueueOptions(store="journal")) as data, pytest.raises(BadOption):
        data.queues  # noqa: B018


# -- when the disk refuses -------------------------------------------------------------------------------------------


def fill_up(files: FaultyFiles) -> None:
    files.fail("append", error=errno.ENOSPC, times=10**9)


def test_what_the_disk_refuses_is_told_and_not_kept(
    data: Data, files: FaultyFiles, box: HeldQueue, out: HeldQueue, clock: ManualClock
) -> None:
    out.send(b"1")
    message = box.receive()
    assert message is not None
    fill_up(files)
    for call in (lambda: out.send(b"2"), lambda: box.ack(message), data.queues.create, box.delete, box.suspend):
        with pytest.raises(DiskFull):
            call()
    assert box.info().size == 1
    assert not box.info().is_suspended
    files.heal()
    clock.advance(1)
    assert box.ack(message) is None  # the same again: it was not acknowledged
    out.send(b"3")
    assert bodies(box) == [b"3"]
    assert data.queues.count == 1
