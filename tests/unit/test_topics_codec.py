"""Records and ids of topics: there and back, as msgpack has it, and no damage does more than raise."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lamina.engines.topics import codec, entries, ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.state import State
from lamina.errors import BadTopic

IDS = st.integers(0, (1 << 128) - 1).map(EntryId) | st.sampled_from([ids.FIRST, ids.LAST, ids.make(1, 0)])
FIELDS = st.lists(st.binary(max_size=300), max_size=40)


@given(IDS, FIELDS)
def test_an_entry_is_read_as_it_was_written(id: EntryId, fields: list[bytes]) -> None:
    assert entries.decode(entries.encode(id, fields)) == (id, fields)


@pytest.mark.parametrize("size", [0, 255, 256, 65_535, 65_536])
def test_values_of_every_size_are_read_as_they_were_written(size: int) -> None:
    id, fields = ids.make(1, 2), [b"name", b"v" * size]
    assert entries.decode(entries.encode(id, fields)) == (id, fields)


@pytest.mark.parametrize("count", [0, 12, 13, 14, 65_532, 65_533])
def test_as_many_fields_as_are_wanted(count: int) -> None:
    assert len(entries.decode(entries.encode(ids.make(1, 2), [b""] * count))[1]) == count


@given(IDS, FIELDS, st.data())
def test_an_entry_that_was_cut_is_bad(id: EntryId, fields: list[bytes], data: st.DataObject) -> None:
    record = entries.encode(id, fields)
    cut = record[: data.draw(st.integers(0, len(record) - 1))]
    with pytest.raises(codec.BadRecord):
        entries.decode(cut)


@given(st.binary(max_size=60))
@example(b"\x91\x02")  # a deletion of nothing
def test_any_bytes_are_a_record_or_bad(junk: bytes) -> None:
    state = State()
    try:
        state.apply(junk)
    except codec.BadRecord:
        assert not state.exists


def test_an_entry_with_bytes_behind_its_end_is_bad() -> None:
    with pytest.raises(codec.BadRecord, match="more than"):
        entries.decode(entries.encode(ids.make(1, 2), [b"a", b"b"]) + b"x")


# -- ids -----------------------------------------------------------------------------------------------------------


@given(IDS)
def test_an_id_is_read_as_it_is_shown(id: EntryId) -> None:
    assert ids.parse(ids.show(id)) == id
    assert ids.make(ids.ms_of(id), ids.sequence_of(id)) == id


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"-",
        b"1-",
        b"-1",
        b"a",
        b"1-a",
        b"1-2-3",
        b"1 ",
        b"6--1",
        b"7-- 1",
        b"8-+ 1",
        b"0x10",
        b"11-" + b"0" * 130 + b"1",
        b"1_0",
        b"18446744073709551616",
        b"1.5",
    ],
)
def test_what_is_no_id_is_refused_as_redis_does(text: bytes) -> None:
    with pytest.raises(BadTopic, match="Invalid stream ID specified as stream command argument"):
        ids.parse(text)


@pytest.mark.parametrize(
    ("text", "ms", "sequence"),
    [
        (b"01-1", 1, 1),
        (b"+2", 2, 0),
        (b"5-+1", 5, 1),
        (b"6-01", 6, 1),
        (b" 9", 9, 0),
        (b"5- 1", 5, 1),
        (b"9-\t+3", 9, 3),
        (b"12-" + b"0" * 120 + b"1", 12, 1),
    ],
)
def test_oddities_of_redis_are_taken(text: bytes, ms: int, sequence: int) -> None:
    """Each was sent to a real Redis 7.0."""
    assert ids.parse(text) == ids.make(ms, sequence)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        (b"-", ids.FIRST, ids.FIRST),
        (b"+", ids.LAST, ids.LAST),
        (b"5", ids.make(5, 0), ids.make(5, 2**64 - 1)),
        (b"5-3", ids.make(5, 3), ids.make(5, 3)),
        (b"(5-3", ids.make(5, 4), ids.make(5, 2)),
        (b"(5", ids.make(5, 1), ids.make(5, 2**64 - 2)),
        (b"(5-18446744073709551615", ids.make(6, 0), ids.make(5, 2**64 - 2)),
    ],
)
def test_the_ends_of_a_range(text: bytes, start: EntryId, end: EntryId) -> None:
    assert (ids.parse_start(text), ids.parse_end(text)) == (start, end)


def test_a_range_that_excludes_all_is_refused() -> None:
    with pytest.raises(BadTopic, match="invalid start ID for the interval"):
        ids.parse_start(b"(18446744073709551615-18446744073709551615")
    with pytest.raises(BadTopic, match="invalid end ID for the interval"):
        ids.parse_end(b"(0-0")
