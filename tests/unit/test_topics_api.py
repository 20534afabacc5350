"""Topics inside a process: what is published, read and subscribed to, what a caller is told and refused."""

from __future__ import annotations

import errno
import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lamina
from lamina.clock import ManualClock
from lamina.data import Data
from lamina.engines.topics.api import NamedTopic
from lamina.engines.topics.messages import Message, Moment
from lamina.engines.topics.subscription import Delivered, Subscription
from lamina.errors import (
    BadName,
    BadTopic,
    DiskFull,
    Gap,
    LaminaError,
    LogClosed,
    LogLocked,
    NoGroup,
    RecordTooLarge,
)
from lamina.testing import FaultyFiles, MemoryFiles

SOON = 5.0  # seconds that something may take which happens at once on an idle machine
MANY = 2500  # more than two pages


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def data(files: FaultyFiles) -> Iterator[Data]:
    data = lamina.open("data", files=files)
    yield data
    files.heal()
    data.close()


@pytest.fixture
def topic(data: Data) -> NamedTopic:
    return data.topic("orders")


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


def numbers(messages: Iterator[Message] | list[Delivered]) -> list[int]:
    return [int(message["n"]) for message in messages]


def fill(topic: NamedTopic, count: int, start: int = 0) -> list[str]:
    return topic.publish_many({"n": number} for number in range(start, start + count))


def engine_of(topic: NamedTopic) -> Any:
    return topic.make()


def trim(topic: NamedTopic, keep: int) -> None:
    """What retention does."""
    engine = engine_of(topic)
    engine.settle(engine.trim_length(keep)[1])


def is_waiting(topic: NamedTopic) -> bool:
    return bool(engine_of(topic).waiters)


# -- publishing ------------------------------------------------------------------------------------------------------


def test_a_message_is_read_as_it_was_published(topic: NamedTopic) -> None:
    id = topic.publish({"item": "tea", "count": 2, "price": 1.5, "raw": b"\0\xff", "é": "ü"})
    (message,) = topic.read()
    assert (message.id, message.time_ms) == (id, int(id.split("-")[0]))
    assert message.fields == {
        b"item": b"tea",
        b"count": b"2",
        b"price": b"1.5",
        b"raw": b"\0\xff",
        "é".encode(): b"\xc3\xbc",
    }
    assert (message["item"], message[b"item"], message["é"]) == (b"tea", b"tea", "ü".encode())
    assert abs(message.time - datetime.now(UTC)) < timedelta(minutes=1)
    with pytest.raises(KeyError):
        message.value  # noqa: B018


@pytest.mark.parametrize(("given", "value"), [(b"\0x", b"\0x"), ("tä", b"t\xc3\xa4"), (b"", b"")])
def test_text_or_bytes_alone_are_the_field_value(topic: NamedTopic, given: str | bytes, value: bytes) -> None:
    topic.publish(given)
    (message,) = topic.read()
    assert message.value == value
    assert message.pairs == [(b"value", value)]


def test_fields_of_the_same_name_are_all_there(topic: NamedTopic) -> None:
    engine = engine_of(topic)
    engine.settle(engine.add([b"a", b"1", b"b", b"2", b"a", b"3"])[1])
    (message,) = topic.read()
    assert message.pairs == [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    assert message.fields == {b"a": b"3", b"b": b"2"}


def test_ids_grow_and_may_be_chosen(topic: NamedTopic) -> None:
    assert topic.publish("a", id="5-1") == "5-1"
    assert topic.publish("b", id="7") == "7-0"
    ids = [topic.publish("c") for _ in range(20)]
    assert [message.id for message in topic.read()] == ["5-1", "7-0", *ids]
    assert len(set(ids)) == 20
    for refused in ("5-1", "7-0", "0-0", "1-2-3", "x", ""):
        with pytest.raises(BadTopic):
            topic.publish("d", id=refused)
    assert len(list(topic.read())) == 22


def test_many_are_published_in_order(topic: NamedTopic) -> None:
    ids = fill(topic, MANY)
    assert [message.id for message in topic.read()] == ids
    assert numbers(topic.read()) == list(range(MANY))
    assert topic.publish_many([]) == []


def test_of_many_those_before_a_refused_one_stay(topic: NamedTopic) -> None:
    with pytest.raises(TypeError):
        topic.publish_many(["a", "b", None, "c"])  # type: ignore[list-item]
    assert [message.value for message in topic.read()] == [b"a", b"b"]


@pytest.mark.parametrize("bad", [None, 5, ["a"], {"a": None}, {"a": True}, {"a": ["b"]}, {5: "a"}][:6])
def test_what_is_no_message_is_a_mistake(topic: NamedTopic, bad: Any) -> None:
    with pytest.raises(TypeError):
        topic.publish(bad)
    assert list(topic.read()) == []


def test_a_message_without_fields_or_too_large_is_refused_and_the_next_is_not(topic: NamedTopic) -> None:
    with pytest.raises(BadTopic):
        topic.publish({})
    with pytest.raises(RecordTooLarge):
        topic.publish(bytes(64 << 20))
    topic.publish("next")
    assert [message.value for message in topic.read()] == [b"next"]


def test_a_full_disk_refuses_and_takes_nothing(topic: NamedTopic, files: FaultyFiles) -> None:
    topic.publish("before")
    files.fail("append", error=errno.ENOSPC, times=10**9)
    with pytest.raises(DiskFull):
        topic.publish("refused")
    files.heal()
    until(lambda: _publishes(topic))
    assert [message.value for message in topic.read()] == [b"before", b"after"]


def _publishes(topic: NamedTopic) -> bool:
    try:
        topic.publish("after")
    except DiskFull:  # until the reserve is back
        return False
    return True


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/b", "é", ".", "..", "a b", "reserve", "checkpoint", ".reserve", "日本", "a\0b"])
def test_any_text_can_be_a_name(data: Data, name: str) -> None:
    data.topic(name).publish("x")
    assert data.topics.names() == [name]
    assert [message.value for message in data.topic(name).read()] == [b"x"]


@pytest.mark.parametrize("name", ["n" * 5000, "\ud800"])
def test_what_cannot_be_a_name_is_refused(data: Data, name: str) -> None:
    with pytest.raises(BadName):
        data.topic(name)


def test_a_topic_that_does_not_exist_is_empty_and_reading_does_not_make_it(data: Data) -> None:
    topic = data.topic("none")
    assert (list(topic.read()), topic.groups(), topic.stats().length, topic.stats().first_id) == ([], [], 0, None)
    with pytest.raises(NoGroup):
        topic.reset("g", "start")
    assert not topic.delete_group("g")
    assert data.topics.names() == []
    assert not data.topics.delete("none")


def test_a_deleted_topic_is_gone(data: Data, topic: NamedTopic) -> None:
    topic.publish("x")
    assert data.topics.delete("orders")
    assert list(topic.read()) == []
    topic.publish("y")
    assert [message.value for message in topic.read()] == [b"y"]


# -- reading ---------------------------------------------------------------------------------------------------------


def test_reading_is_limited_by_count_and_last_in_both_directions(topic: NamedTopic) -> None:
    fill(topic, MANY)
    every = list(range(MANY))
    assert numbers(topic.read(count=3)) == every[:3]
    assert numbers(topic.read(count=1001)) == every[:1001]
    assert numbers(topic.read(last=3)) == every[-3:]
    assert numbers(topic.read(last=1700)) == every[-1700:]
    assert numbers(topic.read(last=MANY + 1)) == every
    assert numbers(topic.read(reverse=True)) == every[::-1]
    assert numbers(topic.read(reverse=True, count=1500)) == every[::-1][:1500]
    assert numbers(topic.read(reverse=True, last=2)) == every[::-1][:2]
    assert numbers(topic.read(count=0)) == numbers(topic.read(last=0)) == []


MOMENTS: list[tuple[Callable[[int], Moment], Callable[[int], Moment]]] = [
    (lambda ms: f"{ms}-0", lambda ms: f"{ms}-5"),
    (str, str),
    (lambda ms: ms / 1000, lambda ms: ms / 1000),
    (lambda ms: datetime.fromtimestamp(ms / 1000, UTC), lambda ms: datetime.fromtimestamp(ms / 1000, UTC)),
    (
        lambda ms: timedelta(milliseconds=1_700_000_060_000 - ms),
        lambda ms: timedelta(milliseconds=1_700_000_060_000 - ms),
    ),
]


@pytest.mark.parametrize(("since", "to"), MOMENTS, ids=["id", "ms", "seconds", "datetime", "ago"])
def test_a_range_includes_both_ends(since: Callable[[int], Moment], to: Callable[[int], Moment]) -> None:
    clock = ManualClock(1_700_000_060_000 * 10**6)
    with lamina.open("data", files=MemoryFiles(), clock=clock) as data:
        topic, first = data.topic("t"), 1_700_000_000_250
        for number in range(10):
            topic.publish({"n": number}, id=f"{first + number // 2}-{number % 2}")
        assert numbers(topic.read(since=since(first + 1), until=to(first + 3))) == [2, 3, 4, 5, 6, 7]
        assert numbers(topic.read(since=since(first + 3), reverse=True)) == [9, 8, 7, 6]
        assert numbers(topic.read(since=since(first + 1), until=to(first + 3), last=2)) == [6, 7]
        assert numbers(topic.read(until=to(first - 1))) == numbers(topic.read(since=since(first + 5))) == []


@pytest.mark.parametrize(
    "bad",
    [
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"since": "yesterday"},
        {"since": float("nan")},
        {"since": True},
        {"until": 1e30},
        {"last": -1},
        {"count": 1.5},
        {"count": True},
        {"last": 1, "count": 1},
    ],
    ids=str,
)
def test_what_cannot_be_read_is_refused_at_once(topic: NamedTopic, bad: dict[str, Any]) -> None:
    with pytest.raises(BadTopic):
        topic.read(**bad)


def test_what_is_published_meanwhile_is_not_read(topic: NamedTopic) -> None:
    fill(topic, MANY)
    reading = topic.read()
    first = next(reading)
    fill(topic, 10, start=MANY)
    assert numbers(iter([first, *reading])) == list(range(MANY))


def test_an_as_of_before_the_oldest_starts_there_and_says_so(topic: NamedTopic) -> None:
    ids = fill(topic, 10)
    trim(topic, 4)
    reading = topic.read(since=ids[2])
    assert reading.gap is not None
    assert (reading.gap.until, reading.gap.resumes_at) == (ids[5], ids[6])
    assert numbers(reading) == [6, 7, 8, 9]
    assert topic.read().gap is topic.read(since="start").gap is topic.read(since=ids[6]).gap is None


def test_messages_removed_while_they_are_read_are_told_once(topic: NamedTopic) -> None:
    ids = fill(topic, MANY)
    reading = topic.read()
    got = [int(next(reading)["n"]) for _ in range(1000)]
    trim(topic, 100)
    with pytest.raises(Gap) as caught:
        next(reading)
    assert (caught.value.after, caught.value.until, caught.value.resumes_at) == (ids[999], ids[-101], ids[-100])
    assert got + numbers(reading) == [*range(1000), *range(MANY - 100, MANY)]


def test_reading_backwards_tells_what_was_removed_meanwhile_too(topic: NamedTopic) -> None:
    fill(topic, MANY)
    reading = topic.read(reverse=True)
    got = [int(next(reading)["n"]) for _ in range(1000)]
    trim(topic, 1200)
    with pytest.raises(Gap):
        next(reading)
    assert got + numbers(reading) == list(range(MANY - 1, MANY - 1201, -1))


def test_what_a_reader_gets_is_as_safe_as_the_policy_promises(files: FaultyFiles) -> None:
    with lamina.open("data", files=files, topics=lamina.LogOptions(sync=lamina.ALWAYS)) as data:
        topic = data.topic("t")
        topic.publish("safe")
        engine = engine_of(topic)
        engine.add([b"value", b"not yet"])
        assert [message.value for message in topic.read()] == [b"safe", b"not yet"]
        assert engine.log.synced >= engine.newest_position()


# -- subscribing -----------------------------------------------------------------------------------------------------


def drain(topic: NamedTopic, group: str = "g", **options: Any) -> list[Delivered]:
    """What comes without waiting."""
    with topic.subscribe(group, wait=0, **options) as messages:
        return list(messages)


def test_a_new_group_gets_what_comes_from_then_on(topic: NamedTopic) -> None:
    fill(topic, 3)
    with topic.subscribe("g", wait=0) as messages:
        assert list(messages) == []
        fill(topic, 2, start=3)
        assert numbers(messages) == [3, 4]


def test_a_new_group_may_begin_earlier(topic: NamedTopic) -> None:
    ids = fill(topic, 5)
    assert numbers(drain(topic, "all", since="start")) == [0, 1, 2, 3, 4]
    assert numbers(drain(topic, "some", since=ids[3])) == [3, 4]
    assert numbers(drain(topic, "hour", since=timedelta(hours=1))) == [0, 1, 2, 3, 4]
    assert numbers(drain(topic, "none", since="end")) == []


def test_where_to_begin_counts_only_for_a_new_group(topic: NamedTopic) -> None:
    fill(topic, 5)
    with topic.subscribe("g", since="start", wait=0) as messages:
        assert messages.ack(list(messages)) == 5
    assert drain(topic, since="start") == []


def test_what_was_not_acknowledged_comes_again_after_a_restart_and_then_what_is_new(files: FaultyFiles) -> None:
    with lamina.open("data", files=files) as data:
        topic = data.topic("t")
        fill(topic, 250)
        with topic.subscribe("g", since="start", wait=0, batch=7) as messages:
            for message in messages:
                if int(message["n"]) % 2:
                    message.ack()
                if int(message["n"]) == 199:
                    break
    with lamina.open("data", files=files) as data:
        topic = data.topic("t")
        found = drain(topic)
        wanted = [number for number in range(250) if number >= 200 or not number % 2]
        assert numbers(found) == wanted
        again = {int(message["n"]): message.deliveries for message in found}
        assert (again[0], again[248], again[249]) == (2, 1, 1)
        assert topic.groups()[0].pending == len(wanted)


def test_each_consumer_gets_its_own_again(topic: NamedTopic) -> None:
    fill(topic, 4)
    with topic.subscribe("g", consumer="a", since="start", batch=2) as a, topic.subscribe("g", consumer="b") as b:
        assert [int(next(a)["n"]), int(next(b)["n"]), int(next(a)["n"]), int(next(b)["n"])] == [0, 2, 1, 3]
    assert numbers(drain(topic, consumer="b")) == [2, 3]
    assert numbers(drain(topic, consumer="a")) == [0, 1]
    assert drain(topic, consumer="c") == []


def test_what_a_subscriber_gets_is_as_safe_as_the_policy_promises(files: FaultyFiles) -> None:
    with lamina.open("data", files=files, topics=lamina.LogOptions(sync=lamina.ALWAYS)) as data:
        topic = data.topic("t")
        with topic.subscribe("g") as messages:
            engine = engine_of(topic)
            assert engine.groups.log.synced >= engine.groups.newest_position() > 0
            engine.add([b"n", b"0"])
            assert int(next(messages)["n"]) == 0
            assert engine.log.synced >= engine.newest_position()
            assert engine.groups.log.synced >= engine.groups.newest_position()


def test_groups_do_not_influence_each_other(topic: NamedTopic) -> None:
    fill(topic, 3)
    drain(topic, "one", since="start", autoack=True)
    assert numbers(drain(topic, "two", since="start")) == [0, 1, 2]


def test_autoack_acknowledges_when_the_next_is_asked_for(topic: NamedTopic) -> None:
    fill(topic, 5)
    with topic.subscribe("g", since="start", autoack=True) as messages:
        assert [int(next(messages)["n"]) for _ in range(3)] == [0, 1, 2]
    assert numbers(drain(topic, autoack=True)) == [2, 3, 4]
    assert drain(topic) == []


def test_a_subscriber_waits_for_the_next_message(topic: NamedTopic) -> None:
    messages = topic.subscribe("g")
    waiting = in_thread(lambda: next(messages)["n"])
    until(lambda: is_waiting(topic))
    topic.publish({"n": 7})
    assert waiting() == b"7"
    messages.close()


def test_waiting_ends_after_a_time_without_a_message(topic: NamedTopic) -> None:
    started = time.monotonic()
    assert list(topic.subscribe("g", wait=timedelta(seconds=0.05))) == []
    assert time.monotonic() - started >= 0.05


def test_closing_the_subscription_ends_it(topic: NamedTopic) -> None:
    messages = topic.subscribe("g")
    waiting = in_thread(lambda: list(messages))
    until(lambda: is_waiting(topic))
    messages.close()
    assert waiting() == []
    assert list(messages) == []
    until(lambda: not is_waiting(topic))


def test_closing_the_folder_wakes_who_waits(data: Data, topic: NamedTopic) -> None:
    messages = topic.subscribe("g")
    waiting = in_thread(lambda: next(messages))
    until(lambda: is_waiting(topic))
    data.close()
    assert isinstance(waiting(), LogClosed)
    with pytest.raises(LogClosed):
        next(messages)
    for use in (lambda: topic.publish("x"), lambda: topic.read(), lambda: topic.subscribe("h"), lambda: data.topics):
        with pytest.raises(LogClosed):
            use()


@pytest.mark.parametrize("what", ["group", "topic"])
def test_deleting_the_group_or_the_topic_tells_who_waits(data: Data, topic: NamedTopic, what: str) -> None:
    topic.publish("x")
    messages = topic.subscribe("g")
    waiting = in_thread(lambda: next(messages))
    until(lambda: is_waiting(topic))
    assert topic.delete_group("g") if what == "group" else data.topics.delete("orders")
    assert isinstance(waiting(), NoGroup)


def test_a_consumer_can_be_subscribed_once(topic: NamedTopic) -> None:
    messages = topic.subscribe("g")
    with pytest.raises(BadTopic, match="subscribed already"):
        topic.subscribe("g")
    topic.subscribe("g", consumer="other").close()
    topic.subscribe("other group").close()
    messages.close()
    topic.subscribe("g").close()


def test_a_subscription_that_nobody_has_any_more_is_over(topic: NamedTopic) -> None:
    fill(topic, 3)
    for _message in topic.subscribe("g", since="start"):
        break
    del _message
    gc.collect()
    assert numbers(drain(topic)) == [0, 1, 2]


@pytest.mark.parametrize(
    "bad", [{"batch": 0}, {"batch": 1.5}, {"wait": -1}, {"wait": "5"}, {"claim_idle": 0}, {"since": "never"}], ids=str
)
def test_a_subscription_that_cannot_be_is_refused(topic: NamedTopic, bad: dict[str, Any]) -> None:
    with pytest.raises(BadTopic):
        topic.subscribe("g", **bad)
    topic.subscribe("g").close()


def test_a_deleted_message_is_no_gap(topic: NamedTopic) -> None:
    fill(topic, 4)
    assert numbers(drain(topic, since="start")) == [0, 1, 2, 3]
    engine = engine_of(topic)
    engine.settle(engine.delete([message.entry_id for message in topic.read(count=2)])[1])
    assert numbers(drain(topic)) == [2, 3]
    assert topic.groups()[0].pending == 2


# -- gaps ------------------------------------------------------------------------------------------------------------


def gap_then_rest(messages: Subscription) -> tuple[list[int], list[Gap], list[int]]:
    """What comes before a gap, the gaps, and what comes behind them."""
    with messages:
        return _gap_then_rest(messages)


def _gap_then_rest(messages: Subscription) -> tuple[list[int], list[Gap], list[int]]:
    parts: tuple[list[int], list[Gap], list[int]] = ([], [], [])
    while True:
        try:
            for message in messages:
                parts[2 if parts[1] else 0].append(int(message["n"]))
            return parts
        except Gap as gap:
            parts[1].append(gap)
            assert len(parts[1]) < 5


def test_a_gap_is_told_once_and_delivery_goes_on_behind_it(topic: NamedTopic) -> None:
    drain(topic)
    ids = fill(topic, 10)
    trim(topic, 4)
    before, (gap,), rest = gap_then_rest(topic.subscribe("g", wait=0))
    assert (before, rest) == ([], [6, 7, 8, 9])
    assert (gap.until, gap.resumes_at) == (ids[5], ids[6])
    fill(topic, 2, start=10)
    assert gap_then_rest(topic.subscribe("g", wait=0)) == ([6, 7, 8, 9, 10, 11], [], [])


def test_a_gap_is_told_also_when_nothing_is_left_and_not_again(files: FaultyFiles) -> None:
    with lamina.open("data", files=files) as data:
        topic = data.topic("t")
        drain(topic)
        fill(topic, 10)
        trim(topic, 0)
        _, (gap,), rest = gap_then_rest(topic.subscribe("g", wait=0))
        assert (gap.resumes_at, rest) == (None, [])
    with lamina.open("data", files=files) as data:
        assert drain(data.topic("t")) == []


def test_a_gap_that_nobody_accepted_is_told_again(topic: NamedTopic) -> None:
    drain(topic)
    fill(topic, 10)
    trim(topic, 4)
    for _ in range(2):
        with topic.subscribe("g") as messages, pytest.raises(Gap):
            next(messages)


def test_what_was_pending_and_removed_is_told(topic: NamedTopic) -> None:
    ids = fill(topic, 10)
    assert len(drain(topic, since="start")) == 10
    trim(topic, 4)
    before, (gap,), rest = gap_then_rest(topic.subscribe("g", wait=0))
    assert (before, rest, gap.until) == ([], [6, 7, 8, 9], ids[5])
    assert topic.groups()[0].pending == 4
    assert gap_then_rest(topic.subscribe("g", wait=0))[1] == []


def test_an_as_of_for_a_new_group_before_the_oldest_is_a_gap_but_the_start_is_none(topic: NamedTopic) -> None:
    ids = fill(topic, 10)
    trim(topic, 4)
    assert gap_then_rest(topic.subscribe("a", since="start", wait=0)) == ([6, 7, 8, 9], [], [])
    _, (gap,), rest = gap_then_rest(topic.subscribe("b", since=ids[1], wait=0))
    assert (gap.resumes_at, rest) == (ids[6], [6, 7, 8, 9])


# -- claiming --------------------------------------------------------------------------------------------------------


def test_what_a_dead_consumer_held_is_claimed_after_a_time(topic: NamedTopic) -> None:
    fill(topic, 10)
    dead = topic.subscribe("g", consumer="dead", since="start", batch=5)
    next(dead)
    with topic.subscribe("g", consumer="alive", claim_idle=0.05) as alive:
        assert sorted(int(next(alive)["n"]) for _ in range(10)) == list(range(10))
    dead.close()
    assert drain(topic, consumer="dead") == []


def test_what_a_dead_consumer_held_and_was_removed_is_told(topic: NamedTopic) -> None:
    ids = fill(topic, 10)
    assert len(drain(topic, consumer="dead", since="start")) == 10
    trim(topic, 4)
    time.sleep(0.03)
    before, (gap,), rest = gap_then_rest(topic.subscribe("g", consumer="alive", claim_idle=0.02, wait=0))
    assert (before, gap.until, rest) == ([], ids[5], [6, 7, 8, 9])
    assert topic.groups()[0].pending == 4


def test_what_was_claimed_from_a_consumer_is_not_given_to_it(topic: NamedTopic) -> None:
    fill(topic, 4)
    with topic.subscribe("g", consumer="slow", since="start", wait=0) as slow:
        assert int(next(slow)["n"]) == 0
        time.sleep(0.03)
        with topic.subscribe("g", consumer="fast", claim_idle=0.02) as fast:
            assert [int(next(fast)["n"]) for _ in range(4)] == [0, 1, 2, 3]
        assert list(slow) == []


def test_a_consumer_does_not_claim_from_itself(topic: NamedTopic) -> None:
    fill(topic, 3)
    with topic.subscribe("g", since="start", claim_idle=0.01, wait=0.1) as messages:
        assert numbers(messages) == [0, 1, 2]


def test_a_message_that_is_worked_on_is_not_claimed_before_its_time(topic: NamedTopic) -> None:
    fill(topic, 3)
    with topic.subscribe("g", consumer="a", since="start") as a:
        next(a)
        assert drain(topic, consumer="b", claim_idle=60) == []


# -- threads ---------------------------------------------------------------------------------------------------------


def test_four_publishers_and_three_subscribers_handle_each_message_once(files: FaultyFiles) -> None:
    count, handled, lock = 300, Counter[int](), threading.Lock()
    with lamina.open("data", files=files) as data:
        topic = data.topic("t")
        topic.subscribe("g", consumer="0").close()
        subscriptions = [topic.subscribe("g", consumer=str(number), batch=10) for number in range(3)]

        def publish(start: int) -> None:
            for number in range(start, start + count, 3):
                fill(topic, 3, start=number)

        def handle(number: int) -> None:
            for message in subscriptions[number]:
                with lock:
                    handled[int(message["n"])] += 1
                message.ack()

        workers = [in_thread(lambda number=number: handle(number)) for number in range(3)]  # type: ignore[misc]
        publishers = [in_thread(lambda start=start: publish(start * count)) for start in range(4)]  # type: ignore[misc]
        assert [publisher(60) for publisher in publishers] == [None] * 4
        end = time.monotonic() + 60
        while len(handled) < 4 * count and time.monotonic() < end:
            time.sleep(0.01)
        for subscription in subscriptions:
            subscription.close()
        assert [worker() for worker in workers] == [None] * 3
        assert set(handled) == set(range(4 * count))
        assert set(handled.values()) == {1}
        (group,) = topic.groups()
        assert (group.pending, group.lag) == (0, 0)


def test_when_a_consumer_dies_the_others_do_its_part(files: FaultyFiles) -> None:
    handled, lock = Counter[int](), threading.Lock()
    with lamina.open("data", files=files) as data:
        topic = data.topic("t")
        subscriptions = [topic.subscribe("g", consumer=str(n), batch=20, claim_idle=0.3) for n in range(3)]

        def handle(number: int) -> None:
            for message in subscriptions[number]:
                if number == 0 and int(message["n"]) >= 50:
                    return  # dies with this one, and what it has ready, in its hands
                with lock:
                    handled[int(message["n"])] += 1
                message.ack()

        fill(topic, 500)
        assert in_thread(lambda: handle(0))(60) is None  # alone, or the others may leave nothing that it dies of
        workers = [in_thread(lambda number=number: handle(number)) for number in (1, 2)]  # type: ignore[misc]
        until_all = time.monotonic() + 60
        while len(handled) < 500 and time.monotonic() < until_all:
            time.sleep(0.01)
        for subscription in subscriptions[1:]:
            subscription.close()
        assert [worker() for worker in workers] == [None] * 2
        assert set(handled) == set(range(500))
        until(lambda: topic.groups()[0].pending == 0)


# -- looking after it ------------------------------------------------------------------------------------------------


def test_stats_and_groups_show_where_things_are(topic: NamedTopic) -> None:
    ids = fill(topic, 10)
    with topic.subscribe("g", consumer="c", since="start", batch=4, wait=0) as messages:
        next(messages).ack()
        next(messages)
    trim(topic, 8)
    stats = topic.stats()
    assert (stats.name, stats.length, stats.added, stats.groups) == ("orders", 8, 10, 1)
    assert (stats.first_id, stats.last_id) == (ids[2], ids[9])
    (group,) = topic.groups()
    assert (group.name, group.pending, group.last_id, group.lag) == ("g", 3, ids[3], 6)
    assert group.oldest_pending == ids[1]
    assert [(one.name, one.pending) for one in group.consumers] == [("c", 3)]


@pytest.mark.parametrize(
    ("to", "again", "skipped", "rest"), [("start", 6, 0, 10), ("end", 0, 4, 0), (3, 3, 0, 7), (8, 0, 2, 2)]
)
def test_a_reset_says_what_it_means_and_does_it(
    topic: NamedTopic, to: str | int, again: int, skipped: int, rest: int
) -> None:
    ids = fill(topic, 10)
    with topic.subscribe("g", since="start", batch=6) as messages:
        messages.ack([next(messages) for _ in range(5)])
    moment = ids[to] if isinstance(to, int) else to
    before = topic.groups()
    plan = topic.reset("g", moment, dry_run=True)
    assert (plan.from_id, plan.again, plan.skipped, plan.pending) == (ids[5], again, skipped, 1)
    assert [one.last_id for one in topic.groups()] == [one.last_id for one in before]
    assert topic.reset("g", moment) == plan
    assert topic.groups()[0].last_id == plan.to_id
    assert set(range(10 - rest, 10)) <= set(numbers(drain(topic))) <= {5, *range(10 - rest, 10)}


def test_a_group_can_be_forgotten(topic: NamedTopic) -> None:
    fill(topic, 3)
    drain(topic, since="start")
    assert topic.delete_group("g")
    assert not topic.delete_group("g")
    assert topic.groups() == []
    assert drain(topic) == []


# -- the disk --------------------------------------------------------------------------------------------------------


def test_a_subscriber_never_keeps_what_the_disk_refused(topic: NamedTopic, files: FaultyFiles) -> None:
    """The id of a refused message may be given to another one: that must come, too."""
    topic.publish({"n": 0})
    got: list[int] = []
    messages = topic.subscribe("g", since="start")

    def handle() -> None:
        while True:
            with suppress(LaminaError):
                for message in messages:
                    got.append(int(message["n"]))
                    message.ack()
                return

    worker = in_thread(handle)
    until(lambda: got == [0] and is_waiting(topic))
    files.fail("append", error=errno.ENOSPC, times=10**9)
    with pytest.raises(DiskFull):
        topic.publish({"n": 1})
    files.heal()
    until(lambda: _publishes_number(topic, 2))
    until(lambda: len(got) == 2)
    messages.close()
    assert worker() is None
    assert got == numbers(topic.read()) == [0, 2]


def _publishes_number(topic: NamedTopic, number: int) -> bool:
    try:
        topic.publish({"n": number})
    except DiskFull:
        return False
    return True


def test_what_the_disk_refused_to_note_is_given_again(topic: NamedTopic, files: FaultyFiles) -> None:
    fill(topic, 3)
    assert len(drain(topic, since="start")) == 3
    files.fail("append", error=errno.ENOSPC, only="groups", times=2)  # also with the room of the reserve
    with topic.subscribe("g", wait=0) as messages:
        with pytest.raises(DiskFull):
            next(messages)
        assert numbers(messages) == [0, 1, 2]


def test_a_page_with_a_refused_message_is_read_again(topic: NamedTopic, files: FaultyFiles) -> None:
    fill(topic, 3)
    engine_of(topic).add([b"n", b"3"])
    files.fail("append", error=errno.ENOSPC, only="orders", times=2)  # also with the room of the reserve
    reading = topic.read()
    with pytest.raises(DiskFull):
        next(reading)
    assert numbers(reading) == [0, 1, 2]


def test_of_many_one_that_was_refused_meanwhile_is_told(topic: NamedTopic, files: FaultyFiles) -> None:
    topic.publish({"n": 0})
    engine = engine_of(topic)

    def messages() -> Iterator[dict[str, int]]:
        yield {"n": 1}
        files.fail("append", error=errno.EIO, only="orders")
        with pytest.raises(LaminaError):  # somebody else waits, and is told
            engine.settle(engine.newest_position())
        yield {"n": 2}

    with pytest.raises(LaminaError):
        topic.publish_many(messages())
    assert numbers(topic.read()) == [0, 2]


def test_another_process_or_handle_is_kept_out(files: FaultyFiles, topic: NamedTopic) -> None:
    topic.publish("x")
    with lamina.open("data", files=files) as other, pytest.raises(LogLocked):
        other.topics  # noqa: B018
