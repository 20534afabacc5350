"""Queues, in the process and behind a server, for threads and for coroutines: one text for all."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from contract.ways import ForCoroutines
from lamina.errors import BadOption, LaminaError, MessageTooLarge, NoMessage, QueueRefused, QuotaMet

LIMIT_S = 60.0
QUOTA = 128
NOBODY = "A" * 32


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Begin ``work`` elsewhere. Returns what waits for its result."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as problem:  # told to who waits
            results.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(LIMIT_S)
        assert results, "it still waits"
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]

    return result


def bodies(subscription: Any) -> list[Any]:
    return [message.body for message in subscription]


def test_a_message_is_the_next_one_until_it_is_acknowledged(lm: Any) -> None:
    rid, sid = lm.queues.create()
    before = datetime.now(UTC) - timedelta(seconds=2)
    sent = [lm.queue(sid).send(body, flags=b"\0flag\xff") for body in (b"one", b"\0\r\n\xff" * 1000)]
    box = lm.queue(rid)
    first = box.receive()
    assert (first.id, first.body, first.flags, first.is_quota) == (sent[0], b"one", b"\0flag\xff", False)
    assert before <= first.time <= datetime.now(UTC)
    assert box.receive() == first
    second = box.ack(first)
    assert (second.id, second.body) == (sent[1], b"\0\r\n\xff" * 1000)
    assert box.receive(timeout=5) == second
    assert box.ack(second.id) is None
    assert box.receive() is None and box.receive(timeout=0.05) is None


def test_bodies_may_be_empty_and_as_long_as_the_limit(lm: Any) -> None:
    rid, sid = lm.queues.create()
    limit = 65_536
    for body in (b"", b"x" * limit):
        lm.queue(sid).send(body)
    with pytest.raises(MessageTooLarge) as caught:
        lm.queue(sid).send(b"x" * (limit + 1))
    assert caught.value.facts["limit"] == limit and str(limit + 1) in caught.value.message
    with pytest.raises(MessageTooLarge) as caught:
        lm.queue(sid).send(b"", flags=b"f" * 65)
    assert caught.value.facts["limit"] == 64
    box = lm.queue(rid)
    assert box.receive().body == b""
    assert len(box.ack(box.receive()).body) == limit


def test_what_cannot_be_is_refused_before_anything_is_done(lm: Any) -> None:
    rid, sid = lm.queues.create()
    queue = lm.queue(sid)
    for ttl in (-1, 1 << 41, True, "1"):
        with pytest.raises(BadOption):
            queue.send(b"x", ttl=ttl)
    with pytest.raises(BadOption):
        lm.queues.create(ttl=-1)
    for key in (b"", "x" * 513):
        with pytest.raises(BadOption, match="bytes cannot be"):
            lm.queues.create(key=key)
        with pytest.raises(BadOption, match="bytes cannot be"):
            lm.queue(rid).secure(key)
    for timeout in (-1, 1e10, True):
        with pytest.raises(BadOption):
            lm.queue(rid).receive(timeout=timeout)
    with pytest.raises(TypeError):
        queue.send("text")
    with pytest.raises(TypeError):
        lm.queue(7)
    with pytest.raises(TypeError):
        lm.queue(rid).secure(None)
    with pytest.raises(TypeError):
        lm.queue(rid).ack(7)
    assert lm.queue(rid).info().size == 0


def test_every_refusal_is_the_same(lm: Any) -> None:
    rid, sid = lm.queues.create(key="secret", sender_key=b"\0other")
    open_rid, open_sid = lm.queues.create()
    lm.queue(sid, b"\0other").send(b"x")
    message = lm.queue(rid, "secret").receive()

    def calls(id: str, key: Any) -> list[Callable[[], Any]]:
        held = lm.queue(id, key)
        sub = held.subscribe
        return [
            held.receive,
            lambda: held.receive(timeout=0.01),
            lambda: held.ack(message),
            held.info,
            held.suspend,
            lambda: held.secure("new"),
            lambda: sub().__enter__(),
            held.delete,
        ]

    refused: list[LaminaError] = []
    wrong = [(rid, None), (rid, "wrong"), (rid, b""), (sid, b"\0other"), (NOBODY, None), (NOBODY, "k"), ("é/..", None)]
    for id, key in [*wrong, (open_rid, "none is asked for"), (open_sid, None)]:
        for call in calls(id, key):
            with pytest.raises(QueueRefused) as caught:
                call()
            refused.append(caught.value)
    for id, key in [(sid, None), (sid, "other"), (rid, "secret"), (NOBODY, None), (open_sid, "none is asked for")]:
        with pytest.raises(QueueRefused) as caught:
            lm.queue(id, key).send(b"y")
        refused.append(caught.value)
    assert len({(str(each), each.code, tuple(each.facts)) for each in refused}) == 1
    assert "secret" not in repr(refused)
    assert lm.queue(rid, "secret").info().size == 1
    assert lm.queue(open_rid).info().size == 0


def test_a_key_that_was_shown_opens_nothing_to_others(lm: Any) -> None:
    """Where connections are shared, too."""
    rid, sid = lm.queues.create(key="k", sender_key="s")
    for _ in range(10):
        lm.queue(sid, "s").send(b"x")
        box = lm.queue(rid, "k")
        box.receive()
        for call in (lm.queue(rid).receive, lm.queue(rid).info, lambda: lm.queue(sid).send(b"y")):
            with pytest.raises(QueueRefused):
                call()


def test_nothing_secret_is_shown(lm: Any) -> None:
    rid, sid = lm.queues.create(key="a secret")
    held = lm.queue(rid, "a secret")
    lm.queue(sid).send(b"private")
    shown = repr(held) + repr(held.receive()) + repr(lm.queues) + repr(held.info())
    for secret in (rid, sid, "a secret", "private"):
        assert secret not in shown


def test_only_who_was_given_a_message_can_acknowledge_it(lm: Any) -> None:
    rid, sid = lm.queues.create()
    sent = lm.queue(sid).send(b"x")
    one, other = lm.queue(rid), lm.queue(rid)
    for id in (sent, NOBODY, "no id"):
        with pytest.raises(NoMessage):
            one.ack(id)
    message = one.receive()
    with pytest.raises(NoMessage):
        other.ack(message)
    assert one.ack(message) is None
    with pytest.raises(NoMessage):
        one.ack(message)


def test_of_two_who_were_given_a_message_the_second_is_answered_as_if_it_had_removed_it(lm: Any) -> None:
    rid, sid = lm.queues.create()
    for body in (b"one", b"two"):
        lm.queue(sid).send(body)
    one, other = lm.queue(rid), lm.queue(rid)
    message = one.receive()
    assert other.receive() == message
    assert one.ack(message).body == b"two"
    assert other.ack(message).body == b"two"
    assert lm.queue(rid).info().size == 1


def test_a_full_queue_takes_nothing_until_all_is_received(lm: Any) -> None:
    rid, sid = lm.queues.create()
    sender, box = lm.queue(sid), lm.queue(rid)
    for number in range(QUOTA):
        sender.send(b"%d" % number)
    for _ in range(2):
        with pytest.raises(QuotaMet) as caught:
            sender.send(b"one more")
        assert caught.value.facts["quota"] == QUOTA and caught.value.retryable
    info = box.info()
    assert (info.size, info.is_closed) == (QUOTA + 1, True)
    message = box.receive()
    for number in range(QUOTA):
        assert message.body == b"%d" % number
        message = box.ack(message)
    with pytest.raises(QuotaMet):
        sender.send(b"the mark is still there")
    assert message.is_quota and message.body is None and message.flags == b""
    assert box.ack(message) is None
    assert sender.send(b"again") and box.receive().body == b"again"


def test_a_message_is_kept_for_its_time(lm: Any) -> None:
    rid, sid = lm.queues.create(ttl=1)
    box, sender = lm.queue(rid), lm.queue(sid)
    sender.send(b"by the queue")
    sender.send(b"for ever", ttl=0)
    sender.send(b"an hour", ttl=timedelta(hours=1))
    assert box.info().ttl_s == 1
    limit = threading.Event()
    for _ in range(200):  # wait for a condition: the clock of the server is not ours
        message = box.receive()
        if message.body != b"by the queue":
            break
        limit.wait(0.05)
    assert message.body == b"for ever"
    assert box.ack(message).body == b"an hour"


def test_what_is_known_of_a_queue(lm: Any) -> None:
    rid, sid = lm.queues.create(ttl=60)
    box = lm.queue(rid)
    info = box.info()
    today = datetime.now(UTC).date()
    assert (info.size, info.is_closed, info.is_secured, info.is_suspended) == (0, False, False, False)
    assert (info.has_subscriber, info.head_id, info.head_time, info.ttl_s) == (False, None, None, 60)
    assert today - timedelta(days=1) <= info.created <= today
    assert len(info.handle) == 16
    sent = lm.queue(sid).send(b"x")
    with box.subscribe():
        info = box.info()
        assert info.has_subscriber and (info.head_id, info.size) == (sent, 1)
        assert info.head_time == box.receive().time
    assert not box.info().has_subscriber


def test_a_secured_queue_wants_a_key_of_senders(lm: Any) -> None:
    rid, sid = lm.queues.create(key="k")
    box = lm.queue(rid, "k")
    box.secure("only you")
    box.secure("only you")
    with pytest.raises(QueueRefused):
        box.secure("another")
    with pytest.raises(QueueRefused):
        lm.queue(sid).send(b"x")
    lm.queue(sid, "only you").send(b"y")
    assert box.info().is_secured and box.receive().body == b"y"


def test_a_suspended_queue_can_be_emptied(lm: Any) -> None:
    rid, sid = lm.queues.create()
    lm.queue(sid).send(b"x")
    box = lm.queue(rid)
    box.suspend()
    box.suspend()
    with pytest.raises(QueueRefused):
        lm.queue(sid).send(b"y")
    assert box.info().is_suspended and box.ack(box.receive()) is None


def test_a_deleted_queue_is_none(lm: Any) -> None:
    rid, sid = lm.queues.create()
    lm.queue(sid).send(b"x")
    box = lm.queue(rid)
    message = box.receive()
    box.delete()
    for call in (box.receive, box.info, box.delete, lambda: box.ack(message), lambda: lm.queue(sid).send(b"y")):
        with pytest.raises(QueueRefused):
            call()


def test_who_waits_gets_the_message_when_it_comes(lm: Any) -> None:
    rid, sid = lm.queues.create(key="k")
    waits = in_thread(lambda: lm.queue(rid, "k").receive(timeout=None))
    lm.queue(sid).send(b"at last")
    assert waits().body == b"at last"


def test_who_waits_is_told_that_the_queue_is_deleted(lm: Any) -> None:
    rid, _ = lm.queues.create()
    waits = in_thread(lambda: lm.queue(rid).receive(timeout=LIMIT_S))
    threading.Event().wait(0.1)  # most often it waits by then; if not, it is told at once
    lm.queue(rid).delete()
    with pytest.raises(QueueRefused):
        waits()


# -- subscriptions -----------------------------------------------------------------------------------------------------


def test_a_subscription_gives_messages_and_acknowledges_them(lm: Any) -> None:
    rid, sid = lm.queues.create(key="k")
    for number in range(5):
        lm.queue(sid).send(b"%d" % number)
    box = lm.queue(rid, "k")
    with box.subscribe(timeout=0) as messages:
        assert bodies(messages) == [b"0", b"1", b"2", b"3", b"4"]
        assert messages.ended is None
        lm.queue(sid).send(b"later")
        assert bodies(messages) == [b"later"]
    assert box.info().size == 0
    with box.subscribe(timeout=0.05) as messages:
        assert bodies(messages) == []


def test_what_was_left_in_hand_comes_again(lm: Any) -> None:
    rid, sid = lm.queues.create()
    for body in (b"one", b"two"):
        lm.queue(sid).send(body)
    box = lm.queue(rid)
    with box.subscribe(timeout=0) as messages:
        for message in messages:
            assert message.body == b"one"
            break
        assert bodies(messages) == [b"one", b"two"]  # iterating anew: it was not done with
    assert box.info().size == 0
    lm.queue(sid).send(b"three")
    with box.subscribe(timeout=0) as messages:
        assert next(iter(messages)).body == b"three"
    with box.subscribe(timeout=0) as messages:
        assert bodies(messages) == [b"three"]


def test_what_another_one_removed_meanwhile_does_not_come_again(lm: Any) -> None:
    rid, sid = lm.queues.create()
    lm.queue(sid).send(b"one")
    with lm.queue(rid).subscribe(timeout=LIMIT_S) as messages:
        for message in messages:
            assert message.body == b"one"
            break
        other = lm.queue(rid)
        assert other.ack(other.receive()) is None
        waits = in_thread(lambda: next(iter(messages)))
        lm.queue(sid).send(b"two")
        assert waits().body == b"two"


def test_a_message_can_be_acknowledged_before_the_next_is_asked_for(lm: Any) -> None:
    rid, sid = lm.queues.create()
    for body in (b"one", b"two"):
        lm.queue(sid).send(body)
    with lm.queue(rid).subscribe(timeout=0) as messages:
        each = iter(messages)
        first = next(each)
        with pytest.raises(NoMessage):
            messages.ack(NOBODY)
        messages.ack(first)
        assert lm.queue(rid).info().size == 1
        with pytest.raises(NoMessage):
            messages.ack(first)
        assert next(each).body == b"two"
        assert next(each, None) is None


def test_a_newer_subscriber_takes_over(lm: Any) -> None:
    rid, sid = lm.queues.create()
    lm.queue(sid).send(b"x")
    with lm.queue(rid).subscribe(timeout=LIMIT_S) as older:
        each = iter(older)
        assert next(each).body == b"x"
        with lm.queue(rid).subscribe(timeout=0) as newer:
            assert next(each, None) is None
            assert older.ended == "taken over"
            assert bodies(newer) == [b"x"]


def test_a_subscriber_is_told_that_the_queue_is_deleted(lm: Any) -> None:
    rid, _ = lm.queues.create(key="k")
    with lm.queue(rid, "k").subscribe(timeout=LIMIT_S) as messages:
        waits = in_thread(lambda: bodies(messages))
        lm.queue(rid, "k").delete()
        assert waits() == []
        assert messages.ended == "deleted"


def test_messages_come_to_who_waits_for_them(lm: Any) -> None:
    rid, sid = lm.queues.create()
    with lm.queue(rid).subscribe() as messages:
        each = iter(messages)
        for number in range(20):
            waits = in_thread(lambda: next(each))
            lm.queue(sid).send(b"%d" % number)
            assert waits().body == b"%d" % number


def test_closing_ends_who_waits(lm: Any) -> None:
    rid, sid = lm.queues.create()
    messages = lm.queue(rid).subscribe()
    messages.__enter__()
    waits = in_thread(lambda: bodies(messages))
    threading.Event().wait(0.05)
    messages.close()
    assert waits() == []
    assert messages.ended is None
    lm.queue(sid).send(b"x")
    assert lm.queue(rid).receive(timeout=LIMIT_S).body == b"x"


def test_the_mark_of_the_quota_is_a_message_of_a_subscription(lm: Any) -> None:
    rid, sid = lm.queues.create()
    for number in range(QUOTA):
        lm.queue(sid).send(b"%d" % number)
    with pytest.raises(QuotaMet):
        lm.queue(sid).send(b"one more")
    with lm.queue(rid).subscribe(timeout=0) as messages:
        found = list(messages)
    assert [each.is_quota for each in found] == [False] * QUOTA + [True]


# -- all of them -------------------------------------------------------------------------------------------------------


def test_many_at_once_each_get_their_own(lm: Any) -> None:
    keys = [secrets.token_urlsafe() for _ in range(8)]
    made = [lm.queues.create(key=key) for key in keys]

    def talk(number: int) -> list[Any]:
        rid, sid = made[number]
        box, sender = lm.queue(rid, keys[number]), lm.queue(sid)
        got = []
        for turn in range(20):
            sender.send(b"%d-%d" % (number, turn))
            message = box.receive(timeout=LIMIT_S)
            got.append(message.body)
            assert box.ack(message) is None
        return got

    for number, result in enumerate([in_thread(partial(talk, number)) for number in range(8)]):
        assert result() == [b"%d-%d" % (number, turn) for turn in range(20)]


def test_how_many_there_are(lm: Any) -> None:
    before = lm.queues.stats()
    _, sid = lm.queues.create()
    lm.queue(sid).send(b"x")
    after = lm.queues.stats()
    assert after.queues > before.queues and after.messages > before.messages
    if not isinstance(lm, ForCoroutines):
        assert lm.queues.count >= after.queues


def test_a_dump_can_be_asked_for(lm: Any) -> None:
    _, sid = lm.queues.create()
    lm.queue(sid).send(b"x")
    report = lm.queues.dump()
    assert report is None or (report.queues >= 1 and report.messages >= 1 and isinstance(report.removed, list))


def test_sizes_are_told_inside_the_process_only(lm: Any, way: str) -> None:
    rid, sid = lm.queues.create()
    lm.queue(sid).send(b"x")
    if way.startswith("remote"):
        with pytest.raises(BadOption, match="only to be had inside the process"):
            lm.queues.sizes()
    else:
        assert lm.queues.sizes() == {lm.queue(rid).info().handle: 1}
