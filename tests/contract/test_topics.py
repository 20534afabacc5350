"""Topics, as every way has them."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from lamina.errors import BadBody, BadName, BadTopic, LogClosed, NoGroup, RecordTooLarge

SOON = 30.0


class Order(msgspec.Struct):
    item: str
    count: int = 1
    note: str | None = None
    tags: list[str] = []


def numbers(messages: Any) -> list[int]:
    return [int(message["n"]) for message in messages]


def filled(lm: Any, name: str, count: int = 10) -> tuple[Any, list[str]]:
    topic = lm.topic(name)
    return topic, topic.publish_many({"n": number} for number in range(count))


class TestPublishing:
    def test_a_message_comes_back_as_it_was_published(self, lm: Any, name: str) -> None:
        topic = lm.topic(name)
        before = time.time()
        id = topic.publish({"item": "tea", "count": 2, "price": 1.5, "note": "grün", "": b""})
        (message,) = topic.read()
        assert message.id == id
        assert message.fields == {
            b"item": b"tea",
            b"count": b"2",
            b"price": b"1.5",
            b"note": "grün".encode(),
            b"": b"",
        }
        assert message["item"] == b"tea"
        assert before - 1 <= message.time.timestamp() <= time.time() + 1

    @pytest.mark.parametrize("value", ["text", b"\x00\r\n\xff*3", b"", ""])
    def test_text_or_bytes_alone_are_the_field_value(self, lm: Any, name: str, value: Any) -> None:
        topic = lm.topic(name)
        topic.publish(value)
        (message,) = topic.read()
        assert message.value == (value.encode() if isinstance(value, str) else value)

    def test_binary_names_and_values(self, lm: Any, name: str) -> None:
        topic = lm.topic(name)
        odd = {bytes([number]): bytes([number, 0, 13, 10]) for number in range(256)}
        topic.publish(odd)
        (message,) = topic.read()
        assert message.fields == odd

    def test_an_id_may_be_chosen_and_has_to_grow(self, lm: Any, name: str) -> None:
        topic = lm.topic(name)
        assert topic.publish("a", id="5-1") == "5-1"
        for id in ("5-1", "4-9", "0-0", "5"):
            with pytest.raises(BadTopic):
                topic.publish("b", id=id)
        assert topic.publish("c", id="5-2") == "5-2"
        assert [message.id for message in topic.read()] == ["5-1", "5-2"]

    @pytest.mark.parametrize("id", ["", "x", "1-2-3", "-1", "1-x", "*", "5-*", "99999999999999999999-0"])
    def test_what_is_no_id_is_refused(self, lm: Any, name: str, id: str) -> None:
        with pytest.raises(BadTopic):
            lm.topic(name).publish("a", id=id)
        assert lm.topic(name).stats().length == 0

    @pytest.mark.parametrize(
        ("message", "kind"),
        [({}, BadTopic), (None, TypeError), ({"a": None}, TypeError), ({"a": True}, TypeError), ([1], TypeError)],
    )
    def test_what_is_no_message_is_refused(self, lm: Any, name: str, message: Any, kind: type[Exception]) -> None:
        topic = lm.topic(name)
        with pytest.raises(kind):
            topic.publish(message)
        with pytest.raises(kind):
            topic.publish_many([{"n": 0}, message, {"n": 2}])
        assert numbers(topic.read()) == [0]

    def test_many_are_published_in_order(self, lm: Any, name: str) -> None:
        topic = lm.topic(name)
        found = topic.publish_many({"n": number} for number in range(2500))
        assert len(set(found)) == 2500
        assert [message.id for message in topic.read()] == found
        assert numbers(topic.read()) == list(range(2500))
        assert topic.publish_many([]) == []

    def test_an_iterable_that_fails_leaves_what_came_before(self, lm: Any, name: str) -> None:
        topic = lm.topic(name)

        def messages() -> Any:
            yield from ({"n": number} for number in range(3))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            topic.publish_many(messages())
        assert numbers(topic.read()) == [0, 1, 2]

    def test_large_messages(self, lm: Any, name: str) -> None:
        topic = lm.topic(name)
        bodies = [bytes([number]) * (3 << 20) for number in range(4)]
        topic.publish_many(bodies)
        assert [message.value for message in topic.read()] == bodies
        assert [message.value for message in topic.read(last=3)] == bodies[1:]
        with pytest.raises(RecordTooLarge):
            topic.publish(b"x" * (64 << 20))
        assert topic.stats().length == 4


class TestNames:
    @pytest.mark.parametrize("odd", ["a b", "../up", "ü\n\r", "*?[x]", "\udcff\udc80x"])
    def test_odd_names(self, lm: Any, name: str, odd: str) -> None:
        topic = lm.topic(f"{name}{odd}")
        topic.publish({"n": 1})
        assert numbers(topic.read()) == [1]
        assert topic.stats().name == topic.name == f"{name}{odd}"
        assert f"{name}{odd}" in lm.topics.names()

    @pytest.mark.parametrize("bad", ["x" * 300, "\ud800"])
    def test_names_that_cannot_be(self, lm: Any, bad: str) -> None:
        with pytest.raises(BadName):
            lm.topic(bad)

    def test_names_are_sorted_and_a_deleted_topic_is_gone(self, lm: Any, name: str) -> None:
        for end in "bca":
            lm.topic(name + end).publish("x")
        ours = [each for each in lm.topics.names() if each.startswith(name)]
        assert ours == [name + "a", name + "b", name + "c"]
        assert lm.topics.delete(name + "b") is True
        assert lm.topics.delete(name + "b") is False
        assert name + "b" not in lm.topics.names()
        assert list(lm.topic(name + "b").read()) == []

    def test_a_topic_that_is_not_there_is_empty(self, lm: Any, name: str) -> None:
        topic = lm.topic(name)
        assert list(topic.read()) == []
        assert list(topic.read(since="5-0", last=3)) == []
        assert topic.groups() == []
        assert topic.delete_group("g") is False
        view = topic.stats()
        assert (view.name, view.length, view.added, view.first_id, view.last_id, view.groups) == (
            name,
            0,
            0,
            None,
            None,
            0,
        )
        with pytest.raises(NoGroup):
            topic.reset("g", "start")
        assert name not in lm.topics.names()


class TestReading:
    def test_ranges(self, lm: Any, name: str) -> None:
        topic, ids = filled(lm, name)
        assert numbers(topic.read()) == list(range(10))
        assert numbers(topic.read(since=ids[3])) == list(range(3, 10))
        assert numbers(topic.read(until=ids[3])) == [0, 1, 2, 3]
        assert numbers(topic.read(since=ids[3], until=ids[5])) == [3, 4, 5]
        assert numbers(topic.read(since=ids[5], until=ids[3])) == []
        assert numbers(topic.read(since="start", until="end")) == list(range(10))
        assert numbers(topic.read(reverse=True)) == list(range(9, -1, -1))
        assert numbers(topic.read(since=ids[3], until=ids[5], reverse=True)) == [5, 4, 3]

    def test_last_and_count(self, lm: Any, name: str) -> None:
        topic, ids = filled(lm, name)
        assert numbers(topic.read(last=3)) == [7, 8, 9]
        assert numbers(topic.read(last=3, reverse=True)) == [9, 8, 7]
        assert numbers(topic.read(last=3, until=ids[4])) == [2, 3, 4]
        assert numbers(topic.read(last=100)) == list(range(10))
        assert numbers(topic.read(last=0)) == []
        assert numbers(topic.read(count=3)) == [0, 1, 2]
        assert numbers(topic.read(count=3, reverse=True)) == [9, 8, 7]
        assert numbers(topic.read(count=0)) == []

    def test_long_ranges(self, lm: Any, name: str) -> None:
        topic, ids = filled(lm, name, 2300)
        assert numbers(topic.read(last=2100)) == list(range(200, 2300))
        assert numbers(topic.read(last=2100, reverse=True)) == list(range(2299, 199, -1))
        assert numbers(topic.read(count=1234, since=ids[7])) == list(range(7, 1241))

    def test_by_time(self, lm: Any, name: str) -> None:
        topic = lm.topic(name)
        topic.publish({"n": 0}, id="1000-0")
        topic.publish({"n": 1}, id="2000-0")
        topic.publish({"n": 2}, id="2000-5")
        topic.publish({"n": 3})
        assert numbers(topic.read(since=2)) == [1, 2, 3]
        assert numbers(topic.read(until=2)) == [0, 1, 2]
        assert numbers(topic.read(until=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))) == [0]
        assert numbers(topic.read(since=timedelta(hours=1))) == [3]
        assert numbers(topic.read(until=timedelta(hours=1))) == [0, 1, 2]
        assert numbers(topic.read(since="2000-1")) == [2, 3]
        assert numbers(topic.read(until="2000")) == [0, 1, 2]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"since": "x"},
            {"until": "1-2-3"},
            {"since": datetime(2020, 1, 1)},  # noqa: DTZ001  # that is what is refused
            {"since": True},
            {"since": float("nan")},
            {"until": 1e30},
            {"last": -1},
            {"count": True},
            {"last": 1, "count": 1},
        ],
    )
    def test_what_cannot_be_is_refused_at_once(self, lm: Any, name: str, wrong: dict[str, Any]) -> None:
        with pytest.raises(BadTopic):
            lm.topic(name).read(**wrong)

    def test_what_is_published_meanwhile_is_not_read(self, lm: Any, name: str) -> None:
        topic, _ = filled(lm, name, 3)
        reading = iter(topic.read())
        first = next(reading)
        topic.publish({"n": 3})
        assert numbers([first, *reading]) == [0, 1, 2]

    def test_no_gap_where_all_is_there(self, lm: Any, name: str) -> None:
        topic, ids = filled(lm, name, 3)
        reading = topic.read(since=ids[1])
        list(reading)
        assert reading.gap is None


class TestSubscribing:
    def test_a_new_group_gets_what_comes_or_all_since_a_moment(self, lm: Any, name: str) -> None:
        topic, ids = filled(lm, name, 4)
        with topic.subscribe("new", wait=0) as messages:
            assert numbers(messages) == []
            topic.publish({"n": 4})
            assert numbers(messages) == [4]
        with topic.subscribe("all", since="start", wait=0) as messages:
            assert numbers(messages) == [0, 1, 2, 3, 4]
        with topic.subscribe("some", since=ids[2], wait=0) as messages:
            assert numbers(messages) == [2, 3, 4]
        with topic.subscribe("end", since="end", wait=0) as messages:
            assert numbers(messages) == []
        with topic.subscribe("past", since=timedelta(hours=1), wait=0) as messages:
            assert numbers(messages) == [0, 1, 2, 3, 4]

    def test_it_waits_for_a_message(self, lm: Any, name: str) -> None:
        topic = lm.topic(name)
        with topic.subscribe("g", wait=SOON) as messages:
            later = threading.Timer(0.2, lambda: topic.publish({"n": 7}))
            later.start()
            message = next(iter(messages))
            assert int(message["n"]) == 7
            assert message.deliveries == 1
            message.ack()
            later.join()

    def test_what_is_not_acknowledged_comes_again(self, lm: Any, name: str) -> None:
        topic, _ = filled(lm, name, 5)
        with topic.subscribe("g", since="start", batch=2, wait=0) as messages:
            for message in messages:
                if int(message["n"]) % 2:
                    message.ack()
        with topic.subscribe("g", wait=0) as messages:
            found = list(messages)
            assert numbers(found) == [0, 2, 4]
            assert {message.deliveries for message in found} == {2}
            assert messages.ack(found) == 3
            assert messages.ack(found) == 0
            assert messages.ack([]) == 0
        with topic.subscribe("g", wait=0) as messages:
            assert numbers(messages) == []

    def test_each_message_goes_to_one_of_two_consumers(self, lm: Any, name: str) -> None:
        topic, _ = filled(lm, name, 6)
        with (
            topic.subscribe("g", consumer="a", since="start", batch=2, wait=0) as one,
            topic.subscribe("g", consumer="b", batch=2, wait=0) as other,
        ):
            first, second = iter(one), iter(other)
            taken = [next(first), next(second), next(first), next(second)]
            rest = [*first, *second]
        assert sorted(numbers(taken)) == [0, 1, 2, 3]
        assert sorted(numbers([*taken, *rest])) == [0, 1, 2, 3, 4, 5]
        (group,) = topic.groups()
        assert (group.name, group.pending, group.lag) == ("g", 6, 0)
        assert {one.name for one in group.consumers} == {"a", "b"}
        assert sum(one.pending for one in group.consumers) == 6

    def test_a_consumer_is_subscribed_once(self, lm: Any, name: str) -> None:
        topic = lm.topic(name)
        with topic.subscribe("g", wait=0):
            with pytest.raises(BadTopic, match="subscribed already"):
                topic.subscribe("g", wait=0)
            with topic.subscribe("g", consumer="another", wait=0):
                pass
        with topic.subscribe("g", wait=0):
            pass

    def test_autoack(self, lm: Any, name: str) -> None:
        topic, _ = filled(lm, name, 3)
        with topic.subscribe("g", since="start", autoack=True, wait=0) as messages:
            taken = iter(messages)
            next(taken), next(taken)
        with topic.subscribe("g", wait=0) as messages:
            assert numbers(messages) == [1, 2]
        with topic.subscribe("h", since="start", autoack=True, wait=0) as messages:
            assert numbers(messages) == [0, 1, 2]
        assert {group.name: group.pending for group in topic.groups()} == {"g": 2, "h": 0}

    def test_what_another_has_had_for_long_is_claimed(self, lm: Any, name: str) -> None:
        topic, _ = filled(lm, name, 3)
        with topic.subscribe("g", consumer="gone", since="start", wait=0) as messages:
            assert numbers(messages) == [0, 1, 2]
        with topic.subscribe("g", consumer="here", wait=0) as messages:
            assert numbers(messages) == []
        with topic.subscribe("g", consumer="here", claim_idle=0.01, wait=SOON) as messages:
            taken = iter(messages)
            found = [next(taken) for _ in range(3)]
            assert numbers(found) == [0, 1, 2]
            assert [message.deliveries for message in found] == [2, 2, 2]
            messages.ack(found)
        assert topic.groups()[0].pending == 0

    def test_a_deleted_group_is_told(self, lm: Any, name: str) -> None:
        topic, _ = filled(lm, name, 2)
        with topic.subscribe("g", since="start", batch=1, wait=SOON) as messages:
            taken = iter(messages)
            message = next(taken)
            assert topic.delete_group("g") is True
            assert topic.delete_group("g") is False
            with pytest.raises(NoGroup):
                next(taken)
            with pytest.raises(NoGroup):
                message.ack()

    def test_who_waits_is_told_of_a_deleted_group(self, lm: Any, name: str) -> None:
        topic = lm.topic(name)
        with topic.subscribe("g", wait=SOON) as messages:
            later = threading.Timer(0.2, lambda: topic.delete_group("g"))
            later.start()
            with pytest.raises(NoGroup):
                next(iter(messages))
            later.join()

    def test_close_wakes_who_waits(self, lm: Any, name: str) -> None:
        topic = lm.topic(name)
        messages = topic.subscribe("g", wait=SOON)
        later = threading.Timer(0.2, messages.close)
        later.start()
        started = time.monotonic()
        assert list(messages) == []
        assert time.monotonic() - started < SOON
        later.join()
        messages.close()
        assert list(messages) == []

    @pytest.mark.parametrize(
        "wrong",
        [
            {"batch": 0},
            {"batch": True},
            {"batch": 10_001},
            {"wait": -1},
            {"wait": "5"},
            {"claim_idle": 0},
            {"claim_idle": float("nan")},
            {"since": "x"},
        ],
    )
    def test_what_cannot_be_is_refused(self, lm: Any, name: str, wrong: dict[str, Any]) -> None:
        with pytest.raises(BadTopic), lm.topic(name).subscribe("g", **wrong):
            pass

    def test_a_name_that_cannot_be_is_refused(self, lm: Any, name: str) -> None:
        for wrong in ({"group": "\ud800"}, {"group": "g", "consumer": "\ud800"}):
            with pytest.raises(BadName):
                lm.topic(name).subscribe(**wrong)

    def test_odd_names_of_groups_and_consumers(self, lm: Any, name: str) -> None:
        topic, _ = filled(lm, name, 1)
        odd = "\udcff\r\n ü"
        with topic.subscribe(odd, consumer=odd, since="start", wait=0) as messages:
            assert numbers(messages) == [0]
        (group,) = topic.groups()
        assert group.name == group.consumers[0].name == odd


class TestGroups:
    def test_reset(self, lm: Any, name: str) -> None:
        topic, ids = filled(lm, name, 5)
        with topic.subscribe("g", since="start", autoack=True, wait=0) as messages:
            assert len(list(messages)) == 5
        planned = topic.reset("g", ids[2], dry_run=True)
        assert (planned.topic, planned.group, planned.again, planned.skipped) == (name, "g", 3, 0)
        assert planned.from_id == ids[4]
        with topic.subscribe("g", wait=0) as messages:
            assert numbers(messages) == []
        assert topic.reset("g", ids[2]) == planned
        with topic.subscribe("g", wait=0) as messages:
            assert numbers(messages) == [2, 3, 4]
        assert topic.reset("g", "start").to_id == "0-0"
        skipping = topic.reset("g", "end")
        assert (skipping.again, skipping.skipped, skipping.pending, skipping.to_id) == (0, 5, 3, ids[4])
        assert topic.reset("g", timedelta(hours=1)).again == 5
        with pytest.raises(NoGroup):
            topic.reset("another", "start")
        with pytest.raises(BadTopic):
            topic.reset("g", "x")

    def test_stats(self, lm: Any, name: str) -> None:
        topic, ids = filled(lm, name, 3)
        with topic.subscribe("g", since="start", wait=0) as messages:
            first, *_ = messages
            first.ack()
        view = topic.stats()
        assert (view.length, view.added, view.first_id, view.last_id, view.groups) == (3, 3, ids[0], ids[2], 1)
        (group,) = topic.groups()
        assert (group.pending, group.last_id, group.lag, group.oldest_pending) == (2, ids[2], 0, ids[1])
        assert [(one.name, one.pending) for one in group.consumers] == [("default", 2)]
        assert group.consumers[0].idle_ms >= 0


class TestTyped:
    def test_objects_are_published_and_read(self, lm: Any, name: str) -> None:
        orders = lm.topic(name, Order)
        sent = [Order("tea", 2), Order("null", note="null", tags=["a", "b"]), Order("")]
        ids = [orders.publish(sent[0]), *orders.publish_many(sent[1:])]
        found = list(orders.read())
        assert [message.body for message in found] == sent
        assert [message.id for message in found] == ids
        assert found[0].body is found[0].body
        assert found[0].time == found[0].plain.time
        assert [message.body for message in orders.read(last=1)] == sent[2:]
        assert orders.read(reverse=True, count=1).gap is None
        (plain, *_) = lm.topic(name).read()
        assert plain.fields == {b"item": b"tea", b"count": b"2", b"tags": b"[]"}
        assert orders.stats() == lm.topic(name).stats()

    def test_objects_are_delivered(self, lm: Any, name: str) -> None:
        orders = lm.topic(name, Order)
        orders.publish_many(Order("tea", number) for number in range(4))
        with orders.subscribe("g", since="start", wait=0) as messages:
            first, second, *rest = messages
            first.ack()
            assert messages.ack([second]) == 1
            assert first.deliveries == 1
        with orders.subscribe("g", wait=0) as messages:
            again = list(messages)
        assert [message.body.count for message in [first, second, *rest]] == [0, 1, 2, 3]
        assert [(message.body.count, message.deliveries) for message in again] == [(2, 2), (3, 2)]
        assert orders.groups()[0].pending == 2
        assert orders.reset("g", "start").again == 4
        assert orders.delete_group("g") is True

    def test_who_reads_goes_on_behind_a_message_that_does_not_fit(self, lm: Any, name: str) -> None:
        orders, plain = lm.topic(name, Order), lm.topic(name)
        orders.publish(Order("tea"))
        odd = plain.publish({"item": "tea", "count": "many"})
        orders.publish(Order("milk"))
        items = []
        with orders.subscribe("g", since="start", wait=0) as messages:
            for message in messages:
                try:
                    items.append(message.body.item)
                except BadBody as told:
                    assert (told.topic, told.id, told.field) == (name, odd, "count")
                    assert message.plain["count"] == b"many"
                message.ack()
        assert items == ["tea", "milk"]
        assert plain.groups()[0].pending == 0

    def test_what_cannot_be_published(self, lm: Any, name: str) -> None:
        orders = lm.topic(name, Order)
        with pytest.raises(TypeError):
            orders.publish({"item": "tea"})
        with pytest.raises(BadBody):
            orders.publish(Order("tea", "two"))  # type: ignore[arg-type]
        with pytest.raises(BadBody):
            orders.publish_many([Order("a"), Order("b", 1.5), Order("c")])  # type: ignore[arg-type]
        assert [message.body for message in orders.read()] == [Order("a")]
        with pytest.raises(TypeError):
            lm.topic(name, int)


def test_nothing_goes_behind_the_end(lm: Any, thing: Any, name: str) -> None:
    topic, _ = filled(lm, name, 1)
    thing.close()
    with pytest.raises(LogClosed):
        topic.publish("x")
    with pytest.raises(LogClosed):
        list(topic.read())
    with pytest.raises(LogClosed), topic.subscribe("g", wait=0) as messages:
        next(iter(messages))
