"""The RESP door under bad input: a clear error as Redis words it, and no harm to other clients, memory or files.

Where a Redis is installed every answer is held to it, byte by byte.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.lamina_server import IS_STANDIN, TRIMS_TO_THE_ENTRY, LaminaServer, topic_server
from integration.redis_peer import PROGRAM, RedisPeer
from integration.resp_wire import NULL_ARRAY, OK, Error, Simple, Wire, packed, same

MIB = 1 << 20
MOST_GROWTH = 64 * MIB
PONG = Simple(b"PONG")

Server = LaminaServer | RedisPeer


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is around the data folder: a file and a folder that are nobody's business."""
    home = tmp_path_factory.mktemp("home")
    (home / "precious").mkdir()
    (home / "precious" / "file").write_bytes(b"not yours")
    (home / "s").write_bytes(b"")
    return home


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    with topic_server(home / "data") as server:
        yield server
        assert server.is_alive
        if not IS_STANDIN:
            assert server.complaints() == ""


@pytest.fixture(scope="module")
def peer() -> Iterator[RedisPeer | None]:
    if PROGRAM is None:
        yield None
        return
    with RedisPeer(*TRIMS_TO_THE_ENTRY) as peer:
        yield peer


@pytest.fixture(autouse=True)
def others_are_served(server: Server) -> Iterator[None]:
    """A client that was there before goes on, and one that comes after is served."""
    with Wire(server.port) as before:
        assert before.ask("FLUSHALL") == OK
        assert before.ask("XADD", "mine", "1-1", "f", "v") == b"1-1"
        yield
        assert before.ask("XRANGE", "mine", "-", "+") == [[b"1-1", [b"f", b"v"]]]
        with Wire(server.port) as after:
            assert after.ask("XADD", "mine", "2-1", "f", "v") == b"2-1"
            assert after.ask("DEL", "mine") == 1


def everything_around(home: Path) -> dict[str, bytes]:
    """All files outside the data folder, with what is in them."""
    found = {}
    for folder, names, files in os.walk(home):
        if Path(folder) == home:
            names.remove("data")
        found.update({str(Path(folder, name)): b"(folder)" for name in names})
        found.update({str(Path(folder, name)): Path(folder, name).read_bytes() for name in files})
    return found


# -- bytes that are no commands ------------------------------------------------------------------------------------


def said_to(port: int, data: bytes) -> bytes:
    """All the server says to these bytes up to hanging up."""
    with Wire(port) as client:
        client.send_raw(data)
        return client.rest()


MALFORMED = {
    "count that is no number": b"*abc\r\n",
    "count with a blank": b"* 1\r\n",
    "count with a zero before it": b"*01\r\n",
    "count beyond 64 bits": b"*99999999999999999999\r\n",
    "count beyond all limits": b"*2147483648\r\n",
    "no dollar": b"*1\r\n+PING\r\n",
    "an array in an array": b"*1\r\n*1\r\n",
    "an integer for a word": b"*2\r\n$4\r\nECHO\r\n:1\r\n",
    "size that is no number": b"*1\r\n$abc\r\n",
    "size below zero": b"*1\r\n$-1\r\n",
    "size a little too large": b"*1\r\n$536870913\r\n",
    "size beyond 64 bits": b"*1\r\n$99999999999999999999\r\n",
    "quotes that do not end": b'PING "abc\r\n',
    "quotes with something behind": b'PING "abc"d\r\n',
    "single quotes that do not end": b"XADD s * f 'v\r\n",
    "a right command before": b"*1\r\n$4\r\nPING\r\n*1\r\n$x\r\n",
    "a line without end": b"x" * 65537,
    "a count without end": b"*" + b"1" * 65537,
    "a size without end": b"*1\r\n$" + b"1" * 65537,
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_bytes_are_refused_and_the_connection_closed(
    server: Server, peer: RedisPeer | None, data: bytes
) -> None:
    """The commands before them are answered, then one line says what is wrong, as Redis says it."""
    said = said_to(server.port, data)
    assert b"-ERR Protocol error: " in said
    assert said.endswith(b"\r\n")
    if peer is not None:
        assert said == said_to(peer.port, data)


HARMLESS = {
    "nothing": b"*0\r\n*-1\r\n\r\n\r\n",
    "inline": b"PING\r\nping\nECHO  'a b'   \r\n",
    "inline with escapes": b'ECHO "\\x00\\xff\\n\\"" \r\nECHO \'it\\\'s\'\r\nECHO ""\r\n',
    "inline stream": b"XADD s 1-1 f v\r\nXRANGE s - +\r\nXADD s\r\n",
    "an empty word": b"*1\r\n$0\r\n\r\n",
    "empty words behind a command": b"*3\r\n$4\r\nECHO\r\n$0\r\n\r\n$0\r\n\r\n",
    "a command of bytes": b"*1\r\n$4\r\n\x00\x01\xff\r\r\n",
    "a web browser": b"OPTIONS / HTTP/1.1\r\nAccept: */*\r\n",
    "lines in a word": b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\r\n\r\n",
    "long unknown command": packed((b"x" * 1000, b"y" * 1000, "z")),
    "many words": packed(("ECHO", *["x"] * 5000)),
}


@pytest.mark.parametrize("data", HARMLESS.values(), ids=HARMLESS)
def test_odd_bytes_are_answered_and_the_connection_goes_on(server: Server, peer: RedisPeer | None, data: bytes) -> None:
    bye = b"*2\r\n$4\r\nECHO\r\n$8\r\nstill on\r\n*1\r\n$4\r\nQUIT\r\n"
    said = said_to(server.port, data + bye)
    assert said.endswith(b"$8\r\nstill on\r\n+OK\r\n")
    assert b"Protocol error" not in said
    if peer is not None:
        assert said == said_to(peer.port, b"FLUSHALL\r\n" + data + bye).removeprefix(b"+OK\r\n")


def test_bytes_one_at_a_time_are_the_same_command(server: Server) -> None:
    data = packed(("XADD", "slow", "1-1", b"\r\n$1\r\n", b"\x00")) + b"XLEN slow\r\n"
    with Wire(server.port) as client:
        for at in range(len(data)):
            client.send_raw(data[at : at + 1])
        assert client.read() == b"1-1"
        assert client.read() == 1


def test_a_client_that_leaves_within_a_command_leaves_nothing(server: Server) -> None:
    whole = packed(("XADD", "cut", "1-1", "f", "v"))
    for at in range(len(whole)):
        with Wire(server.port) as client:
            client.send_raw(whole[:at])
    with Wire(server.port) as client:
        assert client.ask("EXISTS", "cut") == 0


def test_any_noise_is_survived(server: Server) -> None:
    """Random bytes, and right commands with some bytes changed. FLUSHALL and the like are not among them."""
    chance = random.Random(7)
    pieces = [b"*", b"$", b"1", b"3", b"-", b"\r\n", b"\n", b"XADD", b"PING", b"s", b"\x00", b"\xff", b"'", b'"', b" "]
    for _ in range(200):
        if chance.random() < 0.5:
            data = b"".join(chance.choices(pieces, k=chance.randrange(1, 60)))
        else:
            data = bytearray(packed(("XADD", "noise", "1-1", "f", "v")) * 3)
            for _ in range(3):
                data[chance.randrange(len(data))] = chance.randrange(256)
        with Wire(server.port) as client:
            client.send_raw(bytes(data))
    with Wire(server.port) as client:
        assert client.ask("PING") == PONG


# -- sizes that are only announced ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nf\r\n$536870912\r\nthat is all",
        b"*2\r\n$536870912\r\n",
        b"*1048576\r\n$4\r\nXADD\r\n",
    ],
    ids=["a value of 512 MB", "a command of 512 MB", "a million words"],
)
def test_what_is_only_announced_takes_no_memory(server: Server, header: bytes) -> None:
    """Twenty clients promise far more than they send."""
    before = server.rss()
    clients = [Wire(server.port) for _ in range(20)]
    try:
        for client in clients:
            client.send_raw(header)
            with Wire(server.port) as other:
                assert other.ask("PING") == PONG
        assert server.rss() - before < MOST_GROWTH
    finally:
        for client in clients:
            client.close()


def test_a_value_of_some_megabytes_is_kept_whole(server: Server) -> None:
    value = random.Random(3).randbytes(5 * MIB)
    with Wire(server.port) as client:
        assert client.ask("XADD", "large", "1-1", "f", value) == b"1-1"
        assert client.ask("XRANGE", "large", "-", "+") == [[b"1-1", [b"f", value]]]


# -- words that are wrong ------------------------------------------------------------------------------------------

WRONG = [
    *[
        ("XADD", "s", id, "f", "v")
        for id in ("5-", "-1-1", "1-18446744073709551616", "abc", "", "1-1-1", "0-0", "0", "-", "$")
    ],
    *[("XADD", "s", id, "f", "v") for id in ("18446744073709551616-1", "1e3", "0x10", "1-*-", "*-1", "9" * 200)],
    *[("XRANGE", "s", id, "+") for id in ("abc", "(", "((1", "(-", "(18446744073709551615-18446744073709551615", "")],
    *[("XRANGE", "s", "-", id) for id in ("(0-0", "(+", "x", "1-2-3")],
    *[("XRANGE", "s", "-", "+", "COUNT", count) for count in ("x", "", "1.5", "9223372036854775808", "1 ", b"\xff")],
    *[("XREAD", "COUNT", count, "STREAMS", "s", "0") for count in ("x", "9223372036854775808")],
    *[("XREAD", "BLOCK", ms, "STREAMS", "s", "0") for ms in ("x", "-1", "1.5", "99999999999999999999")],
    ("XREAD", "STREAMS", "s"),
    ("XREAD", "STREAMS"),
    ("XREAD", "s", "0"),
    ("XREAD", "STREAMS", "s", "t", "0"),
    ("XREAD", "STREAMS", "s", ">"),
    ("XREAD", "NOACK", "STREAMS", "s", "0"),
    ("XREAD", "GROUP", "g", "c", "STREAMS", "s", "0"),
    ("XREADGROUP", "STREAMS", "s", ">"),
    ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", "$"),
    ("XREADGROUP", "GROUP", "none", "c", "STREAMS", "s", ">"),
    ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "none", ">"),
    ("XADD", "s", "MAXLEN", "x", "*", "f", "v"),
    ("XADD", "s", "MAXLEN", "-1", "*", "f", "v"),
    ("XADD", "s", "MAXLEN", "=", "5", "LIMIT", "1", "*", "f", "v"),
    ("XADD", "s", "MAXLEN", "1", "MINID", "1", "*", "f", "v"),
    ("XADD", "s", "MAXLEN", "~", "1", "LIMIT", "-1", "*", "f", "v"),
    ("XADD", "s", "MAXLEN"),
    ("XADD", "s", "*", "f"),
    ("XADD", "s", "*", "f", "v", "g"),
    ("XTRIM", "s", "MAXLEN"),
    ("XTRIM", "s", "NOPE", "1"),
    ("XTRIM", "s", "MINID", "x"),
    ("XTRIM", "s"),
    ("XDEL", "s", "1-1", "abc"),
    ("XDEL", "s"),
    ("XSETID", "s", "0-1"),
    ("XSETID", "s", "abc"),
    ("XSETID", "none", "1-1"),
    ("XSETID", "s", "9-9", "ENTRIESADDED", "0"),
    ("XSETID", "s", "9-9", "MAXDELETEDID", "10-0"),
    ("XGROUP", "CREATE", "none", "g", "0"),
    ("XGROUP", "CREATE", "s", "g", "0"),
    ("XGROUP", "CREATE", "s", "n", "x"),
    ("XGROUP", "CREATE", "s", "n", "0", "ENTRIESREAD", "-2"),
    ("XGROUP", "CREATE", "s", "n", "0", "NOPE"),
    ("XGROUP", "NOPE", "s", "g"),
    ("XGROUP", b"\xff\r\n" * 100),
    ("XGROUP",),
    ("XGROUP", "SETID", "s", "none", "0"),
    ("XGROUP", "DELCONSUMER", "s", "none", "c"),
    ("XACK", "s", "g", "abc"),
    ("XACK", "s", "g"),
    ("XPENDING", "s", "none"),
    ("XPENDING", "s", "g", "-", "+"),
    ("XPENDING", "s", "g", "-", "+", "x"),
    ("XPENDING", "s", "g", "IDLE", "x", "-", "+", "1"),
    ("XPENDING", "s", "g", "IDLE", "1"),
    ("XCLAIM", "s", "g", "c", "x", "1-1"),
    ("XCLAIM", "s", "g", "c", "0", "abc"),
    ("XCLAIM", "s", "g", "c", "0", "1-1", "NOPE"),
    ("XCLAIM", "s", "g", "c", "0", "1-1", "IDLE"),
    ("XCLAIM", "s", "g", "c", "0", "1-1", "RETRYCOUNT", "x"),
    ("XCLAIM", "s", "none", "c", "0", "1-1"),
    ("XAUTOCLAIM", "s", "g", "c", "x", "0"),
    ("XAUTOCLAIM", "s", "g", "c", "0", "x"),
    ("XAUTOCLAIM", "s", "g", "c", "0", "0", "COUNT", "0"),
    ("XAUTOCLAIM", "s", "g", "c", "0", "0", "COUNT", "9223372036854775807"),
    ("XAUTOCLAIM", "s", "g", "c", "0", "0", "NOPE"),
    ("XINFO", "STREAM", "none"),
    ("XINFO", "STREAM", "s", "NOPE"),
    ("XINFO", "STREAM", "s", "FULL", "COUNT", "x"),
    ("XINFO", "GROUPS", "none"),
    ("XINFO", "CONSUMERS", "s", "none"),
    ("XINFO", "NOPE", "s"),
    ("XLEN",),
    ("XLEN", "s", "s"),
    ("RENAME", "none", "other"),
    ("EXEC",),
    ("DISCARD",),
    ("SELECT", "16"),
    ("SELECT", "x"),
    ("SELECT", "-1"),
    ("HELLO", "4"),
    ("HELLO", "x"),
    ("CLIENT", "NOPE"),
    ("CLIENT", "SETNAME", "a b"),
    ("CONFIG", "NOPE"),
    ("FLUSHALL", "NOPE"),
    ("SCAN", "x"),
    ("NOPE", "a", "b" * 300, "c"),
    ("",),
    (b"\x80\xff",),
]


def test_wrong_words_get_the_error_of_redis_and_change_nothing(server: Server, peer: RedisPeer | None) -> None:
    """Every one is an error, on both servers the same, and the stream is what it was."""
    differing = []
    for port in [server.port] + ([peer.port] if peer else []):
        with Wire(port) as client:
            client.ask("DEL", "s", "none")
            assert client.ask("XADD", "s", "1-1", "f", "v") == b"1-1"
            assert client.ask("XGROUP", "CREATE", "s", "g", "0") == OK
    with Wire(server.port) as client, Wire(peer.port if peer else server.port) as other:
        for words in WRONG:
            reply, expected = client.ask(*words), other.ask(*words)
            if not isinstance(reply, Error) or not same(reply, expected):
                differing.append(f"{words}: Redis {expected!r}, Lamina {reply!r}")
        assert not differing, "\n".join(differing)
        assert client.ask("XRANGE", "s", "-", "+") == [[b"1-1", [b"f", b"v"]]]
        assert client.ask("XPENDING", "s", "g") == [0, None, None, NULL_ARRAY]
        assert client.ask("EXISTS", "s", "none", "other") == 1


def test_an_error_is_one_line_whatever_it_tells(server: Server) -> None:
    """Words with line ends are shown in errors: they must not look like the next reply."""
    with Wire(server.port) as client:
        for words in (
            ("a\r\n+OK\r\n", "b\r\n:1"),
            ("XGROUP", "x\r\n+OK"),
            ("XREADGROUP", "GROUP", "\r\n", "c", "STREAMS", "\n+", ">"),
        ):
            assert isinstance(client.ask(*words), Error)
            assert client.ask("PING") == PONG


# -- names ---------------------------------------------------------------------------------------------------------

NAMES = {
    "a path up": b"../../etc/passwd",
    "a path up to what is there": b"../precious/file",
    "what is there beside the data": b"../s",
    "an absolute path": b"/tmp/lamina-was-here",
    "two dots": b"..",
    "one dot": b".",
    "a hidden file": b".hidden",
    "slashes": b"a/b/c/",
    "a zero byte": b"a\x00b",
    "only a zero byte": b"\x00",
    "empty": b"",
    "a line end": b"a\r\nb",
    "percent signs": b"%2e%2e%2f%",
    "large and small": b"ABC",
    "small": b"abc",
    "not UTF-8": b"\xff\xfe\x80",
    "blank": b" ",
    "a star": b"*",
    "a name like a log file": b"00000000000000000001.log",
    "the lock": b"LOCK",
    "a backslash": b"..\\..\\x",
    "as long as a file name may be": b"n" * 255,
    "quotes": b"\"'",
}
TOO_LONG = {
    "300 bytes": b"n" * 300,
    "70000 bytes": b"m" * 70_000,
    "100 bytes that are 300 when written out": b"\xff" * 100,
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_any_name_is_a_name(server: Server, home: Path, name: bytes) -> None:
    """It is added to, read, listed, renamed and deleted as any other, and is no path to anything."""
    around = everything_around(home)
    with Wire(server.port) as client:
        assert client.ask("XADD", name, "1-1", "f", name) == b"1-1"
        assert client.ask("XADD", name, "1-2", "f", "v") == b"1-2"
        assert client.ask("XLEN", name) == 2
        assert client.ask("XRANGE", name, "-", "1-1") == [[b"1-1", [b"f", name]]]
        assert client.ask("XREAD", "STREAMS", name, "1-1") == [[name, [[b"1-2", [b"f", b"v"]]]]]
        assert client.ask("XGROUP", "CREATE", name, name, "$") == OK
        assert client.ask("XGROUP", "CREATECONSUMER", name, name, name) == 1
        assert client.ask("XINFO", "CONSUMERS", name, name)[0][:2] == [b"name", name]
        assert sorted(client.ask("KEYS", "*")) == sorted([b"mine", name])
        assert client.ask("TYPE", name) == Simple(b"stream")
        assert client.ask("RENAME", name, "plain") == OK
        assert client.ask("XLEN", name) == 0
        assert client.ask("RENAME", "plain", name) == OK
        assert client.ask("XLEN", name) == 2
        assert client.ask("DEL", name) == 1
        assert client.ask("EXISTS", name) == 0
    assert everything_around(home) == around


@pytest.mark.parametrize("name", TOO_LONG.values(), ids=TOO_LONG)
def test_a_name_too_long_for_a_file_is_refused(server: Server, home: Path, name: bytes) -> None:
    """Redis has no such limit. The error names it; for all who only read, there is nothing by that name."""
    around = everything_around(home)
    with Wire(server.port) as client:
        added = client.ask("XADD", name, "1-1", "f", "v")
        if IS_STANDIN:
            assert added == b"1-1"
            client.ask("DEL", name)
        else:
            assert isinstance(added, Error)
            assert b"255" in added
            assert len(added) < 1000
            assert isinstance(client.ask("XGROUP", "CREATE", name, "g", "$", "MKSTREAM"), Error)
            assert isinstance(client.ask("RENAME", "mine", name), Error)
        assert client.ask("XLEN", name) == 0
        assert client.ask("EXISTS", name) == 0
        assert client.ask("DEL", name) == 0
        assert client.ask("TYPE", name) == Simple(b"none")
        assert client.ask("XRANGE", name, "-", "+") == []
        assert client.ask("XREAD", "STREAMS", name, "0") is NULL_ARRAY
        assert client.ask("XADD", name, "NOMKSTREAM", "1-1", "f", "v") is None or not IS_STANDIN
        assert client.ask("KEYS", "*") == [b"mine"]
    assert everything_around(home) == around


def test_all_names_are_there_after_a_kill(tmp_path: Path) -> None:
    """Each with its own entries, and nothing beside the data folder."""
    with topic_server(tmp_path / "data", sync="always") as server:
        with Wire(server.port) as client:
            for number, name in enumerate(NAMES.values(), 1):
                assert client.ask("XADD", name, f"{number}-1", "f", name) == b"%d-1" % number
        server.kill()
    with topic_server(tmp_path / "data", sync="always") as server, Wire(server.port) as client:
        assert sorted(client.ask("KEYS", "*")) == sorted(NAMES.values())
        for number, name in enumerate(NAMES.values(), 1):
            assert client.ask("XRANGE", name, "-", "+") == [[b"%d-1" % number, [b"f", name]]]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
