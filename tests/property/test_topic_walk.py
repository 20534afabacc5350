"""A walk gives the entries as they were when it began, whatever is added, deleted or trimmed between its pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lamina.engines.topics.entries import entry_id
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.walk import Walk
from lamina.log import OS, LogOptions
from lamina.testing import ManualClock, MemoryFiles

MOST = 40
some_ids = st.integers(1, MOST).map(EntryId)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("delete"), st.sets(some_ids, min_size=1, max_size=10)),
        st.tuples(st.just("trim"), some_ids),
        st.tuples(st.just("add"), st.integers(1, 5)),
    ),
    max_size=4,
)


def change(topic: Topic, what: str, given: object) -> None:
    if what == "delete":
        assert isinstance(given, set)
        topic.delete(sorted(given))
    elif what == "trim":
        assert isinstance(given, int)
        topic.trim_to(EntryId(given))
    else:
        assert isinstance(given, int)
        for _ in range(given):
            topic.add([b"f", b"v" * 100], EntryId(topic.state.last_id + 1))
    topic.push()


@given(
    changes, st.lists(changes, max_size=6), some_ids, some_ids, st.none() | st.integers(0, MOST), st.booleans(),
    st.sampled_from([1, 500, 2000]),
)  # fmt: skip
def test_it_is_as_it_was(
    before: list[tuple[str, object]],
    between: list[list[tuple[str, object]]],
    start: EntryId,
    end: EntryId,
    most: int | None,
    newest_first: bool,
    enough: int,
) -> None:
    files, clock = MemoryFiles(), ManualClock()
    topic = Topic.open("/t", options=LogOptions(sync=OS), files=files, clock=clock, threaded=False, tail_bytes=1500)
    for _ in range(MOST):
        topic.add([b"f", b"v" * 100], EntryId(topic.state.last_id + 1))
        topic.push()
    for each in before:
        change(topic, *each)
    expected, position = topic.records(start, end, most, newest_first=newest_first)
    walk = Walk(topic, start, end, most, newest_first=newest_first)
    assert walk.count(enough, lambda: False) == len(expected)
    assert not expected or walk.position >= position
    found: list[bytes] = []
    doings = iter(between)
    while not walk.is_over:
        found += walk.next(enough)
        for each in next(doings, ()):
            change(topic, *each)
    assert [entry_id(record) for record in found] == [entry_id(record) for record in expected]
    assert found == expected and walk.given == len(expected)
    assert walk.next(enough) == []
    topic.close()
