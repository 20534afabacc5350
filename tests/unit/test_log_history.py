"""What of the recent past stays, and how much room it may take."""

from __future__ import annotations

from lamina.log.history import Dead, History

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
