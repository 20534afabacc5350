"""How the RESP door reads commands, what it refuses with which words, and what it never allocates.

Every row was sent to a real Redis 7.0, which took, refused or waited as the row says.
"""

from __future__ import annotations

import tracemalloc

import pytest

from lamina.server import resp as package
from lamina.server.resp import protocol
from lamina.server.resp.protocol import Parser
from pure import load_pure

TWINS = [protocol.Parser, load_pure(package, "protocol").Parser]
each_twin = pytest.mark.parametrize("parser_class", TWINS, ids=("chosen", "python"))

K64 = 64 * 1024
MIB = 1 << 20


def typed(*words: bytes) -> list[bytes]:
    """An ECHO with the word it gives back: what a terminal would show."""
    return [b"ECHO", *words]


# -- what is taken -------------------------------------------------------------------------------------------------

TAKEN: list[tuple[bytes, list[list[bytes]]]] = [
    (b"*1\r\n$4\r\nPING\r\n", [[b"PING"]]),
    (b"*2\r\n$4\r\nECHO\r\n$5\r\na\r\n\0b\r\n", [typed(b"a\r\n\0b")]),
    (b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", [typed(b"")]),
    (b"*1\r\n$0\r\n\r\n", [[b""]]),
    (b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n", [[b"PING"], [b"PING"]]),
    (b"*1\r\n$4\r\nPING\r\nPING\r\n*1\r\n$4\r\nPING\r\n", [[b"PING"]] * 3),
    # commands of nothing are passed over
    (b"*0\r\n*1\r\n$4\r\nPING\r\n", [[b"PING"]]),
    (b"*-1\r\n*-10\r\nPING\r\n", [[b"PING"]]),
    (b"*-9223372036854775808\r\nPING\r\n", [[b"PING"]]),
    (b"\r\n\n  \r\n\t\v\f\r\n\r\r\nPING\r\n", [[b"PING"]]),
    # the byte behind a CR may be any, the two behind an argument are not looked at
    (b"*1\rX$4\rYPINGzz", [[b"PING"]]),
    (b"*1\r\r$4\r\0PING\0\0PING\n", [[b"PING"], [b"PING"]]),
    (b"*2\r\n$4\r\nECHO\r\n$1\r\nabc\r\nfoo\r\n", [typed(b"a"), [b"foo"]]),
    # inline: blanks and line ends
    (b"PING\n", [[b"PING"]]),
    (b"  foo\tbar \t baz  \r\n", [[b"foo", b"bar", b"baz"]]),
    (b"foo\rbar\r\n", [[b"foo", b"bar"]]),
    (b"foo\r\r\n", [[b"foo"]]),
    (b"foo \vbar\f \fbaz\r\n", [[b"foo", b"bar\f", b"baz"]]),
    (b"ECHO a\vb\v\r\n", [typed(b"a\vb\v")]),
    (b"ECHO \xff\x80\r\n", [typed(b"\xff\x80")]),
    (b"$4 foo\r\n", [[b"$4", b"foo"]]),
    (b" *1\r\n", [[b"*1"]]),
    # inline: double quotes
    (b'ECHO "a b"\r\n', [typed(b"a b")]),
    (b'ECHO ""\r\n', [typed(b"")]),
    (b'"" a\r\n', [[b"", b"a"]]),
    (b'"ECHO" a\r\n', [typed(b"a")]),
    (b'ECHO a"b c"\r\n', [typed(b"ab c")]),
    (b'ECHO \\n"b"\r\n', [typed(b"\\nb")]),
    (b'ECHO "\\n\\r\\t\\b\\a\\\\\\"\\z"\r\n', [typed(b'\n\r\t\b\a\\"z')]),
    (b'ECHO "\\x41\\xfF\\x00"\r\n', [typed(b"A\xff\0")]),
    (b'ECHO "\\x4\\xg1\\X41\\x"\r\n', [typed(b"x4xg1X41x")]),
    (b'ECHO "\\\r"\r\n', [typed(b"\r")]),
    (b'ECHO "a\rb\'c"\r\n', [typed(b"a\rb'c")]),
    (b'foo "a"\v"b"\r\n', [[b"foo", b"a", b"b"]]),
    (b'ECHO "a"\t \n', [typed(b"a")]),
    # inline: single quotes
    (b"ECHO 'a b'\r\n", [typed(b"a b")]),
    (b"ECHO ''\r\n", [typed(b"")]),
    (b"ECHO 'a\\'b'\r\n", [typed(b"a'b")]),
    (b"ECHO 'a\\\\'b'\r\n", [typed(b"a\\'b")]),
    (b"ECHO 'a\\nb\\x41\"'\r\n", [typed(b'a\\nb\\x41"')]),
    (b"ECHO a'b'\f\r\n", [typed(b"ab")]),
    # the longest that are not too long
    (b"PING" + b" " * (K64 - 4) + b"\n", [[b"PING"]]),
    (b"PING" + b" " * (K64 - 5) + b"\r\n", [[b"PING"]]),
]


@each_twin
@pytest.mark.parametrize(("data", "expected"), TAKEN, ids=lambda each: repr(each)[:60])
def test_is_taken(parser_class: type[Parser], data: bytes, expected: list[list[bytes]]) -> None:
    parser = parser_class()
    assert parser.feed(data) == expected
    assert (parser.error, parser.pending) == (None, 0)


# -- what is refused -----------------------------------------------------------------------------------------------

COUNT = b"invalid multibulk length"
SIZE = b"invalid bulk length"
QUOTES = b"unbalanced quotes in request"
REFUSED: list[tuple[bytes, bytes]] = [
    *[
        (b"*%b\r\n" % text, COUNT)
        for text in (b"", b"x", b"1x", b" 1", b"1 ", b"+1", b"01", b"-0", b"-", b"--1", b"-01", b"1.0", b"0x1")
    ],
    (b"*\rx", COUNT),
    (b"*1\n\r\n", COUNT),
    (b"*2147483648\r\n", COUNT),
    (b"*9223372036854775807\r\n", COUNT),
    (b"*9223372036854775808\r\n", COUNT),
    (b"*18446744073709551617\r\n", COUNT),
    (b"*-9223372036854775809\r\n", COUNT),
    (b"*-99999999999999999999999\r\n", COUNT),
    (b"*" + b"1" * (K64 - 1) + b"\r\n", COUNT),
    (b"*1\r\nx\r\n", b"expected '$', got 'x'"),
    (b"*1\r\n*1\r\n", b"expected '$', got '*'"),
    (b"*1\r\n4\r\nPING\r\n", b"expected '$', got '4'"),
    (b"*1\r\n\xff\r\n", b"expected '$', got '\xff'"),
    (b"*1\r\n'\r\n", b"expected '$', got '''"),
    (b"*1\r\n\r\n", b"expected '$', got ' '"),
    (b"*1\r\n\nfoo\r\n", b"expected '$', got ' '"),
    (b"*2\r\n$4\r\nECHO\r\nfoo\r\n", b"expected '$', got 'f'"),
    *[
        (b"*1\r\n$%b\r\n" % text, SIZE)
        for text in (b"", b"x", b"4x", b" 4", b"+4", b"04", b"-0", b"-1", b"-4", b"-", b"536870913")
    ],
    (b"*1\r\n$9223372036854775807\r\n", SIZE),
    (b"*1\r\n$9223372036854775808\r\n", SIZE),
    (b"*1\r\n$" + b"1" * (K64 - 1) + b"\r\n", SIZE),
    (b"*" + b"1" * K64, b"too big mbulk count string"),
    (b"*\0" + b"\r" * (K64 - 1), b"too big mbulk count string"),
    (b"*1\r\n$" + b"1" * K64, b"too big bulk count string"),
    (b"*1\r\nx" + b"1" * K64, b"too big bulk count string"),
    (b"*1\r\n$\0" + b"\r" * (K64 - 1), b"too big bulk count string"),
    (b"a" * (K64 + 1), b"too big inline request"),
    (b"\0" + b"\n" * K64, b"too big inline request"),
    *[
        (b"%b\r\n" % text, QUOTES)
        for text in (
            b'"',
            b"'",
            b'ECHO "a',
            b"ECHO 'a",
            b'ECHO "a"b',
            b"ECHO 'a'b",
            b'ECHO "a""b"',
            b"ECHO 'a''b'",
            b"ECHO 'a'\"b\"",
            b'ECHO "a\\"',
            b"ECHO 'a\\'",
            b'ECHO "a\\',
            b"ECHO a\"b'",
            b"ECHO \"a'",
            b'ECHO "a"\\x20',
        )
    ],
]


@each_twin
@pytest.mark.parametrize(("data", "problem"), REFUSED, ids=lambda each: repr(each)[:60])
def test_is_refused(parser_class: type[Parser], data: bytes, problem: bytes) -> None:
    parser = parser_class()
    assert parser.feed(data) == []
    assert (parser.error, parser.pending) == (problem, 0)


@each_twin
def test_commands_before_a_mistake_are_returned_with_it_and_nothing_behind_it_is(parser_class: type[Parser]) -> None:
    parser = parser_class()
    assert parser.feed(b"PING\r\n*1\r\n$4\r\nPING\r\n*x\r\nPING\r\n") == [[b"PING"], [b"PING"]]
    assert parser.error == COUNT
    assert parser.feed(b"PING\r\n") == []
    assert (parser.error, parser.pending) == (COUNT, 0)


# -- what is waited for --------------------------------------------------------------------------------------------

WAITED_FOR: list[bytes] = [
    b"",
    b"*",
    b"*x",
    b"*1\r",
    b"*1\r\n",
    b"*1\r\n$4\r",
    b"*1\r\nx\r",
    b"*1\r\n$4\r\nPING",
    b"*1\r\n$4\r\nPING\r",
    b"*2\r\n$4\r\nECHO\r\n",
    b"*1048576\r\n",
    b"*1\r\n$536870912\r\n",
    b"PING",
    b"PING\r",
    b'"',
    b"a" * K64,
    b"*" + b"1" * (K64 - 1),
    b"*1\r\n$" + b"1" * (K64 - 1),
    # a zero byte hides the rest of its line
    b"PING\0\r\nPING\r\n",
    b"*1\0\r\n*x\r\n",
    b"*1\r\n$4\0\r\nPING\r\n",
    b"\0" + b"\n" * (K64 - 1),
]


@each_twin
@pytest.mark.parametrize("data", WAITED_FOR, ids=lambda each: repr(each)[:60])
def test_is_waited_for(parser_class: type[Parser], data: bytes) -> None:
    parser = parser_class()
    assert parser.feed(data) == []
    assert (parser.error, parser.pending) == (None, len(data))


@each_twin
def test_pending_counts_what_became_arguments_already(parser_class: type[Parser]) -> None:
    parser = parser_class()
    parser.feed(b"PING\r\n")
    parser.feed(b"*2\r\n$4\r\nECHO\r\n")
    parser.feed(b"$4\r\nab")
    assert parser.pending == len(b"*2\r\n$4\r\nECHO\r\n$4\r\nab")
    assert parser.feed(b"cd\r\n") == [typed(b"abcd")]
    assert parser.pending == 0


# -- limits of one's own -------------------------------------------------------------------------------------------


@each_twin
def test_limits_are_what_may_just_be(parser_class: type[Parser]) -> None:
    def outcome(data: bytes) -> tuple[list[list[bytes]], bytes | None]:
        parser = parser_class(max_bulk=3, max_args=2, max_inline=8)
        return parser.feed(data), parser.error

    assert outcome(b"*2\r\n$3\r\nabc\r\n$1\r\nx\r\n") == ([[b"abc", b"x"]], None)
    assert outcome(b"*1\r\n$4\r\nabcd\r\n") == ([], SIZE)
    assert outcome(b"*3\r\n") == ([], COUNT)
    assert outcome(b"12345678\n") == ([[b"12345678"]], None)
    assert outcome(b"123456789\n") == ([], b"too big inline request")
    assert outcome(b"*-123456\r\n") == ([], None)
    assert outcome(b"*-1234567\r\n") == ([], b"too big mbulk count string")


@each_twin
def test_by_default_a_command_has_at_most_1048576_arguments(parser_class: type[Parser]) -> None:
    parser = parser_class()
    parser.feed(b"*1048577\r\n")
    assert parser.error == COUNT


# -- memory and time -----------------------------------------------------------------------------------------------


def most_memory(parser: Parser, *pieces: bytes) -> int:
    tracemalloc.start()
    try:
        for piece in pieces:
            parser.feed(piece)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@each_twin
def test_announced_sizes_cost_nothing(parser_class: type[Parser]) -> None:
    assert most_memory(parser_class(), b"*1048576\r\n", b"$536870912\r\n", b"abc") < 4096


@each_twin
def test_an_argument_takes_memory_as_it_arrives(parser_class: type[Parser]) -> None:
    pieces = [b"x" * 1024] * 1024
    assert most_memory(parser_class(), b"*1\r\n$536870912\r\n", *pieces) < 3 * MIB


@each_twin
def test_a_big_argument_in_small_pieces_takes_linear_time(parser_class: type[Parser]) -> None:
    # Looking at all of it with each piece would be 500 GB to read: this test would not end.
    parser = parser_class()
    parser.feed(b"*1\r\n$%d\r\n" % (32 * MIB))
    for _ in range(32 * 1024):
        assert parser.feed(b"x" * 1024) == []
    [[argument]] = parser.feed(b"\r\n")
    assert argument == b"x" * 32 * MIB


@each_twin
@pytest.mark.parametrize("start", [b"a", b"\0", b"*", b"*\0", b"*1\r\n$", b"*1\r\n$\0"])
def test_a_line_that_does_not_end_is_refused_byte_by_byte_too(parser_class: type[Parser], start: bytes) -> None:
    parser = parser_class()
    parser.feed(start)
    news = b"\r\n" if b"\0" in start else b"1"  # each would be worth a look, were it not hidden
    for _ in range(K64):
        parser.feed(news)
    assert parser.error is not None and parser.error.startswith(b"too big")
