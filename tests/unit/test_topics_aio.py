"""Topics for coroutines: the same as for threads, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

import lamina
from lamina.data import Data
from lamina.engines.topics.aio import AsyncDelivered, AsyncTopic
from lamina.engines.topics.api import NamedTopic
from lamina.engines.topics.messages import Message
from lamina.errors import BadTopic, DiskFull, Gap, LogClosed, NoGroup
from lamina.testing import FaultyFiles, MemoryFiles

SOON = 5.0
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
def plain(data: Data) -> NamedTopic:
    return data.topic("orders")


@pytest.fixture
def topic(plain: NamedTopic) -> AsyncTopic:
    return plain.aio


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(6 * SOON):
            await story()

    asyncio.run(limited())


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON):
        while not is_so():
            await asyncio.sleep(0.002)


def number(message: Message) -> int:
    return int(message["n"])


async def fill(topic: AsyncTopic, count: int, start: int = 0) -> list[str]:
    return await topic.publish_many({"n": number} for number in range(start, start + count))


async def drain(topic: AsyncTopic, group: str = "g", **options: Any) -> list[AsyncDelivered]:
    async with topic.subscribe(group, wait=0, **options) as messages:
        return [message async for message in messages]


def is_waiting(topic: NamedTopic) -> bool:
    return bool(topic.make().waiters)


def trim(topic: NamedTopic, keep: int) -> None:
    engine = topic.make()
    engine.settle(engine.trim_length(keep)[1])


def test_what_is_published_is_read(topic: AsyncTopic) -> None:
    async def story() -> None:
        id = await topic.publish({"n": 0}, id="1-1")
        assert id == "1-1"
        ids = await fill(topic, MANY, start=1)
        assert [number(message) async for message in topic.read()] == list(range(MANY + 1))
        assert [message.id async for message in topic.read(last=2, reverse=True)] == ids[:-3:-1]
        assert [number(message) async for message in topic.read(since=ids[4], until=ids[6])] == [5, 6, 7]
        assert [number(message) async for message in topic.read(since=timedelta(hours=1), count=2)] == [1, 2]
        with pytest.raises(BadTopic):
            topic.read(since="never")
        with pytest.raises(BadTopic):
            await topic.publish("x", id="1-1")

    run(story)


def test_a_full_disk_refuses(topic: AsyncTopic, files: FaultyFiles) -> None:
    async def story() -> None:
        await topic.publish("before")
        files.fail("append", error=errno.ENOSPC, times=10**9)
        with pytest.raises(DiskFull):
            await topic.publish("refused")
        with pytest.raises(DiskFull):
            await topic.publish_many(["refused"])
        files.heal()
        assert [message.value async for message in topic.read()] == [b"before"]

    run(story)


def test_cancelling_a_read_loses_no_message(topic: AsyncTopic, plain: NamedTopic) -> None:
    async def story() -> None:
        await fill(topic, MANY)
        reading, got, lock = topic.read(), list[int](), plain.make().lock
        for page in range(3):
            with lock:  # the thread that reads has to wait, so it is cancelled under way
                step = asyncio.ensure_future(anext(reading))
                await asyncio.sleep(0)
                step.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await step
            most = min(1000, MANY - page * 1000)
            got += [number(await anext(reading)) for _ in range(most)]
        assert got == list(range(MANY))
        assert await anext(reading, None) is None

    run(story)


def test_cancelling_a_read_that_waits_for_the_disk_loses_no_message(files: FaultyFiles) -> None:
    async def story() -> None:
        with lamina.open("data", files=files, topics=lamina.LogOptions(sync=lamina.ALWAYS)) as data:
            topic = data.topic("t")
            await topic.aio.publish({"n": 0})
            begun, may_go_on = threading.Event(), threading.Event()

            def hold(operation: str, path: str) -> None:
                if operation == "sync":
                    begun.set()
                    may_go_on.wait(SOON)

            topic.make().add([b"n", b"1"])
            files.before = hold
            reading = topic.aio.read()
            step = asyncio.ensure_future(anext(reading))
            await until(begun.is_set)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            may_go_on.set()
            assert [number(message) async for message in reading] == [0, 1]

    run(story)


def test_what_comes_is_as_safe_as_the_policy_promises(files: FaultyFiles) -> None:
    async def story() -> None:
        with lamina.open("data", files=files, topics=lamina.LogOptions(sync=lamina.ALWAYS)) as data:
            topic = data.topic("t")
            async with topic.aio.subscribe("g") as messages:
                engine: Any = topic.make()
                assert engine.groups.log.synced >= engine.groups.newest_position() > 0
                engine.add([b"n", b"0"])
                assert number(await anext(messages)) == 0
                assert engine.log.synced >= engine.newest_position()
                assert engine.groups.log.synced >= engine.groups.newest_position()

    run(story)


def test_a_read_tells_what_is_gone(topic: AsyncTopic, plain: NamedTopic) -> None:
    async def story() -> None:
        ids = await fill(topic, 10)
        trim(plain, 4)
        reading = topic.read(since=ids[0])
        assert [number(message) async for message in reading] == [6, 7, 8, 9]
        assert reading.gap is not None and reading.gap.resumes_at == ids[6]

    run(story)


def test_what_was_not_acknowledged_comes_again_after_a_restart(files: FaultyFiles) -> None:
    async def story() -> None:
        with lamina.open("data", files=files) as data:
            topic = data.topic("t").aio
            await fill(topic, 50)
            async with topic.subscribe("g", since="start", batch=7) as messages:
                async for message in messages:
                    if number(message) % 2:
                        await message.ack()
                    if number(message) == 29:
                        break
        with lamina.open("data", files=files) as data:
            topic = data.topic("t").aio
            found = await drain(topic)
            assert [number(message) for message in found] == [n for n in range(50) if n >= 30 or not n % 2]
            assert (found[0].deliveries, found[-1].deliveries) == (2, 1)
            async with topic.subscribe("g") as messages:
                assert await messages.ack(found) == len(found)
            assert (await topic.groups())[0].pending == 0

    run(story)


def test_a_subscriber_waits_without_holding_up_the_loop(topic: AsyncTopic, plain: NamedTopic) -> None:
    async def story() -> None:
        async with topic.subscribe("g") as messages:
            waiting = asyncio.ensure_future(anext(messages))
            await until(lambda: is_waiting(plain))
            assert not waiting.done()
            await asyncio.to_thread(plain.publish, {"n": 7})  # from another thread
            assert number(await waiting) == 7

    run(story)


def test_waiting_ends_after_a_time_or_when_it_is_closed(topic: AsyncTopic, plain: NamedTopic) -> None:
    async def story() -> None:
        assert [message async for message in topic.subscribe("g", wait=0.02)] == []
        messages = topic.subscribe("g")
        waiting = asyncio.ensure_future(anext(messages, None))
        await until(lambda: is_waiting(plain))
        await messages.close()
        assert await waiting is None
        await until(lambda: not is_waiting(plain))

    run(story)


def test_closing_the_folder_wakes_who_waits(data: Data, topic: AsyncTopic, plain: NamedTopic) -> None:
    async def story() -> None:
        messages = topic.subscribe("g")
        waiting = asyncio.ensure_future(anext(messages))
        await until(lambda: is_waiting(plain))
        await asyncio.to_thread(data.close)
        with pytest.raises(LogClosed):
            await waiting
        with pytest.raises(LogClosed):
            await topic.publish("x")

    run(story)


def test_deleting_the_group_tells_who_waits(topic: AsyncTopic, plain: NamedTopic) -> None:
    async def story() -> None:
        messages = topic.subscribe("g")
        waiting = asyncio.ensure_future(anext(messages))
        await until(lambda: is_waiting(plain))
        assert await topic.delete_group("g")
        with pytest.raises(NoGroup):
            await waiting

    run(story)


def test_cancelling_a_subscriber_loses_no_message(topic: AsyncTopic) -> None:
    async def story() -> None:
        got, cancelled = list[int](), 0
        async with topic.subscribe("g", batch=10) as messages:
            for start in range(0, 200, 10):
                step = asyncio.ensure_future(anext(messages))
                for _ in range(start // 10 % 7):  # cancelled at this or that moment
                    await asyncio.sleep(0)
                await fill(topic, 10, start=start)
                cancelled += step.cancel()
                with suppress(asyncio.CancelledError):
                    got.append(number(await step))
            while len(got) < 200:
                got.append(number(await anext(messages)))
        assert got == list(range(200))
        assert cancelled

    run(story)


def test_a_gap_is_told_once_and_delivery_goes_on_behind_it(topic: AsyncTopic, plain: NamedTopic) -> None:
    async def story() -> None:
        await drain(topic)
        ids = await fill(topic, 10)
        trim(plain, 4)
        async with topic.subscribe("g", wait=0) as messages:
            with pytest.raises(Gap) as caught:
                await anext(messages)
            assert caught.value.resumes_at == ids[6]
            assert [number(message) async for message in messages] == [6, 7, 8, 9]

    run(story)


def test_subscribers_share_the_work_and_claim_from_the_dead(topic: AsyncTopic) -> None:
    async def story() -> None:
        handled = Counter[int]()
        everything = asyncio.Event()

        async def handle(consumer: str) -> None:
            async with topic.subscribe("g", consumer=consumer, since="start", batch=5, claim_idle=0.2) as messages:
                async for message in messages:
                    if consumer == "dies" and len(handled) > 20:
                        return
                    handled[number(message)] += 1
                    await message.ack()
                    if len(handled) == 200:
                        everything.set()

        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(handle(consumer)) for consumer in ("dies", "a", "b")]
            for start in range(0, 200, 50):
                await fill(topic, 50, start=start)
            await everything.wait()
            for worker in workers:
                worker.cancel()
        assert set(handled) == set(range(200))
        assert (await topic.groups())[0].pending == 0

    run(story)


def test_autoack_acknowledges_when_the_next_is_asked_for(topic: AsyncTopic) -> None:
    async def story() -> None:
        await fill(topic, 3)
        assert len(await drain(topic, since="start", autoack=True)) == 3
        assert await drain(topic) == []
        plan = await topic.reset("g", "start", dry_run=True)
        assert (plan.again, plan.pending) == (3, 0)
        assert (await topic.stats()).length == 3

    run(story)
