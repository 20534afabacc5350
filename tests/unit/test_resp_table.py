"""The facts of commands: those of Redis, and right in themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from integration.redis_peer import MISSING, PROGRAM, RedisPeer
from integration.resp_wire import Map, Wire
from lamina.server.resp import replies
from lamina.server.resp.connection_commands import COMMANDS as CONNECTION
from lamina.server.resp.server_commands import COMMANDS as SERVER
from lamina.server.resp.server_commands import _key_places
from lamina.server.resp.table import FACTS, Facts, look_up

OF_7_2 = {b"client|setinfo", b"client|no-touch", b"waitaof"}
NAMES = set(
    b"hello auth ping echo quit reset select client acl command info config multi exec discard watch unwatch del "
    b"unlink exists type keys scan dbsize flushall flushdb randomkey rename renamenx touch object wait waitaof time "
    b"debug "
    b"function script memory persist expire ttl pttl xadd xlen xrange xrevrange xread xdel xtrim xsetid xgroup "
    b"xreadgroup xack xpending xclaim xautoclaim xinfo l.why l.dump l.queues "
    b"q.new q.auth q.key q.send q.sub q.unsub q.get q.ack q.off q.del q.info "
    b"s.write s.get s.scan s.epoch s.rotate s.compact s.storages s.snapshot s.wait s.switch s.clean".split()
)
OUR_OWN = {name for name in NAMES if name.startswith((b"l.", b"q.", b"s."))}
ALL = [each for facts in FACTS.values() for each in (facts, *facts.subcommands.values())]


def test_the_commands_are_the_ones_listed_here() -> None:
    assert FACTS.keys() == NAMES


@pytest.mark.parametrize(
    ("name", "below"),
    [
        (b"client", b"setinfo setname getname id info list kill no-evict no-touch reply help"),
        (b"acl", b"whoami users"),
        (b"command", b"count list info docs getkeys help"),
        (b"config", b"get set resetstat help"),
        (b"xgroup", b"create setid destroy createconsumer delconsumer help"),
        (b"xinfo", b"stream groups consumers help"),
        (b"object", b"encoding help"),
        (b"function", b"flush"),
        (b"script", b"flush"),
        (b"memory", b"usage"),
    ],
)
def test_the_commands_below_are_the_ones_listed_here(name: bytes, below: bytes) -> None:
    assert sorted(FACTS[name].subcommands) == sorted(below.split())


@pytest.mark.parametrize("facts", ALL, ids=lambda facts: facts.name.decode())
def test_the_facts_of_a_command_fit_each_other(facts: Facts) -> None:
    assert facts.summary.endswith(b".")
    assert (b"@fast" in facts.categories) != (b"@slow" in facts.categories)
    assert bool(facts.first_key or facts.streams_from) == facts.has_keys
    assert look_up(facts.name.upper()) is facts


@pytest.mark.parametrize("name", [*CONNECTION, *SERVER], ids=bytes.decode)
def test_a_command_that_can_be_run_has_facts(name: bytes) -> None:
    assert look_up(name) is not None


@pytest.mark.parametrize("name", [b"nope", b"xgroup|nope", b"xlen|nope", b"xgroup|", b"|xlen", b""])
def test_a_name_that_is_none_has_no_facts(name: bytes) -> None:
    assert look_up(name) is None


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (b"XADD a * b c", [b"a"]),
        (b"DEL a b c", [b"a", b"b", b"c"]),
        (b"RENAME a b", [b"a", b"b"]),
        (b"PING a", []),
        (b"XREAD COUNT 1 STREAMS a b 0 0", [b"a", b"b"]),
        (b"XREAD BLOCK 0 streams streams 0", [b"streams"]),
        (b"XREAD COUNT 1 a b", []),
        (b"XREAD COUNT 1 STREAMS a", []),
        (b"XREADGROUP GROUP streams streams STREAMS a >", [b"a"]),
    ],
)
def test_the_keys_of_a_command_are_found(words: bytes, keys: list[bytes]) -> None:
    args = words.split()
    assert FACTS[args[0].lower()].keys_of(args) == keys


# -- beside Redis --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told() -> Iterator[dict[bytes, tuple[list[Any], dict[bytes, Any]]]]:
    """What Redis says of every command: its facts, and its document."""
    if PROGRAM is None:
        pytest.skip(MISSING)
    with RedisPeer() as peer, Wire(peer.port) as wire:
        wire.ask("HELLO", 3)
        rows = [row for row in wire.ask("COMMAND", "INFO", *sorted(NAMES)) if row]
        names = [name for row in rows for name in (row[0], *(below[0] for below in row[9]))]
        documents = dict(wire.ask("COMMAND", "DOCS", *names))
    yield {row[0]: (row, dict(documents[row[0]])) for above in rows for row in (above, *above[9])}


@pytest.mark.parametrize("facts", [one for one in ALL if one.name not in OUR_OWN], ids=lambda one: one.name.decode())
def test_redis_has_the_same_facts(facts: Facts, told: dict[bytes, tuple[list[Any], dict[bytes, Any]]]) -> None:
    if facts.name in OF_7_2:
        assert facts.since == b"7.2.0"
        return
    row, document = told[facts.name]
    places = plain([[pair for pair in place if pair[0] != b"notes"] for place in row[8]])
    assert row[1] == facts.arity
    assert plain(row[2]) == list(facts.flags)
    assert row[3:6] == [facts.first_key, facts.last_key, facts.step]
    assert plain(row[6]) == list(facts.categories)
    assert plain(row[7]) == list(facts.tips)
    assert places == plain(_key_places(facts))
    assert document[b"since"] == facts.since
    assert document[b"group"] == facts.group


def plain(value: Any) -> Any:
    """Values of both sides as lists and bytes."""
    if isinstance(value, replies.Map):
        return [[plain(one), plain(other)] for one, other in value.pairs]
    if isinstance(value, replies.Set):
        return plain(value.items)
    if isinstance(value, replies.Simple):
        return value.text
    if isinstance(value, list | tuple | Map):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, bytes) else value
