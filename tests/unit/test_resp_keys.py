"""Commands about whole topics: which there are, deleting and renaming them, and what other keys have."""

from __future__ import annotations

import gc
import random

import pytest

from integration.resp_wire import OK, Error, Simple
from lamina.engines.topics import catalog
from lamina.errors import StorageError
from lamina.log import OS
from resp_lab import POLICIES, Caller, Lab, in_loop

NO_SUCH_KEY = Error(b"ERR no such key")
SYNTAX = Error(b"ERR syntax error")
NO_NUMBER = Error(b"ERR value is not an integer or out of range")


async def with_topics(*names: str) -> tuple[Lab, Caller]:
    """Each has one entry, its name."""
    lab = Lab(OS)
    caller = lab.caller()
    await caller.ask(*(f"XADD {name} * f {name}" for name in names))
    return lab, caller


# -- which there are -------------------------------------------------------------------------------------------------


@in_loop
async def test_keys_that_are_there_are_counted_as_often_as_they_are_named() -> None:
    _, caller = await with_topics("a", "b")
    assert await caller.ask("EXISTS a b c a", "TOUCH a c", "DBSIZE", "EXISTS c") == [3, 1, 2, 0]


@in_loop
async def test_a_topic_that_was_only_asked_for_is_not_there() -> None:
    lab, caller = await with_topics()
    lab.topic("a")
    await caller.ask("XADD b 0-0 f v", "XLEN c", "XADD d NOMKSTREAM * f v")
    assert await caller.ask("DBSIZE", "KEYS *", "RANDOMKEY", "TYPE a", "DEL a") == [0, [], None, Simple(b"none"), 0]


@in_loop
async def test_keys_fit_a_pattern() -> None:
    _, caller = await with_topics("one", "two", "three", "t*")
    ask = caller.ask_one
    assert sorted(await ask("KEYS t*")) == [b"t*", b"three", b"two"]
    assert await ask("KEYS t\\*") == [b"t*"] and await ask("KEYS x*") == []


@in_loop
async def test_a_random_key_is_one_of_those_there() -> None:
    _, caller = await with_topics("a", "b", "c")
    assert set(await caller.ask(*["RANDOMKEY"] * 100)) == {b"a", b"b", b"c"}


@in_loop
async def test_what_kind_a_key_is() -> None:
    _, caller = await with_topics("a")
    answers = await caller.ask("TYPE a", "TYPE b", "OBJECT ENCODING a", "OBJECT ENCODING b")
    assert answers == [Simple(b"stream"), Simple(b"none"), b"stream", None]


# -- SCAN ------------------------------------------------------------------------------------------------------------


async def scanned(caller: Caller, options: str = "", between: object = None) -> list[bytes]:
    """All names of a whole scan; ``between`` is called before each step but the first."""
    found: list[bytes] = []
    cursor = b"0"
    while True:
        cursor, page = await caller.ask_one(f"SCAN {cursor.decode()} {options}")
        found += page
        if cursor == b"0":
            return found
        if callable(between):
            await between()


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
@in_loop
async def test_a_scan_shows_every_topic_once(count: int) -> None:
    _, caller = await with_topics(*map(str, range(40)))
    assert sorted(await scanned(caller, f"COUNT {count}")) == sorted(b"%d" % number for number in range(40))


@pytest.mark.parametrize("seed", range(5))
@in_loop
async def test_a_scan_shows_what_was_there_all_the_time_whatever_came_and_went(seed: int) -> None:
    _, caller = await with_topics(*(f"stays{number}" for number in range(20)), *(f"goes{n}" for n in range(20)))
    chance = random.Random(seed)

    async def change() -> None:
        number = chance.randrange(20)
        await caller.ask(
            f"DEL goes{number}", f"XADD comes{chance.random()} * f v", f"RENAME goes{number - 1} x{number}"
        )

    found = await scanned(caller, "COUNT 3", change)
    assert {name for name in found if name.startswith(b"stays")} == {b"stays%d" % number for number in range(20)}
    assert len(found) == len(set(found))


@in_loop
async def test_names_at_the_same_place_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "place_of", lambda name: len(name))
    _, caller = await with_topics("one", "two", "other")
    assert await scanned(caller, "COUNT 1") == [b"one", b"two", b"other"]


@in_loop
async def test_a_scan_may_be_for_some_names_and_for_a_type() -> None:
    _, caller = await with_topics(*(f"{letter}{number}" for letter in "ab" for number in range(10)))
    assert len(await scanned(caller, "COUNT 3 MATCH a*")) == 10
    assert len(await scanned(caller, "TYPE stream")) == len(await scanned(caller, "TYPE STREAM COUNT 4")) == 20
    assert await scanned(caller, "TYPE hash") == []


@pytest.mark.parametrize("cursor", ["-1", "x", "1.0", "18446744073709551616", "+1"])
@in_loop
async def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    _, caller = await with_topics("a")
    assert await caller.ask_one(f"SCAN {cursor}") == Error(b"ERR invalid cursor")


@pytest.mark.parametrize(
    ("words", "problem"), [("COUNT 0", SYNTAX), ("COUNT x", NO_NUMBER), ("MATCH", SYNTAX), ("SOME thing", SYNTAX)]
)
@in_loop
async def test_a_scan_that_cannot_be_is_refused(words: str, problem: Error) -> None:
    _, caller = await with_topics("a")
    assert await caller.ask_one(f"SCAN 0 {words}") == problem


# -- deleting and renaming -------------------------------------------------------------------------------------------


@in_loop
async def test_what_is_deleted_is_gone_with_its_groups_and_after_a_restart() -> None:
    lab, caller = await with_topics("a", "b", "c")
    await caller.ask("XGROUP CREATE a g 0")
    assert await caller.ask("DEL a b nothing a", "KEYS *") == [2, [b"c"]]
    assert lab.values("a") == [] and lab.values("c") == [b"c"]
    assert await caller.ask_one("UNLINK c") == 1
    await caller.ask("XADD a * f new")
    assert await caller.ask_one("XINFO GROUPS a") == []


@pytest.mark.parametrize("command", ["FLUSHALL", "FLUSHDB ASYNC", "FLUSHALL sync"])
@in_loop
async def test_flush_deletes_all(command: str) -> None:
    lab, caller = await with_topics("a", "b")
    assert await caller.ask(command, "DBSIZE", "KEYS *") == [OK, 0, []]
    assert lab.values("a") == lab.values("b") == []


@in_loop
async def test_flush_with_other_words_deletes_nothing() -> None:
    _, caller = await with_topics("a")
    assert await caller.ask("FLUSHALL NOW", "FLUSHDB SYNC SYNC", "DBSIZE") == [SYNTAX, SYNTAX, 1]


@in_loop
async def test_a_renamed_topic_takes_its_entries_and_groups_along() -> None:
    lab, caller = await with_topics("a", "b")
    await caller.ask("XGROUP CREATE a g 0", "XREADGROUP GROUP g ann STREAMS a >")
    assert await caller.ask("RENAME a b", "KEYS *", "EXISTS a") == [OK, [b"b"], 0]
    assert (await caller.ask_one("XPENDING b g"))[0] == 1
    assert (lab.values("a"), lab.values("b")) == ([], [b"a"])
    assert await caller.ask("XADD a * f new", "XLEN b", "XLEN a") != [] and lab.values("a") == [b"new"]


@in_loop
async def test_a_topic_may_be_renamed_to_its_own_name() -> None:
    lab, caller = await with_topics("a")
    assert await caller.ask("RENAME a a", "RENAMENX a a", "XLEN a") == [OK, 0, 1] and lab.values("a") == [b"a"]


@in_loop
async def test_renamenx_takes_no_name_that_is_taken() -> None:
    lab, caller = await with_topics("a", "b")
    assert await caller.ask("RENAMENX a b", "RENAMENX a c", "KEYS *") == [0, 1, [b"b", b"c"]]
    assert (lab.values("b"), lab.values("c")) == ([b"b"], [b"a"])


@in_loop
async def test_what_is_not_there_or_gets_an_impossible_name_is_not_renamed() -> None:
    lab, caller = await with_topics("a", "b")
    assert await caller.ask("RENAME x b", "RENAMENX x b", "RENAME x x") == [NO_SUCH_KEY] * 3
    assert isinstance(await caller.ask_one(f"RENAME a {'n' * 300}"), Error)
    assert (lab.values("a"), lab.values("b")) == ([b"a"], [b"b"])


@pytest.mark.parametrize("policy", POLICIES)
@in_loop
async def test_a_topic_that_the_disk_refused_takes_nobodys_place(policy: str) -> None:
    """Who writes a topic aside and renames it over the old one must not be left with neither."""
    lab = Lab(POLICIES[policy])
    caller = lab.caller()
    await caller.ask("XADD live * f old")
    lab.full("aside")
    answers = await caller.ask("XADD aside * f new", "RENAME aside live", "XLEN live")
    assert [isinstance(answer, Error) for answer in answers] == [True, True, False]
    assert lab.values("live") == [b"old"]
    answers = await caller.ask("XADD aside * f new", "RENAME aside live")
    assert answers[1] == OK and lab.values("live") == [b"new"]


@in_loop
async def test_a_topic_of_which_the_end_was_refused_keeps_its_name() -> None:
    lab, _ = await with_topics("aside", "live")
    lab.full("aside")
    with pytest.raises(StorageError):
        lab.topic("aside").add([b"f", b"new"])
        lab.topics.rename(b"aside", b"live")
    assert (lab.values("aside"), lab.values("live")) == ([b"aside"], [b"live"])


@in_loop
async def test_clients_that_stay_keep_nothing_of_topics_that_went() -> None:
    _, caller = await with_topics("a", "b", "c")
    await caller.ask("XGROUP CREATE a g 0", "DEL a", "RENAME b d")
    gc.collect()
    assert len(caller.connection.session.seen) == 1


# -- what other keys have --------------------------------------------------------------------------------------------


@in_loop
async def test_topics_live_until_they_are_deleted() -> None:
    _, caller = await with_topics("a")
    assert await caller.ask("TTL a", "PTTL a", "TTL b", "PTTL b", "PERSIST a") == [-1, -1, -2, -2, 0]
    refused, missing, wrong = await caller.ask("EXPIRE a 10", "EXPIRE b 10", "EXPIRE a ten")
    assert refused.startswith(b"ERR topics do not expire") and (missing, wrong) == (0, NO_NUMBER)
    assert await caller.ask_one("EXISTS a") == 1


@in_loop
async def test_memory_usage_grows_with_the_files() -> None:
    _, caller = await with_topics("a")
    small = await caller.ask_one("MEMORY USAGE a")
    await caller.ask([b"XADD", b"a", b"*", b"f", bytes(10_000)])
    large = await caller.ask_one("MEMORY USAGE a SAMPLES 5")
    assert 0 < small < 1000 and 10_000 < large < 11_000
    assert await caller.ask("MEMORY USAGE b", "MEMORY USAGE a SAMPLES -1", "MEMORY USAGE a b c") == [
        None,
        SYNTAX,
        SYNTAX,
    ]
