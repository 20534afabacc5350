"""What of the recent past stays, and how much room it may take."""

from __future__ import annotations

import pytest

from lamina.errors import BadOption
from lamina.log.files.memory import MemoryFiles
from lamina.log.history import Base, Dead, History

S = 10**9
NOW = 10_000 * S


def test_dead_files_stay_for_as_long_as_the_past_is_kept() -> None:
    history = History(keep_s=60)
    dead = [Dead("old", NOW - 61 * S, 10), Dead("young", NOW - 59 * S, 10)]
    assert {"young"} == history.held("log", dead, NOW)
    assert set() == history.held("log", dead, NOW + 2 * S)


def test_nothing_stays_where_no_past_is_kept() -> None:
    assert set() == History(keep_s=0).held("log", [Dead("a", NOW, 10)], NOW)


def test_the_past_gives_way_from_its_old_end_and_without_holes_when_the_room_ends() -> None:
    history = History(keep_s=60, most_bytes=lambda: 25)
    dead = [Dead("a", NOW - 3 * S, 1), Dead("b", NOW - 2 * S, 20), Dead("c", NOW - S, 10)]
    assert {"c"} == history.held("log", dead, NOW)
    assert history.bytes == 10


def test_the_room_is_one_for_all_who_ask() -> None:
    history = History(keep_s=60, most_bytes=lambda: 25)
    assert {"a"} == history.held("one", [Dead("a", NOW, 20)], NOW)
    assert set() == history.held("other", [Dead("b", NOW, 20)], NOW)
    assert set() == history.held("one", [], NOW)
    assert {"b"} == history.held("other", [Dead("b", NOW, 20)], NOW)
    history.forget("other")
    assert history.bytes == 0


def base(ago_s: int, size: int, later: int, *, now: int = NOW) -> Base:
    """``size``: of its file, whose name is when it was made."""
    since = now - ago_s * S
    return Base(since, {str(since): size}, later)


def test_what_shows_all_of_the_time_stays_and_older_goes() -> None:
    history = History(keep_s=60)
    bases = [base(100, 1, 9), base(61, 1, 9), base(30, 1, 9)]
    assert history.bases("queues", bases, NOW, NOW) == [1, 2]
    assert history.bytes == history.bytes_of("queues") == 1 + 9 + 1 + 9


def test_if_nothing_goes_back_so_far_all_there_is_stays() -> None:
    assert History(keep_s=60).bases("queues", [base(40, 1, 9), base(20, 1, 9)], NOW, NOW) == [0, 1]


def test_nothing_stays_if_the_present_one_shows_all_of_the_time() -> None:
    history = History(keep_s=60)
    assert history.bases("queues", [base(100, 1, 9)], NOW, NOW) == [0]
    assert history.bases("queues", [base(100, 1, 9)], NOW - 60 * S, NOW) == []
    assert history.bytes == 0
    assert History(keep_s=0).bases("queues", [base(100, 1, 9)], NOW, NOW) == []


def test_a_base_that_is_large_beside_the_logs_before_it_goes() -> None:
    history = History(keep_s=60)
    bases = [base(50, 10, 39), base(40, 10, 1), base(30, 10, 1), base(20, 10, 1)]
    assert history.bases("queues", bases, NOW, NOW) == [0, 2]
    shared = [Base(one.since_ns, {"the same": 10}, 0) for one in bases]
    assert history.bases("queues", shared, NOW, NOW) == [0, 1, 2, 3], "those cost nothing"


def test_the_past_comes_to_an_end_however_often_something_is_compacted() -> None:
    """Each former state is made every second, and what was kept the last time is all there is."""
    history = History(keep_s=60)
    bases: list[Base] = []
    for second in range(1000):
        now = NOW + second * S
        bases.append(Base(now, {str(second): 1000}, 1))
        bases = [bases[number] for number in history.bases("store", bases, now + 1, now + 1)]
        assert len(bases) <= 3
        assert bases[0].since_ns <= max(now - 60 * S, NOW)
        assert bases[0].since_ns >= now - 121 * S


def test_if_room_ends_the_past_gives_way_in_pieces() -> None:
    room = 1000
    history = History(keep_s=60, most_bytes=lambda: room)
    bases = [base(50, 10, 40), base(40, 10, 40), base(30, 10, 40)]
    assert history.bases("queues", bases, NOW, NOW) == [0, 1, 2] and history.bytes == 150
    room = 100
    assert history.is_over("queues")
    assert history.bases("queues", bases, NOW, NOW) == [1, 2] and history.bytes == 100
    assert not history.is_over("queues")
    room = 0
    assert history.bases("queues", bases, NOW, NOW) == [] and history.bytes == 0
    assert not history.is_over("queues")


def test_who_came_first_does_not_take_all_the_room() -> None:
    history = History(keep_s=60, most_bytes=lambda: 100)
    assert history.bases("one", [base(10, 0, 90)], NOW, NOW) == [0]
    assert not history.is_over("one")
    assert history.bases("other", [base(10, 0, 50)], NOW, NOW) == [0]
    assert history.is_over("one") and not history.is_over("other")
    assert history.bases("one", [base(10, 0, 90)], NOW, NOW) == []


def test_the_room_is_a_part_of_the_disk_and_none_while_that_is_short() -> None:
    is_short = False
    disk = MemoryFiles()
    disk.size = 1000
    history = History.on_disk(disk, "data", percent=20, is_short=lambda: is_short)
    assert (history.limit, history.keep_s) == (200, 3600)
    is_short = True
    assert history.limit == 0
    is_short = False
    disk.write("data/log", bytes(600))
    assert history.limit == 200
    disk.write("data/past", bytes(200))
    assert history.limit == 100, "as far as it knows"
    assert history.held("data", [Dead("past", NOW, 200)], NOW) == {"past"} and history.limit == 200
    disk.write("data/more", bytes(100))
    assert history.limit == 150 and history.is_over("data"), "half of what nothing else takes"
    assert history.held("data", [Dead("past", NOW, 200)], NOW) == set()
    disk.remove("data/past")
    assert history.limit == 150
    for wrong in ({"keep_s": -1}, {"percent": 101}, {"keep_s": True}, {"percent": "10"}):
        with pytest.raises(BadOption):
            History.on_disk(disk, "data", **wrong)  # type: ignore[arg-type]


def test_what_is_held_below_a_folder_is_its_own() -> None:
    history = History(keep_s=60)
    for owner, size in (("d/topics/a", 1), ("d/topics/b", 2), ("d/topics2", 4), ("d/topics", 8)):
        history.held(owner, [Dead("f", NOW, size)], NOW)
    assert (history.bytes_of("d/topics"), history.bytes_of("d"), history.bytes) == (11, 15, 15)
