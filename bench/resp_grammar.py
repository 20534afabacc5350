"""Commands for the RESP door, right ones and spoilt ones (fuzz_resp.py)."""

from __future__ import annotations

import random
from collections.abc import Callable

from bench.fuzz_door import CRLF, Grammar
from lamina.server.resp.table import FACTS

KEYS = [b"k%d" % number for number in range(6)] + [b"a/b", b"..", b"\xff\x00", b"n" * 300]
GROUPS = [b"g0", b"g1", b"g2", b""]
CONSUMERS = [b"c0", b"c1", b"c2", b"\x00"]
IDS = [b"*", b"*", b"*", b"1-*", b"5", b"7-7", b"9-1", b"18446744073709551615-18446744073709551615"]
PLACES = [b"-", b"+", b"0", b"(1-1", b"5", b"$", b"1-1", b"9999999999999-0", b"0-0"]
SMALL = [b"0", b"1", b"2", b"10", b"100"]
BLOCKS = [b"1", b"1", b"5", b"0"]
OPTIONS = [
    *(b"COUNT", b"BLOCK", b"STREAMS", b"MAXLEN", b"MINID", b"~", b"=", b"LIMIT", b"NOMKSTREAM", b"MKSTREAM", b"GROUP"),
    *(b"NOACK", b"IDLE", b"TIME", b"RETRYCOUNT", b"FORCE", b"JUSTID", b"LASTID", b"ENTRIESREAD", b"ENTRIESADDED"),
    *(b"MAXDELETEDID", b"FULL", b"HELP", b"ASYNC", b"SYNC", b"MATCH", b"TYPE", b"stream", b"FILTERBY", b"PATTERN"),
    *(b"AUTH", b"SETNAME", b"default", b"ON", b"OFF", b"NX"),
]
ODD = [
    *(
        b"",
        b"-",
        b"+",
        b"$",
        b">",
        b"*",
        b"(",
        b"((1",
        b"1-",
        b"-1",
        b"-1-1",
        b"1-1-1",
        b"1--1",
        b"5-*",
        b"*-*",
        b"0-*",
    ),
    *(
        b"18446744073709551615",
        b"18446744073709551616",
        b"18446744073709551615-*",
        b"9" * 400,
        b"0" * 40 + b"1",
        b"1_0",
    ),
    *(b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"2147483648", b"4294967296", b"0x10"),
    *(
        b"1e3",
        b"1e400",
        b"nan",
        b"inf",
        b"-inf",
        b" 1",
        b"1 ",
        b"+1",
        b"00",
        b"-0",
        b"0.5",
        b"\x00",
        b"\xff\xfe",
        b"\r",
    ),
    *(b"\n", b"\r\n", b"\t", b"../../../x", b"/", b".", b"..", b"a\x00b", "ü€".encode(), b"n" * 300, b"n" * 5000),
    *(b"[", b"[^", b"[a-", b"*" * 60 + b"a", b"\\", b"XADD", b"xread", b"%s", b"{}", b"'", b'"'),
]
# k key, i id of a new entry, p place, g group, c consumer, n number, b time to wait, f name and value, x a word
TEMPLATES = [
    *(["XADD k i f"] * 14 + ["XADD k * f f f"] * 3),
    *("XADD k MAXLEN = n * f", "XADD k MAXLEN ~ n * f", "XADD k MINID p i f", "XADD k NOMKSTREAM i f"),
    *("XADD k MAXLEN ~ n LIMIT n i f", "XLEN k", "XRANGE k - +", "XRANGE k p p COUNT n", "XREVRANGE k p p COUNT n"),
    *(
        "XREAD STREAMS k p",
        "XREAD COUNT n STREAMS k k p p",
        "XREAD BLOCK b STREAMS k $",
        "XREAD BLOCK b STREAMS k k p $",
    ),
    *("XDEL k p p", "XTRIM k MAXLEN n", "XTRIM k MAXLEN ~ n LIMIT n", "XTRIM k MINID = p", "XSETID k p"),
    *("XSETID k p ENTRIESADDED n MAXDELETEDID p", "XGROUP CREATE k g p MKSTREAM", "XGROUP CREATE k g p ENTRIESREAD n"),
    *("XGROUP SETID k g p", "XGROUP DESTROY k g", "XGROUP CREATECONSUMER k g c", "XGROUP DELCONSUMER k g c"),
    *(["XREADGROUP GROUP g c COUNT n STREAMS k >"] * 4),
    *("XREADGROUP GROUP g c STREAMS k p", "XREADGROUP GROUP g c BLOCK b NOACK STREAMS k k > >", "XACK k g p p"),
    *(
        "XPENDING k g",
        "XPENDING k g - + n",
        "XPENDING k g IDLE n - + n c",
        "XCLAIM k g c n p p",
        "XCLAIM k g c 0 p FORCE",
    ),
    *(
        "XCLAIM k g c n p IDLE n RETRYCOUNT n LASTID p JUSTID",
        "XAUTOCLAIM k g c n p",
        "XAUTOCLAIM k g c 0 0 COUNT n JUSTID",
    ),
    *("XINFO STREAM k", "XINFO STREAM k FULL", "XINFO STREAM k FULL COUNT n", "XINFO GROUPS k", "XINFO CONSUMERS k g"),
    *("MULTI", "MULTI", "EXEC", "EXEC", "EXEC", "DISCARD", "WATCH k", "UNWATCH", "DEL k", "RENAME k k", "RENAMENX k k"),
    *("HELLO 2", "HELLO 3", "HELLO 3 SETNAME x", "CLIENT REPLY x", "CLIENT LIST", "SCAN n COUNT n", "KEYS x", "INFO"),
    *(
        "CONFIG GET x",
        "CONFIG SET stream-node-max-entries n",
        "WAITAOF n 0 b",
        "DEBUG SLEEP n",
        "DEBUG SLEEP x",
        "MEMORY USAGE k",
    ),
    *("COMMAND DOCS x", "COMMAND GETKEYS XREAD STREAMS k k p p", "COMMAND INFO x x", "RESET", "FLUSHALL", "OBJECT x k"),
    # No others: these must not meet the canary.
    *("CLIENT KILL ID 1000000000", "CLIENT KILL ADDR 1.2.3.4:5", "CLIENT KILL USER nobody"),
]
KILL = b"KILL"


def _every_name() -> list[list[bytes]]:
    """The words that name each command."""
    return [
        [facts.name, *([below] if below else [])]
        for facts in FACTS.values()
        for below in (b"", *facts.subcommands)
        if below.upper() != KILL
    ]


class RespGrammar(Grammar):
    """Makes inputs."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._names = _every_name()
        self.pools: dict[str, list[bytes]] = {
            "k": KEYS, "i": IDS, "p": PLACES, "g": GROUPS, "c": CONSUMERS, "n": SMALL, "b": BLOCKS, "x": OPTIONS + ODD,
        }  # fmt: skip
        self._spoilers: list[Callable[[list[bytes]], bytes]] = [
            self._with_odd_words,
            self._with_odd_words,
            self._with_odd_words,
            self._with_wrong_sizes,
            lambda words: self._with_hurt_bytes(packed(words)),
            lambda words: packed(words)[: chance.randrange(len(packed(words)) + 1)],
            lambda words: b" ".join(words) + chance.choice([CRLF, b"\n", b"\r", b""]),
        ]

    def input(self) -> bytes:
        chance = self.chance
        kind = chance.random()
        if kind < 0.02:
            return self.junk()
        words = self.words_of_some_command()
        if kind < 0.5 or KILL in words:
            return packed(words)
        if kind < 0.55:
            return b" ".join(words) + CRLF
        return chance.choice(self._spoilers)(words)

    def words_of_some_command(self) -> list[bytes]:
        chance = self.chance
        if chance.random() < 0.2:
            words = list(chance.choice(self._names))
            return words + [self._some_word() for _ in range(chance.choice([0, 1, 1, 2, 3, 4, 6, 12]))]
        found: list[bytes] = []
        for word in chance.choice(TEMPLATES).split():
            if word == "f":
                found += [b"f%d" % chance.randrange(3), self._value()]
            elif word in self.pools:
                found.append(chance.choice(self.pools[word]))
            else:
                found.append(word.encode())
        return found

    def _some_word(self) -> bytes:
        return self.chance.choice(self.chance.choice(list(self.pools.values())))

    def _value(self) -> bytes:
        size = (
            self.chance.choice([0, 1, 30, 300]) if self.chance.random() < 0.98 else self.chance.choice([4096, 70_000])
        )
        return self.chance.randbytes(size)

    def _with_odd_words(self, words: list[bytes]) -> bytes:
        chance = self.chance
        for _ in range(chance.choice([1, 1, 1, 2, 4])):
            at, kind = chance.randrange(len(words)) if words else 0, chance.randrange(6)
            if kind == 0 and words:
                del words[at]
            elif kind == 1 and words:
                words[at] = words[at].swapcase() if chance.random() < 0.5 else words[at] + chance.choice(ODD)
            elif kind == 2:
                words.insert(at, chance.choice(OPTIONS + (words or [b""])))
            elif kind == 3:
                words.insert(at, chance.choice(ODD))
            elif words:
                words[at] = chance.choice(ODD) if chance.random() < 0.7 else self._some_word()
        return packed(words)

    def _with_wrong_sizes(self, words: list[bytes]) -> bytes:
        """A count or a size that is not so: what comes behind is taken for something else."""
        chance = self.chance
        off = [0] * (len(words) + 1)
        off[chance.randrange(len(off))] = chance.choice([-1, 1, 1, 5, -1000, 10**6, 10**9, 10**19])
        parts = [b"*%d\r\n" % (len(words) + off[-1])]
        parts += [b"$%d\r\n%b\r\n" % (len(word) + more, word) for word, more in zip(words, off, strict=False)]
        return b"".join(parts)

    def junk(self) -> bytes:
        chance = self.chance
        return chance.choice(
            [
                chance.randbytes(chance.choice([1, 10, 1000])),
                b"x" * chance.choice([5_000, 200_000]) + chance.choice([CRLF, b"\n", b""]),
                chance.choice(
                    [b"\n", CRLF, b"\r", b" \r\n", b"\0\r\n", b"*0\r\n", b"*-1\r\n", b"$-1\r\n", b"*1\r\n$0\r\n\r\n"]
                ),
                b"GET / HTTP/1.1\r\nAccept: x\r\n\r\n",
                b"*%d\r\n" % chance.choice([3000, 1024 * 1024, 2**31]) + b"$1\r\na\r\n" * 3000,
                b"*3\r\n$4\r\nXADD\r\n$%d\r\n" % chance.choice([512 << 20, (512 << 20) + 1, 2**63, -5]),
                b"*1\r\n" * 100,
                b"XADD k0 * " + b"a b " * 3000 + CRLF,
                b"XADD k0 * \"a\\x00\\n\" 'it\\'s'\r\nECHO \"no end\r\n",
            ]
        )


def packed(words: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
