"""What is remembered of what nobody has used since the start: no more than is allowed, and each thing once."""

from __future__ import annotations

from itertools import pairwise

from lamina.server.measures.unopened import Unopened


def test_no_more_is_remembered_than_is_allowed() -> None:
    found: Unopened[tuple[int, ...]] = Unopened(5, len)
    found.expect([b"c", b"b", b"a"])
    for name, numbers in ((b"a", (1, 2, 3)), (b"b", (1, 2, 3)), (b"c", (1, 2))):
        assert found.next() == name
        assert found.saw(name, numbers) == (name != b"b")
    assert (found.seen(), found.unknown) == ({b"a": (1, 2, 3), b"c": (1, 2)}, 1)
    found.told(b"a", is_left=False)
    found.retry()
    assert found.next() == b"b" and found.saw(b"b", (1, 2, 3)), "there is room again"
    assert (found.seen(), found.unknown) == ({b"c": (1, 2), b"b": (1, 2, 3)}, 0)


def test_what_is_known_or_was_put_aside_is_not_looked_at_once_more() -> None:
    found: Unopened[int] = Unopened(5)
    found.expect([b"c", b"b", b"a"])
    assert found.next() == b"a" and found.saw(b"a", 1)
    assert found.next() == b"b" and found.put_aside(b"b")
    assert found.next() == b"c"
    found.expect([b"a", b"b", b"c"])
    assert (found.unknown, found.aside) == (2, 1)
    assert found.saw(b"c", None) and found.next() is None
    assert (found.seen(), found.unknown) == ({b"a": 1}, 1)


def test_ten_thousand_are_counted_down_one_by_one() -> None:
    found: Unopened[tuple[int, ...]] = Unopened(100_000, len)
    found.expect(b"t%d" % number for number in range(10_000))
    counts = [found.unknown]
    while (name := found.next()) is not None:
        found.saw(name, None if name.endswith(b"1") else (1,))
        counts.append(found.unknown)
    assert counts[0] == 10_000 and counts[-1] == 0
    assert all(before - after == 1 for before, after in pairwise(counts))
    assert len(found.seen()) == 9_000
