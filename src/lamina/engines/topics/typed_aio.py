"""A topic of objects for coroutines: the methods of ``TypedTopic``, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from lamina.engines.topics.messages import Message, Moment
from lamina.engines.topics.typed import TypedMessage, TypedTopic
from lamina.errors import Gap

if TYPE_CHECKING:
    from lamina.engines.topics.aio import AsyncDelivered
    from lamina.engines.topics.views import GroupView, Reset, TopicView

T = TypeVar("T")


class AsyncPlainReading(Protocol):
    """What reading a topic gives."""

    @property
    def gap(self) -> Gap | None: ...
    async def __anext__(self) -> Message: ...


class AsyncPlainSubscription(Protocol):
    """What subscribing to a topic gives."""

    async def __anext__(self) -> AsyncDelivered: ...
    async def ack(self, messages: Iterable[Message]) -> int: ...
    async def close(self) -> None: ...
    async def __aenter__(self) -> Any: ...


class AsyncPlainTopic(Protocol):
    """``aio`` of a topic of a folder, or of a server."""

    async def publish(self, message: Mapping[bytes, Any], *, id: str | None = None) -> str: ...
    async def publish_many(self, messages: Iterable[Mapping[bytes, Any]]) -> list[str]: ...
    def read(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        last: int | None = None,
        reverse: bool = False,
        count: int | None = None,
    ) -> AsyncPlainReading: ...
    def subscribe(
        self,
        group: str,
        *,
        consumer: str = "default",
        since: Moment | None = None,
        batch: int = 100,
        wait: float | timedelta | None = None,
        autoack: bool = False,
        claim_idle: float | timedelta | None = None,
    ) -> AsyncPlainSubscription: ...
    async def stats(self) -> TopicView: ...
    async def groups(self) -> list[GroupView]: ...
    async def reset(self, group: str, to: Moment, *, dry_run: bool = False) -> Reset: ...
    async def delete_group(self, group: str) -> bool: ...


class AsyncTypedTopic(Generic[T]):
    """``topic.aio``."""

    def __init__(self, topic: TypedTopic[T]) -> None:
        self._topic = topic
        self.plain: AsyncPlainTopic = topic.plain.aio
        self.name, self.kind = topic.name, topic.kind

    async def publish(self, body: T, *, id: str | None = None) -> str:
        return await self.plain.publish(self._topic.format.write(body, self.name), id=id)

    async def publish_many(self, bodies: Iterable[T]) -> list[str]:
        return await self.plain.publish_many(self._topic.format.write(body, self.name) for body in bodies)

    def read(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        last: int | None = None,
        reverse: bool = False,
        count: int | None = None,
    ) -> AsyncTypedReading[T]:
        plain = self.plain.read(since=since, until=until, last=last, reverse=reverse, count=count)
        return AsyncTypedReading(self._topic, plain)

    def subscribe(
        self,
        group: str,
        *,
        consumer: str = "default",
        since: Moment | None = None,
        batch: int = 100,
        wait: float | timedelta | None = None,
        autoack: bool = False,
        claim_idle: float | timedelta | None = None,
    ) -> AsyncTypedSubscription[T]:
        plain = self.plain.subscribe(
            group, consumer=consumer, since=since, batch=batch, wait=wait, autoack=autoack, claim_idle=claim_idle
        )
        return AsyncTypedSubscription(self._topic, plain)

    async def stats(self) -> TopicView:
        return await self.plain.stats()

    async def groups(self) -> list[GroupView]:
        return await self.plain.groups()

    async def reset(self, group: str, to: Moment, *, dry_run: bool = False) -> Reset:
        return await self.plain.reset(group, to, dry_run=dry_run)

    async def delete_group(self, group: str) -> bool:
        return await self.plain.delete_group(group)


class AsyncTypedDelivered(TypedMessage[T]):
    """A message in the hands of a coroutine."""

    __slots__ = ("_delivered",)

    def __init__(self, topic: TypedTopic[T], plain: AsyncDelivered) -> None:
        super().__init__(topic, plain)
        self._delivered = plain

    @property
    def deliveries(self) -> int:
        return self._delivered.deliveries

    async def ack(self) -> None:
        await self._delivered.ack()


class AsyncTypedReading(AsyncIterator[TypedMessage[T]]):
    """``TypedReading`` for coroutines."""

    def __init__(self, topic: TypedTopic[T], plain: AsyncPlainReading) -> None:
        self._topic, self._plain = topic, plain

    @property
    def gap(self) -> Gap | None:
        return self._plain.gap

    async def __anext__(self) -> TypedMessage[T]:
        return TypedMessage(self._topic, await self._plain.__anext__())


class AsyncTypedSubscription(AsyncIterator[AsyncTypedDelivered[T]]):
    """``TypedSubscription`` for coroutines."""

    def __init__(self, topic: TypedTopic[T], plain: AsyncPlainSubscription) -> None:
        self._topic, self._plain = topic, plain

    async def __anext__(self) -> AsyncTypedDelivered[T]:
        return AsyncTypedDelivered(self._topic, await self._plain.__anext__())

    async def ack(self, messages: Iterable[TypedMessage[T]]) -> int:
        return await self._plain.ack([message.plain for message in messages])

    async def close(self) -> None:
        await self._plain.close()

    async def __aenter__(self) -> AsyncTypedSubscription[T]:
        await self._plain.__aenter__()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()
