"""What retention takes before it is read is told by a server's topics as by a folder's: ids, once, and it goes on."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from integration.resp_wire import Error, packed
from lamina.client.refusals import refusal
from lamina.client.talking import Talk
from lamina.client.topic_feed import RemoteFeed
from lamina.client.topic_reading import RemotePages, RemoteTail
from lamina.client.topic_talks import reset
from lamina.engines.topics.retention import parse
from lamina.engines.topics.shedding import Shedder
from lamina.errors import Gap
from resp_lab import Caller, Lab, in_loop

T = TypeVar("T")


class Peer:
    """Holds talks with a door of the lab."""

    def __init__(self) -> None:
        self.lab = Lab()
        self._caller: Caller = self.lab.caller()

    async def hold(self, talk: Talk[T]) -> T:
        try:
            asked = next(talk)
            while True:
                for words in asked.commands:
                    self._caller.send_raw(packed(words))
                await self.lab.settle()
                replies = [_plain(each) for each in self._caller.got()]
                assert len(replies) == len(asked.commands), "it waits"
                asked = talk.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result

    async def ask(self, *words: Any) -> Any:
        self._caller.send_raw(packed(words))
        await self.lab.settle()
        (answer,) = self._caller.got()
        return answer

    async def add(self, *numbers: int) -> None:
        for number in numbers:
            assert await self.ask("XADD", "a", f"{number}-1", "n", number) == b"%d-1" % number

    def shed(self) -> None:
        """All that is there goes, as upkeep does it, also if a group has yet to read it."""
        self.lab.clock.advance(10)
        topic = self.lab.topic("a")
        topic.push()
        self.lab.log("a").rotate()
        Shedder(topic).shed(parse("length:0,hold:1s"))

    async def rest(self, pages: RemotePages) -> list[int | tuple[Any, ...]]:
        """Numbers of messages, and gaps as they are told."""
        found: list[int | tuple[Any, ...]] = []
        while True:
            try:
                page = await self.hold(pages.next())
            except Gap as gap:
                found.append((gap.after, gap.until, gap.resumes_at))
                continue
            if not page:
                return found
            found += [int(message["n"]) for message in page]

    async def taken(self, feed: RemoteFeed, most: int = 100) -> list[int | tuple[Any, ...]]:
        found: list[int | tuple[Any, ...]] = []
        while len(found) < most:
            try:
                ready = feed.take()
            except Gap as gap:
                found.append((gap.after, gap.until, gap.resumes_at))
                continue
            if ready is not None:
                found.append(int(ready[1][1]))
            elif not await self.hold(feed.fetch(0)):
                break
        return found


def _plain(answer: Any) -> Any:
    if isinstance(answer, Error):
        return refusal(answer.decode())
    if isinstance(answer, list):
        return [_plain(each) for each in answer]
    return bytes(answer) if isinstance(answer, bytes) else answer if isinstance(answer, int) else None


def pages(since: str | None = None, **more: Any) -> RemotePages:
    return RemotePages(b"a", since, None, more.get("last"), reverse=more.get("reverse", False), count=None)


def feed(consumer: bytes = b"c", claim_idle_ms: int | None = None) -> RemoteFeed:
    return RemoteFeed(b"a", b"g", consumer, batch=2, claim_idle_ms=claim_idle_ms)


async def overtaken() -> Peer:
    """Retention took 1-1 to 3-1; 4-1 and 5-1 are there."""
    peer = Peer()
    await peer.add(1, 2, 3)
    peer.shed()
    await peer.add(4, 5)
    return peer


@pytest.mark.parametrize("reverse", [False, True])
@in_loop
async def test_who_asks_for_what_is_gone_is_told_and_reads_what_is_there(reverse: bool) -> None:
    peer = await overtaken()
    reading = pages("2-1", reverse=reverse)
    found = await peer.rest(reading)
    assert found == ([5, 4] if reverse else [4, 5])
    assert reading.gap is not None
    assert (reading.gap.after, reading.gap.until, reading.gap.resumes_at) == ("2-0", "3-1", "4-1")


@in_loop
async def test_who_begins_anew_or_behind_it_is_told_nothing() -> None:
    peer = await overtaken()
    for since in (None, "start", "3-2", "4-1"):
        reading = pages(since)
        assert await peer.rest(reading) == [4, 5]
        assert reading.gap is None


@pytest.mark.parametrize("since", [None, "1-1"])
@in_loop
async def test_what_goes_while_it_is_read_is_told_once(since: str | None) -> None:
    peer = Peer()
    await peer.add(*range(1, 151))  # more than a first page
    reading = pages(since)
    first = await peer.hold(reading.next())
    assert len(first) == 100
    peer.shed()
    await peer.add(151)  # behind the end of what is read
    assert await peer.rest(reading) == [("100-1", "150-1", "151-1")]


@in_loop
async def test_what_goes_behind_those_who_read_is_no_gap() -> None:
    peer = Peer()
    await peer.add(1, 2)
    reading = pages()
    assert len(await peer.hold(reading.next())) == 2
    peer.shed()
    assert await peer.rest(reading) == []


@in_loop
async def test_what_goes_between_beginning_and_the_first_page_is_told() -> None:
    peer = Peer()
    await peer.add(1, 2)
    reading = pages()
    await peer.hold(reading.begin())
    peer.shed()
    assert await peer.rest(reading) == [("0-0", "2-1", None)]


@in_loop
async def test_who_follows_is_told_once() -> None:
    peer = Peer()
    await peer.add(1)
    tail = RemoteTail(b"a", "1-1")
    assert [message.id for message in await peer.hold(tail.next(0))] == ["1-1"]
    await peer.add(2)
    peer.shed()
    await peer.add(3)
    with pytest.raises(Gap) as told:
        await peer.hold(tail.next(0))
    assert (told.value.after, told.value.until, told.value.resumes_at) == ("1-1", "2-1", "3-1")
    assert [message.id for message in await peer.hold(tail.next(0))] == ["3-1"]


@in_loop
async def test_a_group_is_told_once_and_goes_on() -> None:
    peer = Peer()
    await peer.add(1)
    await peer.ask("XGROUP", "CREATE", "a", "g", "0")
    reader = feed()
    assert await peer.taken(reader) == [1]
    await peer.add(2, 3)
    peer.shed()
    await peer.add(4)
    assert await peer.taken(reader) == [("1-1", "3-1", "4-1"), 4]
    assert await peer.taken(feed(b"another")) == []


@in_loop
async def test_what_is_pending_and_gone_is_told_and_then_not_pending_any_more() -> None:
    peer = Peer()
    await peer.add(1, 2, 3)
    await peer.ask("XGROUP", "CREATE", "a", "g", "0")
    assert await peer.taken(feed()) == [1, 2, 3]
    peer.shed()
    await peer.add(4)
    again = feed()
    assert await peer.taken(again, 2) == [("1-0", "2-1", "4-1"), ("3-0", "3-1", "4-1")]
    assert await peer.taken(again) == [4]
    assert (await peer.ask("XPENDING", "a", "g"))[0] == 1  # the one in our hands


@in_loop
async def test_what_was_deleted_is_no_gap() -> None:
    peer = Peer()
    await peer.add(1, 2, 3)
    await peer.ask("XGROUP", "CREATE", "a", "g", "0")
    assert await peer.taken(feed()) == [1, 2, 3]
    await peer.ask("XDEL", "a", "2-1")
    assert await peer.taken(feed()) == [1, 3]
    assert (await peer.ask("XPENDING", "a", "g"))[0] == 2


@in_loop
async def test_what_another_had_and_is_gone_is_told_to_who_claims() -> None:
    peer = Peer()
    await peer.add(1)
    await peer.ask("XGROUP", "CREATE", "a", "g", "0")
    assert await peer.taken(feed(b"gone")) == [1]
    peer.shed()
    await peer.add(2)
    peer.lab.clock.advance(1)
    assert await peer.taken(feed(b"here", claim_idle_ms=1)) == [("1-0", "1-1", "2-1"), 2]


@in_loop
async def test_the_start_is_behind_what_is_gone() -> None:
    peer = await overtaken()
    await peer.ask("XGROUP", "CREATE", "a", "g", "$")
    found = await peer.hold(reset(b"a", "g", b"g", "start", dry_run=False))
    assert (found.from_id, found.to_id, found.again) == ("5-1", "3-1", 2)
    assert await peer.taken(feed()) == [4, 5]


# -- what did not come -------------------------------------------------------------------------------------------------


@in_loop
async def test_what_was_given_and_did_not_come_is_looked_for_more_than_once() -> None:
    peer, now = Peer(), [0.0]
    await peer.add(1, 2, 3)
    await peer.ask("XGROUP", "CREATE", "a", "g", "0")
    reader = RemoteFeed(b"a", b"g", b"c", batch=2, claim_idle_ms=None, clock=lambda: now[0])
    assert await peer.taken(reader, 1) == [1]  # 2 is ready
    reader.broke()
    await peer.ask("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "a", ">")  # 3 is given, and does not come
    assert await peer.taken(reader) == [2, 3]
    await peer.add(4)
    await peer.ask("XREADGROUP", "GROUP", "g", "c", "STREAMS", "a", ">")  # on a connection that is gone
    assert await peer.taken(reader) == []
    assert reader.longest_wait_s() <= 1
    now[0] += 30
    assert await peer.taken(reader) == [4]


@in_loop
async def test_what_another_has_claimed_is_not_handed_out() -> None:
    peer, now = Peer(), [0.0]
    await peer.add(1, 2)
    await peer.ask("XGROUP", "CREATE", "a", "g", "0")
    reader = RemoteFeed(b"a", b"g", b"c", batch=2, claim_idle_ms=None, clock=lambda: now[0])
    assert await peer.taken(reader, 1) == [1]
    await peer.ask("XCLAIM", "a", "g", "another", "0", "2-1")
    assert not reader.is_old
    now[0] += 1
    assert reader.is_old
    await peer.hold(reader.check())
    assert await peer.taken(reader) == []
