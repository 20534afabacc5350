"""The commands about entries of topics: each option by its answer and what it leaves, and all beside a real Redis."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest

from integration.redis_peer import MISSING, PROGRAM, RedisPeer
from integration.resp_wire import NULL_ARRAY, OK, Error, Map, Wire, same
from lamina.clock import ManualClock
from lamina.engines import loops
from lamina.engines.topics.front import Front
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.log.files.memory import MemoryFiles
from lamina.log.options import LogOptions
from lamina.server.resp import group_commands, stream_commands
from lamina.server.resp.dispatch import HANDLERS, run
from lamina.server.resp.session import Args, House, Session, Wait

HANDLERS.update(stream_commands.COMMANDS)
HANDLERS.update(group_commands.COMMANDS)
NODE = b"stream-node-max-entries"
NOW = b"1700000000000"
LARGEST = "18446744073709551615-18446744073709551615"
NOT_LARGER = Error(b"ERR The ID specified in XADD is equal or smaller than the target stream top item")
INVALID = Error(b"ERR Invalid stream ID specified as stream command argument")
Word = bytes | str | int


class Reader(Wire):
    """The client's reader, for an answer that is at hand."""

    def __init__(self, answer: bytes) -> None:
        self._file = BytesIO(answer)  # type: ignore[assignment]


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def house(files: MemoryFiles) -> House:
    clock = ManualClock()
    return House(Topics.open("/topics", files=files, clock=clock, threaded=False), clock)


@pytest.fixture
def session(house: House) -> Session:
    return house.enter()


def words_of(words: tuple[Word, ...]) -> Args:
    return [word if isinstance(word, bytes) else str(word).encode() for word in words]


def ask(session: Session, *words: Word) -> Any:
    session.marks.clear()
    answer = run(session, words_of(words))
    assert isinstance(answer, bytes)
    return Reader(answer).read()


def wait(session: Session, *words: Word) -> Wait:
    answer = run(session, words_of(words))
    assert isinstance(answer, Wait)
    return answer


def add(session: Session, *ids: str, key: str = "s") -> None:
    for id in ids:
        assert not isinstance(ask(session, "XADD", key, id, "f", id), Error)


def all_ids(session: Session, key: str = "s") -> list[str]:
    return [entry[0].decode() for entry in ask(session, "XRANGE", key, "-", "+")]


def topic_of(session: Session, key: bytes = b"s") -> Topic:
    topic = session.topics.get(key)
    assert topic is not None
    return topic


def info(session: Session, *words: Word) -> dict[bytes, Any]:
    flat = ask(session, "XINFO", "STREAM", *words)
    return dict(zip(flat[::2], flat[1::2], strict=True))


# -- XADD ----------------------------------------------------------------------------------------------------------


def test_a_star_takes_the_time_and_counts_within_a_millisecond(session: Session, house: House) -> None:
    assert ask(session, "XADD", "s", "*", "f", "v") == NOW + b"-0"
    assert ask(session, "XADD", "s", "*", "f", "v") == NOW + b"-1"
    house.clock.advance(0.005)  # type: ignore[attr-defined]
    assert ask(session, "XADD", "s", "*", "f", "v", "g", "w") == b"1700000000005-0"
    assert ask(session, "XREVRANGE", "s", "+", "-", "COUNT", 1) == [[b"1700000000005-0", [b"f", b"v", b"g", b"w"]]]


def test_a_star_goes_on_behind_a_last_id_of_the_future(session: Session) -> None:
    add(session, "9700000000000-7")
    assert ask(session, "XADD", "s", "*", "f", "v") == b"9700000000000-8"


def test_an_id_without_a_sequence_has_the_sequence_0(session: Session) -> None:
    assert ask(session, "XADD", "s", "5", "f", "v") == b"5-0"


def test_a_star_as_sequence_is_the_next_one_of_that_millisecond(session: Session) -> None:
    assert ask(session, "XADD", "s", "0-*", "f", "v") == b"0-1"
    assert ask(session, "XADD", "s", "5-*", "f", "v") == b"5-0"
    assert ask(session, "XADD", "s", "5-*", "f", "v") == b"5-1"
    assert ask(session, "XADD", "s", "4-*", "f", "v") == ask(session, "XADD", "s", "0-*", "f", "v") == NOT_LARGER
    add(session, "5-18446744073709551615")
    assert ask(session, "XADD", "s", "5-*", "f", "v") == NOT_LARGER
    assert ask(session, "XADD", "s", "6-*", "f", "v") == b"6-0"


@pytest.mark.parametrize("id", ["5-4", "5-5", "4-9", "0-1"])
def test_an_id_that_is_not_larger_is_refused(session: Session, id: str) -> None:
    add(session, "5-5")
    assert ask(session, "XADD", "s", id, "f", "v") == NOT_LARGER
    assert all_ids(session) == ["5-5"]


def test_behind_the_last_possible_id_nothing_is_added(session: Session) -> None:
    add(session, LARGEST)
    for id in ("*", "1-1", "1-*", LARGEST):
        assert ask(session, "XADD", "s", id, "f", "v").startswith(b"ERR The stream has exhausted the last possible ID")


@pytest.mark.parametrize(
    "words",
    [
        *[(id, "f", "v") for id in ("0-0", "0", "x", "1-", "-", "+", "$", "*-*", "1-1-*", "-*", "1-*x", "")],
        *[("*", "f", "v", "g"), ("*", "f", "v", "g", "w", "h"), ("1-1", "f", "v", "g"), ("NOMKSTREAM", "1-1", "f")],
        *[("MAXLEN", "x", "*", "f", "v"), ("MAXLEN", "-1", "*", "f", "v"), ("MINID", "x", "*", "f", "v")],
        ("MAXLEN", "1", "MINID", "1", "*", "f", "v"),
        ("MAXLEN", "1", "LIMIT", "1", "*", "f", "v"),
        ("MAXLEN", "~", "1", "LIMIT", "-1", "*", "f", "v"),
        ("LIMIT", "1", "*", "f", "v"),
        ("MAXLEN", "=", "5"),
    ],
)
def test_a_refused_xadd_makes_no_topic(session: Session, files: MemoryFiles, words: tuple[str, ...]) -> None:
    before = files.list("/topics")
    assert isinstance(ask(session, "XADD", "s", *words), Error)
    assert files.list("/topics") == before
    assert session.topics.names() == []


def test_an_entry_too_large_for_a_log_makes_no_topic(files: MemoryFiles) -> None:
    clock, options = ManualClock(), LogOptions(max_payload=100)
    topics = Topics.open("/topics", options=options, files=files, clock=clock, threaded=False)
    session = House(topics, clock).enter()
    assert ask(session, "XADD", "s", "*", "f", "v" * 100).startswith(b"ERR ")
    assert all(name.startswith(".") or name == "LOCK" for name in files.list("/topics"))
    add(session, "1-1")
    assert ask(session, "XADD", "s", "*", "f", "v" * 100).startswith(b"ERR ")
    assert all_ids(session) == ["1-1"]


def test_a_name_that_cannot_be_a_folder_is_refused(session: Session) -> None:
    assert b"255" in ask(session, "XADD", "n" * 300, "*", "f", "v")
    assert ask(session, "XADD", "n" * 300, "NOMKSTREAM", "*", "f", "v") is None


def test_nomkstream_adds_to_what_is_there_only(session: Session) -> None:
    assert ask(session, "XADD", "s", "nomkstream", "*", "f", "v") is None
    assert session.topics.names() == []
    add(session, "1-1")
    assert ask(session, "XADD", "s", "NOMKSTREAM", "1-2", "f", "v") == b"1-2"


def test_maxlen_keeps_the_newest(session: Session) -> None:
    add(session, "1-1", "1-2", "1-3")
    assert ask(session, "XADD", "s", "MAXLEN", 2, "1-4", "f", "v") == b"1-4"
    assert all_ids(session) == ["1-3", "1-4"]
    assert ask(session, "XADD", "s", "MAXLEN", "=", 0, "1-5", "f", "v") == b"1-5"
    assert ask(session, "XLEN", "s") == 0


def test_minid_keeps_what_is_not_smaller(session: Session) -> None:
    add(session, "1-1", "1-2", "2-0")
    assert ask(session, "XADD", "s", "MINID", "=", "1-2", "3-0", "f", "v") == b"3-0"
    assert all_ids(session) == ["1-2", "2-0", "3-0"]
    assert ask(session, "XADD", "s", "MINID", "3", "NOMKSTREAM", "4-0", "f", "v") == b"4-0"
    assert all_ids(session) == ["3-0", "4-0"]


@pytest.mark.parametrize("node", [100, 0])
def test_about_maxlen_lets_go_as_many_at_once_as_a_node_holds(session: Session, house: House, node: int) -> None:
    house.settings.node_sizes[NODE] = node
    lengths = []
    for number in range(1, 206):
        ask(session, "XADD", "s", "MAXLEN", "~", 5, f"{number}-0", "f", "v")
        lengths.append(ask(session, "XLEN", "s"))
    assert lengths == [*range(1, 105), *range(5, 105), 5]


def test_about_minid_lets_whole_nodes_go_as_soon_as_they_are_too_old(session: Session) -> None:
    add(session, *(f"{number}-0" for number in range(1, 151)))
    lengths = []
    for number in range(151, 160):
        ask(session, "XADD", "s", "MINID", "~", number - 55, f"{number}-0", "f", "v")
        lengths.append(ask(session, "XLEN", "s"))
    assert lengths == [*range(151, 156), *range(56, 60)], "the first node ends with 100-0"
    assert ask(session, "XTRIM", "s", "MINID", "~", 150) == 0
    assert ask(session, "XTRIM", "s", "MINID", "~", 160) == 59, "nothing is left"


def test_about_minid_reads_the_oldest_entries_once(session: Session, house: House) -> None:
    add(session, *(f"{number}-0" for number in range(1, 151)))
    topic = topic_of(session)
    topic.settle(topic.newest_position())
    topic.tail = type(topic.tail)(topic.state.last_id)  # as after a restart
    topic._front = Front(topic.state, read := Counted(topic._contents.ids_from))
    for number in range(151, 250):
        ask(session, "XADD", "s", "MINID", "~", 2, f"{number}-0", "f", "v")
    assert read.times == 1


class Counted:
    def __init__(self, read: Callable[[EntryId, int], list[EntryId]]) -> None:
        self._read = read
        self.times = 0

    def __call__(self, start: EntryId, most: int) -> list[EntryId]:
        self.times += 1
        return self._read(start, most)


@pytest.mark.parametrize(
    "words", [("XADD", "s", "MINID", "~", "120-0", "200-0", "f", "v"), ("XTRIM", "s", "MINID", "~", "120-0")]
)
def test_a_loop_does_not_read_to_trim_and_has_changed_nothing(session: Session, words: tuple[str, ...]) -> None:
    add(session, *(f"{number}-0" for number in range(1, 151)))
    topic = topic_of(session)
    topic.settle(topic.newest_position())
    topic.tail = type(topic.tail)(topic.state.last_id)  # as after a restart
    topic._front = Front(topic.state, topic._contents.ids_from)
    with loops.at_once(), pytest.raises(loops.MustWait):
        ask(session, *words)
    assert ask(session, "XLEN", "s") == 150
    ask(session, *words)
    assert 50 <= ask(session, "XLEN", "s") <= 51


def test_a_node_of_which_some_were_deleted_goes_as_well(session: Session) -> None:
    add(session, *(f"{number}-0" for number in range(1, 151)))
    ask(session, "XADD", "s", "MINID", "~", 2, "151-0", "f", "v")
    ask(session, "XDEL", "s", *(f"{number}-0" for number in range(1, 100)))
    ask(session, "XADD", "s", "MINID", "~", 120, "152-0", "f", "v")
    assert all_ids(session)[0] == "101-0", "else each XADD would look at it again"
    ask(session, "XDEL", "s", "101-0")
    ask(session, "XADD", "s", "MINID", "~", 120, "153-0", "f", "v")
    assert all_ids(session)[0] == "102-0", "fewer than a node holds"


def test_about_nothing_empties_a_small_topic(session: Session) -> None:
    add(session, "1-1", "1-2", "1-3")
    assert ask(session, "XTRIM", "s", "MAXLEN", "~", 1) == 0
    assert ask(session, "XTRIM", "s", "MAXLEN", "~", 0, "LIMIT", 2) == 0, "a node goes as a whole"
    assert ask(session, "XTRIM", "s", "MAXLEN", "~", 0) == 3
    assert ask(session, "XLEN", "s") == 0
    ask(session, "XADD", "s", "MAXLEN", "~", 0, "2-0", "f", "v")
    assert ask(session, "XLEN", "s") == 0


def test_about_an_entry_is_that_entry_with_nodes_of_one(session: Session, house: House) -> None:
    house.settings.node_sizes[NODE] = 1
    add(session, "1-1", "1-2", "1-3")
    ask(session, "XADD", "s", "MAXLEN", "~", 2, "1-4", "f", "v")
    assert all_ids(session) == ["1-3", "1-4"]
    ask(session, "XADD", "s", "MINID", "~", "1-4", "1-5", "f", "v")
    assert all_ids(session) == ["1-4", "1-5"]


def test_limit_is_the_most_that_go(session: Session, house: House) -> None:
    house.settings.node_sizes[NODE] = 1
    add(session, *(f"1-{number}" for number in range(1, 11)))
    ask(session, "XADD", "s", "MAXLEN", "~", 1, "LIMIT", 2, "2-0", "f", "v")
    assert ask(session, "XLEN", "s") == 9
    assert ask(session, "XTRIM", "s", "MINID", "~", "2-0", "LIMIT", 3) == 3
    assert ask(session, "XTRIM", "s", "MAXLEN", "~", 1, "LIMIT", 0) == 5


def test_limit_lets_whole_nodes_go_only(session: Session, house: House) -> None:
    house.settings.node_sizes[NODE] = 3
    add(session, *(f"1-{number}" for number in range(1, 11)))
    assert ask(session, "XTRIM", "s", "MAXLEN", "~", 1, "LIMIT", 2) == 0
    assert ask(session, "XTRIM", "s", "MAXLEN", "~", 1, "LIMIT", 4) == 3
    assert ask(session, "XTRIM", "s", "MAXLEN", "~", 0, "LIMIT", 6) == 6
    assert ask(session, "XTRIM", "s", "MAXLEN", "~", 0, "LIMIT", 1) == 1, "the last node holds one"


def test_without_limit_a_hundred_nodes_go(session: Session, house: House) -> None:
    house.settings.node_sizes[NODE] = 1
    add(session, *(f"1-{number}" for number in range(1, 121)))
    assert ask(session, "XTRIM", "s", "MAXLEN", "~", 0) == 100
    assert ask(session, "XTRIM", "s", "MAXLEN", 0) == 20


def test_xadd_tells_who_waits_and_nothing_else_does(session: Session, house: House) -> None:
    changed: list[bytes] = []
    house.changed = changed.append
    add(session, "1-1", "1-2")
    ask(session, "XADD", "s", "*", "f", "v")
    assert changed == [b"s"] * 3
    ask(session, "XADD", "s", "1-1", "f", "v")
    ask(session, "XADD", "t", "NOMKSTREAM", "*", "f", "v")
    ask(session, "XDEL", "s", "1-1")
    ask(session, "XTRIM", "s", "MAXLEN", 0)
    ask(session, "XSETID", "s", LARGEST)
    assert changed == [b"s"] * 3


# -- XLEN, XRANGE, XREVRANGE ---------------------------------------------------------------------------------------


def test_xlen_counts_what_is_there(session: Session) -> None:
    assert ask(session, "XLEN", "s") == 0
    add(session, "1-1", "1-2")
    assert ask(session, "XLEN", "s") == 2
    ask(session, "XDEL", "s", "1-1")
    assert ask(session, "XLEN", "s") == 1


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        ("-", "+", ["1-1", "1-2", "2-0", "3-5"]),
        ("1", "1", ["1-1", "1-2"]),
        ("1-2", "2", ["1-2", "2-0"]),
        ("(1-1", "(3-5", ["1-2", "2-0"]),
        ("(1", "(2", ["1-1", "1-2", "2-0"]),
        ("+", "-", []),
        ("4", "+", []),
        ("3", "2", []),
    ],
)
def test_a_range_from_one_id_to_another(session: Session, start: str, end: str, found: list[str]) -> None:
    add(session, "1-1", "1-2", "2-0", "3-5")
    entries = [[id.encode(), [b"f", id.encode()]] for id in found]
    assert ask(session, "XRANGE", "s", start, end) == entries
    assert ask(session, "XREVRANGE", "s", end, start) == entries[::-1]


def test_the_count_of_a_range(session: Session) -> None:
    assert ask(session, "XRANGE", "s", "-", "+", "COUNT", 0) == []
    add(session, "1-1", "1-2", "1-3")
    for count, found in ((1, ["1-1"]), (2, ["1-1", "1-2"]), (9, ["1-1", "1-2", "1-3"])):
        assert [id.decode() for id, _ in ask(session, "XRANGE", "s", "-", "+", "count", count)] == found
    assert [id for id, _ in ask(session, "XREVRANGE", "s", "+", "-", "COUNT", 5, "COUNT", 1)] == [b"1-3"]
    for count in (0, -1):
        assert ask(session, "XRANGE", "s", "-", "+", "COUNT", count) is NULL_ARRAY


# -- XREAD ---------------------------------------------------------------------------------------------------------


def test_xread_gives_what_is_behind_an_id(session: Session) -> None:
    add(session, "1-1", "1-2", "2-0")
    add(session, "7-0", key="t")
    entry = [b"2-0", [b"f", b"2-0"]]
    assert ask(session, "XREAD", "STREAMS", "s", "1-2") == [[b"s", [entry]]]
    assert ask(session, "XREAD", "COUNT", 1, "STREAMS", "s", "1") == [[b"s", [[b"1-1", [b"f", b"1-1"]]]]]
    assert ask(session, "XREAD", "streams", "t", "none", "s", "7-0", "0", "1-2") == [[b"s", [entry]]]
    both = ask(session, "XREAD", "COUNT", 0, "STREAMS", "s", "t", "0", "0")
    assert [(key, len(entries)) for key, entries in both] == [(b"s", 3), (b"t", 1)]
    session.version = 3
    assert same(ask(session, "XREAD", "STREAMS", "s", "1-2"), Map([(b"s", [entry])]))


@pytest.mark.parametrize("words", [("s", "$"), ("s", "1-1"), ("none", "0"), ("none", "$"), ("s", LARGEST)])
def test_xread_that_finds_nothing_gives_null(session: Session, words: tuple[str, ...]) -> None:
    add(session, "1-1")
    assert ask(session, "XREAD", "STREAMS", *words) is NULL_ARRAY
    session.version = 3
    assert run(session, words_of(("XREAD", "STREAMS", *words))) == b"_\r\n"


def test_block_waits_for_the_first_topic_that_has_news(session: Session) -> None:
    add(session, "1-1")
    waiting = wait(session, "XREAD", "BLOCK", 1500, "STREAMS", "none", "s", "0", "$")
    assert (list(waiting.keys), waiting.seconds, waiting.time_is_up) == ([b"none", b"s"], 1.5, b"*-1\r\n")
    assert waiting.attempt() is None
    add(session, "1-2")
    add(session, "1-0", key="none")
    session.marks.clear()
    answer = waiting.attempt()
    assert answer is not None
    assert Reader(answer).read() == [[b"none", [[b"1-0", [b"f", b"1-0"]]]]]
    topic = topic_of(session, b"none")
    assert session.marks == [(topic, topic.newest_position())]


def test_a_wait_gives_what_came_since_it_began(session: Session) -> None:
    add(session, "1-1")
    waiting = wait(session, "XREAD", "BLOCK", 0, "COUNT", 1, "STREAMS", "s", "$")
    assert waiting.seconds is None
    add(session, "1-2", "1-3")
    assert waiting.attempt() == b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-2\r\n*2\r\n$1\r\nf\r\n$3\r\n1-2\r\n"


def test_a_wait_gives_a_thousand_entries_at_most_to_who_named_no_number(session: Session) -> None:
    waiting = wait(session, "XREAD", "BLOCK", 0, "STREAMS", "s", "0")
    add(session, *(f"1-{number}" for number in range(1, 1002)))
    answer = waiting.attempt()
    assert answer is not None
    assert len(Reader(answer).read()[0][1]) == 1000


def test_block_does_not_wait_when_there_is_something_or_in_a_transaction(session: Session) -> None:
    add(session, "1-1")
    assert ask(session, "XREAD", "BLOCK", 0, "STREAMS", "s", "0") == [[b"s", [[b"1-1", [b"f", b"1-1"]]]]]
    session.is_in_exec = True
    assert ask(session, "XREAD", "BLOCK", 0, "STREAMS", "s", "$") is NULL_ARRAY


# -- XDEL, XTRIM, XSETID -------------------------------------------------------------------------------------------


def test_xdel_counts_what_was_there(session: Session) -> None:
    assert ask(session, "XDEL", "s", "no id at all") == 0
    add(session, "1-1", "1-2", "1-3")
    assert ask(session, "XDEL", "s", "1-1", "1-1", "9-9", "1-3") == 2
    assert all_ids(session) == ["1-2"]
    assert ask(session, "XDEL", "s", "1-2", "x") == INVALID
    assert all_ids(session) == ["1-2"]


def test_xtrim_to_a_length_or_an_id(session: Session) -> None:
    assert ask(session, "XTRIM", "s", "MAXLEN", 1) == 0
    add(session, "1-1", "1-2", "2-1", "3-1")
    assert ask(session, "XTRIM", "s", "MAXLEN", 4) == 0
    assert ask(session, "XTRIM", "s", "maxlen", "=", 3) == 1
    assert ask(session, "XTRIM", "s", "MINID", "2") == 1
    assert ask(session, "XTRIM", "s", "MINID", "=", "0") == 0
    assert all_ids(session) == ["2-1", "3-1"]


def test_xsetid_sets_what_the_next_id_has_to_be_behind(session: Session) -> None:
    add(session, "1-1")
    assert ask(session, "XSETID", "s", "7") == OK
    assert ask(session, "XADD", "s", "7-0", "f", "v") == NOT_LARGER
    assert ask(session, "XADD", "s", "7-*", "f", "v") == b"7-1"
    assert ask(session, "XSETID", "s", "9-0", "ENTRIESADDED", 50, "MAXDELETEDID", "8-0") == OK
    facts = info(session, "s")
    assert (facts[b"entries-added"], facts[b"max-deleted-entry-id"]) == (50, b"8-0")
    assert ask(session, "XSETID", "s", "9-0", "MAXDELETEDID", "0-0") == OK
    assert info(session, "s")[b"max-deleted-entry-id"] == b"8-0"


@pytest.mark.parametrize("take_away", [("XDEL", "s", "5-1"), ("XTRIM", "s", "MAXLEN", "0")])
def test_xsetid_does_not_go_back_behind_what_is_gone(session: Session, take_away: tuple[str, ...]) -> None:
    """Redis does; here an entry under such an id would count and not be found."""
    add(session, "1-1", "5-1")
    ask(session, *take_away)
    assert isinstance(ask(session, "XSETID", "s", "3-0"), Error)
    assert ask(session, "XSETID", "s", "5-1") == OK
    add(session, "5-2")
    assert all_ids(session)[-1] == "5-2"


# -- XINFO STREAM --------------------------------------------------------------------------------------------------


def test_xinfo_stream_tells_its_facts(session: Session) -> None:
    add(session, "1-1", "1-2", "1-3", "2-0")
    ask(session, "XDEL", "s", "1-2")
    ask(session, "XTRIM", "s", "MINID", "1-2")
    ask(session, "XGROUP", "CREATE", "s", "g", "0")
    assert info(session, "s") == {
        b"length": 2,
        b"radix-tree-keys": 1,
        b"radix-tree-nodes": 2,
        b"last-generated-id": b"2-0",
        b"max-deleted-entry-id": b"1-2",
        b"entries-added": 4,
        b"recorded-first-entry-id": b"1-3",
        b"groups": 1,
        b"first-entry": [b"1-3", [b"f", b"1-3"]],
        b"last-entry": [b"2-0", [b"f", b"2-0"]],
    }
    session.version = 3
    assert isinstance(ask(session, "XINFO", "STREAM", "s"), Map)


@pytest.mark.parametrize(("count", "shown"), [((), 10), (("COUNT", 3), 3), (("count", 0), 12), (("COUNT", -4), 10)])
def test_xinfo_full_shows_so_many_entries_and_pending_ones(
    session: Session, count: tuple[Word, ...], shown: int
) -> None:
    add(session, *(f"1-{number}" for number in range(1, 13)))
    ask(session, "XGROUP", "CREATE", "s", "g", "0")
    ask(session, "XREADGROUP", "GROUP", "g", "ann", "STREAMS", "s", ">")
    facts = info(session, "s", "FULL", *count)
    assert len(facts[b"entries"]) == shown
    group = dict(zip(facts[b"groups"][0][::2], facts[b"groups"][0][1::2], strict=True))
    assert (group[b"pel-count"], len(group[b"pending"])) == (12, shown)
    (consumer,) = group[b"consumers"]
    assert consumer[:2] == [b"name", b"ann"]
    assert len(consumer[-1]) == shown


# -- what answers rest on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("XADD", "s", "*", "f", "v"),
        ("XADD", "s", "MAXLEN", "1", "9-9", "f", "v"),
        ("XDEL", "s", "1-1"),
        ("XDEL", "s", "9-9"),
        ("XTRIM", "s", "MAXLEN", "1"),
        ("XTRIM", "s", "MAXLEN", "9"),
        ("XSETID", "s", "9-9"),
        ("XLEN", "s"),
        ("XRANGE", "s", "9", "+"),
        ("XRANGE", "s", "1-2", "+"),
        ("XRANGE", "s", "-", "+", "COUNT", "0"),
        ("XREAD", "STREAMS", "s", "0"),
        ("XREAD", "STREAMS", "s", "$"),
        ("XINFO", "STREAM", "s"),
        ("XINFO", "STREAM", "s", "FULL"),
    ],
)
def test_an_answer_rests_on_the_newest_that_it_shows(session: Session, words: tuple[str, ...]) -> None:
    add(session, "1-1", "1-2")
    assert not isinstance(ask(session, *words), Error)
    topic = topic_of(session)
    assert topic.newest_position()
    assert (topic, topic.newest_position()) in session.marks


def test_an_answer_about_what_is_old_rests_on_nothing_new(session: Session) -> None:
    add(session, "1-1")
    topic = topic_of(session)
    old = topic.newest_position()
    add(session, "1-2")
    ask(session, "XRANGE", "s", "-", "1-1")
    assert session.marks == [(topic, old)]
    assert topic.newest_position() > old


# -- beside a real Redis -------------------------------------------------------------------------------------------

_TRIMS = [
    *("MAXLEN", "MAXLEN 1", "MAXLEN ~", "MAXLEN = x", "MAXLEN 1 MAXLEN 1", "MAXLEN 1 MINID 1", "MINID", "MINID ~ x"),
    *("LIMIT 0", "LIMIT 1", "MAXLEN 9 LIMIT 0", "MAXLEN ~ 9 LIMIT 0", "MAXLEN ~ 9 LIMIT x", "MAXLEN ~ 9 LIMIT -1"),
    *("LIMIT 5 MINID ~ 0", "NOMKSTREAM", "NOPE 1"),
]
_COUNTS = ("COUNT", "COUNT 0", "COUNT x", "NOPE", "COUNT 1 COUNT 9", "COUNT 9223372036854775808")
_TALK = {
    "XADD s": [f"{trims} {id} f v" for trims in _TRIMS for id in ("0-0", "x", "1-*")],
    "XADD n": [f"{trims} {id} f v" for trims in _TRIMS for id in ("0-0", "x")],
    "XTRIM s": _TRIMS,
    "XTRIM none": _TRIMS,
    "XADD t": ["* f", "5 f v g", "MAXLEN 3 5 f", "MAXLEN 3 5", "= 5 f v", "5-5 f v", "4 f v", "0-* f v", "5-* f v"],
    "XRANGE t": ["- +", "+ -", "(5 (9", "( +", "- x", "x y", f"({LARGEST} +", "- (0-0", "(- +", "- (+", "(5-5 +"],
    "XREVRANGE t": ["+ -", "- +", "(9 (5", "+ (", "x -", "y x", "(0-0 -", f"+ ({LARGEST}"],
    "XRANGE t - +": _COUNTS,
    "XRANGE none - +": _COUNTS,
    "XREAD": [
        "STREAMS t",
        "STREAMS t n 0",
        "t 0 STREAMS",
        "COUNT 1 NOPE",
        "BLOCK 1 COUNT",
        "COUNT 1 GROUP g",
        "STREAMS n t 0 0",
    ],
    "XREAD STREAMS": ["t >", "t x", "none x", "t t 0 $", "none $", f"t {LARGEST}", "t -", "t 5-5"],
    "XDEL": ["none x", "t x", "t 5-5 x", "t 5-5 5-5"],
    "XSETID": ["none x", "none 1", "none 1 NOPE", "s 0-1", "s x", "t 5-5"],
    "XSETID s 9": ["NOPE", "ENTRIESADDED", "ENTRIESADDED -1", "ENTRIESADDED x", "ENTRIESADDED 0", "MAXDELETEDID"],
    "XSETID s 10": ["MAXDELETEDID 10-1", "MAXDELETEDID x", "MAXDELETEDID 0", "ENTRIESADDED 9 MAXDELETEDID 8"],
    "XGROUP CREATE s g": ["0"],
    "XINFO STREAM": ["none", "none NOPE", "s", "t"],
    "XINFO STREAM s": ["NOPE", "FULL", "FULL COUNT", "FULL COUNT x", "FULL NOPE 1", "FULL COUNT 1 1", "full count -1"],
    "XLEN": ["s", "none", "s s", ""],
    "XADD u": [f"{LARGEST} f v", "* f v", "1 f v", "1-* f v", "0-0 f v"],
    "XTRIM u": ["MAXLEN 0"],
    "XINFO STREAM u": ["", "FULL", "FULL COUNT 0"],
    "XREAD STREAMS u": ["0", "$"],
}
_TALK |= {
    f"XREAD {words} STREAMS t": ["0"] for words in ("COUNT x", "COUNT -1", "COUNT 1 COUNT 0", "BLOCK x", "BLOCK -1")
}
_TALK |= {f"XREAD {words} STREAMS s": ["0"] for words in ("NOACK", "GROUP g c", "GROUP g", "NOPE", "BLOCK 1.5")}


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
@pytest.mark.parametrize("version", [2, 3])
def test_every_word_is_answered_as_redis_does(session: Session, house: House, version: int) -> None:
    house.settings.node_sizes[NODE] = 1
    session.version = version
    with RedisPeer("--stream-node-max-entries", 1) as peer, Wire(peer.port) as client:
        client.ask("HELLO", version)
        for line in [f"{start} {words}" for start, ends in _TALK.items() for words in ends]:
            expected, said = client.ask(*line.split()), ask(session, *line.split())
            if line.startswith("XINFO STREAM"):
                expected, said = without_tree(expected), without_tree(said)
            assert same(expected, said), f"{line}: Redis {expected!r}, Lamina {said!r}"


_NODES = [
    *("XADD s MINID ~ 500 1 f v", "XLEN s", "XTRIM s MAXLEN ~ 0", "XADD s MINID ~ 1 2 f v", "XTRIM s MAXLEN ~ 0"),
    *(f"XADD s {number} f v" for number in range(10, 265)),
    *("XTRIM s MINID ~ 100", "XTRIM s MINID ~ 109", "XTRIM s MINID ~ 110", "XLEN s", "XTRIM s MAXLEN ~ 60"),
    *("XTRIM s MAXLEN ~ 55", "XADD s MINID ~ 264 300 f v", "XLEN s", "XTRIM s MAXLEN ~ 1", "XTRIM s MAXLEN ~ 0"),
    *("XLEN s", "XADD s MAXLEN ~ 0 301 f v", "XLEN s"),
    *(f"XADD s MINID ~ {number - 130} {number} f v" for number in range(400, 650)),
    *("XLEN s", "XRANGE s - + COUNT 1", "XTRIM s MINID ~ 1000 LIMIT 100", "XTRIM s MINID ~ 1000 LIMIT 99", "XLEN s"),
    *("XADD s MINID ~ 2000 1000 f v", "XLEN s"),
]


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
def test_about_trims_whole_nodes_as_redis_does(session: Session) -> None:
    """Entries are small: where they are not, nodes of Redis end by their bytes, too."""
    with RedisPeer("--stream-node-max-bytes", 0) as peer, Wire(peer.port) as client:
        for line in _NODES:
            expected, said = client.ask(*line.split()), ask(session, *line.split())
            assert same(expected, said), f"{line}: Redis {expected!r}, Lamina {said!r}"


def without_tree(reply: Any) -> Any:
    """How many nodes there are is the server's own."""
    if isinstance(reply, Map):
        return Map(pair for pair in reply if not pair[0].startswith(b"radix-tree"))
    return reply if isinstance(reply, Error) else reply[:2] + reply[6:]


def test_xread_plus_gives_the_newest_entry_that_is_there(session: Session) -> None:
    """As Redis does since 7.4."""
    add(session, "1-1", "2-1", "3-1")
    ask(session, "XDEL", "s", "3-1")
    assert ask(session, "XREAD", "COUNT", 10, "STREAMS", "s", "+") == [[b"s", [[b"2-1", [b"f", b"2-1"]]]]]
    assert ask(session, "XREAD", "STREAMS", "none", "+") is NULL_ARRAY


def test_an_id_set_back_shows_later_entries_once(session: Session) -> None:
    add(session, "1-1")
    ask(session, "XSETID", "s", "100-0")
    topic = session.topics.get(b"s")
    assert topic is not None
    topic.tail = type(topic.tail)(topic.state.last_id)  # as after a restart
    ask(session, "XSETID", "s", "50-0")
    add(session, "60-0")
    topic.settle(topic.newest_position())
    assert all_ids(session) == ["1-1", "60-0"]


def test_more_entries_than_memory_should_hold_are_refused(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    add(session, *(f"{number}-0" for number in range(1, 30)))
    monkeypatch.setattr("lamina.engines.topics.finding.MOST_BYTES", 100)
    topic = session.topics.get(b"s")
    assert topic is not None
    assert b"use COUNT" in ask(session, "XREVRANGE", "s", "+", "-")
    assert len(ask(session, "XREVRANGE", "s", "+", "-", "COUNT", 3)) == 3
    topic.settle(topic.newest_position())
    topic.tail = type(topic.tail)(topic.state.last_id)  # as after a restart
    assert b"use COUNT" in ask(session, "XRANGE", "s", "-", "+")
    assert len(ask(session, "XRANGE", "s", "-", "+", "COUNT", 3)) == 3


@pytest.mark.parametrize("reading", [("XRANGE", "s", "-", "+"), ("XREVRANGE", "s", "+", "-")])
@pytest.mark.parametrize("taking", [("XDEL", "s", "2-0"), ("XTRIM", "s", "MAXLEN", 1)])
def test_who_does_not_see_an_entry_rests_on_what_took_it_away(
    session: Session, taking: tuple[Word, ...], reading: tuple[Word, ...]
) -> None:
    add(session, "1-0", "2-0", "3-0")
    ask(session, *taking)
    [(topic, removed)] = session.marks
    ask(session, *reading)
    assert session.marks == [(topic, removed)]
