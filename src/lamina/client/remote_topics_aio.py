"""The topics of a server for coroutines: the methods of remote_topics.py, awaited. No thread is taken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from lamina.client import topic_talks as talks
from lamina.client.lines_aio import AsyncLines, AsyncRespClient, hold
from lamina.client.remote_subscription import PAUSE_S, Deadline, LazyAcks
from lamina.client.remote_topics import check_moment
from lamina.client.talking import Talk
from lamina.client.topic_feed import LONGEST_WAIT_S, RemoteFeed
from lamina.client.topic_reading import RemotePages, RemoteTail
from lamina.engines.topics.aio import AsyncDelivered
from lamina.engines.topics.api import CONSUMER, Seconds, to_seconds
from lamina.engines.topics.messages import Message, Moment, Publishable, to_name
from lamina.engines.topics.views import GroupView, Reset, TopicView
from lamina.errors import Disconnected, Gap, LaminaError, NoGroup

if TYPE_CHECKING:
    from lamina.client.remote_topics import RemoteTopic, RemoteTopics


class AsyncRemoteTopics:
    """``topics.aio``."""

    def __init__(self, topics: RemoteTopics) -> None:
        self._topics = topics
        self._do = topics.async_lines.do

    def topic(self, name: str) -> AsyncRemoteTopic:
        return self._topics.topic(name).aio

    async def names(self) -> list[str]:
        return await self._do(talks.names())

    async def delete(self, name: str) -> bool:
        return await self._do(talks.delete(to_name(name)))


class AsyncRemoteTopic:
    """``topic.aio``. A coroutine that is cancelled while it publishes does not know if that was done."""

    def __init__(self, topic: RemoteTopic) -> None:
        self._topic = topic
        self.name = topic.name
        self._lines = topic.topics.async_lines
        self._do = self._lines.do

    async def publish(self, message: Publishable, *, id: str | None = None) -> str:
        return await self._do(self._topic.publishing(message, id))

    async def publish_many(self, messages: Iterable[Publishable]) -> list[str]:
        return await self._do(talks.publish_many(self._topic.raw_name, messages))

    def read(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        last: int | None = None,
        reverse: bool = False,
        count: int | None = None,
    ) -> AsyncRemoteReading:
        name = self._topic.raw_name
        return AsyncRemoteReading(self._lines, RemotePages(name, since, until, last, reverse=reverse, count=count))

    def follow(self, *, since: Moment | None = None, wait: Seconds | None = None) -> AsyncIterator[Message]:
        """From now on is from when the first message is asked for."""
        return _follow(self._lines, RemoteTail(self._topic.raw_name, since), to_seconds("wait", wait))

    def subscribe(
        self,
        group: str,
        *,
        consumer: str = CONSUMER,
        since: Moment | None = None,
        batch: int = 100,
        wait: Seconds | None = None,
        autoack: bool = False,
        claim_idle: Seconds | None = None,
    ) -> AsyncRemoteSubscription:
        """The group is made when the first message is asked for."""
        feed, seconds = self._topic.feed(group, consumer, batch, claim_idle), to_seconds("wait", wait)
        check_moment(since)
        subscription = AsyncRemoteSubscription(self._topic.topics, feed, since, wait=seconds, autoack=autoack)
        self._topic.topics.subscribed(feed.key, subscription)
        return subscription

    async def stats(self) -> TopicView:
        return await self._do(talks.stats(self._topic.raw_name))

    async def groups(self) -> list[GroupView]:
        return await self._do(talks.groups(self._topic.raw_name))

    async def reset(self, group: str, to: Moment, *, dry_run: bool = False) -> Reset:
        return await self._do(self._topic.resetting(group, to, dry_run))

    async def delete_group(self, group: str) -> bool:
        return await self._do(talks.delete_group(self._topic.raw_name, to_name(group)))


class AsyncRemoteReading(AsyncIterator[Message]):
    """``RemoteReading`` for coroutines. Cancelling loses no message: the next call gives it."""

    def __init__(self, lines: AsyncLines, pages: RemotePages) -> None:
        self._lines = lines
        self._pages = pages
        self._page: Iterator[Message] = iter(())

    @property
    def gap(self) -> Gap | None:
        """As ``RemoteReading.gap``, once a message was asked for."""
        return self._pages.gap

    async def __anext__(self) -> Message:
        for message in self._page:
            return message
        self._page = iter(await self._lines.do(self._pages.next()))
        for message in self._page:
            return message
        raise StopAsyncIteration


class AsyncRemoteSubscription(AsyncIterator[AsyncDelivered]):
    """``RemoteSubscription`` for coroutines. One at a time iterates. Cancelling loses no message: the connection on
    which it waited is closed, and the next call gives what may have been under way.
    """

    def __init__(
        self, topics: RemoteTopics, feed: RemoteFeed, since: Moment | None, *, wait: float | None, autoack: bool
    ) -> None:
        self._topics, self._lines = topics, topics.async_lines
        self._feed = feed
        self._name, self._group, _ = feed.key
        self._since = since
        self._has_group = False
        self._wait = wait
        self._acks = LazyAcks() if autoack else None
        self._waits_on: AsyncRespClient | None = None
        self._closing = asyncio.Event()

    async def __anext__(self) -> AsyncDelivered:
        now = time.monotonic()
        patience = Deadline(self._wait, self._lines.endpoint.retry_s, now)
        is_due = self._acks is not None and self._acks.is_due(now)
        while not self._closing.is_set():
            try:
                await self._ensure_group()
                if is_due:
                    await self._send_acks()
                    is_due = False
                if self._feed.is_old:
                    await self._hold(self._feed.check())
                ready = self._feed.take()
                if ready is not None:
                    if self._acks is not None:
                        self._acks.hand_out(ready[0])
                    return AsyncDelivered(self, *ready)
                await self._send_acks()
                left = patience.left(time.monotonic())
                if not await self._hold(self._feed.fetch(left)) and left <= 0:
                    raise StopAsyncIteration
            except (StopAsyncIteration, Gap, NoGroup):
                raise
            except Disconnected as problem:
                self._feed.broke()
                if self._closing.is_set():
                    break
                patience.check(problem, time.monotonic())
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), PAUSE_S)
            except BaseException as problem:
                self._feed.broke()
                if self._closing.is_set() and isinstance(problem, LaminaError):
                    break
                raise
        raise StopAsyncIteration

    async def _ensure_group(self) -> None:
        if not self._has_group:
            await self._lines.do(talks.ensure_group(self._name, self._group, self._since))
            self._has_group = True

    async def _hold(self, talk: Talk[bool] | Talk[None]) -> bool:
        async with self._lines.line() as line:
            self._waits_on = line
            try:
                return bool(await hold(talk, line))
            finally:
                self._waits_on = None

    async def _send_acks(self) -> None:
        due = [] if self._acks is None else self._acks.due(time.monotonic())
        if self._acks is not None and due:
            await self._lines.do(talks.ack(self._name, self._group, due))
            self._feed.acked(due)
            self._acks.sent(due)

    async def ack(self, messages: Iterable[Message]) -> int:
        acked = [message.entry_id for message in messages]
        count = await self._lines.do(talks.ack(self._name, self._group, acked))
        self._feed.acked(acked)
        return count

    async def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        self._topics.unsubscribe(self._feed.key, self)
        if self._waits_on is not None:
            self._waits_on.close()
            return
        with suppress(LaminaError):  # they come again
            await self._send_acks()

    async def __aenter__(self) -> AsyncRemoteSubscription:
        try:
            await self._ensure_group()
        except BaseException:
            self._topics.unsubscribe(self._feed.key, self)
            raise
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()


async def _follow(lines: AsyncLines, tail: RemoteTail, wait: float | None) -> AsyncIterator[Message]:
    while True:
        end = None if wait is None else time.monotonic() + wait
        while True:
            left = LONGEST_WAIT_S if end is None else min(end - time.monotonic(), LONGEST_WAIT_S)
            page = await lines.do(tail.next(max(round(left * 1000), 0)))
            if page:
                break
            if left <= 0:
                return
        for message in page:
            yield message
