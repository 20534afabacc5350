"""Every number that comes in at the RESP door, from where 64 bits end and from where they do not: nothing breaks,
nothing beyond them goes out, and all of it closes, and opens again as it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from integration.resp_wire import Error
from lamina.engines.queues import ids as queue_ids
from lamina.engines.topics import ids
from lamina.engines.topics.topics import Topics
from lamina.engines.topics.upkeep import Upkeep
from lamina.server.resp.table import FACTS
from lamina.testing import MemoryFiles
from queue_doors import QueueDoors

LEAST, MOST = -(1 << 63), (1 << 63) - 1
EDGES = [0, 1, 2, 3, 255, 1 << 31, 1 << 32, 1 << 53, 1 << 62, 1 << 63, 1 << 64, 1 << 127, 1 << 128, 10**30]
NUMBERS = sorted({sign * (edge + near) for edge in EDGES for near in (-1, 0, 1) for sign in (1, -1)})
"""The edges of every field that there is, and their neighbours."""
PARTS = [number for number in NUMBERS if 0 <= number < 1 << 64]
number = st.sampled_from(NUMBERS).map(lambda each: b"%d" % each)
small = st.sampled_from([b"0", b"1", b"2", b"5"])
place = st.one_of(
    st.tuples(st.sampled_from(PARTS), st.sampled_from(PARTS)).map(lambda two: b"%d-%d" % two),
    st.sampled_from([b"-", b"+", b"$", b">", b"0", b"0-1", b"1-1", b"5-*", b"*", b"(1-1", b"18446744073709551615-*"]),
    number,
)
# k key, i place, g group, c consumer, n number, r the id of a queue, s of its other end, m of a message
TEMPLATES = [
    *("XADD k * f v", "XADD k i f v", "XADD k MAXLEN n * f v", "XADD k MAXLEN ~ n LIMIT n i f v"),
    *(
        "XADD k MINID i i f v",
        "XLEN k",
        "XRANGE k i i",
        "XRANGE k - + COUNT n",
        "XREVRANGE k i i COUNT n",
        "XDEL k i i",
        "XTRIM k MAXLEN n",
    ),
    *("XTRIM k MAXLEN ~ n LIMIT n", "XTRIM k MINID i", "XTRIM k MINID ~ i LIMIT n", "XREAD COUNT n STREAMS k i"),
    *("XREAD COUNT n BLOCK n STREAMS k i", "XSETID k i", "XSETID k i ENTRIESADDED n MAXDELETEDID i"),
    *("XSETID k i ENTRIESADDED n", "XGROUP CREATE k g i MKSTREAM ENTRIESREAD n", "XGROUP CREATE k g i MKSTREAM"),
    *("XGROUP SETID k g i ENTRIESREAD n", "XGROUP SETID k g i", "XGROUP DESTROY k g", "XGROUP CREATECONSUMER k g c"),
    *("XGROUP DELCONSUMER k g c", "XREADGROUP GROUP g c COUNT n STREAMS k >", "XREADGROUP GROUP g c STREAMS k i"),
    *("XREADGROUP GROUP g c COUNT n BLOCK n NOACK STREAMS k >", "XACK k g i i", "XPENDING k g", "XPENDING k g - + n"),
    *("XPENDING k g IDLE n i i n c", "XCLAIM k g c n i i", "XCLAIM k g c n i IDLE n RETRYCOUNT n FORCE LASTID i"),
    *("XCLAIM k g c 0 i TIME n RETRYCOUNT n FORCE", "XCLAIM k g c 0 0-1 1-1 RETRYCOUNT n FORCE JUSTID"),
    *("XAUTOCLAIM k g c n i", "XAUTOCLAIM k g c n i COUNT n JUSTID", "XINFO STREAM k", "XINFO STREAM k FULL COUNT n"),
    *("XINFO STREAM k FULL COUNT 0", "XINFO GROUPS k", "XINFO CONSUMERS k g", "DEL k", "RENAME k k", "RENAMENX k k"),
    *("KEYS *", "SCAN n COUNT n", "DBSIZE", "EXPIRE k n", "TTL k", "MEMORY USAGE k SAMPLES n", "SELECT n", "HELLO n"),
    *("CLIENT KILL ID n", "CLIENT LIST ID n", "CONFIG SET stream-node-max-entries n", "CONFIG SET timeout n"),
    *(
        "WAIT n n",
        "CONFIG SET stream-node-max-bytes n",
        "CONFIG SET maxclients n",
        "WAITAOF n n n",
        "DEBUG SLEEP n",
        "L.WHY k",
    ),
    *("L.WHY k entries:n", "L.WHY k age:ns", "L.WHY k bytes:n", "INFO", "Q.NEW TTL n", "Q.SEND s body TTL n"),
    *("Q.GET r", "Q.GET r BLOCK n", "Q.INFO r", "Q.ACK r m", "L.QUEUES", "OBJECT ENCODING k", "CONFIG GET *"),
]
CHOICES = {
    "k": st.sampled_from([b"a", b"b"]),
    "g": st.sampled_from([b"g", b"h"]),
    "c": st.sampled_from([b"c", b"d"]),
    "i": place,
    "n": st.one_of(number, number, small),
}
MIXED = {"entries:n": b"entries:%b", "age:ns": b"age:%bs", "bytes:n": b"bytes:%b"}


@st.composite
def commands(draw: st.DrawFn) -> list[bytes | str]:
    """Words; a letter alone stands for what is known only when it is said."""
    found: list[bytes | str] = []
    for word in draw(st.sampled_from(TEMPLATES)).split():
        if word in CHOICES:
            found.append(draw(CHOICES[word]))
        elif word in MIXED:
            found.append(MIXED[word] % draw(number))
        else:
            found.append(word if word in "rsm" else word.encode())
    return found


def integers(answer: Any) -> Iterator[int]:
    """In an answer, and in JSON that it has."""
    if isinstance(answer, bytes) and answer.startswith(b"{"):
        answer = json.loads(answer)
    if isinstance(answer, int) and not isinstance(answer, bool):
        yield answer
    elif isinstance(answer, dict):
        for pair in answer.items():
            yield from integers(pair)
    elif isinstance(answer, list | tuple | set):
        for each in answer:
            yield from integers(each)


class Story(QueueDoors):
    """Commands that are given one by one, each by a client of its own: none waits behind another."""

    def __init__(self) -> None:
        super().__init__()
        self.house.why = Upkeep(self.topics).why
        queue, position = self.engine.create()
        self.engine.settle(position)
        self.known = {"r": queue_ids.wire(queue.rid), "s": queue_ids.wire(queue.sid), "m": b"0" * 32}

    async def say(self, command: Sequence[bytes | str]) -> list[Any]:
        caller = self.caller()
        words = [self.known[word] if isinstance(word, str) else word for word in command]
        answers = await caller.ask(words)
        while not answers and words[0].startswith(b"L."):  # another thread is at it
            await asyncio.sleep(0.001)
            answers = await caller.ask()
        for answer in answers:
            assert not isinstance(answer, Error) or b"internal error" not in answer, (words, answer)
            for each in integers(answer):
                assert LEAST <= each <= MOST, (words, answer)
        caller.connection.hang_up()
        await asyncio.sleep(0)
        return answers

    async def look(self) -> list[Any]:
        """Everything that is shown of all topics."""
        (names,) = await self.say([b"KEYS", b"*"])
        found: list[Any] = [names]
        for name in names:
            for words in ([b"XLEN", name], [b"XINFO", b"STREAM", name, b"FULL", b"COUNT", b"0"]):
                found.append(await self.say(words))
            found.append(await self.say([b"XINFO", b"GROUPS", name]))
            await self.say([b"L.WHY", name])
        return found


def state_of(topics: Topics) -> dict[bytes, list[Any]]:
    found = {}
    for name in topics.names():
        topic = topics.get(name)
        assert topic is not None
        state = topic.state
        groups = {
            group.name: (group.last_id, group.read, sorted((id, one.deliveries) for id, one in group.pending.items()))
            for group in topic.groups.state.groups.values()
        }
        entries = topic.read(ids.FIRST)[0]
        found[name] = [state.last_id, state.added, state.length, state.max_deleted, groups, entries]
    return found


async def told(story: list[list[bytes | str]]) -> None:
    lab = Story()
    for command in story:
        await lab.say(command)
    await lab.look()
    before = state_of(lab.topics)
    killed = lab.opened(MemoryFiles(lab.disk.contents()))
    lab.topics.close()
    lab.engine.close()
    assert not lab.disk.locks and not lab.disk.handles
    # With a checkpoint and without one it is what it was.
    assert state_of(killed) == before
    killed.close()
    lab.topics = lab.house.topics = lab.opened(lab.files)
    lab.house.why = Upkeep(lab.topics).why
    assert state_of(lab.topics) == before
    await lab.look()
    for name in lab.topics.names():
        assert lab.topics.delete(name)
    assert await lab.say([b"KEYS", b"*"]) == [[]]


def words(*texts: str) -> list[list[bytes | str]]:
    return [[word.encode() for word in text.split()] for text in texts]


@example(words("XADD a 1-1 f v", f"XSETID a 1-1 ENTRIESADDED {MOST}", "XADD a 2-1 f v"))
@example(words("XADD a 1-1 f v", f"XSETID a 1-1 ENTRIESADDED {1 << 62}", "XADD a 2-1 f v"))
@example(words("XADD a 1-1 f v", "XGROUP CREATE a g 0", f"XCLAIM a g c 0 1-1 RETRYCOUNT {MOST} FORCE"))
@example(words(f"XGROUP CREATE a g 0 MKSTREAM ENTRIESREAD {MOST}", "XADD a * f v", "XREADGROUP GROUP g c STREAMS a >"))
@given(st.lists(commands(), max_size=12))
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_whatever_numbers_come_in_nothing_breaks_and_nothing_beyond_64_bits_goes_out(
    story: list[list[bytes | str]],
) -> None:
    asyncio.run(told(story))


def test_the_story_has_every_command_with_numbers() -> None:
    """One that is added has to be added here, too, if it takes any."""
    without = {
        *(b"auth", b"ping", b"echo", b"quit", b"reset", b"acl", b"command", b"time", b"flushall", b"flushdb"),
        *(b"function", b"script", b"multi", b"exec", b"discard", b"watch", b"unwatch", b"unlink", b"exists", b"touch"),
        *(b"type", b"randomkey", b"persist", b"pttl", b"q.auth", b"q.key", b"q.sub", b"q.unsub", b"q.off", b"q.del"),
        b"l.dump",
    }
    told = {template.split()[0].lower().encode() for template in TEMPLATES}
    of_the_store = {name for name in FACTS if name.startswith(b"s.")}
    assert set(FACTS) - without - of_the_store == told
