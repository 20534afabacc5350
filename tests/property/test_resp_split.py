"""The RESP parser gives the same commands for any split of the bytes, compiled or not, and survives any bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lamina.server import resp as package
from lamina.server.resp import protocol
from lamina.server.resp.protocol import Parser
from pure import load_pure

PurePython: type[Parser] = load_pure(package, "protocol").Parser
are_two = pytest.mark.skipif(not package.IS_COMPILED, reason="the compiled twin is not built here")

Outcome = tuple[list[list[bytes]], bytes | None, int]
SMALL = {"max_bulk": 20, "max_args": 4, "max_inline": 24}  # limits that short streams come upon
LARGEST_SMALL_COMMAND = 24 + 2 + 4 * (24 + 2 + 20 + 2)


def examples(count: int) -> Callable[[Any], Any]:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def outcome(pieces: Sequence[bytes], make: Callable[..., Parser] = Parser, **limits: int) -> Outcome:
    """Everything a caller can see."""
    parser = make(**limits)
    commands = [command for piece in pieces for command in parser.feed(piece)]
    return commands, parser.error, parser.pending


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


def spoil(data: bytes, spoilt: Sequence[tuple[int, bytes]]) -> bytes:
    for place, piece in spoilt:
        at = place % (len(data) + 1)
        data = data[:at] + piece + data[at + 1 :]
    return data


# -- streams: mostly right commands, some of them odd --------------------------------------------------------------


def words(*choices: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from(choices)


def command_bytes(args: Sequence[bytes]) -> bytes:
    return b"*%d\r\n" % len(args) + b"".join([b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in args])


RIGHT = st.lists(st.binary(max_size=24) | words(b"XADD", b"\r\n", b"$1\r\n", b"*1\r\n"), max_size=5).map(command_bytes)
ODD_HEADER = words(b"*0\r\n", b"*-1\r\n", b"*01\r\n", b"*2\r\n", b"$3\r\n", b"$-1\r\n", b"*1\0\r\n", b"*1\rX", b"*\r\n")
INLINE_PART = words(b"PING", b" ", b"\t", b'"', b"'", b"\\", b"\\x41", b"\\n", b"\v", b"a b", b"\xff", b"\r", b"\0")
INLINE = st.tuples(st.lists(INLINE_PART, max_size=8).map(b"".join), words(b"\r\n", b"\n")).map(b"".join)
STREAM = st.lists(st.one_of(RIGHT, RIGHT, RIGHT, INLINE, ODD_HEADER), max_size=6).map(b"".join)
SPOILT = st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=2)), max_size=3)
PLACES = st.lists(st.integers(0, 500), max_size=12)
LIMITS = st.sampled_from([{}, SMALL])


@examples(800)
@given(STREAM, SPOILT, PLACES, LIMITS)
@example(b"*1\r\n$4\r\nPING\r\n" * 3 + b'ECHO "a"\r\n', [], range(0, 500, 3), {})
def test_any_split_gives_the_same_commands(
    data: bytes, spoilt: Sequence[tuple[int, bytes]], places: Sequence[int], limits: dict[str, int]
) -> None:
    data = spoil(data, spoilt)
    assert outcome(cut(data, places), **limits) == outcome([data], **limits)
    assert outcome(cut(data, places), PurePython, **limits) == outcome([data], **limits)


@examples(300)
@given(STREAM, LIMITS)
def test_byte_by_byte_gives_the_same_commands(data: bytes, limits: dict[str, int]) -> None:
    pieces = [data[at : at + 1] for at in range(len(data))]
    assert outcome(pieces, **limits) == outcome(pieces, PurePython, **limits) == outcome([data], **limits)


@examples(200)
@given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=8), max_size=8), PLACES)
def test_what_was_written_is_what_is_read(commands: list[list[bytes]], places: Sequence[int]) -> None:
    data = b"".join(map(command_bytes, commands))
    assert outcome(cut(data, places)) == (commands, None, 0)


# -- the twins -----------------------------------------------------------------------------------------------------


@are_two
def test_the_twins_are_two() -> None:
    assert protocol.__file__.endswith(".so")
    assert PurePython is not Parser


@are_two
@examples(800)
@given(STREAM, SPOILT, LIMITS)
def test_both_read_the_same(data: bytes, spoilt: Sequence[tuple[int, bytes]], limits: dict[str, int]) -> None:
    data = spoil(data, spoilt)
    assert outcome([data], **limits) == outcome([data], PurePython, **limits)


@are_two
@pytest.mark.parametrize(
    "data", [b"*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\n", b"ECHO \"a\\x41\" 'b'\r\n", b"*-10\r\n*1\r\n"]
)
def test_both_read_the_same_of_every_start_and_with_every_byte_changed(data: bytes) -> None:
    for end in range(len(data) + 1):
        assert outcome([data[:end]]) == outcome([data[:end]], PurePython)
        for byte in range(256):
            changed = data[:end] + bytes([byte]) + data[end + 1 :]
            assert outcome([changed]) == outcome([changed], PurePython)


@are_two
@examples(500)
@given(st.integers(-(2**70), 2**70) | st.integers(2**63 - 2, 2**63 + 2) | st.integers(-(2**63) - 2, -(2**63) + 2))
def test_both_read_the_same_numbers(number: int) -> None:
    for data in (b"*%d\r\nPING\r\n" % number, b"*1\r\n$%d\r\nPING\r\n" % number):
        assert outcome([data]) == outcome([data], PurePython)
        widest = {"max_args": 2**62, "max_bulk": 2**62}
        assert outcome([data], **widest) == outcome([data], PurePython, **widest)


# -- anything at all -----------------------------------------------------------------------------------------------


@examples(800)
@given(st.lists(st.one_of(st.binary(max_size=60), RIGHT, ODD_HEADER), max_size=20))
def test_no_bytes_raise_and_what_is_held_is_bounded(pieces: list[bytes]) -> None:
    for make in (Parser, PurePython):
        parser = make(**SMALL)
        for piece in pieces:
            assert all(parser.feed(piece))  # no command is empty
            assert parser.pending <= LARGEST_SMALL_COMMAND
            assert parser.error is None or parser.pending == 0
