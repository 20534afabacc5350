"""Commands about the server: what INFO, CONFIG and COMMAND tell, and all that can be compared beside a real Redis."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest

from integration.redis_peer import MISSING, PROGRAM, RedisPeer
from integration.resp_wire import Map, Set, Simple, Verbatim, Wire, same
from lamina.clock import ManualClock
from lamina.server.resp.connection_commands import COMMANDS as CONNECTION
from lamina.server.resp.dispatch import HANDLERS, run
from lamina.server.resp.server_commands import COMMANDS
from lamina.server.resp.session import House, Session, Wait
from lamina.server.resp.settings import Settings, whole_number
from lamina.server.resp.table import FACTS
from lamina.server.security.gate import Gate

HANDLERS.update(CONNECTION)
HANDLERS.update(COMMANDS)


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    house = House(topics=Any, clock=ManualClock())  # type: ignore[arg-type]  # none is reached
    house.settings = Settings(sync="interval(1000 ms)", max_connections=77, folder="/data")
    monkeypatch.setitem(HANDLERS, b"dbsize", lambda session, args: b":5\r\n")
    return house


@pytest.fixture
def session(house: House) -> Session:
    return house.enter(b"127.0.0.1:5001", b"127.0.0.1:6399")


class Reader(Wire):
    """The client's reader, for an answer that is at hand."""

    def __init__(self, answer: bytes) -> None:
        self._file = BytesIO(answer)  # type: ignore[assignment]


def raw(session: Session, *words: str) -> bytes:
    answer = run(session, [word.encode() for word in words])
    assert isinstance(answer, bytes)
    return answer


def ask(session: Session, *words: str) -> Any:
    return Reader(raw(session, *words)).read()


def facts(session: Session, *sections: str) -> dict[str, str]:
    """Of INFO, by name."""
    lines = ask(session, "INFO", *sections).decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if line and not line.startswith("#"))


def settings(session: Session, *patterns: str) -> dict[bytes, bytes]:
    flat = ask(session, "CONFIG", "GET", *patterns)
    return dict(zip(flat[::2], flat[1::2], strict=True))


# -- INFO ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "port"),
    [(b"10.0.0.7:41234", "41234"), (b"[::1]:41234", "41234"), (b"/run/lamina.sock:0", "0"), (b"", "0")],
)
def test_the_port_is_the_one_that_the_client_came_to(house: House, address: bytes, port: str) -> None:
    session = house.enter(b"10.0.0.9:5001", address)
    assert facts(session, "server")["tcp_port"] == port
    assert settings(session, "port") == {b"port": port.encode()}


def test_info_has_real_numbers(house: House, session: Session) -> None:
    house.enter().is_waiting = True
    house.commands = 12
    assert isinstance(house.clock, ManualClock)
    house.clock.advance(2 * 86_400 + 5)
    told = facts(session)
    expected = {
        "redis_version": "7.0.15",
        "redis_mode": "standalone",
        "process_id": str(os.getpid()),
        "tcp_port": "6399",
        "uptime_in_seconds": "172805",
        "uptime_in_days": "2",
        "connected_clients": "2",
        "blocked_clients": "1",
        "maxclients": "77",
        "total_commands_processed": "12",
        "total_connections_received": "2",
        "role": "master",
        "db0": "keys=5,expires=0,avg_ttl=0",
        "cluster_enabled": "0",
        "lamina_folder": "/data",
        "lamina_version": house.settings.version,
    }
    assert expected.items() <= told.items()
    assert 10**6 < int(told["used_memory_rss"]) <= int(told["used_memory_peak"])
    assert float(told["used_cpu_user"]) > 0


def test_info_tells_the_sections_asked_for_in_its_own_order(session: Session) -> None:
    text = ask(session, "INFO", "keyspace", "CPU", "nope")
    assert text.startswith(b"# CPU\r\n") and text.endswith(b"\r\n\r\n# Keyspace\r\ndb0:keys=5,expires=0,avg_ttl=0\r\n")
    assert ask(session, "INFO", "nope") == b""


def test_info_without_topics_has_an_empty_keyspace(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, b"dbsize", lambda session, args: b":0\r\n")
    assert ask(session, "INFO", "keyspace") == b"# Keyspace\r\n"


@pytest.mark.parametrize("word", ["all", "everything", "DEFAULT"])
def test_info_has_words_for_all_sections(session: Session, word: str) -> None:
    assert facts(session, word).keys() == facts(session).keys()


def test_info_is_verbatim_text_in_version_3(session: Session) -> None:
    ask(session, "HELLO", "3")
    told = ask(session, "INFO", "cluster")
    assert isinstance(told, Verbatim) and told == b"txt:# Cluster\r\ncluster_enabled:0\r\n"


# -- CONFIG --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sync", "fsync"), [("always", b"always"), ("os", b"no"), ("interval(500 ms)", b"everysec")])
def test_the_sync_policy_is_told_in_the_words_of_redis(session: Session, sync: str, fsync: bytes) -> None:
    session.house.settings = Settings(sync=sync)
    assert settings(session, "appendfsync") == {b"appendfsync": fsync}


def test_config_get_takes_patterns_and_tells_each_setting_once(session: Session) -> None:
    assert settings(session, "MAXC*", "maxclients", "port") == {b"maxclients": b"77", b"port": b"6399"}
    assert settings(session, "MaxClients") == {b"MaxClients": b"77"}
    assert settings(session, "nope") == {}
    assert len(settings(session, "*")) > 15


def test_a_setting_may_be_set_to_what_it_is_and_to_nothing_else(session: Session) -> None:
    assert ask(session, "CONFIG", "SET", "appendonly", "YES", "save", "") == b"OK"
    answer = b"CONFIG SET failed (possibly related to argument 'appendonly') - can't set immutable config"
    assert ask(session, "CONFIG", "SET", "appendonly", "no") == b"ERR " + answer


def test_a_line_of_settings_is_done_as_a_whole_or_not_at_all(session: Session) -> None:
    assert ask(session, "CONFIG", "SET", "stream-node-max-entries", "7", "maxclients", "1").startswith(
        b"ERR CONFIG SET"
    )
    assert settings(session, "stream-node-*") == {b"stream-node-max-bytes": b"4096", b"stream-node-max-entries": b"100"}
    assert ask(session, "CONFIG", "SET", "stream-node-max-entries", "7", "STREAM-node-max-bytes", "8kb") == b"OK"
    assert settings(session, "stream-node-*") == {b"stream-node-max-bytes": b"8192", b"stream-node-max-entries": b"7"}


def test_no_setting_tells_the_password(session: Session) -> None:
    session.house.gate = Gate(password=b"sesame")
    assert b"sesame" not in b"".join(settings(session, "*").values())


def test_resetstat_counts_from_0_again(house: House, session: Session) -> None:
    house.commands = 12
    assert ask(session, "CONFIG", "RESETSTAT") == b"OK"
    assert (house.commands, house.connections) == (0, 0)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[(b"0", 0), (b"-1", -1), (b"9223372036854775807", 2**63 - 1), (b"-9223372036854775808", -(2**63))],
        *[(b"9223372036854775808", None), (b"", None), (b"-", None), (b"-0", None), (b"01", None), (b"+1", None)],
        *[(b" 1", None), (b"1\n", None), (b"1.0", None), (b"1_0", None), ("١".encode(), None)],
    ],
)
def test_a_number_is_read_as_redis_reads_it(text: bytes, number: int | None) -> None:
    assert whole_number(text) == number


# -- COMMAND -------------------------------------------------------------------------------------------------------


def test_command_tells_the_facts_of_all(session: Session) -> None:
    rows = ask(session, "COMMAND")
    assert [row[0] for row in rows] == list(FACTS)
    assert rows == ask(session, "COMMAND", "INFO")
    assert ask(session, "COMMAND", "COUNT") == len(FACTS) == len(ask(session, "COMMAND", "LIST"))


def test_command_docs_tells_what_commands_are_for(session: Session) -> None:
    ask(session, "HELLO", "3")
    assert len(ask(session, "COMMAND", "DOCS")) == len(FACTS)
    (name, doc), *others = ask(session, "COMMAND", "DOCS", "XGROUP", "nope", "config|get")
    assert name == b"xgroup" and isinstance(doc, Map) and [other[0] for other in others] == [b"config|get"]
    below = dict(doc)[b"subcommands"]
    assert dict(dict(below)[b"xgroup|create"])[b"group"] == b"stream"


def test_command_list_filters(session: Session) -> None:
    listed = lambda *words: ask(session, "COMMAND", "LIST", "FILTERBY", *words)  # noqa: E731
    assert sorted(listed("pattern", "XR*")) == [b"xrange", b"xread", b"xreadgroup", b"xrevrange"]
    assert b"xgroup|help" in listed("ACLCAT", "STREAM")
    assert listed("module", "json") == []


# -- others --------------------------------------------------------------------------------------------------------


def test_time_is_seconds_and_microseconds(house: House, session: Session) -> None:
    assert isinstance(house.clock, ManualClock)
    house.clock.wall_ns = 1_700_000_000_000_042_999
    assert ask(session, "TIME") == [b"1700000000", b"42"]


def test_debug_sleep_waits_without_keys_and_then_says_ok(session: Session) -> None:
    answer = run(session, [b"DEBUG", b"SLEEP", b"0.5"])
    assert isinstance(answer, Wait)
    assert (answer.keys, answer.seconds, answer.attempt(), answer.time_is_up) == ((), 0.5, None, b"+OK\r\n")


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "nan", "-inf"])
def test_debug_sleep_of_no_time_is_over_at_once(session: Session, seconds: str) -> None:
    assert ask(session, "DEBUG", "SLEEP", seconds) == b"OK"


def test_debug_sleep_within_exec_does_not_wait(session: Session) -> None:
    session.is_in_exec = True
    assert ask(session, "DEBUG", "SLEEP", "100") == b"OK"


@pytest.mark.parametrize("name", ["CLIENT", "COMMAND", "CONFIG", "DEBUG", "OBJECT", "XGROUP", "XINFO"])
def test_help_tells_every_command_below(session: Session, name: str) -> None:
    lines = ask(session, name, "HELP")
    assert all(isinstance(line, Simple) for line in lines)
    told = {line.split()[0].lower() for line in lines if not line.startswith(b" ")}
    assert FACTS[name.lower().encode()].subcommands.keys() <= told


# -- beside Redis --------------------------------------------------------------------------------------------------

SAME = """
COMMAND nope; COMMAND COUNT x; COMMAND INFO nope; COMMAND INFO PING nope xread
COMMAND INFO client|id CLIENT|LIST client|nope
COMMAND INFO rename del scan xreadgroup expire keys xinfo|stream config|set; COMMAND DOCS nope
COMMAND LIST nope; COMMAND LIST FILTERBY; COMMAND LIST FILTERBY PATTERN; COMMAND LIST FILTERBY nope x
COMMAND LIST FILTERBY MODULE x; COMMAND LIST FILTERBY ACLCAT nope; COMMAND LIST FILTERBY ACLCAT @stream
COMMAND LIST FILTERBY pattern ping; COMMAND LIST FILTERBY PATTERN x y; COMMAND GETKEYS ping
COMMAND GETKEYS ping a; COMMAND GETKEYS nope a; COMMAND GETKEYS xadd a * b c; COMMAND GETKEYS XADD a
COMMAND GETKEYS del a b c; COMMAND GETKEYS rename a b; COMMAND GETKEYS xgroup create a g $
COMMAND GETKEYS xgroup create a; COMMAND GETKEYS xgroup nope a; COMMAND GETKEYS xgroup|create a
COMMAND GETKEYS xgroup help; COMMAND GETKEYS XREAD COUNT 1 STREAMS a b 0 0
COMMAND GETKEYS xread count 1 streams a b 0; COMMAND GETKEYS xread count 1 streams a
COMMAND GETKEYS xread count 1 nope a; COMMAND GETKEYS xread streams a b
COMMAND GETKEYS xreadgroup group g c streams a b; COMMAND GETKEYS object encoding a; COMMAND GETKEYS watch a b
COMMAND GETKEYS memory usage a; COMMAND GETKEYS command count; COMMAND GETKEYS command nope; INFO nope; CONFIG
CONFIG nope; CONFIG GET; CONFIG GET nope; CONFIG GET timeout; CONFIG GET Timeout TIMEOUT; CONFIG GET TIME[o]ut
CONFIG GET databases; CONFIG GET stream-node-max-e*; CONFIG SET timeout; CONFIG SET nope 1
CONFIG SET Nope 1 timeout 2; CONFIG SET timeout 0; CONFIG SET databases 20; CONFIG SET databases 16 timeout 1
CONFIG SET timeout 0 timeout 0; CONFIG SET port 1 timeout; CONFIG SET dir /nope; CONFIG SET nope 1 databases 1
CONFIG SET databases 1 nope 1
CONFIG SET stream-node-max-bytes x nope 1; CONFIG SET stream-node-max-entries x; CONFIG SET stream-node-max-entries -1
CONFIG SET stream-node-max-entries 010; CONFIG SET stream-node-max-entries 5
CONFIG GET stream-node-max-entries; CONFIG SET stream-node-max-bytes x; CONFIG SET stream-node-max-bytes 4KB
CONFIG GET stream-node-max-bytes; CONFIG SET stream-node-max-bytes 2m; CONFIG GET stream-node-max-bytes
CONFIG SET stream-node-max-bytes -1; CONFIG SET stream-node-max-bytes 4KiB; CONFIG RESETSTAT
CONFIG RESETSTAT x; CONFIG HELP x; TIME x; WAIT 0 0; WAIT x 0; WAIT 0 x; WAIT 0 -1; WAIT -1 0; WAIT 0
WAIT 1 1; FUNCTION; FUNCTION nope; FUNCTION FLUSH; FUNCTION FLUSH ASYNC; FUNCTION FLUSH sync; FUNCTION FLUSH x
function Flush sync x; SCRIPT FLUSH; SCRIPT FLUSH ASYNC; SCRIPT FLUSH sync; SCRIPT FLUSH x
SCRIPT FLUSH sync x; SCRIPT; SCRIPT nope; DEBUG; DEBUG nope; DEBUG SLEEP; DEBUG SLEEP 0; DEBUG SLEEP x
DEBUG SLEEP 0 1; DEBUG JMAP; DEBUG HELP x
"""


def lines() -> list[list[str]]:
    return [line.split() for line in SAME.strip().replace("\n", ";").split(";")]


@pytest.fixture(scope="module")
def peer() -> Iterator[RedisPeer]:
    if PROGRAM is None:
        pytest.skip(MISSING)
    with RedisPeer("--enable-debug-command", "yes") as peer:
        yield peer


@pytest.mark.parametrize("version", ["2", "3"])
def test_redis_answers_the_same(peer: RedisPeer, session: Session, version: str) -> None:
    session.house.settings = Settings()
    with Wire(peer.port) as wire:
        wire.ask("CONFIG", "SET", "stream-node-max-entries", "100", "stream-node-max-bytes", "4096")
        wire.ask("HELLO", version)
        ask(session, "HELLO", version)
        for words in lines():
            ours, theirs = ask(session, *words), wire.ask(*words)
            assert same(ours, theirs), (words, ours, theirs)


def test_redis_tells_config_set_and_info_in_the_same_form(peer: RedisPeer, session: Session) -> None:
    with Wire(peer.port) as wire:
        wire.ask("HELLO", 3)
        ask(session, "HELLO", "3")
        for words in (["CONFIG", "GET", "*"], ["INFO"], ["COMMAND", "DOCS", "ping"], ["XGROUP", "HELP"], ["TIME"]):
            assert type(ask(session, *words)) is type(wire.ask(*words)), words
        kinds = [type(item) for item in wire.ask("COMMAND", "INFO", "xgroup")[0]]
        assert [type(item) for item in ask(session, "COMMAND", "INFO", "xgroup")[0]] == kinds
        assert Set in kinds
        theirs = {line.split(b":")[0] for line in wire.ask("INFO", "everything").split(b"\r\n")}
        ours = {line.split(b":")[0] for line in ask(session, "INFO").split(b"\r\n") if not line.startswith(b"lamina")}
        assert ours - theirs <= {b"db0"}
        theirs = {name for name, _ in wire.ask("CONFIG", "GET", "*")}
        assert {name for name, _ in ask(session, "CONFIG", "GET", "*")} <= theirs
