"""MULTI and EXEC: all or nothing of what a client queued, nobody else's between; and WATCH, which sees every change."""

from __future__ import annotations

from typing import Any

import pytest

from integration.resp_wire import NULL_ARRAY, OK, QUEUED, Error, Simple
from lamina.log import OS
from resp_lab import Caller, Lab, in_loop

ABORTED = Error(b"EXECABORT Transaction discarded because of previous errors.")
NO_MULTI = [Error(b"ERR EXEC without MULTI"), Error(b"ERR DISCARD without MULTI")]


def two() -> tuple[Lab, Caller, Caller]:
    lab = Lab(OS)
    return lab, lab.caller(), lab.caller()


def lengths(answers: list[Any]) -> list[int]:
    return [answer for answer in answers if isinstance(answer, int)]


# -- MULTI, EXEC, DISCARD --------------------------------------------------------------------------------------------


@in_loop
async def test_nothing_of_it_is_done_before_exec() -> None:
    _, caller, other = two()
    assert await caller.ask("MULTI", "XADD a * f v", "XLEN a") == [OK, QUEUED, QUEUED]
    assert await other.ask_one("EXISTS a") == 0
    (done,) = await caller.ask("EXEC")
    assert done[1] == 1
    assert await other.ask_one("XLEN a") == 1


@in_loop
async def test_a_run_of_entries_behind_multi_is_queued_one_by_one() -> None:
    _, caller, _ = two()
    *queued, done = await caller.ask("MULTI", *["XADD a * f v"] * 3, "EXEC")
    assert queued == [OK, QUEUED, QUEUED, QUEUED] and len(done) == len(set(done)) == 3


@in_loop
async def test_nobody_elses_commands_come_between() -> None:
    lab, caller, other = two()
    caller.send("MULTI", "XLEN a", "XADD a * f 1")
    other.send("XADD a * f other")
    caller.send("XADD a * f 2", "XLEN a", "EXEC")
    other.send("XADD a * f other")
    await lab.settle()
    assert lengths(caller.got()[-1]) == [1, 3]
    assert lab.values("a") == [b"other", b"1", b"2", b"other"]


@in_loop
async def test_a_command_that_fails_stops_none_of_the_others() -> None:
    _, caller, _ = two()
    (*_, done) = await caller.ask("MULTI", "XADD a 5-1 f v", "XADD a 4-1 f v", "XADD a 6-1 f v", "EXEC")
    assert done[0] == b"5-1" and isinstance(done[1], Error) and done[2] == b"6-1"


@pytest.mark.parametrize("wrong", ["NONSENSE", "XADD a", "XGROUP NONSENSE", "CLIENT"])
@in_loop
async def test_a_command_that_cannot_be_queued_spoils_all(wrong: str) -> None:
    _, caller, _ = two()
    started, refused, queued, done = await caller.ask("MULTI", wrong, "XADD a * f v", "EXEC")
    assert (started, queued, done) == (OK, QUEUED, ABORTED) and isinstance(refused, Error)
    assert await caller.ask("EXISTS a", "EXEC") == [0, NO_MULTI[0]]


@in_loop
async def test_discard_forgets_what_was_queued_and_watched() -> None:
    _, caller, other = two()
    assert await caller.ask("WATCH a", "MULTI", "XADD a * f v", "DISCARD", "EXISTS a") == [OK, OK, QUEUED, OK, 0]
    await other.ask("XADD a * f v")
    assert await caller.ask("MULTI", "XLEN a", "EXEC") == [OK, QUEUED, [1]]


@in_loop
async def test_what_makes_no_sense_is_refused() -> None:
    _, caller, _ = two()
    assert await caller.ask("EXEC", "DISCARD") == NO_MULTI
    nested, inside = Error(b"ERR MULTI calls can not be nested"), Error(b"ERR WATCH inside MULTI is not allowed")
    assert await caller.ask("MULTI", "MULTI", "WATCH a", "PING", "EXEC") == [OK, nested, inside, QUEUED, [b"PONG"]]


@in_loop
async def test_an_exec_with_words_behind_it_ends_the_transaction() -> None:
    _, caller, _ = two()
    answers = await caller.ask("MULTI", "XADD a * f v", "EXEC now", "EXEC", "EXISTS a")
    assert answers[2].startswith(b"EXECABORT ") and answers[3:] == [NO_MULTI[0], 0]


@in_loop
async def test_an_empty_transaction_is_an_empty_array() -> None:
    _, caller, _ = two()
    assert await caller.ask("MULTI", "EXEC") == [OK, []]


@in_loop
async def test_reset_and_leaving_end_it_without_running_it() -> None:
    lab, caller, other = two()
    assert await caller.ask("MULTI", "XADD a * f v", "RESET", "EXISTS a") == [OK, QUEUED, Simple(b"RESET"), 0]
    await other.ask("MULTI", "XADD a * f v")
    other.connection.connection_lost(None)
    await lab.settle()
    assert await caller.ask_one("EXISTS a") == 0


@in_loop
async def test_reply_skip_skips_one_answer_of_a_transaction() -> None:
    _, caller, _ = two()
    answers = await caller.ask("CLIENT REPLY SKIP", "MULTI", *["XADD a * f v"] * 2, "EXEC")
    assert answers[:2] == [QUEUED, QUEUED] and len(answers[2]) == 2


# -- WATCH -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "XADD a * f v",
        "XADD a 9999999999999-1 f v",
        "XDEL a 1-1",
        "XTRIM a MAXLEN 0",
        "XSETID a 8-8",
        "DEL a",
        "RENAME a b",
        "RENAME other a",
        "FLUSHALL",
        "XADD a MAXLEN 1 * f v",
    ],
)
@pytest.mark.parametrize("is_opened_anew", [False, True])
@in_loop
async def test_a_change_of_what_is_watched_keeps_exec_from_running(change: str, is_opened_anew: bool) -> None:
    lab, caller, other = two()
    await other.ask("XADD a 1-1 f v", "XADD other 1-1 f v")
    if is_opened_anew:  # as after a restart: nothing was done to it yet
        lab.topics._let_go(b"a")
    await caller.ask("WATCH nothing a")
    assert not isinstance(await other.ask_one(change), Error)
    assert await caller.ask("MULTI", "XADD done * f v", "EXEC", "EXISTS done") == [OK, QUEUED, NULL_ARRAY, 0]
    assert await caller.ask("MULTI", "PING", "EXEC") == [OK, QUEUED, [b"PONG"]]


@pytest.mark.parametrize(
    "change", ["XADD b * f v", "XLEN a", "XRANGE a - +", "XDEL a 7-7", "XTRIM a MAXLEN 10", "DEL b"]
)
@in_loop
async def test_what_leaves_it_as_it_was_is_no_change(change: str) -> None:
    _, caller, other = two()
    await other.ask("XADD a 1-1 f v")
    await caller.ask("WATCH a")
    await other.ask(change)
    assert await caller.ask("MULTI", "XLEN a", "EXEC") == [OK, QUEUED, [1]]


@in_loop
async def test_a_topic_that_comes_is_a_change() -> None:
    _, caller, other = two()
    await caller.ask("WATCH a")
    await other.ask("XADD a * f v")
    assert await caller.ask("MULTI", "PING", "EXEC") == [OK, QUEUED, NULL_ARRAY]


@in_loop
async def test_ones_own_change_counts_before_multi_and_not_within() -> None:
    _, caller, _ = two()
    await caller.ask("WATCH a", "XADD a * f v")
    assert await caller.ask("MULTI", "PING", "EXEC") == [OK, QUEUED, NULL_ARRAY]
    await caller.ask("WATCH a")
    (*_, done) = await caller.ask("MULTI", "XADD a * f v", "XADD a * f v", "EXEC")
    assert len(done) == 2


@in_loop
async def test_what_was_watched_first_counts() -> None:
    _, caller, other = two()
    await caller.ask("WATCH a")
    await other.ask("XADD a * f v")
    assert await caller.ask("WATCH a", "MULTI", "PING", "EXEC") == [OK, OK, QUEUED, NULL_ARRAY]


@in_loop
async def test_unwatch_forgets_all() -> None:
    _, caller, other = two()
    await caller.ask("WATCH a b")
    await other.ask("XADD a * f v")
    assert await caller.ask("UNWATCH", "MULTI", "PING", "EXEC") == [OK, OK, QUEUED, [b"PONG"]]


@in_loop
async def test_a_change_is_seen_also_when_a_later_one_was_refused() -> None:
    """The topic was built again then, and stands as one that was just opened."""
    lab, caller, other = two()
    await other.ask("XADD a * f before")
    lab.topics._let_go(b"a")  # as after a restart
    await caller.ask("WATCH a")
    assert lab.topic("a").newest_position() == 0
    await other.ask("XADD a * f change")
    lab.full("a")
    assert isinstance(await other.ask_one("XADD a * f refused"), Error)
    assert lab.topic("a").newest_position() == 0
    assert await caller.ask("MULTI", "PING", "EXEC") == [OK, QUEUED, NULL_ARRAY]


@in_loop
async def test_a_null_is_one_of_its_version() -> None:
    _, caller, other = two()
    await caller.ask("HELLO 3", "WATCH a")
    await other.ask("XADD a * f v")
    assert await caller.ask("MULTI", "PING", "EXEC") == [OK, QUEUED, None]


@in_loop
async def test_a_transaction_that_is_too_large_is_refused_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamina.server.resp.dispatch._MOST_QUEUED", 1000)
    _, caller, _ = two()
    *queued, refused, done = await caller.ask("MULTI", *["XADD a * f v"] * 4, "EXEC")
    assert queued[:2] == [OK, QUEUED] and refused.startswith(b"ERR a transaction of more than") and done == ABORTED
    assert await caller.ask("MULTI", "XLEN a", "EXEC") == [OK, QUEUED, [0]]
