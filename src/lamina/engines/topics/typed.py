"""A topic whose messages are objects of one class: ``lm.topic("orders", Order)``.

    class Order(msgspec.Struct):
        item: str
        count: int = 1

    orders = lm.topic("orders", Order)
    orders.publish(Order("tea", 2))
    with orders.subscribe("mailers") as messages:
        for message in messages:
            send(message.body.item)                 # an Order
            message.ack()

The class is a msgspec.Struct, a dataclass or a TypedDict; each attribute is a field of the message (typed_fields.py),
so that others read it as any message. A message that does not fit is there like the others: only its ``body`` raises
``BadBody``, which says why, and whoever reads may acknowledge it and go on with the next.
Works the same in a folder and on a server; ``.aio`` has the same for coroutines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import Message, Moment
from lamina.errors import Gap

if TYPE_CHECKING:
    from lamina.engines.topics.subscription import Delivered
    from lamina.engines.topics.typed_aio import AsyncPlainTopic, AsyncTypedTopic
    from lamina.engines.topics.typed_fields import Body
    from lamina.engines.topics.views import GroupView, Reset, TopicView

T = TypeVar("T")


class PlainReading(Protocol):
    """What reading a topic gives."""

    @property
    def gap(self) -> Gap | None: ...
    def __next__(self) -> Message: ...


class PlainSubscription(Protocol):
    """What subscribing to a topic gives."""

    def __next__(self) -> Delivered: ...
    def ack(self, messages: Iterable[Message]) -> int: ...
    def close(self) -> None: ...


class PlainTopic(Protocol):
    """A topic of a folder, or of a server."""

    name: str

    @property
    def aio(self) -> AsyncPlainTopic: ...
    def publish(self, message: Mapping[bytes, Any], *, id: str | None = None) -> str: ...
    def publish_many(self, messages: Iterable[Mapping[bytes, Any]]) -> list[str]: ...
    def read(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        last: int | None = None,
        reverse: bool = False,
        count: int | None = None,
    ) -> PlainReading: ...
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
    ) -> PlainSubscription: ...
    def stats(self) -> TopicView: ...
    def groups(self) -> list[GroupView]: ...
    def reset(self, group: str, to: Moment, *, dry_run: bool = False) -> Reset: ...
    def delete_group(self, group: str) -> bool: ...


class TypedTopic(Generic[T]):
    """One topic, of objects. Threads: every method is safe from any thread."""

    def __init__(self, plain: PlainTopic, kind: type[T]) -> None:
        """Use ``lm.topic(name, kind)``. Raises: TypeError for a class that cannot be in messages."""
        from lamina.engines.topics.typed_fields import Body

        self.plain = plain
        """The same topic without types."""
        self.name, self.kind = plain.name, kind
        self.format: Body[T] = Body(kind)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.format.name}>"

    @property
    def aio(self) -> AsyncTypedTopic[T]:
        """The same for coroutines."""
        from lamina.engines.topics.typed_aio import AsyncTypedTopic

        return AsyncTypedTopic(self)

    def publish(self, body: T, *, id: str | None = None) -> str:
        """Raises: TypeError for an object of another class; BadBody for a value that cannot be; as ``NamedTopic``."""
        return self.plain.publish(self.format.write(body, self.name), id=id)

    def publish_many(self, bodies: Iterable[T]) -> list[str]:
        """Raises: as ``publish``, when those before it are published."""
        return self.plain.publish_many(self.format.write(body, self.name) for body in bodies)

    def read(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        last: int | None = None,
        reverse: bool = False,
        count: int | None = None,
    ) -> TypedReading[T]:
        """As ``NamedTopic.read``."""
        return TypedReading(self, self.plain.read(since=since, until=until, last=last, reverse=reverse, count=count))

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
    ) -> TypedSubscription[T]:
        """As ``NamedTopic.subscribe``."""
        plain = self.plain.subscribe(
            group, consumer=consumer, since=since, batch=batch, wait=wait, autoack=autoack, claim_idle=claim_idle
        )
        return TypedSubscription(self, plain)

    def stats(self) -> TopicView:
        return self.plain.stats()

    def groups(self) -> list[GroupView]:
        return self.plain.groups()

    def reset(self, group: str, to: Moment, *, dry_run: bool = False) -> Reset:
        return self.plain.reset(group, to, dry_run=dry_run)

    def delete_group(self, group: str) -> bool:
        return self.plain.delete_group(group)


class TypedMessage(Generic[T]):
    """One message, with an object for a body."""

    __slots__ = ("_body", "_topic", "plain")

    def __init__(self, topic: TypedTopic[T], plain: Message) -> None:
        self._topic = topic
        self.plain = plain
        """The message as others see it: its fields."""
        self._body: list[T] = []

    @property
    def body(self) -> T:
        """The object; the same at each call. Raises: BadBody if the message does not fit, naming field and reason."""
        if not self._body:
            self._body.append(self._topic.format.read(self.plain.fields, self._topic.name, self.plain.id))
        return self._body[0]

    @property
    def id(self) -> str:
        return self.plain.id

    @property
    def entry_id(self) -> EntryId:
        return self.plain.entry_id

    @property
    def time_ms(self) -> int:
        return self.plain.time_ms

    @property
    def time(self) -> datetime:
        """When it was published, as ``Message.time``."""
        return self.plain.time

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedMessage) and self.plain == other.plain

    def __hash__(self) -> int:
        return hash(self.plain)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


class TypedDelivered(TypedMessage[T]):
    """A message in the hands of a consumer."""

    __slots__ = ("_delivered",)

    def __init__(self, topic: TypedTopic[T], plain: Delivered) -> None:
        super().__init__(topic, plain)
        self._delivered = plain

    @property
    def deliveries(self) -> int:
        """How often it was given to somebody, this time included."""
        return self._delivered.deliveries

    def ack(self) -> None:
        """It is done with, whether or not its body fits. Raises: as ``Delivered.ack``."""
        self._delivered.ack()


class TypedReading(Iterator[TypedMessage[T]]):
    """``Reading``, of objects."""

    def __init__(self, topic: TypedTopic[T], plain: PlainReading) -> None:
        self._topic, self._plain = topic, plain

    @property
    def gap(self) -> Gap | None:
        """As ``Reading.gap``."""
        return self._plain.gap

    def __next__(self) -> TypedMessage[T]:
        return TypedMessage(self._topic, next(self._plain))


class TypedSubscription(Iterator[TypedDelivered[T]]):
    """``Subscription``, of objects."""

    def __init__(self, topic: TypedTopic[T], plain: PlainSubscription) -> None:
        self._topic, self._plain = topic, plain

    def __next__(self) -> TypedDelivered[T]:
        return TypedDelivered(self._topic, next(self._plain))

    def ack(self, messages: Iterable[TypedMessage[T]]) -> int:
        """As ``Subscription.ack``."""
        return self._plain.ack([message.plain for message in messages])

    def close(self) -> None:
        """As ``Subscription.close``."""
        self._plain.close()

    def __enter__(self) -> TypedSubscription[T]:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()
