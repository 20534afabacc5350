"""The workq parser gives the same commands for any split of the bytes, and of any bytes only what it promises."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, get_args

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lamina.server.workq.commands import STATES, Command, Redrive, Refusal
from lamina.server.workq.parse import MAX_COMMAND, Parser

ID = b"0000000a-0000-4000-8000-00000000000a"
Outcome = tuple[list[tuple[type, Command]], bool, int, list[Command]]


def examples(count: int) -> Callable[[Any], Any]:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def outcome(pieces: Sequence[bytes]) -> Outcome:
    """Everything a caller can see: commands with their kinds, whether it is over, what is held, what the end adds."""
    parser = Parser()
    commands = [command for piece in pieces for command in parser.feed(piece)]
    is_closed, pending = parser.is_closed, parser.pending
    return [(type(command), command) for command in commands], is_closed, pending, parser.end()


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


# -- streams: mostly right commands, some of them odd --------------------------------------------------------------


def words(*choices: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from(choices)


NUMBER = words(b"0", b"1", b"7", b"100", b"86400000", b"86400001", b"2592000000", b"0001", b"-1", b"+1", b"x", b"1_0")
NAME = words(b"q", b"a.b-c_9", b"-x", b"q!", b"n" * 255, b"n" * 256)
AN_ID = words(ID, ID, ID.upper(), ID.replace(b"-", b""), b"{" + ID + b"}", ID + b"0", b"x", b"0" * 32)
TIME = words(b"2099-01-02T03:04:05Z", b"0001-01-01T00:00:00.123Z", b"2099-02-30T00:00:00Z")
FLAG = words(b"-priority=5", b"-priority=-5", b"-max-fails=1", b"-unique=k", b"-backoff=9", b"-max=2", b"-a=1", b"-a=")
BLANK = words(b" ", b" ", b" ", b"  ", b"\t")
LINE_END = words(*[b"\r\n"] * 12, b"\n", b"\r\r\n", b"")
PAYLOAD = st.binary(max_size=12) | words(b"\r\n", b"delete x\r\n", b"\n", b"x" * 300)
COMMANDS: dict[bytes, tuple[st.SearchStrategy[bytes], ...]] = {
    b"add": (AN_ID, NAME, NUMBER, NUMBER),
    b"schedule": (AN_ID, NAME, NUMBER, NUMBER, TIME),
    b"run": (AN_ID, NAME, NUMBER, NUMBER),
    b"complete": (AN_ID,),
    b"fail": (AN_ID,),
    b"bury": (AN_ID,),
    b"lease": (NAME, NUMBER),
    b"delete": (AN_ID,),
    b"result": (AN_ID, NUMBER),
    b"inspect": (words(b"server", b"queue", b"jobs", b"job", b"state", b"x"), NAME, NUMBER, NUMBER),
    b"touch": (AN_ID, NUMBER),
    b"redrive": (NAME, NUMBER),
    b"hello": (NAME,),
}
WITH_PAYLOAD = (b"add", b"schedule", b"run", b"complete", b"fail", b"bury")


@st.composite
def command_bytes(draw: st.DrawFn, kinds: Sequence[bytes] = tuple(COMMANDS)) -> bytes:
    word = draw(st.sampled_from(kinds))
    parts = [word, *(draw(each) for each in COMMANDS[word])]
    payload = b""
    if word in WITH_PAYLOAD:
        payload = draw(PAYLOAD)
        parts.append(draw(words(*[b"%d" % len(payload)] * 9, b"2", b"x", b"")))
        payload += draw(LINE_END)
    parts += draw(st.lists(FLAG, max_size=2))
    return draw(BLANK).join(parts) + draw(LINE_END) + payload


STREAM = st.lists(command_bytes() | st.binary(max_size=20), max_size=8).map(b"".join)
PLACES = st.lists(st.integers(0, 5000), max_size=12)


@examples(1500)
@given(STREAM, PLACES)
@example(b"complete %b 1\r\na\r\ncomplete %b 1\r\n\r\r\n" % (ID, ID), range(0, 5000, 3))
def test_any_split_gives_the_same_commands(data: bytes, places: Sequence[int]) -> None:
    assert outcome(cut(data, places)) == outcome([data])


@examples(300)
@given(STREAM)
def test_byte_by_byte_gives_the_same_commands(data: bytes) -> None:
    assert outcome([data[at : at + 1] for at in range(len(data))]) == outcome([data])


@examples(20)
@given(words(b"lease q" + b" " * MAX_COMMAND, b"complete %b 1048576\r\n" % ID + b"\n" * (MAX_COMMAND + 5)), PLACES)
def test_commands_at_the_limits_split_alike(data: bytes, places: Sequence[int]) -> None:
    near_the_limit = [MAX_COMMAND - place % 9 for place in places]
    assert outcome(cut(data, near_the_limit)) == outcome([data])


@examples(1500)
@given(command_bytes(kinds=(b"add", b"lease", b"complete")))
def test_the_quick_and_the_careful_way_agree(data: bytes) -> None:
    careful = data.replace(b" ", b"  ", 1)  # one more blank is nothing but too much for the quick way
    quick_outcome, careful_outcome = outcome([data]), outcome([careful])
    assert quick_outcome[:2] == careful_outcome[:2]
    assert quick_outcome[3] == careful_outcome[3]


# -- anything at all -----------------------------------------------------------------------------------------------


def is_name(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,255}", value) is not None


def is_between(first: int, last: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and first <= value <= last


def is_bytes(shortest: int, longest: int) -> Callable[[object], bool]:
    return lambda value: type(value) is bytes and shortest <= len(value) <= longest


DAY_MS = 86_400_000
UINT32 = (1 << 32) - 1
# What commands.py promises of the fields, by their names: who gets a command does not check them again.
PROMISED: dict[str, Callable[[Any], bool]] = {
    "id": is_bytes(16, 16),
    "name": is_name,
    "names": lambda names: 1 <= len(names) <= 1000 and all(map(is_name, names)),
    "queues": lambda names: all(map(is_name, names)),
    "text": lambda text: isinstance(text, str) and text != "",
    "payload": is_bytes(0, 1 << 20),
    "result": is_bytes(0, 1 << 20),
    "ttr": is_between(1, DAY_MS),
    "ttl": is_between(1, 30 * DAY_MS),
    "wait": is_between(0, DAY_MS),
    "delay": is_between(0, 30 * DAY_MS),
    "backoff": is_between(0, DAY_MS),
    "priority": is_between(-(1 << 31), (1 << 31) - 1),
    "max_attempts": is_between(0, 255),
    "max_fails": is_between(0, 255),
    "time": lambda time: time is None or type(time) is int,
    "unique": lambda key: key == "" or is_name(key),
    "most": is_between(1, 1000),
    "tells_attempts": lambda tells: isinstance(tells, bool),
    "offset": is_between(0, UINT32),
    "limit": is_between(1, 1000),
    "state": lambda state: state in STATES,
}


def is_as_promised(command: Command) -> bool:
    if not isinstance(command, get_args(Command)):
        return False
    values = command._asdict()
    if isinstance(command, Redrive):  # the one or the other
        del values["id" if command.id is None else "name"]
    return all(PROMISED[field](value) for field, value in values.items())


@examples(1000)
@given(st.lists(st.binary(max_size=60) | command_bytes(), max_size=20))
@example([b"lease - 0\r\n", b"\xff\r\n"])
def test_any_bytes_give_commands_as_promised_or_refusals_and_never_raise(pieces: list[bytes]) -> None:
    commands, _, pending, rest = outcome(pieces)
    assert all(is_as_promised(command) for command in (*(each for _, each in commands), *rest))
    assert pending < MAX_COMMAND


@examples(300)
@given(st.binary(max_size=60).map(lambda junk: b"x%b\r\n" % junk.replace(b"\n", b"")))
def test_a_line_that_begins_with_no_word_of_ours_is_refused(line: bytes) -> None:
    commands, is_closed, pending, rest = outcome([line])
    assert ([kind for kind, _ in commands], is_closed, pending, rest) == ([Refusal], False, 0, [])
