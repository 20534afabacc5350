"""A topic for coroutines: the methods of ``NamedTopic``, awaited.

    async with topic.aio.subscribe("mailers") as messages:
        async for message in messages:
            await message.ack()

None blocks the loop. Files are read, and topics opened, in a thread; waiting takes none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from lamina.engines.topics.api import CONSUMER, to_seconds
from lamina.engines.topics.feed import Feed
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import Message, Moment, Publishable
from lamina.engines.topics.reading import Pages
from lamina.engines.topics.topic import Entry, Topic
from lamina.engines.topics.views import GroupView, Reset, TopicView, show_id
from lamina.errors import Gap, LaminaError

if TYPE_CHECKING:
    from lamina.engines.topics.api import NamedTopic, Seconds, TopicFolder

_Page = tuple[Topic, list[Entry], int]


class AsyncTopic:
    """``topic.aio``."""

    def __init__(self, topic: NamedTopic) -> None:
        self._topic = topic
        self.name = topic.name

    async def _make(self) -> Topic:
        return self._topic.make() if self._topic.is_open else await asyncio.to_thread(self._topic.make)

    async def publish(self, message: Publishable, *, id: str | None = None) -> str:
        topic = await self._make()
        entry_id, position = self._topic.add(topic, message, id)
        await topic.settled(position)
        return show_id(entry_id)

    async def publish_many(self, messages: Iterable[Publishable]) -> list[str]:
        topic = await self._make()
        added, positions, state = list[str](), [0], topic.state
        try:
            for message in messages:
                entry_id, position = self._topic.add(topic, message)
                positions.append(position)
                added.append(show_id(entry_id))
        finally:
            await topic.settled(positions[-1])
        if topic.state is not state:  # records were refused meanwhile: perhaps ours
            for position in positions:
                await topic.settled(position)
        return added

    def read(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        last: int | None = None,
        reverse: bool = False,
        count: int | None = None,
    ) -> AsyncReading:
        wanted = self._topic.range(since, until, last, reverse=reverse, count=count)
        return AsyncReading(lambda: Pages(self._topic.find, wanted))

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
    ) -> AsyncSubscription:
        """The group is made when the first message is asked for."""
        feed = self._topic.feed(group, consumer, batch, claim_idle)
        seconds = to_seconds("wait", wait)
        subscription = AsyncSubscription(self._topic, feed, group, since, wait=seconds, autoack=autoack)
        self._topic.folder.subscribed(feed.key, subscription)
        return subscription

    async def stats(self) -> TopicView:
        return await asyncio.to_thread(self._topic.stats)

    async def groups(self) -> list[GroupView]:
        return await asyncio.to_thread(self._topic.groups)

    async def reset(self, group: str, to: Moment, *, dry_run: bool = False) -> Reset:
        return await asyncio.to_thread(self._topic.reset, group, to, dry_run=dry_run)

    async def delete_group(self, group: str) -> bool:
        return await asyncio.to_thread(self._topic.delete_group, group)


class AsyncReading(AsyncIterator[Message]):
    """``Reading`` for coroutines. Cancelling loses no message: the next call gives it."""

    def __init__(self, begin: Callable[[], Pages]) -> None:
        self._begin = begin
        self._pages: Pages | None = None
        self._page: Iterator[Entry] = iter(())
        self._under_way: asyncio.Future[_Page | None] | None = None

    @property
    def gap(self) -> Gap | None:
        """As ``Reading.gap``, once a message was asked for."""
        return None if self._pages is None else self._pages.gap

    async def __anext__(self) -> Message:
        while True:
            for entry in self._page:
                return Message(*entry)
            page = await self._next_page()
            if page is None:
                raise StopAsyncIteration
            topic, entries, position = page
            try:
                await topic.settled(position)
            except (LaminaError, asyncio.CancelledError):
                assert self._pages is not None
                self._pages.step_back()
                raise
            self._page = iter(entries)

    async def _next_page(self) -> _Page | None:
        """Cancelled, the thread reads on: what it finds is for the next call."""
        if self._under_way is None:
            self._under_way = asyncio.ensure_future(asyncio.to_thread(self._read_page))
        try:
            page = await asyncio.shield(self._under_way)
        except asyncio.CancelledError:
            if self._under_way.cancelled():  # the loop is closing
                self._under_way = None
            raise
        except BaseException:
            self._under_way = None
            raise
        self._under_way = None
        return page

    def _read_page(self) -> _Page | None:
        if self._pages is None:
            self._pages = self._begin()
        return self._pages.next()


class AsyncSubscription(AsyncIterator["AsyncDelivered"]):
    """``Subscription`` for coroutines. One at a time iterates. Cancelling loses no message: the next call gives it."""

    def __init__(
        self,
        topic: NamedTopic,
        feed: Feed,
        group: str,
        since: Moment | None,
        *,
        wait: float | None,
        autoack: bool,
    ) -> None:
        self._topic = topic
        self._folder: TopicFolder = topic.folder
        self._feed = feed
        self._group, self._since = group, since
        self._has_group = False
        self._wait = wait
        self._autoack = autoack
        self._in_hand: EntryId | None = None
        self._told = asyncio.Event()
        self._is_closed = False

    async def __anext__(self) -> AsyncDelivered:
        self._folder.check_open()
        await self._ensure_group()
        if self._in_hand is not None:
            self._feed.ack([self._in_hand])
            self._in_hand = None
        loop, clock = asyncio.get_running_loop(), self._folder.clock
        end = None if self._wait is None else clock.monotonic() + self._wait

        told = self._told

        def tell() -> None:  # a thread may have it for longer than anybody has us
            wake(loop, told)

        while True:
            self._told.clear()
            if self._is_closed:
                raise StopAsyncIteration
            await self._settle()
            ready = self._feed.take()
            if ready is not None:
                self._in_hand = ready[0] if self._autoack else None
                return AsyncDelivered(self, *ready)
            try:
                if await asyncio.to_thread(self._feed.fetch, tell):
                    continue
                self._feed.source().groups.push()
                left = None if end is None else end - clock.monotonic()
                if left is not None and left <= 0:
                    raise StopAsyncIteration
                claims_in = self._feed.claims_in()
                with self._folder.woken_at_close(tell), suppress(TimeoutError):
                    async with asyncio.timeout(
                        min((each for each in (left, claims_in) if each is not None), default=None)
                    ):
                        await self._told.wait()
            finally:
                self._feed.leave(tell)

    async def _ensure_group(self) -> None:
        if not self._has_group:
            ensure = self._topic.ensure_group
            topic, topic_position, position = await asyncio.to_thread(ensure, self._group, self._since)
            await topic.settled(topic_position)
            await topic.groups.settled(position)
            self._has_group = True

    async def _settle(self) -> None:
        waits = self._feed.unsettled()
        if waits is None:
            return
        topic, topic_position, position = waits
        try:
            await topic.settled(topic_position)
            await topic.groups.settled(position)
        except LaminaError:
            self._feed.was_refused()
            raise
        self._feed.is_settled()

    async def ack(self, messages: Iterable[Message]) -> int:
        groups, count, position = self._feed.ack([message.entry_id for message in messages])
        await groups.settled(position)
        return count

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._told.set()
            self._folder.unsubscribe(self)

    async def __aenter__(self) -> AsyncSubscription:
        await self._ensure_group()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()


class AsyncAcknowledges(Protocol):
    """Whoever delivered a message: a subscription here, or to the topic of a server."""

    async def ack(self, messages: Iterable[Message]) -> int: ...


class AsyncDelivered(Message):
    """A message in the hands of a coroutine."""

    __slots__ = ("_subscription", "deliveries")

    def __init__(self, subscription: AsyncAcknowledges, id: EntryId, flat: Sequence[bytes], deliveries: int) -> None:
        super().__init__(id, flat)
        self._subscription = subscription
        self.deliveries = deliveries

    async def ack(self) -> None:
        await self._subscription.ack([self])


def wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event from any thread; a loop that was closed has nobody left to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)
