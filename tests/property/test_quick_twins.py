"""The quick way through the usual commands, compiled by hand and in Python: the same commands, the same bytes taken."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lamina.engines.jobs.job import Job, Queue
from lamina.server import workq as package
from lamina.server.workq import quick
from lamina.server.workq.commands import Command
from property.test_workq_split import ID, command_bytes
from pure import load_pure

pure_quick = load_pure(package, "quick")
pytestmark = pytest.mark.skipif(not package.IS_COMPILED, reason="the compiled twins are not built here")

USUAL = command_bytes(kinds=(b"add", b"lease", b"complete"))
SPOILT = st.tuples(st.integers(0, 500), st.binary(min_size=1, max_size=2))
ADD = b"add %b q 1 1 2 -priority=-3\r\nab\r\n" % ID
COMPLETE = b"complete %b 2\r\nab\r\n" % ID


def taken(module: ModuleType, data: bytes, at: int) -> object:
    commands: list[Command] = []
    behind = module.take(data, at, commands)
    return behind, [(type(command), command) for command in commands]


def test_the_twins_are_two() -> None:
    assert quick.__file__.endswith(".so")
    assert pure_quick.__file__ is not None and pure_quick.__file__.endswith(".py")


@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(USUAL, max_size=3).map(b"".join), st.lists(SPOILT, max_size=2))
@example(ADD + b"lease q 86400000\r\n" + COMPLETE, [])
def test_both_take_the_same(data: bytes, spoilt: list[tuple[int, bytes]]) -> None:
    for place, piece in spoilt:
        at = place % (len(data) + 1)
        data = data[:at] + piece + data[at + 1 :]
    for at in (0, min(4, len(data)), len(data)):
        assert taken(quick, data, at) == taken(pure_quick, data, at)


@pytest.mark.parametrize("line", [ADD, COMPLETE, b"lease queue 86400000\r\n"])
def test_both_take_the_same_of_every_start_and_with_every_byte_changed(line: bytes) -> None:
    for end in range(len(line) + 1):
        assert taken(quick, line[:end], 0) == taken(pure_quick, line[:end], 0)
        for byte in range(256):
            changed = line[:end] + bytes([byte]) + line[end + 1 :]
            assert taken(quick, changed, 0) == taken(pure_quick, changed, 0)


@pytest.mark.parametrize("digits", range(1, 12))
def test_both_take_numbers_of_the_same_length(digits: int) -> None:
    for number in (b"0" * (digits - 1) + b"1", b"1" + b"0" * (digits - 1), b"9" * digits):
        for line in (
            b"add %b q %b 1 0\r\n\r\n" % (ID, number),
            b"add %b q 1 %b 0\r\n\r\n" % (ID, number),
            b"add %b q 1 1 %b\r\n%b\r\n" % (ID, number, b"x" * min(int(number), 1 << 21)),
            b"add %b q 1 1 0 -priority=%b\r\n\r\n" % (ID, number),
            b"lease q %b\r\n" % number,
            b"complete %b %b\r\n%b\r\n" % (ID, number, b"x" * min(int(number), 1 << 21)),
        ):
            assert taken(quick, line, 0) == taken(pure_quick, line, 0)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.binary(min_size=16, max_size=16), st.integers(0, 1 << 40), st.binary(max_size=120)), max_size=3
    )
)
def test_both_answer_a_lease_alike(facts: list[tuple[bytes, int, bytes]]) -> None:
    jobs = []
    for id, ttr, payload in facts:
        job = Job(id, Queue("a-queue"), payload)
        job.ttr = ttr
        jobs.append(job)
    assert quick.leased(jobs) == pure_quick.leased(jobs)
    assert [quick.show_id(job.id) for job in jobs] == [pure_quick.show_id(job.id) for job in jobs]
