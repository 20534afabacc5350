"""Topics inside your process: ``lamina.open(folder).topic(name)``.

    topic = data.topic("orders")
    id = topic.publish({"item": "tea", "count": 2})
    for message in topic.read(since=timedelta(hours=1)):        # or an id, a datetime, seconds since 1970
        print(message.time, message["item"])

Every call returns when what it says is as safe as the sync policy promises. ``topic.aio`` has the same for coroutines,
subscription.py the reading that goes on where it left off.
Threads: every method is safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from lamina.engines.topics import ids, views
from lamina.engines.topics.feed import Feed
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import (
    END,
    START,
    Moment,
    Publishable,
    ending_at,
    parse_id,
    show_name,
    starting_at,
    to_flat,
    to_name,
)
from lamina.engines.topics.reading import Pages, Range, Reading
from lamina.engines.topics.retention import Retentions
from lamina.engines.topics.subscription import Subscription
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.engines.topics.upkeep import Upkeep
from lamina.engines.topics.views import GroupView, Reset, TopicView
from lamina.errors import BadTopic, LogClosed
from lamina.log.folders import folder_name
from lamina.log.history import History
from lamina.log.teardown import Teardown

if TYPE_CHECKING:
    from lamina.engines.topics.aio import AsyncTopic

Seconds = float | timedelta

CONSUMER: Final = "default"
"""The consumer of a group that has only one."""
_MOST_AT_ONCE: Final = 10_000


class TopicFolder:
    """All topics of a data folder."""

    def __init__(self, topics: Topics, retentions: Retentions | None = None, history: History | None = None) -> None:
        """Use ``lamina.open(folder).topics``."""
        self.engine = topics
        self.upkeep = Upkeep(topics, retentions, history=history)
        self.upkeep.start()
        self.clock = topics.clock
        # By the subscription itself: a thread that reads for it may have its feed for longer than anybody has it.
        self._subscribed: WeakValueDictionary[tuple[bytes, bytes, bytes], object] = WeakValueDictionary()
        self._wakers: set[Callable[[], object]] = set()
        self._is_closed = False

    def topic(self, name: str) -> NamedTopic:
        """The topic of that name; a new one exists from its first message, or its first group, on. Raises: BadName."""
        return NamedTopic(self, name)

    def names(self) -> list[str]:
        """Of all topics, sorted. Raises: what opening one does."""
        self.check_open()
        return [show_name(name) for name in self.engine.names()]

    def delete(self, name: str) -> bool:
        """Delete a topic with its groups, for good. False if there is none. Raises: DiskError."""
        self.check_open()
        return self.engine.delete(to_name(name))

    def close(self) -> None:
        """Write and sync everything; who waits is told. Raises: what kept records out of a log."""
        self._is_closed = True
        with Teardown(self.engine.folder) as teardown:
            for wake in list(self._wakers):
                teardown.try_to(wake, "who waits is not woken")
            teardown.step(self.upkeep.stop)
            teardown.step(self.engine.close)

    @contextmanager
    def woken_at_close(self, wake: Callable[[], object]) -> Iterator[None]:
        """Around a wait. Raises: LogClosed, when it is over, if that was why."""
        self._wakers.add(wake)
        try:
            self.check_open()
            yield
        finally:
            self._wakers.discard(wake)
        self.check_open()

    def check_open(self) -> None:
        """Raises: LogClosed."""
        if self._is_closed:
            raise LogClosed("the topics are closed", hint="open the data folder again")

    def subscribed(self, key: tuple[bytes, bytes, bytes], subscription: object) -> None:
        """Topic, group and consumer have this subscription, as long as somebody has it.

        Raises: BadTopic if they have one already.
        """
        with self.engine.lock:
            if key in self._subscribed:
                name, group = show_name(key[2]), show_name(key[1])
                hint = "close it first, or give each subscription a consumer of its own"
                raise BadTopic(f"the consumer {name!r} of the group {group!r} is subscribed already", hint=hint)
            self._subscribed[key] = subscription

    def unsubscribe(self, subscription: object) -> None:
        with self.engine.lock:
            for key in [key for key, known in self._subscribed.items() if known is subscription]:
                del self._subscribed[key]


class NamedTopic:
    """One topic, by its name. It need not exist yet."""

    def __init__(self, folder: TopicFolder, name: str) -> None:
        """Use ``lamina.open(folder).topic(name)``."""
        self.name = name
        self.folder = folder
        self.raw_name: Final = to_name(name)
        folder_name(self.raw_name)

    def __repr__(self) -> str:
        return f"<NamedTopic {self.name}>"

    @property
    def aio(self) -> AsyncTopic:
        """The same for coroutines."""
        from lamina.engines.topics.aio import AsyncTopic

        return AsyncTopic(self)

    @property
    def is_open(self) -> bool:
        """To find it takes no time."""
        return self.folder.engine.if_open(self.raw_name) is not None

    def find(self) -> Topic | None:
        """The engine of the topic, None if it does not exist. Raises: LogClosed; what opening one does."""
        self.folder.check_open()
        return self.folder.engine.get(self.raw_name)

    def make(self) -> Topic:
        """The engine of the topic, which is made if need be. Raises: LogClosed; what opening one does."""
        self.folder.check_open()
        return self.folder.engine.get_or_make(self.raw_name)

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(self, message: Publishable, *, id: str | None = None) -> str:
        """Add a message: fields by name, or text or bytes alone, which become the field ``value``. Returns its id.

        ``id``: larger than that of every message before it; else it is the time, and grows.
        Raises: BadTopic, RecordTooLarge, DiskFull, StorageError; then it was not published.
        """
        topic = self.make()
        entry_id, position = self.add(topic, message, id)
        topic.settle(position)
        return show_id(entry_id)

    def publish_many(self, messages: Iterable[Publishable]) -> list[str]:
        """Add many messages with one wait for the disk. Returns their ids.

        Raises: as ``publish``; messages before the one that could not be stay published.
        """
        topic = self.make()
        added, positions, state = list[str](), [0], topic.state
        try:
            for message in messages:
                entry_id, position = self.add(topic, message)
                positions.append(position)
                added.append(show_id(entry_id))
        finally:
            topic.settle(positions[-1])
        if topic.state is not state:  # records were refused meanwhile: perhaps ours
            for position in positions:
                topic.settle(position)
        return added

    def add(self, topic: Topic, message: Publishable, id: str | None = None) -> tuple[EntryId, int]:
        """Without waiting for the disk: id and position."""
        flat = to_flat(message, self.folder.engine.options.max_payload)
        wanted = None if id is None else parse_id(id)
        with topic.lock:
            if wanted is not None and wanted <= topic.state.last_id:
                raise BadTopic(f"{id} is not behind the last id, {show_id(topic.state.last_id)}")
            return topic.add(flat, wanted)

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        last: int | None = None,
        reverse: bool = False,
        count: int | None = None,
    ) -> Reading:
        """Iterate over the messages there are, ``since`` and ``until`` included: an id, a datetime, a timedelta before
        now, or seconds since 1970. ``last``: only the newest so many; ``count``: only the first so many that come;
        ``reverse``: newest first. What is published meanwhile is not among them.

        If messages were asked for that are gone, reading begins with the oldest there is, and ``.gap`` says so.
        Raises: BadTopic.
        """
        return Reading(Pages(self.find, self.range(since, until, last, reverse=reverse, count=count)))

    def range(
        self, since: Moment | None, until: Moment | None, last: int | None, *, reverse: bool, count: int | None
    ) -> Range:
        """Raises: BadTopic."""
        wanted = Range(last=last, count=count, newest_first=reverse)
        now = self.folder.clock.now_ns()
        if since is not None and since != START:
            wanted.start = starting_at(since, now)
        if until is not None and until != END:
            wanted.end = ending_at(until, now)
        return wanted

    # -- subscribing -------------------------------------------------------------------------------------------------

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
    ) -> Subscription:
        """Iterate over the messages of a group, waiting for more. Each goes to one of its consumers, and comes again
        until it is acknowledged; an order of delivery holds for each consumer. First come those that this
        ``consumer`` was given before and has not acknowledged.

        A group is made if need be, and then gets what is published from now on, or all ``since`` a moment (as ``read``
        has it; "start": everything). An existing one goes on where it is.
        ``batch``: how many are taken at once. ``wait``: end after so many seconds without a message; None: never.
        ``autoack``: a message is acknowledged when the next one is asked for. ``claim_idle``: take over what other
        consumers have had for so many seconds without acknowledging it; more than any message may need.
        Raises: BadTopic, BadName, StorageError.
        """
        feed = self.feed(group, consumer, batch, claim_idle)
        subscription = Subscription(self.folder, feed, wait=to_seconds("wait", wait), autoack=autoack)
        self.folder.subscribed(feed.key, subscription)
        topic, topic_position, position = self.ensure_group(group, since)
        topic.settle(topic_position)
        topic.groups.settle(position)
        return subscription

    def feed(self, group: str, consumer: str, batch: int, claim_idle: Seconds | None) -> Feed:
        check_count("batch", batch, 1, _MOST_AT_ONCE)
        idle = to_seconds("claim_idle", claim_idle)
        if idle is not None and idle < 0.001:
            raise BadTopic(f"claim_idle of {claim_idle!r} cannot be", hint="at least a millisecond")
        idle_ms = None if idle is None else round(idle * 1000)
        key = (self.raw_name, to_name(group), to_name(consumer))
        return Feed(self.folder.engine, *key, batch=batch, claim_idle_ms=idle_ms)

    def ensure_group(self, group: str, since: Moment | None) -> tuple[Topic, int, int]:
        """Make the group unless it is there. Returns the positions to wait for, of the topic and of its groups."""
        topic, name = self.make(), to_name(group)
        with topic.lock:
            last = None if since is None else views.last_before(topic, since)
            if topic.groups.has(name):
                return topic, 0, topic.groups.newest_position()
            if not topic.state.exists:
                topic.set_id(ids.FIRST)
            # The group rests on the topic being there, and on the last id that it was made at.
            return topic, topic.newest_position(), topic.groups.create(name, last)

    # -- looking after it --------------------------------------------------------------------------------------------

    def stats(self) -> TopicView:
        """How much there is; all zero for a topic that does not exist."""
        return views.topic_view(self.name, self.find())

    def groups(self) -> list[GroupView]:
        """Where each group is, and its consumers."""
        topic = self.find()
        return [] if topic is None else views.group_views(topic)

    def reset(self, group: str, to: Moment, *, dry_run: bool = False) -> Reset:
        """Let a group go on at another place: with the first message at or behind ``to`` (as ``read`` has it; "start"
        and "end" too). What is pending stays so. ``dry_run``: say what it would mean, and change nothing.

        Raises: NoGroup, BadTopic.
        """
        topic = self.find()
        found = views.plan_reset(self.name, topic, group, to)
        if topic is not None and not dry_run:
            position = topic.groups.set_id(to_name(group), found.last_before)
            topic.settle(topic.newest_position())
            topic.groups.settle(position)
        return found

    def delete_group(self, group: str) -> bool:
        """Forget a group and what is pending for it. False if there is none."""
        topic = self.find()
        if topic is None:
            return False
        was_there, position = topic.groups.destroy(to_name(group))
        topic.groups.settle(position)
        return was_there


# -- values -----------------------------------------------------------------------------------------------------------


def show_id(id: EntryId) -> str:
    return views.show_id(id)


def check_count(what: str, number: int, least: int, most: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise BadTopic(f"{what} of {number!r} cannot be", hint=f"{least} to {most}")
    return number


def to_seconds(what: str, value: Seconds | None) -> float | None:
    """Raises: BadTopic."""
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        raise BadTopic(f"{what} of {value!r} cannot be", hint="seconds, 0 or more")
    return float(seconds)
