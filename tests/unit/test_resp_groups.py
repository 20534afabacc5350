"""Commands about groups, option by option: what they answer and leave behind, and what they refuse as Redis does."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

from integration.redis_peer import MISSING, PROGRAM, RedisPeer
from integration.resp_wire import NULL_ARRAY, OK, Error, Map, Wire
from lamina.engines.topics import ids
from lamina.engines.topics.topics import Topics
from lamina.server.resp import group_commands
from lamina.server.resp.dispatch import HANDLERS, run
from lamina.server.resp.session import House, Wait
from lamina.testing import ManualClock, MemoryFiles

HANDLERS.update(group_commands.COMMANDS)
KEY = b"s"
IN_XREADGROUP = b" in XREADGROUP with GROUP option"
NO_ID = b"ERR Invalid stream ID specified as stream command argument"
NO_KEY = (
    b"ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM "
    b"option to create an empty stream automatically."
)
NO_NUMBER = b"ERR value is not an integer or out of range"
SYNTAX = b"ERR syntax error"


class Reply(Wire):
    """An answer that is there already, read as a client would."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]


class Lab:
    """A client of a house on a disk in memory, with entries 1-1 to 5-1 in a topic. Words are split at blanks."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.topics = Topics.open("topics", files=MemoryFiles(), clock=self.clock, threaded=False)
        self.house = House(self.topics, self.clock)
        self.changed: list[bytes] = []
        self.house.changed = self.changed.append
        self.session = self.house.enter()
        for number in range(1, 6):
            self.add(number)

    def add(self, number: int) -> None:
        topic = self.topics.get_or_make(KEY)
        topic.settle(topic.add([b"n", b"%d" % number], ids.make(number, 1))[1])

    def run(self, words: str) -> bytes | Wait:
        """What the answer rests on has come when this returns."""
        self.session.marks.clear()
        answer = run(self.session, [word.encode() for word in words.split()])
        for engine, position in self.session.marks:
            engine.settle(position)
        return answer

    def ask(self, words: str) -> Any:
        answer = self.run(words)
        assert isinstance(answer, bytes)
        reply = Reply(answer)
        value = reply.read()
        assert not reply.rest()
        return value

    def wait(self, words: str) -> Wait:
        answer = self.run(words)
        assert isinstance(answer, Wait)
        return answer

    def pending(self) -> list[tuple[bytes, bytes, int, int]]:
        """Id, consumer, idle ms and deliveries."""
        return [tuple(row) for row in self.ask("XPENDING s g - + 100")]

    def group(self, name: bytes = b"g") -> dict[bytes, Any]:
        groups = [dict(zip(one[::2], one[1::2], strict=True)) for one in self.ask("XINFO GROUPS s")]
        return next(one for one in groups if one[b"name"] == name)


@pytest.fixture
def lab() -> Lab:
    """With a group that has read nothing."""
    lab = Lab()
    assert lab.ask("XGROUP CREATE s g 0") == OK
    return lab


def entry(number: int) -> list[Any]:
    return [b"%d-1" % number, [b"n", b"%d" % number]]


# -- what is refused -------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, bytes]] = [
    ("XGROUP CREATE s g 0", b"BUSYGROUP Consumer Group name already exists"),
    ("XGROUP CREATE no h 0", NO_KEY),
    ("XGROUP CREATE no h x", NO_KEY),
    ("XGROUP CREATE s h x", NO_ID),
    ("XGROUP CREATE s h +", NO_ID),
    ("XGROUP CREATE no h x MKSTREAM", NO_ID),
    ("XGROUP CREATE s h 0 ENTRIESREAD x", NO_NUMBER),
    ("XGROUP CREATE s h 0 ENTRIESREAD -2", b"ERR value for ENTRIESREAD must be positive or -1"),
    *(
        (f"XGROUP {words}", b"ERR unknown subcommand or wrong number of arguments for '%b'. Try XGROUP HELP." % name)
        for words, name in (
            ("CREATE s h 0 ENTRIESREAD", b"CREATE"),
            ("create s h 0 BLAH", b"create"),
            ("CREATE s h 0 MKSTREAM MKSTREAM MKSTREAM MKSTREAM", b"CREATE"),
            ("SETID s g 0 MKSTREAM", b"SETID"),
            ("SETID s g 0 ENTRIESREAD", b"SETID"),
            ("SETID s g 0 ENTRIESREAD 1 ENTRIESREAD 1", b"SETID"),
        )
    ),
    ("XGROUP SETID no g 0", NO_KEY),
    ("XGROUP SETID s no 0", b"NOGROUP No such consumer group 'no' for key name 's'"),
    ("XGROUP SETID s g x", NO_ID),
    ("XGROUP DESTROY no g", NO_KEY),
    ("XGROUP CREATECONSUMER no g c", NO_KEY),
    ("XGROUP CREATECONSUMER s no c", b"NOGROUP No such consumer group 'no' for key name 's'"),
    ("XGROUP DELCONSUMER no g c", NO_KEY),
    ("XGROUP DELCONSUMER s no c", b"NOGROUP No such consumer group 'no' for key name 's'"),
    (
        "XREADGROUP GROUP g c STREAMS s t >",
        b"ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
    ),
    ("XREADGROUP GROUP g c BLOCK x STREAMS s >", b"ERR timeout is not an integer or out of range"),
    ("XREADGROUP GROUP g c BLOCK -1 STREAMS s >", b"ERR timeout is negative"),
    ("XREADGROUP GROUP g c COUNT x STREAMS s >", NO_NUMBER),
    (
        "XREADGROUP GROUP g c STREAMS s $",
        (
            b"ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer "
            b"by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty "
            b"result set."
        ),
    ),
    ("XREADGROUP GROUP g c STREAMS s +", NO_ID),
    ("XREADGROUP GROUP g c STREAMS s s > x", NO_ID),
    ("XREADGROUP GROUP g c STREAMS no >", b"NOGROUP No such key 'no' or consumer group 'g'" + IN_XREADGROUP),
    ("XREADGROUP GROUP no c STREAMS s >", b"NOGROUP No such key 's' or consumer group 'no'" + IN_XREADGROUP),
    ("XREADGROUP COUNT 1 NOACK COUNT 1 STREAMS s >", b"ERR Missing GROUP option for XREADGROUP"),
    ("XREADGROUP GROUP g c COUNT 1 NOACK NOACK", SYNTAX),
    ("XREADGROUP GROUP g c NOACK BLAH STREAMS s >", SYNTAX),
    ("XREADGROUP NOACK NOACK NOACK NOACK GROUP g c", SYNTAX),
    ("XPENDING no g", b"NOGROUP No such key 'no' or consumer group 'g'"),
    ("XPENDING s no", b"NOGROUP No such key 's' or consumer group 'no'"),
    ("XPENDING s no - + 1", b"NOGROUP No such key 's' or consumer group 'no'"),
    ("XPENDING s g - +", SYNTAX),
    ("XPENDING s g IDLE 1 - +", SYNTAX),
    ("XPENDING s g IDLE 1 - + 1 c more", SYNTAX),
    ("XPENDING s g IDLE x - + 1", NO_NUMBER),
    ("XPENDING s g - + x", NO_NUMBER),
    ("XPENDING s g x + 1", NO_ID),
    ("XPENDING s g - x 1", NO_ID),
    ("XPENDING s g (18446744073709551615-18446744073709551615 + 1", b"ERR invalid start ID for the interval"),
    ("XPENDING s g - (0-0 1", b"ERR invalid end ID for the interval"),
    ("XCLAIM s no c x 1-1", b"NOGROUP No such key 's' or consumer group 'no'"),
    ("XCLAIM s g c x 1-1", b"ERR Invalid min-idle-time argument for XCLAIM"),
    ("XCLAIM s g c 0 x", b"ERR Unrecognized XCLAIM option 'x'"),
    ("XCLAIM s g c 0 1-1 RETRYCOUNT", b"ERR Unrecognized XCLAIM option 'RETRYCOUNT'"),
    ("XCLAIM s g c 0 1-1 RETRYCOUNT x", b"ERR Invalid RETRYCOUNT option argument for XCLAIM"),
    ("XCLAIM s g c 0 1-1 IDLE x", b"ERR Invalid IDLE option argument for XCLAIM"),
    ("XCLAIM s g c 0 1-1 TIME x", b"ERR Invalid TIME option argument for XCLAIM"),
    ("XCLAIM s g c 0 1-1 LASTID x", NO_ID),
    ("XAUTOCLAIM s g c x 0", b"ERR Invalid min-idle-time argument for XAUTOCLAIM"),
    ("XAUTOCLAIM s g c 0 x", NO_ID),
    ("XAUTOCLAIM s no c 0 x", NO_ID),
    ("XAUTOCLAIM s no c 0 0", b"NOGROUP No such key 's' or consumer group 'no'"),
    ("XAUTOCLAIM s g c 0 0 COUNT 0", b"ERR COUNT must be > 0"),
    ("XAUTOCLAIM s g c 0 0 COUNT x", b"ERR COUNT must be > 0"),
    ("XAUTOCLAIM s g c 0 0 COUNT 576460752303423488", b"ERR COUNT must be > 0"),
    ("XAUTOCLAIM s g c 0 0 COUNT", SYNTAX),
    ("XAUTOCLAIM s g c 0 0 BLAH", SYNTAX),
    ("XACK s g 1-1 x", NO_ID),
    ("XINFO GROUPS no", b"ERR no such key"),
    ("XINFO CONSUMERS no g", b"ERR no such key"),
    ("XINFO CONSUMERS s no", b"NOGROUP No such consumer group 'no' for key name 's'"),
]


@pytest.mark.parametrize(("words", "text"), REFUSED)
def test_what_cannot_be_is_refused_and_changes_nothing(lab: Lab, words: str, text: bytes) -> None:
    lab.ask("XREADGROUP GROUP g ann COUNT 2 STREAMS s >")
    before = lab.pending(), lab.ask("XINFO GROUPS s"), lab.ask("XINFO CONSUMERS s g")
    assert lab.ask(words) == Error(text)
    assert (lab.pending(), lab.ask("XINFO GROUPS s"), lab.ask("XINFO CONSUMERS s g")) == before
    assert lab.topics.get(b"no") is None


@pytest.fixture(scope="module")
def redis() -> Iterator[Wire]:
    with RedisPeer() as peer, Wire(peer.port) as wire:
        for number in range(1, 6):
            wire.ask("XADD", "s", f"{number}-1", "n", number)
        wire.ask("XGROUP", "CREATE", "s", "g", "0")
        yield wire


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
@pytest.mark.parametrize(("words", "text"), REFUSED)
def test_redis_refuses_it_with_the_same_words(redis: Wire, words: str, text: bytes) -> None:
    assert redis.ask(*words.split()) == Error(text)


# -- XGROUP ----------------------------------------------------------------------------------------------------------


def test_xgroup_create_at_an_id_or_at_the_end(lab: Lab) -> None:
    assert lab.ask("XGROUP CREATE s h 3-1") == OK
    assert lab.ask("XGROUP CREATE s end $") == OK
    assert lab.ask("XREADGROUP GROUP h c STREAMS s >") == [[KEY, [entry(4), entry(5)]]]
    assert lab.ask("XREADGROUP GROUP end c STREAMS s >") is NULL_ARRAY


def test_xgroup_create_makes_the_topic_only_with_mkstream(lab: Lab) -> None:
    assert lab.ask("XGROUP CREATE new g $ MKSTREAM") == OK
    topic = lab.topics.get(b"new")
    assert topic is not None and topic.state.length == 0
    assert {engine for engine, _ in lab.session.marks} == {topic, topic.groups}
    assert lab.ask("XGROUP CREATE s h $ MKSTREAM") == OK


def test_xgroup_create_and_setid_take_how_much_was_read(lab: Lab) -> None:
    lab.ask("XGROUP CREATE s h 2-1 entriesread 2")
    assert (lab.group(b"h")[b"entries-read"], lab.group(b"h")[b"lag"]) == (2, 3)
    lab.ask("XGROUP SETID s h 3-1 ENTRIESREAD -1")
    assert (lab.group(b"h")[b"entries-read"], lab.group(b"h")[b"lag"]) == (None, None)


@pytest.mark.parametrize(
    ("id", "shown"),
    [("2-1", b"2-1"), ("2", b"2-0"), ("$", b"5-1"), ("-", b"0-0"), ("+", b"%d-%d" % (2 * ((1 << 64) - 1,)))],
)
def test_xgroup_setid_takes_any_id(lab: Lab, id: str, shown: bytes) -> None:
    assert lab.ask(f"XGROUP SETID s g {id}") == OK
    assert lab.group()[b"last-delivered-id"] == shown


def test_xgroup_destroy_says_whether_there_was_one(lab: Lab) -> None:
    assert lab.ask("XGROUP DESTROY s g") == 1
    assert lab.changed == [KEY]
    assert lab.ask("XGROUP DESTROY s g") == 0


def test_xgroup_createconsumer_and_delconsumer(lab: Lab) -> None:
    assert lab.ask("XGROUP CREATECONSUMER s g c") == 1
    assert lab.ask("XGROUP CREATECONSUMER s g c") == 0
    lab.ask("XREADGROUP GROUP g c COUNT 2 STREAMS s >")
    assert lab.ask("XGROUP DELCONSUMER s g c") == 2
    assert lab.ask("XGROUP DELCONSUMER s g c") == 0
    assert lab.ask("XINFO CONSUMERS s g") == []


# -- XREADGROUP and XACK ---------------------------------------------------------------------------------------------


def test_xreadgroup_gives_what_is_new(lab: Lab) -> None:
    assert lab.ask("XREADGROUP GROUP g c COUNT 2 STREAMS s >") == [[KEY, [entry(1), entry(2)]]]
    assert {engine for engine, _ in lab.session.marks} == {lab.topics.get(KEY), lab.topics.get(KEY).groups}  # type: ignore[union-attr]
    assert lab.ask("xreadgroup group g c streams s >") == [[KEY, [entry(3), entry(4), entry(5)]]]
    assert lab.ask("XREADGROUP GROUP g c STREAMS s >") is NULL_ARRAY


@pytest.mark.parametrize("count", [0, -3])
def test_xreadgroup_takes_a_count_that_is_none(lab: Lab, count: int) -> None:
    assert len(lab.ask(f"XREADGROUP GROUP g c COUNT {count} STREAMS s >")[0][1]) == 5


def test_xreadgroup_answers_with_a_map_in_version_3(lab: Lab) -> None:
    lab.session.version = 3
    assert lab.ask("XREADGROUP GROUP g c COUNT 1 STREAMS s >") == Map([(KEY, [entry(1)])])
    lab.ask("XREADGROUP GROUP g c STREAMS s >")
    assert lab.ask("XREADGROUP GROUP g c STREAMS s >") is None


def test_xreadgroup_noack_leaves_nothing_pending(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g c NOACK STREAMS s >")
    assert lab.pending() == []


def test_xreadgroup_with_an_id_gives_what_was_given_before(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g c COUNT 3 STREAMS s >")
    lab.clock.advance(1)
    assert lab.ask("XREADGROUP GROUP g c COUNT 1 STREAMS s 1") == [[KEY, [entry(1)]]]
    assert lab.ask("XREADGROUP GROUP g c STREAMS s 1-1") == [[KEY, [entry(2), entry(3)]]]
    assert [row[2:] for row in lab.pending()] == [(0, 2), (0, 2), (0, 2)]
    assert lab.ask("XREADGROUP GROUP g other BLOCK 5 STREAMS s 0") == [[KEY, []]]


def test_xreadgroup_shows_a_deleted_entry_without_fields(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g c COUNT 1 STREAMS s >")
    lab.topics.get(KEY).delete([ids.make(1, 1)])  # type: ignore[union-attr]
    assert lab.ask("XREADGROUP GROUP g c STREAMS s 0") == [[KEY, [[b"1-1", NULL_ARRAY]]]]


def test_xreadgroup_takes_the_largest_id_for_what_is_new(lab: Lab) -> None:
    largest = (1 << 64) - 1
    assert len(lab.ask(f"XREADGROUP GROUP g c STREAMS s {largest}-{largest}")[0][1]) == 5


def test_xreadgroup_of_several_topics_leaves_out_those_without_anything_new(lab: Lab) -> None:
    lab.ask("XGROUP CREATE t g 0 MKSTREAM")
    assert lab.ask("XREADGROUP GROUP g c COUNT 1 STREAMS t s > >") == [[KEY, [entry(1)]]]
    assert lab.ask("XREADGROUP GROUP g c COUNT 1 STREAMS t s 0 >") == [[b"t", []], [KEY, [entry(2)]]]


def test_xreadgroup_waits_for_what_is_new(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g c STREAMS s >")
    waiting = lab.wait("XREADGROUP GROUP g late BLOCK 1500 NOACK STREAMS s >")
    assert (list(waiting.keys), waiting.seconds, waiting.time_is_up) == ([KEY], 1.5, b"*-1\r\n")
    assert waiting.attempt() is None
    lab.add(6)
    answer = waiting.attempt()
    assert answer is not None and Reply(answer).read() == [[KEY, [entry(6)]]]
    assert all(row[1] == b"c" for row in lab.pending())
    assert lab.wait("XREADGROUP GROUP g late BLOCK 0 STREAMS s >").seconds is None


def test_xreadgroup_does_not_wait_in_a_transaction(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g c STREAMS s >")
    lab.session.is_in_exec = True
    assert lab.ask("XREADGROUP GROUP g c BLOCK 0 STREAMS s >") is NULL_ARRAY


def test_who_waits_for_a_group_or_a_topic_that_goes_is_told(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g c STREAMS s >")
    waiting = lab.wait("XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
    lab.ask("XGROUP DESTROY s g")
    with pytest.raises(Exception, match="NOGROUP the consumer group this client was blocked on no longer exists"):
        waiting.attempt()
    lab.topics.delete(KEY)
    with pytest.raises(Exception, match="UNBLOCKED the stream key no longer exists"):
        waiting.attempt()


def test_xack_says_how_many_were_pending(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g c COUNT 2 STREAMS s >")
    assert lab.ask("XACK s g 1-1 1-1 3-1 9") == 1
    assert lab.ask("XACK s g 1-1") == 0
    assert lab.ask("XACK s no x") == 0
    assert lab.ask("XACK no g x") == 0
    assert [row[0] for row in lab.pending()] == [b"2-1"]


# -- XPENDING --------------------------------------------------------------------------------------------------------


def test_xpending_in_short(lab: Lab) -> None:
    assert lab.ask("XPENDING s g") == [0, None, None, NULL_ARRAY]
    lab.ask("XREADGROUP GROUP g bob COUNT 1 STREAMS s >")
    lab.ask("XREADGROUP GROUP g ann STREAMS s >")
    lab.ask("XGROUP CREATECONSUMER s g idle")
    assert lab.ask("XPENDING s g") == [5, b"1-1", b"5-1", [[b"ann", b"4"], [b"bob", b"1"]]]


def test_xpending_in_full(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g bob COUNT 2 STREAMS s >")
    lab.clock.advance(2)
    lab.ask("XREADGROUP GROUP g ann STREAMS s >")
    rows = [[b"%d-1" % n, b"bob" if n < 3 else b"ann", 2000 if n < 3 else 0, 1] for n in range(1, 6)]
    assert lab.ask("XPENDING s g - + 10") == rows
    assert lab.ask("XPENDING s g - + 2") == rows[:2]
    assert lab.ask("XPENDING s g 2-1 (4-1 10") == rows[1:3]
    assert lab.ask("XPENDING s g 4 4 10") == rows[3:4]
    assert lab.ask("XPENDING s g - + 10 ann") == rows[2:]
    assert lab.ask("XPENDING s g - + 10 nobody") == []
    assert lab.ask("XPENDING s g IDLE 2000 - + 10") == rows[:2]
    assert lab.ask("XPENDING s g idle 2001 - + 10 bob") == []
    assert lab.ask("XPENDING s g IDLE -1 - + 10 ann") == rows[2:]
    assert lab.ask("XPENDING s g - + 0") == lab.ask("XPENDING s g - + -1") == []


def test_an_idle_time_is_never_below_zero(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g c COUNT 1 STREAMS s >")
    lab.clock.jump(-60)
    assert lab.pending() == [(b"1-1", b"c", 0, 1)]
    assert lab.ask("XINFO CONSUMERS s g") == [[b"name", b"c", b"pending", 1, b"idle", 0]]


# -- XCLAIM and XAUTOCLAIM -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "answer", "after"),
    [
        ("0 1-1", [entry(1)], (b"new", 0, 2)),
        ("-7 1-1", [entry(1)], (b"new", 0, 2)),
        ("5000 1-1", [entry(1)], (b"new", 0, 2)),
        ("5001 1-1", [], (b"old", 5000, 1)),
        ("0 1-1 justid", [b"1-1"], (b"new", 0, 1)),
        ("0 1-1 IDLE 700", [entry(1)], (b"new", 700, 2)),
        ("0 1-1 IDLE -700", [entry(1)], (b"new", 0, 2)),
        ("0 1-1 TIME 1700000004000", [entry(1)], (b"new", 1000, 2)),
        ("0 1-1 TIME 99999999999999", [entry(1)], (b"new", 0, 2)),
        ("0 1-1 RETRYCOUNT 9", [entry(1)], (b"new", 0, 9)),
        ("0 1-1 RETRYCOUNT -9", [entry(1)], (b"new", 0, 2)),
        ("0 1-1 RETRYCOUNT 0 JUSTID", [b"1-1"], (b"new", 0, 0)),
    ],
)
def test_xclaim_does_as_it_is_told(lab: Lab, words: str, answer: Any, after: tuple[bytes, int, int]) -> None:
    lab.ask("XREADGROUP GROUP g old COUNT 1 STREAMS s >")
    lab.clock.advance(5)
    assert lab.ask(f"XCLAIM s g new {words}") == answer
    assert lab.pending() == [(b"1-1", *after)]


def test_xclaim_of_what_is_pending_for_nobody_takes_force(lab: Lab) -> None:
    assert lab.ask("XCLAIM s g c 0 1-1 9-1") == []
    assert lab.ask("XINFO CONSUMERS s g") == []
    assert lab.ask("XCLAIM s g c 0 1-1 9-1 FORCE") == [entry(1)]
    assert lab.pending() == [(b"1-1", b"c", 0, 2)]


def test_xclaim_lastid_moves_the_group_on(lab: Lab) -> None:
    lab.ask("XCLAIM s g c 0 1-1 LASTID 3-1")
    assert lab.group()[b"last-delivered-id"] == b"3-1"
    lab.ask("XCLAIM s g c 0 1-1 LASTID 2-1")
    assert lab.group()[b"last-delivered-id"] == b"3-1"


def test_xautoclaim_goes_from_entry_to_entry(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g old STREAMS s >")
    lab.clock.advance(5)
    assert lab.ask("XAUTOCLAIM s g new 5000 - COUNT 2") == [b"3-1", [entry(1), entry(2)], []]
    assert lab.ask("XAUTOCLAIM s g new 5000 (3-1 JUSTID") == [b"0-0", [b"4-1", b"5-1"], []]
    assert lab.ask("XAUTOCLAIM s g new 5001 0") == [b"0-0", [], []]
    assert [row[1:] for row in lab.pending()] == [
        (b"new", 0, 2),
        (b"new", 0, 2),
        (b"old", 5000, 1),
        (b"new", 0, 1),
        (b"new", 0, 1),
    ]


def test_xautoclaim_tells_what_is_gone(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g old STREAMS s >")
    lab.topics.get(KEY).delete([ids.make(2, 1)])  # type: ignore[union-attr]
    assert lab.ask("XAUTOCLAIM s g new 0 0 COUNT 3") == [b"4-1", [entry(1), entry(3)], [b"2-1"]]
    assert [row[0] for row in lab.pending()] == [b"1-1", b"3-1", b"4-1", b"5-1"]


# -- XINFO -----------------------------------------------------------------------------------------------------------


def test_xinfo_groups_and_consumers(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g bob COUNT 2 STREAMS s >")
    lab.ask("XGROUP CREATECONSUMER s g ann")
    lab.clock.advance(3)
    facts: list[tuple[Any, Any]] = [(b"name", b"g"), (b"consumers", 2), (b"pending", 2)]
    facts += [(b"last-delivered-id", b"2-1"), (b"entries-read", 2), (b"lag", 3)]
    consumers = [
        [(b"name", b"ann"), (b"pending", 0), (b"idle", 3000)],
        [(b"name", b"bob"), (b"pending", 2), (b"idle", 3000)],
    ]
    assert lab.ask("XINFO GROUPS s") == [[part for pair in facts for part in pair]]
    assert lab.ask("XINFO CONSUMERS s g") == [[part for pair in one for part in pair] for one in consumers]
    lab.session.version = 3
    assert lab.ask("XINFO GROUPS s") == [Map(facts)]
    assert lab.ask("XINFO CONSUMERS s g") == [Map(one) for one in consumers]


def test_groups_in_full_show_the_oldest_of_what_is_pending(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g bob COUNT 2 STREAMS s >")
    lab.ask("XGROUP CREATECONSUMER s g ann")
    now = lab.clock.now_ns() // 1_000_000
    topic = lab.topics.get(KEY)
    assert topic is not None
    (shown,) = group_commands.groups_in_full(topic.groups, 1)  # type: ignore[misc, union-attr]
    facts = dict(shown.pairs)  # type: ignore[union-attr]
    assert facts[b"pel-count"] == 2 and facts[b"pending"] == [[b"1-1", b"bob", now, 1]]
    ann, bob = (dict(one.pairs) for one in facts[b"consumers"])
    assert ann == {b"name": b"ann", b"seen-time": now, b"pel-count": 0, b"pending": []}
    assert bob == {b"name": b"bob", b"seen-time": now, b"pel-count": 2, b"pending": [[b"1-1", now, 1]]}


def test_a_group_that_retention_overtook_is_told_once_and_goes_on(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g ann COUNT 1 NOACK STREAMS s >")
    assert lab.ask("XGROUP CREATE s late $") == OK
    waiting = lab.wait("XREADGROUP GROUP late ann BLOCK 0 STREAMS s >")
    topic = lab.topics.get(KEY)
    assert topic is not None
    with topic.lock:
        topic.let_go(ids.make(3, 1), 3)
    told = lab.ask("XREADGROUP GROUP g ann STREAMS s >")
    assert isinstance(told, Error) and told.startswith(b"GAP entries behind 1-1 up to 3-1 ")
    assert lab.ask("XREADGROUP GROUP g ann STREAMS s >") == [[b"s", [entry(4), entry(5)]]]
    assert waiting.attempt() is None  # it had read all of them


def test_one_who_waits_is_told_that_retention_overtook_its_group(lab: Lab) -> None:
    lab.ask("XREADGROUP GROUP g ann STREAMS s >")
    waiting = lab.wait("XREADGROUP GROUP g ann BLOCK 0 STREAMS s >")
    lab.add(6)
    lab.add(7)
    topic = lab.topics.get(KEY)
    assert topic is not None
    with topic.lock:
        topic.let_go(ids.make(6, 1), 6)
    answer = waiting.attempt()
    assert answer is not None and answer.startswith(b"-GAP entries behind 5-1 up to 6-1 ")
    assert lab.ask("XREADGROUP GROUP g ann STREAMS s >") == [[b"s", [entry(7)]]]
