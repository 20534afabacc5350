"""Random stories in stream commands: mostly right, some nearly right, some wrong, told by several clients in turns.

What two servers cannot agree on is not in them:
- An idle time is 0, or some thousand seconds (XCLAIM can set it), and so is every limit it is held to: how fast a
  server is does not matter.
- An id that the clock makes (``*``) comes at most once in a turn and in a transaction, so that no two are of the same
  millisecond; commands name it by its number (``Auto``), the server has its own id for it.
- A key is WATCHed only around commands that change it or leave it alone without any doubt: entries and keys. Redis
  does not count XACK, XCLAIM or XGROUP SETID as changes; a server that does is not wrong.
- SCAN asks for all keys at once: cursors are a server's own.
- Nothing waits for ever: BLOCK is a millisecond.
- No name has a zero byte: Redis ends its error texts there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

CLIENTS = 3
KEYS = (b"s", b"t", b"u{1}", b"../k \xff", b"clock")
CLOCK = b"clock"
"""The stream that gets the ids of the clock: behind those no small id fits."""
GROUPS = (b"g", b"h", b"g\xff")
CONSUMERS = (b"ann", b"bob", b"cy", b"")
LARGEST = 18446744073709551615
BAD_IDS = (
    *(b"5-", b"-1-1", b"1-18446744073709551616", b"18446744073709551616-0", b"abc", b"", b"-", b"(1-1", b"1-1-1"),
    *(b"0x1", b"1-*x", b"$", b">", b"*", b"1- ", b"--", b"1--1", b"9" * 130, b"((1", b"1.5"),
)
ODD_IDS = (b"0", b"0-0", b"0-1", b"01-01", b" 1-1", b"+1-+1")
HUGE_IDS = (b"18446744073709551615", b"18446744073709551615-18446744073709551615", b"9223372036854775808-1")
BAD_NUMBERS = (b"-1", b"abc", b"", b"1.5", b"99999999999999999999", b"+3", b"03", b" 3", b"-9223372036854775808")
THRESHOLDS = (0, 0, 0, 1_000_000, 1_000_000, 3_000_000, 10**15, -5)
IDLES = (0, 2_000_000, 5_000_000)
TIMES = (0, 1000, 10**14)
JUNK = (
    b"STREAMS",
    b"COUNT",
    b"7",
    b"-",
    b"s",
    b"g",
    b"NOACK",
    b"FORCE",
    b"LIMIT",
    b"~",
    b"GROUP",
    b"FULL",
    b"\xff\r\n",
)


class Auto(NamedTuple):
    """The id that the clock made for the so-maniest time in this story; ``0-1`` while there is none."""

    number: int


Word = bytes | str | int | Auto
Command = tuple[Word, ...]


@dataclass
class Turn:
    """What one client sends at once."""

    client: int
    commands: list[Command] = field(default_factory=list)


class Story:
    """Write one with ``tell``. The same seed gives the same story."""

    def __init__(self, seed: object) -> None:
        self.random = Random(repr(seed))
        self._ms = 1
        self._ids: dict[bytes, list[bytes]] = {}
        """That were given to a key."""
        self._autos = 0
        self._open = [False] * CLIENTS
        """Whether a client is behind MULTI, as far as one can know."""
        self._may_use_clock = True
        self._clock_used = [False] * CLIENTS

    def tell(self, length: int) -> list[Turn]:
        """Turns with ``length`` commands, or a few more. Most begin with groups, so that there is much to do."""
        turns: list[Turn] = []
        told = 0
        if self.chance(0.8):
            turns.append(Turn(0, [("XGROUP", "CREATE", key, b"g", "$", "MKSTREAM") for key in KEYS]))
            turns.append(Turn(0, [("XGROUP", "CREATE", KEYS[0], b"h", "0")]))
        while told < length:
            new = self._watch_episode() if self.random.random() < 0.015 else [self._turn()]
            turns += new
            told += sum(len(turn.commands) for turn in new)
        return turns

    def _turn(self) -> Turn:
        client = self.random.randrange(CLIENTS)
        turn = Turn(client)
        used_in_turn = False
        for _ in range(self.random.choice((1, 1, 2, 4, 8))):
            self._may_use_clock = not used_in_turn and not self._clock_used[client]
            command = self._command(client)
            is_clocked = command[0] == "XADD" and b"*" in command
            used_in_turn |= is_clocked
            name = command[0]
            if name in ("MULTI", "EXEC", "DISCARD"):
                self._open[client] = name == "MULTI"
                self._clock_used[client] = False
            elif is_clocked and self._open[client]:
                self._clock_used[client] = True
            turn.commands.append(command)
        return turn

    def _watch_episode(self) -> list[Turn]:
        """A transaction that fails, or does not, because of what was done to a key."""
        one, other = self.random.sample(range(CLIENTS), 2)
        key = self.key()
        quiet: list[Command] = [
            ("XLEN", key),
            ("XADD", b"elsewhere", self.next_id(b"elsewhere"), "f", "v"),
            ("XRANGE", key, "-", "+"),
        ]
        loud: list[Command] = [
            ("XADD", key, self.next_id(key), "f", "v"),
            ("DEL", key),
            ("XDEL", key, self.id(key)),
            ("XTRIM", key, "MAXLEN", 0),
            ("RENAME", key, self.key()),
            ("FLUSHALL",),
        ]
        end: list[Command] = [("MULTI",), ("XADD", key, self.next_id(key), "w", "1"), ("XLEN", key)]
        end.append(self.random.choice((("EXEC",), ("EXEC",), ("EXEC",), ("DISCARD",))))
        between = self.random.choices(
            quiet + loud, weights=[3] * 3 + [3, 2, 1, 1, 0.7, 0.3], k=self.random.randrange(3)
        )
        if self.random.random() < 0.1:
            between.append(("UNWATCH",))
        turns = [Turn(client, [("DISCARD",)]) for client in (one, other)]
        turns.append(Turn(one, [("WATCH", key, self.key())]))
        turns += [Turn(self.random.choice((one, other)), [command]) for command in between]
        turns.append(Turn(one, end))
        self._open[one] = self._open[other] = False
        self._clock_used[one] = self._clock_used[other] = False
        return turns

    def _command(self, client: int) -> Command:
        if self._open[client] and self.chance(0.2):
            return ("EXEC",) if self.chance(0.85) else ("DISCARD",)
        make = self.random.choices(_MAKERS, weights=_WEIGHTS)[0]
        command = make(self)
        if self.chance(0.03) and b"*" not in command:
            command = self._spoilt(command)
        return command

    def _spoilt(self, command: Command) -> Command:
        """Nearly the command. Where an id could become an idle time, or SCAN ask for a part, words stay in place."""
        words = list(command)
        ways: tuple[int, ...] = (0, 1, 2, 3, 4)
        if words[0] in ("XCLAIM", "XAUTOCLAIM", "XPENDING") or "BLOCK" in words:
            ways = (0, 1, 2)
        elif words[0] == "SCAN":
            ways = (1, 2)
        match self.random.choice(ways):
            case 0:
                words = words[: self.random.randrange(1, len(words) + 1)]
                if words[-1] == "BLOCK":
                    words.pop()
            case 1:
                words.append(self.random.choice(JUNK))
            case 2:
                words[0] = str(words[0]).swapcase()
            case 3:
                words.pop(self.random.randrange(1, len(words)) if len(words) > 1 else 0)
            case 4:
                words[self.random.randrange(1, len(words)) if len(words) > 1 else 0] = self.random.choice(JUNK)
        return tuple(words) or ("PING",)

    # -- words ---------------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def key(self) -> bytes:
        return self.random.choices((*KEYS, b"nokey"), weights=(60, 15, 6, 6, 6, 2))[0]

    def group(self) -> bytes:
        return self.random.choices((*GROUPS, b"nogroup"), weights=(80, 12, 4, 2))[0]

    def consumer(self) -> bytes:
        return self.random.choices(CONSUMERS, weights=(50, 40, 15, 1))[0]

    def next_id(self, key: bytes) -> bytes:
        """Larger than those the key got before."""
        ids = self._ids.setdefault(key, [])
        if self.chance(0.7) or not ids:
            self._ms += self.random.choice((1, 1, 1, 2, 10))
            id = b"%d-%d" % (self._ms, self.random.choice((0, 0, 1, 5)))
        else:
            ms, _, sequence = ids[-1].partition(b"-")
            id = b"%b-%d" % (ms, int(sequence) + self.random.choice((1, 1, 3)))
        ids.append(id)
        return id

    def id(self, key: bytes) -> Word:
        """One that the key has, or had, or may have."""
        match self.random.choices(range(7), weights=(70, 10, 8, 5, 3, 2, 0.4))[0]:
            case 0:
                return self.random.choice(self._ids.get(key, [b"1-1"])[-15:])
            case 1:
                return b"%d-%d" % (self.random.randrange(self._ms + 3), self.random.randrange(4))
            case 2:
                return b"%d" % self.random.randrange(self._ms + 3)
            case 3:
                return Auto(self.random.randrange(self._autos)) if self._autos else b"0-1"
            case 4:
                return self.random.choice(ODD_IDS)
            case 5:
                return self.random.choice(BAD_IDS)
        return self.random.choice(HUGE_IDS)

    def ids(self, key: bytes) -> list[Word]:
        return [self.id(key) for _ in range(self.random.choice((1, 1, 2, 4)))]

    def bound(self, key: bytes, end: str) -> Word:
        if self.chance(0.4):
            return end
        id = self.id(key)
        return b"(" + id if isinstance(id, bytes) and self.chance(0.25) else id

    def number(self) -> Word:
        if self.chance(0.06):
            return self.random.choice(BAD_NUMBERS)
        return self.random.choice((0, 1, 1, 2, 3, 5, 10, 100, 2**31, 2**63 - 1))

    def maybe(self, share: float, *words: Word) -> list[Word]:
        return list(words) if self.chance(share) else []

    def threshold(self) -> Word:
        return self.random.choice(THRESHOLDS) if self.chance(0.97) else b"abc"

    def trimming(self, key: bytes) -> list[Word]:
        """MAXLEN or MINID with what may stand behind it."""
        if self.chance(0.6):
            words: list[Word] = [
                "MAXLEN",
                *self._kind(),
                self.random.choice((0, 1, 3, 5, 8, 8, 12, 12, 15, b"-1", b"x", 10**12)),
            ]
        else:
            early = self._ids.get(key, [b"1-1"])[-15:-5] or [b"1"]
            words = ["MINID", *self._kind(), self.random.choice(early) if self.chance(0.7) else self.id(key)]
        return words + self.maybe(
            0.5 if "~" in words else 0.04, "LIMIT", self.random.choice((0, 1, 2, 5, 100, -1, b"x"))
        )

    def _kind(self) -> list[Word]:
        return self.random.choice(([], ["="], ["="], ["~"], ["~"]))

    # -- commands ------------------------------------------------------------------------------------------------------

    def xadd(self) -> Command:
        key = self.key()
        id: Word = self.next_id(key)
        dice = self.random.random()
        if dice < 0.08:
            id = b"%d-*" % (self._ms + self.random.choice((0, 0, 1, -5)))
        elif dice < 0.14:
            id = self.id(key)
        if self._may_use_clock and (key == CLOCK or dice > 0.995):
            id = b"*"
            self._autos += 1
        if id == b"*" and not self._may_use_clock:
            id = b"1"
        options = self.maybe(0.08, "NOMKSTREAM") + (self.trimming(key) if self.chance(0.12) else [])
        if self.chance(0.01):
            options += self.trimming(key)
        fields: list[Word] = []
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            fields += [
                self.random.choice(("f", b"\x00\r\n", "")),
                self.random.choice(("v", b"\xff" * self.random.choice((1, 1, 100)), "", 12345)),
            ]
        if self.chance(0.03):
            fields.pop()
        return ("XADD", key, *options, id, *fields)

    def xlen(self) -> Command:
        return ("XLEN", self.key())

    def xdel(self) -> Command:
        key = self.key()
        return ("XDEL", key, *self.ids(key))

    def xtrim(self) -> Command:
        key = self.key()
        return ("XTRIM", key, *self.trimming(key))

    def xrange(self) -> Command:
        key = self.key()
        return ("XRANGE", key, self.bound(key, "-"), self.bound(key, "+"), *self.maybe(0.4, "COUNT", self.number()))

    def xrevrange(self) -> Command:
        key = self.key()
        return ("XREVRANGE", key, self.bound(key, "+"), self.bound(key, "-"), *self.maybe(0.4, "COUNT", self.number()))

    def xsetid(self) -> Command:
        key = self.key()
        id: Word = self.id(key) if self.chance(0.3) else self.next_id(key)
        added = self.maybe(0.4, "ENTRIESADDED", self.random.choice((0, 1, 50, 1000, b"-1", b"x")))
        return ("XSETID", key, id, *added, *self.maybe(0.4, "MAXDELETEDID", self.id(key)))

    def _streams(self, special: str) -> list[Word]:
        keys = [self.key() for _ in range(self.random.choice((1, 1, 1, 2, 3)))]
        ids: list[Word] = []
        for key in keys:
            if special == ">" and self.chance(0.7):
                ids.append(">")
            elif self.chance(0.12):
                ids.append("$")
            else:
                ids.append(self.id(key) if self.chance(0.6) else "0")
        if self.chance(0.02):
            ids.pop()
        return ["STREAMS", *keys, *ids]

    def _block(self) -> list[Word]:
        if self.chance(0.02):
            return ["BLOCK", self.random.choice((b"-1", b"abc", b"1.5", b"99999999999999999999"))]
        return self.maybe(0.02, "BLOCK", 1)

    def xread(self) -> Command:
        return ("XREAD", *self.maybe(0.5, "COUNT", self.number()), *self._block(), *self._streams(""))

    def xreadgroup(self) -> Command:
        options = self.maybe(0.5, "COUNT", self.number()) + self._block() + self.maybe(0.1, "NOACK")
        return ("XREADGROUP", "GROUP", self.group(), self.consumer(), *options, *self._streams(">"))

    def xack(self) -> Command:
        key = self.key()
        return ("XACK", key, self.group(), *self.ids(key))

    def xpending(self) -> Command:
        key = self.key()
        start: list[Word] = ["XPENDING", key, self.group()]
        if self.chance(0.4):
            return tuple(start)
        start += self.maybe(0.4, "IDLE", self.threshold())
        start += [self.bound(key, "-"), self.bound(key, "+"), self.number()]
        return (*start, *self.maybe(0.4, self.consumer()))

    def xclaim(self) -> Command:
        key = self.key()
        options = self.maybe(0.15, "IDLE", self.random.choice(IDLES)) + self.maybe(
            0.1, "TIME", self.random.choice(TIMES)
        )
        options += self.maybe(0.15, "RETRYCOUNT", self.random.choice((0, 1, 7, b"-1", b"x")))
        options += self.maybe(0.25, "FORCE") + self.maybe(0.25, "JUSTID") + self.maybe(0.1, "LASTID", self.id(key))
        options += self.maybe(0.02, self.random.choice((b"NOPE", b"IDLE", b"LASTID")))
        return ("XCLAIM", key, self.group(), self.consumer(), self.threshold(), *self.ids(key), *options)

    def xautoclaim(self) -> Command:
        key = self.key()
        start = self.random.choice(("0", "0-0", "-", self.id(key), self.bound(key, "-")))
        options = self.maybe(0.4, "COUNT", self.random.choice((1, 1, 2, 2, 5, 100, 0, b"-1", b"x", 2**62)))
        options += self.maybe(0.3, "JUSTID")
        return ("XAUTOCLAIM", key, self.group(), self.consumer(), self.threshold(), start, *options)

    def xgroup_create(self) -> Command:
        key = self.key()
        id = self.random.choice(("$", "0", "0", self.id(key)))
        options = self.maybe(0.5, "MKSTREAM")
        options += self.maybe(0.2, "ENTRIESREAD", self.random.choice((0, 1, 3, 500, b"-1", b"-2", b"x")))
        return ("XGROUP", "CREATE", key, self.group(), id, *options)

    def xgroup_setid(self) -> Command:
        key = self.key()
        id = self.random.choice(("$", "0", self.id(key), self.id(key)))
        options = self.maybe(0.3, "ENTRIESREAD", self.random.choice((0, 1, 3, 500, b"-1", b"-2", b"x")))
        return ("XGROUP", "SETID", key, self.group(), id, *options)

    def xgroup_other(self) -> Command:
        match self.random.choices(range(5), weights=(1, 5, 3, 0.4, 0.6))[0]:
            case 0:
                return ("XGROUP", "DESTROY", self.key(), self.group())
            case 1:
                return ("XGROUP", "CREATECONSUMER", self.key(), self.group(), self.consumer())
            case 2:
                return ("XGROUP", "DELCONSUMER", self.key(), self.group(), self.consumer())
            case 3:
                return ("XGROUP", self.random.choice(("NONE", "none")))
        return ("XGROUP", self.random.choice(("NOPE", b"\xff", "", "create")), self.key(), self.group())

    def xinfo(self) -> Command:
        match self.random.choices(range(6), weights=(4, 5, 4, 4, 0.4, 0.4))[0]:
            case 0:
                return ("XINFO", "STREAM", self.key())
            case 1:
                return ("XINFO", "STREAM", self.key(), "FULL", *self.maybe(0.5, "COUNT", self.number()))
            case 2:
                return ("XINFO", "GROUPS", self.key())
            case 3:
                return ("XINFO", "CONSUMERS", self.key(), self.group())
            case 4:
                return ("XINFO", "STREAM")
        return ("XINFO", self.random.choice(("NOPE", "STREAM", "CONSUMERS", "GROUPS")), *self.maybe(0.5, self.key()))

    def keyspace(self) -> Command:
        key, other = self.key(), self.key()
        patterns = ("*", "s", "?", "[st]", "[^s]", "u{*", "c*k", "\\s", "", "*\\", "[", "[s")
        choices: list[tuple[float, Command]] = [
            (3, ("EXISTS", key, other, key)),
            (3, ("TYPE", key)),
            (3, ("KEYS", self.random.choice(patterns))),
            (2, ("DBSIZE",)),
            (2, ("RANDOMKEY",)),
            (2, ("SCAN", 0, "COUNT", 1000)),
            (1, ("SCAN", 0, "MATCH", self.random.choice(patterns), "COUNT", 1000)),
            (1, ("SCAN", 0, "COUNT", 1000, "TYPE", self.random.choice(("stream", "STREAM", "string")))),
            (1, ("SCAN", self.random.choice((b"abc", b"1x")), "COUNT", 1000)),
            (1, ("SCAN", 0, "COUNT", self.random.choice((b"0", b"-1", b"x")))),
            (1, ("DEL", key)),
            (0.5, ("UNLINK", key, other)),
            (1, ("RENAME", key, other)),
            (0.15, ("FLUSHALL", *self.maybe(0.5, self.random.choice(("SYNC", "ASYNC", "NOPE"))))),
            (0.05, ("FLUSHDB",)),
        ]
        return self.random.choices([command for _, command in choices], weights=[weight for weight, _ in choices])[0]

    def transaction(self) -> Command:
        return self.random.choices(
            (("MULTI",), ("EXEC",), ("DISCARD",), ("UNWATCH",), ("EXEC", "x"), ("WATCH",)),
            weights=(80, 8, 4, 4, 2, 2),
        )[0]

    def other(self) -> Command:
        unknown = ("NOPE", b"\xff", "", "XNOPE", b"a" * 200, "xad")
        alone = ("XADD", "XREAD", "XCLAIM", "XINFO", "XGROUP", "XPENDING", "DEL", "KEYS", "RENAME", "SCAN")
        args = [self.random.choice(("a", b"\r\n", b"b" * 150, "")) for _ in range(self.random.randrange(4))]
        choices: list[Command] = [
            ("PING",),
            ("PING", b"\x00"),
            ("PING", "a", "b"),
            ("ECHO", b"\xff"),
            ("ECHO",),
            (self.random.choice(unknown), *args),
            (self.random.choice(alone),),
        ]
        return self.random.choice(choices)


_TABLE: dict[Callable[[Story], Command], float] = {
    Story.xadd: 40,
    Story.xlen: 2,
    Story.xdel: 4,
    Story.xtrim: 2.5,
    Story.xrange: 5,
    Story.xrevrange: 4,
    Story.xsetid: 1.5,
    Story.xread: 5,
    Story.xreadgroup: 14,
    Story.xack: 6,
    Story.xpending: 6,
    Story.xclaim: 6,
    Story.xautoclaim: 5,
    Story.xgroup_create: 5,
    Story.xgroup_setid: 2,
    Story.xgroup_other: 4,
    Story.xinfo: 6,
    Story.keyspace: 4,
    Story.transaction: 2,
    Story.other: 1,
}
_MAKERS = list(_TABLE)
_WEIGHTS = list(_TABLE.values())
