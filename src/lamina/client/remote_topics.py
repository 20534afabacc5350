"""The topics of a server: ``lamina.connect(...).topics``, with the methods of ``lamina.open(...).topics``.

    topic = lm.topic("orders")
    topic.publish({"item": "tea", "count": 2})
    with topic.subscribe("mailers") as messages:        # goes on where the group left off, over restarts of the server
        for message in messages:
            message.ack()

``topic.aio`` has the same for coroutines; remote_subscription.py what waits for messages.
Threads: every method is safe from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from lamina.client import topic_talks as talks
from lamina.client.lines import Lines
from lamina.client.lines_aio import AsyncLines
from lamina.client.remote_subscription import RemoteSubscription
from lamina.client.talking import Talk
from lamina.client.topic_feed import LONGEST_WAIT_S, RemoteFeed
from lamina.client.topic_reading import RemotePages, RemoteTail
from lamina.engines.topics.api import CONSUMER, Seconds, check_count, to_seconds
from lamina.engines.topics.messages import END, START, Message, Moment, Publishable, starting_at, to_flat, to_name
from lamina.engines.topics.views import GroupView, Reset, TopicView
from lamina.errors import BadTopic, Gap
from lamina.log.folders import folder_name
from lamina.log.frame import MAX_PAYLOAD

if TYPE_CHECKING:
    from lamina.client.remote_topics_aio import AsyncRemoteTopic, AsyncRemoteTopics

MOST_AT_ONCE: Final = 10_000

_Key = tuple[bytes, bytes, bytes]
_subscribed: WeakKeyDictionary[Lines, WeakValueDictionary[_Key, object]] = WeakKeyDictionary()


class RemoteTopics:
    """All topics of a server."""

    def __init__(self, lines: Lines, async_lines: AsyncLines) -> None:
        """Use ``lamina.connect(...).topics``."""
        self.lines, self.async_lines = lines, async_lines

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.lines.endpoint}>"

    @property
    def aio(self) -> AsyncRemoteTopics:
        """The same for coroutines."""
        from lamina.client.remote_topics_aio import AsyncRemoteTopics

        return AsyncRemoteTopics(self)

    def topic(self, name: str) -> RemoteTopic:
        """The topic of that name; a new one exists from its first message, or its first group, on. Raises: BadName."""
        return RemoteTopic(self, name)

    def names(self) -> list[str]:
        """Of all topics, sorted."""
        return self.lines.do(talks.names())

    def delete(self, name: str) -> bool:
        """Delete a topic with its groups, for good. False if there is none. Raises: StorageError; Disconnected."""
        return self.lines.do(talks.delete(to_name(name)))

    def subscribed(self, key: _Key, subscription: object) -> None:
        """Topic, group and consumer have this subscription, as long as somebody has it.

        What other programs have is not known here. Raises: BadTopic if they have one already.
        """
        known = _subscribed.setdefault(self.lines, WeakValueDictionary())
        if known.setdefault(key, subscription) is not subscription:
            hint = "close it first, or give each subscription a consumer of its own"
            name, group = (each.decode(errors="replace") for each in (key[2], key[1]))
            raise BadTopic(f"the consumer {name!r} of the group {group!r} is subscribed already", hint=hint)

    def unsubscribe(self, key: _Key, subscription: object) -> None:
        known = _subscribed.get(self.lines, WeakValueDictionary())
        if known.get(key) is subscription:
            known.pop(key, None)


class RemoteTopic:
    """One topic of a server, by its name. It need not exist yet.

    Raises, each method: what ``NamedTopic`` does; Disconnected; NotAllowed.
    """

    def __init__(self, topics: RemoteTopics, name: str) -> None:
        """Use ``lamina.connect(...).topic(name)``."""
        self.name = name
        self.topics = topics
        self.raw_name: Final = to_name(name)
        folder_name(self.raw_name)
        self._do = topics.lines.do

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.topics.lines.endpoint}>"

    @property
    def aio(self) -> AsyncRemoteTopic:
        """The same for coroutines."""
        from lamina.client.remote_topics_aio import AsyncRemoteTopic

        return AsyncRemoteTopic(self)

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(self, message: Publishable, *, id: str | None = None) -> str:
        """As ``NamedTopic.publish``. It is sent once: ``Disconnected`` says in its facts whether that was done
        (``unacknowledged``: 1, and nobody knows if it was published; 0: it was not).
        """
        return self._do(self.publishing(message, id))

    def publishing(self, message: Publishable, id: str | None) -> Talk[str]:
        if id is not None:
            starting_at(id, 0)  # tells what is no id
        return talks.publish(self.raw_name, to_flat(message, MAX_PAYLOAD), id)

    def publish_many(self, messages: Iterable[Publishable]) -> list[str]:
        """As ``NamedTopic.publish_many``: a thousand, or a MiB, are under way at once.

        None is sent twice. When the connection breaks ``Disconnected`` has in its facts ``published``, the ids of those
        that are, and how many of the next were sent without an answer, ``unacknowledged``: nobody knows of these. What
        comes behind was not sent. Where the server refuses a message, others behind it may have been published:
        ``published`` is in the facts of the error too.
        """
        return self._do(talks.publish_many(self.raw_name, messages))

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        last: int | None = None,
        reverse: bool = False,
        count: int | None = None,
    ) -> RemoteReading:
        """As ``NamedTopic.read``. A timedelta is before the time of the server."""
        pages = RemotePages(self.raw_name, since, until, last, reverse=reverse, count=count)
        self._do(pages.begin())
        return RemoteReading(self.topics.lines, pages)

    def follow(self, *, since: Moment | None = None, wait: Seconds | None = None) -> Iterator[Message]:
        """Iterate over what comes, to everybody who follows: from now on, or ``since`` a moment, as ``read`` has it.

        ``wait``: end after so many seconds without a message; None: never. Over a restart of the server it goes on.
        Raises: Gap if messages are removed before they are read. BadTopic.
        """
        tail, seconds = RemoteTail(self.raw_name, since), to_seconds("wait", wait)
        self._do(tail.begin())  # not only when the first one is asked for: what comes until then would be missed
        return _follow(self.topics.lines, tail, seconds)

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
    ) -> RemoteSubscription:
        """As ``NamedTopic.subscribe``. It survives a restart of the server: see ``RemoteSubscription``."""
        feed, seconds = self.feed(group, consumer, batch, claim_idle), to_seconds("wait", wait)
        check_moment(since)
        subscription = RemoteSubscription(self.topics, feed, wait=seconds, autoack=autoack)
        self.topics.subscribed(feed.key, subscription)
        try:
            self._do(talks.ensure_group(self.raw_name, to_name(group), since))
        except BaseException:
            self.topics.unsubscribe(feed.key, subscription)
            raise
        return subscription

    def feed(self, group: str, consumer: str, batch: int, claim_idle: Seconds | None) -> RemoteFeed:
        """Raises: BadTopic, BadName."""
        check_count("batch", batch, 1, MOST_AT_ONCE)
        idle = to_seconds("claim_idle", claim_idle)
        if idle is not None and idle < 0.001:
            raise BadTopic(f"claim_idle of {claim_idle!r} cannot be", hint="at least a millisecond")
        idle_ms = None if idle is None else round(idle * 1000)
        return RemoteFeed(self.raw_name, to_name(group), to_name(consumer), batch=batch, claim_idle_ms=idle_ms)

    # -- looking after it --------------------------------------------------------------------------------------------

    def stats(self) -> TopicView:
        """How much there is; all zero for a topic that does not exist."""
        return self._do(talks.stats(self.raw_name))

    def groups(self) -> list[GroupView]:
        """Where each group is, and its consumers."""
        return self._do(talks.groups(self.raw_name))

    def reset(self, group: str, to: Moment, *, dry_run: bool = False) -> Reset:
        """As ``NamedTopic.reset``. Raises: NoGroup, BadTopic."""
        return self._do(self.resetting(group, to, dry_run))

    def resetting(self, group: str, to: Moment, dry_run: bool) -> Talk[Reset]:
        check_moment(to)
        return talks.reset(self.raw_name, group, to_name(group), to, dry_run=dry_run)

    def delete_group(self, group: str) -> bool:
        """Forget a group and what is pending for it. False if there is none."""
        return self._do(talks.delete_group(self.raw_name, to_name(group)))


class RemoteReading(Iterator[Message]):
    """Iterates over messages. Threads: one at a time."""

    def __init__(self, lines: Lines, pages: RemotePages) -> None:
        self._lines = lines
        self._pages = pages
        self._page: Iterator[Message] = iter(())

    @property
    def gap(self) -> Gap | None:
        """Messages were asked for that are gone: reading began with the oldest there is. None: all were there."""
        return self._pages.gap

    def __next__(self) -> Message:
        """Raises: Gap if messages are removed before they are read, once; the next call goes on behind them."""
        for message in self._page:
            return message
        self._page = iter(self._lines.do(self._pages.next()))
        return next(self._page)


def _follow(lines: Lines, tail: RemoteTail, wait: float | None) -> Iterator[Message]:
    while True:
        end = None if wait is None else time.monotonic() + wait
        while True:
            left = LONGEST_WAIT_S if end is None else min(end - time.monotonic(), LONGEST_WAIT_S)
            page = lines.do(tail.next(max(round(left * 1000), 0)))
            if page:
                break
            if left <= 0:
                return
        yield from page


def check_moment(moment: Moment | None) -> None:
    """Raises: BadTopic, before anybody is asked."""
    if moment is not None and moment not in (START, END):
        starting_at(moment, 0)
