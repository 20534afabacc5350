"""Topics answer as the streams of a real Redis do: the same commands to both, every reply compared in value and kind.

Stories come from streams.py: 20 000 commands in the default run, ``LAMINA_CAMPAIGN=10`` tells 400 000. After a
difference the story is cut down to the few commands that still show it, printed as lines for redis-cli.

What is made equal before it is compared, and why:
- ids of the clock (``*``): each server has its own, they become ``auto-0``, ``auto-1`` in order of appearance;
- idle times and times of delivery: compared in units of a thousand seconds, as XCLAIM sets them; a server may be slow;
- ``radix-tree-keys`` and ``radix-tree-nodes``: how Redis keeps a stream, nobody else does; a server may leave them out;
- ``inactive`` and ``active-time``: fields that Redis has from 7.2 on, the peer is a 7.0;
- KEYS, SCAN: sorted; RANDOMKEY: whether there is one.

``~`` is compared to the entry: Redis trims whole nodes, and this one has nodes of one entry, so it removes exactly what
it may, as Lamina does; with LIMIT it removes that many at most.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from differential.streams import CLIENTS, KEYS, Auto, Command, Story, Turn, Word
from integration.lamina_server import IS_STANDIN, TRIMS_TO_THE_ENTRY, topic_server
from integration.redis_peer import MISSING, PROGRAM, RedisPeer
from integration.resp_wire import NULL_ARRAY, OK, QUEUED, Error, Map, Wire, packed, same

IS_CAMPAIGN = bool(os.environ.get("LAMINA_CAMPAIGN"))
CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "1"))
SEEDS = 8 if IS_CAMPAIGN else 4
STORIES = 20 * CAMPAIGN
LENGTH = 250
SHRINK_RUNS = 400
SHRINK_S = 60.0
DAY_MS = 86_400_000
UNIT_MS = 1_000_000

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)


# -- one server, and its replies made comparable -------------------------------------------------------------------


class Side:
    """One of the two servers, as the clients of one story see it."""

    def __init__(self, port: int, version: int = 2) -> None:
        self._port = port
        self._version = version
        self.autos: dict[bytes, int] = {}
        """Ids of the clock, by order of appearance."""

    def begin(self) -> None:
        """A new story: nothing is there."""
        self.autos.clear()
        self.connect(self._port)
        assert self.clients[0].ask("FLUSHALL") == OK

    def connect(self, port: int) -> None:
        """All clients come (again)."""
        self.clients = [Wire(port) for _ in range(CLIENTS + 1)]
        self._queued: list[list[Command] | None] = [None] * (CLIENTS + 1)
        self._is_broken = False
        if self._version == 3:
            for client in self.clients:
                assert isinstance(client.ask("HELLO", 3), Map)

    def end(self) -> None:
        for client in self.clients:
            client.close()

    def send(self, turn: Turn) -> None:
        ids = list(self.autos)
        commands = [tuple(_resolved(word, ids) for word in command) for command in turn.commands]
        self.clients[turn.client].send_raw(b"".join(map(packed, commands)))

    def read(self, turn: Turn) -> list[Any]:
        return [self._reply(turn.client, command) for command in turn.commands]

    def _reply(self, client: int, command: Command) -> Any:
        reply = self._raw_reply(client)
        name, queue = _name(command), self._queued[client]
        if same(reply, QUEUED) and queue is not None:
            queue.append(command)
            return reply
        if name == "EXEC" and isinstance(reply, list) and queue is not None and len(queue) == len(reply):
            reply = [self.comparable(*pair) for pair in zip(queue, reply, strict=True)]
        else:
            reply = self.comparable(command, reply)
        if name == "MULTI" and same(reply, OK):
            self._queued[client] = []
        elif name in ("EXEC", "DISCARD") and len(command) == 1:
            self._queued[client] = None
        return reply

    def _raw_reply(self, client: int) -> Any:
        """A reply that does not come, or is none, is a difference like any other; none is awaited behind it."""
        if self._is_broken:
            return Error(b"(no reply)")
        try:
            return self.clients[client].read()
        except (OSError, ValueError, AssertionError) as problem:
            self._is_broken = True
            return Error(f"(no reply: {problem!r})".encode())

    def uses_clock(self, turn: Turn) -> bool:
        """Whether an id of the clock may be made: then some milliseconds go by before."""
        commands = list(turn.commands)
        if any(_name(command) == "EXEC" for command in commands):
            commands += self._queued[turn.client] or []
        return any(_name(command) == "XADD" and b"*" in command for command in commands)

    # -- making replies equal that need not be the same --------------------------------------------------------------

    def comparable(self, command: Command, reply: Any) -> Any:
        try:
            return self._with_auto_ids(_timeless_reply(command, reply))
        except (TypeError, ValueError, IndexError):  # not of the form that Redis gives: nothing equals it
            return reply

    def _with_auto_ids(self, reply: Any) -> Any:
        if isinstance(reply, (list, tuple)):
            return type(reply)(map(self._with_auto_ids, reply))
        if type(reply) is bytes and _is_of_clock(reply):
            return b"auto-%d" % self.autos.setdefault(reply, len(self.autos))
        return reply


def _timeless_reply(command: Command, reply: Any) -> Any:
    if isinstance(reply, Error):
        return reply
    match [_name(command), *[_text(word).upper() for word in command[1:2]]]:
        case ["XPENDING", *_] if len(command) > 3 and isinstance(reply, list):
            reply = [[*row[:2], _idle(row[2]), *row[3:]] for row in reply]
        case ["XINFO", "STREAM" | "CONSUMERS"]:
            reply = _without_times(reply)
        case ["KEYS", *_]:
            reply = sorted(reply)
        case ["SCAN", *_]:
            reply = [reply[0], sorted(reply[1])]
        case ["RANDOMKEY", *_]:
            reply = reply is not None
    return reply


def _name(command: Command) -> str:
    return _text(command[0]).upper()


def _text(word: Word) -> str:
    return word.decode("latin-1") if isinstance(word, bytes) else str(word)


def _resolved(word: Word, ids: list[bytes]) -> bytes | str | int:
    if isinstance(word, Auto):
        return ids[word.number] if word.number < len(ids) else b"0-1"
    return word


def _is_of_clock(word: bytes) -> bool:
    found = re.fullmatch(rb"(\d{13})-\d+", word)
    return found is not None and abs(int(found[1]) - _now_ms()) < DAY_MS


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _idle(ms: int) -> str:
    return f"idle {min(ms // UNIT_MS, 10)}"


def _moment(ms: int) -> str:
    """A time of delivery, as what is idle since then. The clocks are the same; rounding may make it negative."""
    return _idle(max(_now_ms() - ms, 0))


_LEFT_OUT = (b"radix-tree-keys", b"radix-tree-nodes", b"inactive", b"active-time")


def _without_times(value: Any) -> Any:
    """For XINFO: a map (in RESP2 an array of names and values), with such maps within."""
    if isinstance(value, Map):
        return Map((name, _timeless(name, part)) for name, part in value if name not in _LEFT_OUT)
    if isinstance(value, list) and value and isinstance(value[0], bytes) and len(value) % 2 == 0:
        pairs = zip(value[::2], value[1::2], strict=True)
        return [part for name, old in pairs if name not in _LEFT_OUT for part in (name, _timeless(name, old))]
    return [_without_times(part) for part in value] if isinstance(value, list) else value


def _timeless(name: bytes, value: Any) -> Any:
    match name:
        case b"idle":
            return _idle(value)
        case b"seen-time":
            return _moment(value)
        case b"pending" if isinstance(value, list):  # rows of id, consumer (in a group's list), time and count
            return [[*row[:-2], _moment(row[-2]), row[-1]] for row in value]
        case b"groups" | b"consumers" if isinstance(value, list):
            return [_without_times(part) for part in value]
    return value


def tell_both(sides: list[Side], turns: list[Turn]) -> Difference | None:
    """Up to the first difference."""
    for number, turn in enumerate(turns):
        if sides[0].uses_clock(turn):
            time.sleep(0.003)
        for side in sides:
            side.send(turn)
        replies = [side.read(turn) for side in sides]
        for place, (peer, ours) in enumerate(zip(*replies, strict=True)):
            if not same(peer, ours):
                return Difference(number, place, peer, ours)
    return None


# -- both servers --------------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """Where the replies part."""

    turn: int
    place: int
    peer: Any
    ours: Any


@dataclass
class Pair:
    """A Redis, and the server that is held to it."""

    peer_port: int
    port: int

    def tell(self, turns: list[Turn], version: int = 2) -> Difference | None:
        """Tell a story to both, from nothing, up to the first difference."""
        sides = [Side(port, version) for port in (self.peer_port, self.port)]
        with ExitStack() as stack:
            for side in sides:
                side.begin()
                stack.callback(side.end)
            found = tell_both(sides, turns)
            return None if found is not None and _is_decided(found) else found

    def check(self, turns: list[Turn], version: int = 2) -> None:
        """Fails with the shortest story that could be found."""
        found = self.tell(turns, version)
        if found is None:
            return
        turns = turns[: found.turn + 1]
        with suppress(OSError):  # a server that is gone cannot be asked again
            turns, found = self._shrunk(turns, found, version)
        raise AssertionError(_report(turns, found))

    def _shrunk(self, turns: list[Turn], found: Difference, version: int) -> tuple[list[Turn], Difference]:
        """Leave out commands as long as there is a difference."""
        end = time.monotonic() + SHRINK_S
        single = [Turn(turn.client, [command]) for turn in turns for command in turn.commands]
        again = self.tell(single, version)
        if again is not None:
            turns, found = single[: again.turn + 1], again
        size = max(len(turns) // 2, 1)
        runs = 0
        while runs < SHRINK_RUNS and time.monotonic() < end:
            shorter = False
            at = len(turns) - 1
            while at > 0 and runs < SHRINK_RUNS and time.monotonic() < end:
                start = max(at - size, 0)
                candidate = turns[:start] + turns[at:]
                runs += 1
                again = self.tell(candidate, version)
                if again is not None:
                    turns, found, shorter = candidate[: again.turn + 1], again, True
                at = min(start, len(turns) - 1)
            if size == 1 and not shorter:
                break
            size = max(size // 2, 1)
        return turns, found


def _is_decided(found: Difference) -> bool:
    """XSETID back behind entries that are gone: Redis does it, Lamina does not, and there the story ends."""
    text = "The ID specified in XSETID is smaller than the target stream top item"
    return text in repr(found.ours) and text not in repr(found.peer)


def _report(turns: list[Turn], found: Difference) -> str:
    """``turns`` end with the one that shows the difference."""
    lines = ["the replies to the last line differ", "FLUSHALL"]
    *before, last = turns
    shown = [last.commands[found.place]] if last.client == CLIENTS else last.commands[: found.place + 1]
    clients = len({turn.client for turn in turns})
    for turn in (*before, Turn(last.client, shown)):
        mark = f"   # client {turn.client}" if clients > 1 else ""
        lines += [" ".join(map(_shown, command)) + mark for command in turn.commands]
    return "\n".join([*lines, f"Redis : {found.peer!r}", f"Lamina: {found.ours!r}"])


def _shown(word: Word) -> str:
    """As redis-cli reads it."""
    if isinstance(word, Auto):
        return f"<id {word.number} of the clock>"
    data = word if isinstance(word, bytes) else str(word).encode()
    if re.fullmatch(rb"[\w.+*$~=<>(){}:-]+", data):
        return data.decode()
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in data)
    return '"' + "".join(plain) + '"'


def all_there_is() -> Turn:
    """A last turn, by a client that told nothing: everything both servers have."""
    commands: list[Command] = [("KEYS", "*"), ("DBSIZE",)]
    for key in (*KEYS, b"elsewhere"):
        commands += [("XINFO", "STREAM", key, "FULL", "COUNT", 0), ("XRANGE", key, "-", "+"), ("XINFO", "GROUPS", key)]
    return Turn(CLIENTS, commands)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder: Path = tmp_path_factory.mktemp("streams") / "data"
    with RedisPeer(*TRIMS_TO_THE_ENTRY) as peer, topic_server(folder) as server:
        yield Pair(peer.port, server.port)
        assert server.is_alive


# -- stories -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_story_gets_the_replies_of_redis(pair: Pair, seed: int) -> None:
    """RESP2. Every story ends with a look at everything there is."""
    for number in range(STORIES):
        pair.check([*Story(("resp2", seed, number)).tell(LENGTH), all_there_is()])


@pytest.mark.parametrize("seed", range(2))
def test_any_story_gets_the_replies_of_redis_in_resp3(pair: Pair, seed: int) -> None:
    """Every client said HELLO 3."""
    for number in range(3 * CAMPAIGN):
        pair.check([*Story(("resp3", seed, number)).tell(LENGTH), all_there_is()], version=3)


@pytest.mark.skipif(IS_STANDIN, reason="the log of a Redis does not keep how many entries a group has read")
@pytest.mark.parametrize("sync", ["always", "os"])
def test_a_story_goes_on_after_a_kill(tmp_path: Path, sync: str) -> None:
    """Killed in the middle and started again, the server has all it answered: entries, groups, consumers, what is
    pending, how often and since when. The Redis was never stopped."""
    with RedisPeer(*TRIMS_TO_THE_ENTRY) as peer:
        for number in range(4 * CAMPAIGN):
            sides = [Side(peer.port), Side(0)]
            turns = Story(("kill", sync, number)).tell(LENGTH)
            middle = len(turns) // 2
            told: list[Turn] = []
            for part in (turns[:middle], [all_there_is(), *turns[middle:], all_there_is()]):
                with topic_server(tmp_path / str(number), sync=sync) as server, ExitStack() as stack:
                    for side, port in zip(sides, (peer.port, server.port), strict=True):
                        side.connect(port)
                        stack.callback(side.end)
                    if not told:
                        assert sides[0].clients[0].ask("FLUSHALL") == OK
                    found = tell_both(sides, part)
                    assert found is None, _report(told + part[: found.turn + 1], found)
                    told += part
                    server.kill()


def test_the_stories_are_worth_telling() -> None:
    """20 000 commands at least; of all commands some are done and some refused, and most are done."""
    assert SEEDS * STORIES * LENGTH + 2 * 3 * LENGTH >= 20_000
    with RedisPeer(*TRIMS_TO_THE_ENTRY) as peer:
        side = Side(peer.port)
        told: Counter[str] = Counter()
        for number in range(20):
            side.begin()
            for turn in Story(("worth", number)).tell(LENGTH):
                side.send(turn)
                for command, reply in zip(turn.commands, side.read(turn), strict=True):
                    told[f"{_name(command)} {'refused' if isinstance(reply, Error) else 'done'}"] += 1
            side.end()
    done = {name.split()[0] for name in told if name.endswith("done")}
    refused = {name.split()[0] for name in told if name.endswith("refused")}
    streams = {"XADD", "XTRIM", "XRANGE", "XREVRANGE", "XREAD", "XREADGROUP", "XDEL", "XACK", "XSETID"}
    streams |= {"XPENDING", "XCLAIM", "XAUTOCLAIM", "XGROUP", "XINFO"}
    assert streams | {"XLEN", "MULTI", "EXEC", "DISCARD", "WATCH", "KEYS", "SCAN", "RENAME", "DEL"} <= done
    assert streams | {"EXEC", "DISCARD"} <= refused
    failures = sum(count for name, count in told.items() if name.endswith("refused"))
    assert failures < 0.35 * told.total(), told


# -- waiting -------------------------------------------------------------------------------------------------------


class Stage:
    """Clients of one server that wait for others. ``heard`` has every reply in the order it was asked for."""

    def __init__(self, port: int, version: int) -> None:
        self.side = Side(port, version)
        self.side.begin()
        self._waiting = 0
        self.heard: list[Any] = []

    def close(self) -> None:
        self.side.end()

    def ask(self, client: int, *words: Word) -> None:
        turn = Turn(client, [words])
        self.side.send(turn)
        self.heard += self.side.read(turn)

    def wait(self, client: int, *words: Word) -> None:
        """Returns when the server says that this client waits (``blocked_clients`` of INFO)."""
        self.side.send(Turn(client, [words]))
        self._waiting += 1
        self.is_waiting(self._waiting)

    def is_waiting(self, count: int) -> None:
        """Returns when so many wait."""
        end = time.monotonic() + 20
        while b"blocked_clients:%d\r\n" % count not in (said := self.side.clients[CLIENTS].ask("INFO", "clients")):
            assert time.monotonic() < end, f"INFO clients does not say blocked_clients:{count}, but {said!r}"
            time.sleep(0.005)

    def woken(self, client: int) -> None:
        """The reply that a client waited for."""
        self.heard += self.side.read(Turn(client, [("XREAD",)]))
        self._waiting -= 1


def read_gets_what_is_added(stage: Stage) -> None:
    stage.ask(1, "XADD", "s", "1-1", "f", "old")
    stage.wait(0, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    stage.ask(1, "XADD", "s", "2-1", "f", "new")
    stage.woken(0)
    stage.ask(0, "XREAD", "BLOCK", 0, "STREAMS", "s", "0")
    stage.ask(0, "XREAD", "COUNT", 1, "BLOCK", 0, "STREAMS", "s", "1-1")


def read_waits_for_a_stream_to_be(stage: Stage) -> None:
    stage.wait(0, "XREAD", "BLOCK", 0, "STREAMS", "s", "t", "0", "$")
    stage.wait(2, "XREAD", "BLOCK", 0, "STREAMS", "t", "5")
    stage.ask(1, "XADD", "u", "7-1", "f", "v")
    stage.ask(1, "XADD", "t", "5-0", "f", "v")
    stage.woken(0)
    stage.is_waiting(1)
    stage.ask(1, "XADD", "t", "5-1", "f", "v")
    stage.woken(2)


def all_readers_get_the_same(stage: Stage) -> None:
    stage.wait(0, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    stage.wait(2, "XREAD", "COUNT", 1, "BLOCK", 0, "STREAMS", "t", "s", "$", "$")
    stage.ask(1, "XADD", "s", "3-1", "f", "v", "g", "w")
    stage.woken(0)
    stage.woken(2)


def a_transaction_wakes_when_it_is_done(stage: Stage) -> None:
    stage.wait(0, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    stage.ask(1, "MULTI")
    for number in range(3):
        stage.ask(1, "XADD", "s", f"3-{number}", "f", number)
    stage.is_waiting(1)
    stage.ask(1, "EXEC")
    stage.woken(0)


def a_group_serves_who_came_first(stage: Stage) -> None:
    stage.ask(1, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    stage.wait(0, "XREADGROUP", "GROUP", "g", "ann", "BLOCK", 0, "STREAMS", "s", ">")
    stage.wait(2, "XREADGROUP", "GROUP", "g", "bob", "BLOCK", 0, "NOACK", "STREAMS", "s", ">")
    stage.ask(1, "XADD", "s", "1-1", "f", "v")
    stage.woken(0)
    stage.is_waiting(1)
    stage.ask(1, "XADD", "s", "1-2", "f", "v")
    stage.woken(2)
    stage.ask(1, "XPENDING", "s", "g")
    stage.ask(1, "XINFO", "GROUPS", "s")
    stage.ask(1, "XINFO", "STREAM", "s", "FULL")


def history_does_not_wait(stage: Stage) -> None:
    stage.ask(1, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    stage.ask(0, "XREADGROUP", "GROUP", "g", "ann", "BLOCK", 0, "STREAMS", "s", "0")
    stage.ask(0, "XREADGROUP", "GROUP", "g", "ann", "BLOCK", 0, "STREAMS", "s", "5-5")


def time_runs_out(stage: Stage) -> None:
    stage.ask(1, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    stage.ask(0, "XREAD", "BLOCK", 10, "STREAMS", "s", "t", "$", "0")
    stage.ask(0, "XREADGROUP", "GROUP", "g", "ann", "BLOCK", 10, "STREAMS", "s", ">")
    stage.ask(0, "XREADGROUP", "GROUP", "g", "ann", "COUNT", 3, "BLOCK", 1, "NOACK", "STREAMS", "s", ">")
    stage.ask(1, "XINFO", "CONSUMERS", "s", "g")


def a_group_is_destroyed(stage: Stage) -> None:
    stage.ask(1, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    stage.wait(0, "XREADGROUP", "GROUP", "g", "ann", "BLOCK", 0, "STREAMS", "s", ">")
    stage.ask(1, "XGROUP", "DESTROY", "s", "g")
    stage.woken(0)
    stage.ask(0, "XREADGROUP", "GROUP", "g", "ann", "BLOCK", 0, "STREAMS", "s", ">")


def a_stream_is_deleted(stage: Stage) -> None:
    stage.ask(1, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    stage.wait(0, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    stage.wait(2, "XREADGROUP", "GROUP", "g", "ann", "BLOCK", 0, "STREAMS", "s", ">")
    stage.ask(1, "DEL", "s")
    stage.woken(2)
    stage.is_waiting(1)
    stage.ask(1, "XADD", "s", "1-1", "f", "v")
    stage.woken(0)


def everything_is_deleted(stage: Stage) -> None:
    stage.ask(1, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    stage.wait(0, "XREADGROUP", "GROUP", "g", "ann", "BLOCK", 0, "STREAMS", "s", ">")
    stage.ask(1, "FLUSHALL")
    stage.woken(0)


def a_stream_is_renamed(stage: Stage) -> None:
    stage.ask(1, "XADD", "other", "9-1", "f", "v")
    stage.wait(0, "XREAD", "BLOCK", 0, "STREAMS", "s", "5")
    stage.ask(1, "RENAME", "other", "s")
    stage.woken(0)


def other_changes_wake_nobody(stage: Stage) -> None:
    for number in range(5):
        stage.ask(1, "XADD", "s", f"1-{number + 1}", "f", "v")
    stage.ask(1, "XGROUP", "CREATE", "s", "g", "$")
    stage.wait(0, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    stage.wait(2, "XREADGROUP", "GROUP", "g", "ann", "BLOCK", 0, "STREAMS", "s", ">")
    stage.ask(1, "XTRIM", "s", "MAXLEN", 2)
    stage.ask(1, "XDEL", "s", "1-5")
    stage.ask(1, "XGROUP", "CREATECONSUMER", "s", "g", "bob")
    stage.ask(1, "XACK", "s", "g", "1-1")
    stage.is_waiting(2)
    stage.ask(1, "XADD", "s", "2-0", "f", "v")
    stage.woken(0)
    stage.woken(2)


def nothing_waits_in_a_transaction(stage: Stage) -> None:
    stage.ask(1, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    stage.ask(0, "MULTI")
    stage.ask(0, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    stage.ask(0, "XREADGROUP", "GROUP", "g", "ann", "BLOCK", 0, "STREAMS", "s", ">")
    stage.ask(0, "XADD", "s", "1-1", "f", "v")
    stage.ask(0, "XREADGROUP", "GROUP", "g", "ann", "BLOCK", 0, "STREAMS", "s", ">")
    stage.ask(0, "EXEC")


def commands_behind_a_wait_come_after_it(stage: Stage) -> None:
    stage.wait(0, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    stage.side.send(Turn(0, [("XLEN", "s"), ("PING",)]))
    stage.ask(1, "XADD", "s", "1-1", "f", "v")
    stage.woken(0)
    stage.heard += stage.side.read(Turn(0, [("XLEN", "s"), ("PING",)]))


def a_client_that_waits_goes_away(stage: Stage) -> None:
    stage.ask(1, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    stage.wait(0, "XREADGROUP", "GROUP", "g", "ann", "BLOCK", 0, "STREAMS", "s", ">")
    stage.side.clients[0].close()
    stage.is_waiting(0)
    stage.ask(1, "XADD", "s", "1-1", "f", "v")
    stage.ask(2, "XREADGROUP", "GROUP", "g", "bob", "BLOCK", 0, "STREAMS", "s", ">")
    stage.ask(1, "XPENDING", "s", "g")


SCENES = [
    read_gets_what_is_added,
    read_waits_for_a_stream_to_be,
    all_readers_get_the_same,
    a_transaction_wakes_when_it_is_done,
    a_group_serves_who_came_first,
    history_does_not_wait,
    time_runs_out,
    a_group_is_destroyed,
    a_stream_is_deleted,
    everything_is_deleted,
    a_stream_is_renamed,
    other_changes_wake_nobody,
    nothing_waits_in_a_transaction,
    commands_behind_a_wait_come_after_it,
    a_client_that_waits_goes_away,
]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_who_waits_is_answered_as_by_redis(pair: Pair, scene: Callable[[Stage], None], version: int) -> None:
    """XREAD and XREADGROUP with BLOCK: who is woken, by what, with which reply, and who is not."""
    heard = []
    for port in (pair.peer_port, pair.port):
        stage = Stage(port, version)
        try:
            scene(stage)
        finally:
            stage.close()
        heard.append(stage.heard)
    assert len(heard[0]) == len(heard[1])
    for number, (peer, ours) in enumerate(zip(*heard, strict=True)):
        assert same(peer, ours), f"reply {number}: Redis {peer!r}, Lamina {ours!r}"


def test_hello_names_what_redis_names(pair: Pair) -> None:
    """In the same order; protocol, mode, role and modules are the same, the rest is the server's own."""
    for version in (2, 3):
        told = []
        for port in (pair.peer_port, pair.port):
            with Wire(port) as client:
                reply = client.ask("HELLO", version)
                assert isinstance(reply, Map) == (version == 3)
                told.append(dict(reply if version == 3 else zip(reply[::2], reply[1::2], strict=True)))
        assert list(told[0]) == list(told[1])
        for name in (b"proto", b"mode", b"role", b"modules"):
            assert told[0][name] == told[1][name]


def test_info_names_the_port(pair: Pair) -> None:
    """Also where any free one was asked for."""
    for port in (pair.peer_port, pair.port):
        with Wire(port) as client:
            assert b"tcp_port:%d\r\n" % port in client.ask("INFO", "server")


def test_about_trims_as_redis_does(pair: Pair) -> None:
    """With nodes of a hundred entries, as they are unless set otherwise; those of Redis are not bounded in bytes."""
    told = []
    for port in (pair.peer_port, pair.port):
        with Wire(port) as client:
            for name, size in (("entries", 100), ("bytes", 0)):
                assert client.ask("CONFIG", "SET", f"stream-node-max-{name}", size) == OK
            client.ask("FLUSHALL")
            said = [client.ask("XADD", "s", number, "f", "v") for number in range(1, 251)]
            said += [
                client.ask("XADD", "s", "MINID", "~", number - 180, number, "f", "v") for number in range(251, 400)
            ]
            said += [client.ask("XTRIM", "s", *words.split()) for words in ("MINID ~ 250", "MAXLEN ~ 60", "MAXLEN ~ 0")]
            told.append([*said, client.ask("XLEN", "s")])
            client.ask("CONFIG", "SET", "stream-node-max-entries", 1)
    assert told[0] == told[1] and told[0][-1] == 0


def test_a_wait_that_is_over_gives_null(pair: Pair) -> None:
    """RESP2: a null array; RESP3: null. Clients tell them apart."""
    for port in (pair.peer_port, pair.port):
        with Wire(port) as client:
            assert client.ask("XREAD", "BLOCK", 1, "STREAMS", "nothing", "$") is NULL_ARRAY
            client.ask("HELLO", 3)
            assert client.ask("XREAD", "BLOCK", 1, "STREAMS", "nothing", "$") is None
