"""What the workq door understands, what it refuses with which words, and when it gives up on a connection."""

from __future__ import annotations

import ast
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lamina.server.workq import commands as c
from lamina.server.workq.commands import Command, Refusal
from lamina.server.workq.parse import MAX_COMMAND, Parser

RAW = bytes.fromhex("00000001000040008000000000000001")
ID = "00000001-0000-4000-8000-000000000001"
V1 = "6ba7b810-9dad-11d1-80b4-00c04fd430c4"
NIL = "00000000-0000-0000-0000-000000000000"
MIB = 1 << 20
TIME = "2099-01-02T03:04:05Z"
TIME_NS = int(datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()) * 10**9


def encoded(text: str) -> bytes:
    """``$`` is the usual id, ``|`` ends a line."""
    return text.replace("$", ID).replace("|", "\r\n").encode("latin-1")


def typed(found: list[Command]) -> list[tuple[type, Command]]:
    """Commands are tuples, so equal fields of two kinds are equal: compare the kinds, too."""
    return [(type(each), each) for each in found]


def assert_stays(text: str, *expected: Command) -> None:
    parser = Parser()
    assert typed(parser.feed(encoded(text))) == typed(list(expected))
    assert (parser.is_closed, parser.pending) == (False, 0)


def assert_closes(text: str, *expected: Command) -> None:
    parser = Parser()
    assert typed(parser.feed(encoded(text))) == typed(list(expected))
    assert (parser.is_closed, parser.pending) == (True, 0)
    assert parser.feed(b"inspect server\r\n") == parser.end() == []


# -- commands ------------------------------------------------------------------------------------------------------

UNDERSTOOD: list[tuple[str, Command]] = [
    ("add $ q 1000 60000 1|a|", c.Add(RAW, "q", 1000, 60000, b"a")),
    ("add $ q 1000 60000 4|a|b|", c.Add(RAW, "q", 1000, 60000, b"a\r\nb")),
    ("add $ q 1000 60000 0||", c.Add(RAW, "q", 1000, 60000, b"")),
    ("add $ -_.9Z 86400000 2592000000 1|a|", c.Add(RAW, "-_.9Z", 86400000, 2592000000, b"a")),
    ("add $ q 1 1 1 -priority=-5|a|", c.Add(RAW, "q", 1, 1, b"a", -5)),
    (
        "add $ q 1 1 1 -max-fails=3 -backoff=86400000 -priority=+1 -unique=a.B_c-9 -max-attempts=255|a|",
        c.Add(RAW, "q", 1, 1, b"a", 1, 255, 3, None, "a.B_c-9", 86400000),
    ),
    ("add -priority=3 $ q -x=1 1 1 1|a|", c.Add(RAW, "q", 1, 1, b"a", 3)),
    ("add $ q 1 1 1 -a=1 -b=2 -c=3 -unique=u -backoff=1|a|", c.Add(RAW, "q", 1, 1, b"a", unique="u", backoff=1)),
    (f"schedule $ q 1 2 {TIME} 1|a|", c.Add(RAW, "q", 1, 2, b"a", time=TIME_NS)),
    (f"schedule $ q 1 2 {TIME} 1 -priority=9|a|", c.Add(RAW, "q", 1, 2, b"a", 9, time=TIME_NS)),
    ("run $ q 1 0 1|a|", c.Run(RAW, "q", 1, 0, b"a")),
    ("run $ q 1 86400000 1 -priority=2147483647|a|", c.Run(RAW, "q", 1, 86400000, b"a", 2147483647)),
    ("run $ q 1 0 1 -other=7|a|", c.Run(RAW, "q", 1, 0, b"a")),
    ("lease q 0|", c.Lease(("q",), 0)),
    ("lease 10 20|", c.Lease(("10",), 20)),
    ("lease -x -y 10|", c.Lease(("-x", "-y"), 10)),
    ("lease b a b 86400000 -max=1000|", c.Lease(("b", "a", "b"), 86400000, 1000)),
    ("complete $ 2|ok|", c.Complete(RAW, b"ok")),
    ("fail $ 2|no|", c.Fail(RAW, b"no")),
    ("bury $ 2|no|", c.Bury(RAW, b"no")),
    ("delete $|", c.Delete(RAW)),
    ("result $ 5|", c.Result(RAW, 5)),
    ("inspect server|", c.InspectServer()),
    ("inspect queue q|", c.InspectQueue("q")),
    ("inspect queues 4294967295 100|", c.InspectQueues(4294967295, 100)),
    ("inspect jobs q 0 1|", c.InspectJobs("q", 0, 1)),
    ("inspect scheduled-jobs q 0 1|", c.InspectScheduled("q", 0, 1)),
    ("inspect job $|", c.InspectJob(RAW)),
    (f"inspect job {V1}|", c.InspectJob(bytes.fromhex(V1.replace("-", "")))),
    (f"inspect job {NIL}|", c.InspectJob(bytes(16))),
    *((f"inspect state q {state} 7 8|", c.InspectState("q", state, 7, 8)) for state in c.STATES),
    ("inspect view $|", c.InspectView(RAW)),
    ("inspect views q failed 7 8|", c.InspectViews("q", "failed", 7, 8)),
    ("inspect queue-views 7 8|", c.InspectQueueViews(7, 8)),
    ("lease q 5 -attempts=1|", c.Lease(("q",), 5, 1, True)),
    ("lease q 5 -max=3 -attempts=0|", c.Lease(("q",), 5, 3)),
    ("touch $ 86400000|", c.Touch(RAW, 86400000)),
    ("release $ 0|", c.Release(RAW, 0)),
    ("release $ 2592000000|", c.Release(RAW, 2592000000)),
    ("redrive $|", c.Redrive(RAW, None, 1)),
    ("redrive q 1000|", c.Redrive(None, "q", 1000)),
    ("pause q|", c.Pause("q")),
    ("resume q|", c.Resume("q")),
]


@pytest.mark.parametrize(("text", "command"), UNDERSTOOD)
def test_a_command_is_understood(text: str, command: Command) -> None:
    assert_stays(text, command)


@pytest.mark.parametrize(("text", "command"), UNDERSTOOD)
def test_more_blanks_change_nothing(text: str, command: Command) -> None:
    line, payload = text.split("|", 1)
    assert_stays(line.replace(" ", "   ") + "  |" + payload, command)


def test_commands_come_in_the_order_of_their_bytes() -> None:
    assert_stays("".join(text for text, _ in UNDERSTOOD), *(command for _, command in UNDERSTOOD))


# -- refusals ------------------------------------------------------------------------------------------------------

LONG = "n" * 256
REFUSED: dict[str, list[str]] = {
    "Unknown command": [
        *("hello|", "|", " |", "ADD a b c|", " inspect server|", "-a=1 inspect server|", "\tinspect server|"),
        *("inspect\0server|", "inspect nothing|", "inspect SERVER|", "inspect nothing x -a=1|", "add\t$|", "\xe4\xf6|"),
    ],
    "Invalid command args": [
        *("lease|", "lease q|", "lease 10|", "lease q 10 -a=1|", "lease q 10 -max=1 -a=1|", "lease -max=1 10|"),
        *("delete|", "delete $ y|", "delete $ -a=1|", "result|", "result $|", "result $ 10 11|", "result $ 10 -a=1|"),
        *("inspect|", "inspect -a=1|", "inspect server x|", "inspect server -a=1|", "inspect queue|"),
        *("inspect queue q x|", "inspect queues 0|", "inspect queues 0 1 2|", "inspect jobs q 0|", "inspect job|"),
        *("inspect jobs q 0 1 -a=1|", "inspect scheduled-jobs q 0|", "inspect job $ x|", "inspect state q ready 0|"),
        *("inspect state q ready 0 1 2|", "inspect state q ready 0 1 -a=1|"),
        *("touch $|", "touch $ 1 2|", "touch $ 1 -a=1|"),
        *("release $|", "release $ 1 2|", "release $ 1 -a=1|", "redrive|", "redrive q 1 2|", "redrive $ -a=1|"),
        *("pause|", "pause q r|", "pause q -a=1|", "resume|", "resume q r|", "resume q -a=1|"),
        *("add $ q 1 1 1 -a=1 -b=2 -c=3 -d=4|a|", f"schedule $ q 1 1 {TIME} 1 -a=1 -b=2 -c=3 -d=4|a|"),
        *("run $ q 1 1 1 -priority=1 -b=2|a|", "run $ q 1 1 1 -priority=1 -unique=2|a|", "complete $ 1 -a=1|a|"),
        *("fail $ 1 -a=1|a|", "bury $ 1 -a=1|a|"),
    ],
    "Invalid command flags": [
        *("inspect queue q -=1|", "inspect queue q -a=|", "inspect queue q -a==1|", "inspect queue q -a=1 -a=2|"),
        *("hello -a=|", "-= hello|", " -a=|", "lease -a=|", "inspect queue q! -=|"),
        *("add $ q 1 1 14 -a=|inspect server|", "complete $ 1 -a=1 -a=1|a|", "fail x 1 -=1|a|"),
    ],
    "Invalid ID": [
        *("add x q 1 1 1|a|", f"schedule x q 1 1 {TIME} 1|a|", "run x q 1 1 1|a|", "complete x 1|a|", "fail x 1|a|"),
        *("bury x 1|a|", "delete x|", "result x 1|", "touch x 1|", "release x 1|", "redrive x|", "inspect job x|"),
        *(f"add {V1} q 1 1 1|a|", f"schedule {V1} q 1 1 {TIME} 1|a|", f"run {V1} q 1 1 1|a|", f"complete {V1} 1|a|"),
        *(f"fail {V1} 1|a|", f"bury {V1} 1|a|", f"delete {V1}|", f"result {V1} 1|", f"touch {V1} 1|"),
        *(f"release {V1} 1|", f"redrive {V1}|", f"delete {NIL}|"),
    ],
    "Invalid Name": [
        *("add $ e!1 1 1 1|a|", f"add $ {LONG} 1 1 1|a|", f"schedule $ e/2 1 1 {TIME} 1|a|", "run $ \xe4 1 1 1|a|"),
        *("lease q! 10|", f"lease {LONG} 10|", "lease a=b 10|", "inspect queue q!|"),
        *("inspect queue no\rpe|", "inspect jobs q! 0 1|", "inspect scheduled-jobs q! 0 1|"),
        *("inspect state q! ready 0 1|", "redrive q! 1|", "pause q!|", "resume q!|"),
    ],
    "Invalid TTR": [
        *(f"add $ q {ttr} 1 1|a|" for ttr in ("0", "86400001", "-1", "+1", "x", "4294967296", "1.0", "1_0", "9" * 30)),
        *("run $ q 0 1 1|a|", f"schedule $ q 0 1 {TIME} 1|a|", "touch $ 0|", "touch $ 86400001|", "touch $ x|"),
    ],
    "Invalid TTL": [
        *(f"add $ q 1 {ttl} 1|a|" for ttl in ("0", "2592000001", "-1", "+1", "x", "18446744073709551616", "\xb2")),
        f"schedule $ q 1 0 {TIME} 1|a|",
    ],
    "Invalid Time": [f"schedule $ q 1 1 {TIME}Z 1|a|", "schedule $ q 1 1 4070908800 1|a|"],
    "Invalid Max Attempts": [f"add $ q 1 1 1 -max-attempts={n}|a|" for n in ("256", "-1", "+1", "x")],
    "Invalid Max Fails": [f"add $ q 1 1 1 -max-fails={n}|a|" for n in ("256", "-1", "+1", "x")],
    "Invalid Priority": [
        *(f"add $ q 1 1 1 -priority={n}|a|" for n in ("2147483648", "-2147483649", "x", "+", "--1", "1_0", "9" * 30)),
        *("run $ q 1 1 1 -priority=z|a|", f"schedule $ q 1 1 {TIME} 1 -priority=z|a|"),
    ],
    "Invalid Unique Key": [f"add $ q 1 1 1 -unique={key}|a|" for key in ("a!", "\xe4", LONG)],
    "Invalid Backoff": [f"add $ q 1 1 1 -backoff={n}|a|" for n in ("86400001", "-1", "+1", "x")],
    "Invalid wait timeout": [
        *(f"lease q {wait}|" for wait in ("x", "-1", "+1", "86400001", "4294967296", "1_0")),
        *("run $ q 1 x 1|a|", "run $ q 1 86400001 1|a|", "result $ x|", "result $ 86400001|"),
    ],
    "Invalid Max": [f"lease q 1 -max={n}|" for n in ("0", "1001", "-1", "+1", "x")],
    "Invalid cursor offset": [
        *(f"inspect queues {offset} 1|" for offset in ("x", "-1", "+0", "4294967296")),
        *("inspect jobs q x 1|", "inspect scheduled-jobs q x 1|", "inspect state q ready x 1|"),
    ],
    "Invalid limit": [
        *(f"inspect queues 0 {limit}|" for limit in ("0", "101", "x", "-1", "65536")),
        *("inspect jobs q 0 101|", "inspect scheduled-jobs q 0 0|", "inspect state q ready 0 101|"),
        *("redrive q 0|", "redrive q 1001|", "redrive q x|"),
    ],
    "Invalid State": ["inspect state q pending 0 1|", "inspect state q READY 0 1|", "inspect state q 0 0 1|"],
    "Invalid Delay": [f"release $ {delay}|" for delay in ("2592000001", "-1", "+1", "x")],
}


@pytest.mark.parametrize(("text", "why"), [(text, why) for why, texts in REFUSED.items() for text in texts])
def test_a_refusal_takes_the_whole_command_and_the_connection_stays(text: str, why: str) -> None:
    assert_stays(text + "inspect server|", Refusal(why), c.InspectServer())


def test_the_queues_named_before_a_bad_name_are_known_with_the_refusal() -> None:
    assert_stays("lease a b! c 10|", Refusal("Invalid Name", ("a",)))


def test_a_lease_takes_a_thousand_names_and_no_more() -> None:
    names = " ".join(f"q{number}" for number in range(1001))
    assert_stays(f"lease {names} 10|", Refusal("Invalid command args"))


ADD_ORDER = [  # each line mends what the one before was refused for
    ("x e!1 x x 1 -a=", "Invalid command flags"),
    ("x e!1 x x 1 -p=1 -q=1 -r=1 -s=1", "Invalid command args"),
    ("x e!1 x x 1 -priority=x", "Invalid ID"),
    (f"{V1} e!1 x x 1 -priority=x", "Invalid TTR"),
    (f"{V1} e!1 4294967296 x 1 -priority=x", "Invalid TTR"),
    (f"{V1} e!1 4294967295 x 1 -priority=x", "Invalid TTL"),
    (f"{V1} e!1 0 18446744073709551616 1 -priority=x", "Invalid TTL"),
    (f"{V1} e!1 0 18446744073709551615 1 -max-fails=x -max-attempts=x -priority=x", "Invalid Max Attempts"),
    (f"{V1} e!1 0 0 1 -priority=x -max-fails=x", "Invalid Max Fails"),
    (f"{V1} e!1 0 0 1 -backoff=x -unique=! -priority=x", "Invalid Priority"),
    (f"{V1} e!1 0 0 1 -backoff=x -unique=!", "Invalid Unique Key"),
    (f"{V1} e!1 0 0 1 -backoff=x", "Invalid Backoff"),
    (f"{V1} e!1 0 0 1", "Invalid ID"),
    ("$ e!1 0 0 1", "Invalid Name"),
    ("$ e1 0 0 1", "Invalid TTR"),
    ("$ e1 1 0 1", "Invalid TTL"),
]
OTHER_ORDERS = [
    (f"schedule {V1} e!1 0 x x 1 -max-attempts=x|a|", "Invalid TTL"),
    (f"schedule {V1} e!1 0 0 x 1 -max-attempts=x|a|", "Invalid Time"),
    (f"schedule {V1} e!1 0 0 {TIME} 1 -max-attempts=x|a|", "Invalid Max Attempts"),
    ("run x q! x x 1 -a=1 -b=1|a|", "Invalid command args"),
    ("run x q! x x 1 -priority=x|a|", "Invalid ID"),
    (f"run {V1} q! x x 1 -priority=x|a|", "Invalid TTR"),
    (f"run {V1} q! 0 x 1 -priority=x|a|", "Invalid Priority"),
    (f"run {V1} q! 0 x 1|a|", "Invalid wait timeout"),
    (f"run {V1} q! 0 0 1|a|", "Invalid ID"),
    ("run $ q! 0 0 1|a|", "Invalid Name"),
    ("lease q! x -max=x -a=1|", "Invalid command args"),
    ("lease q! x -max=x|", "Invalid wait timeout"),
    ("lease q! 1 -max=x|", "Invalid Max"),
    ("complete x 1 -a=1|a|", "Invalid command args"),
    ("result x x -a=1|", "Invalid command args"),
    (f"result {V1} x|", "Invalid ID"),
    ("inspect jobs q! x x|", "Invalid Name"),
    ("inspect jobs q x x|", "Invalid cursor offset"),
    ("inspect state q! x x x|", "Invalid Name"),
    ("inspect state q x x x|", "Invalid State"),
    (f"touch {V1} x|", "Invalid ID"),
    (f"release {V1} x|", "Invalid ID"),
    ("redrive q! x|", "Invalid Name"),
]


@pytest.mark.parametrize(("text", "why"), [*((f"add {rest}|a|", why) for rest, why in ADD_ORDER), *OTHER_ORDERS])
def test_of_several_errors_the_first_in_the_order_of_checks_wins(text: str, why: str) -> None:
    assert_stays(text, Refusal(why))


# -- sizes and payloads --------------------------------------------------------------------------------------------

PAYLOAD_LINES = {
    "add $ q 1 1 %s": "Invalid payload size",
    f"schedule $ q 1 1 {TIME} %s": "Invalid payload size",
    "run $ q 1 1 %s": "Invalid payload size",
    "complete $ %s": "Invalid payload size",
    "fail $ %s": "Invalid result size",
    "bury $ %s": "Invalid result size",
}


@pytest.mark.parametrize("size", ["x", "-1", "1048577", "+", "1_0", "1.0", "\xb2", "9" * 30])
@pytest.mark.parametrize(("line", "why"), PAYLOAD_LINES.items())
def test_a_size_that_cannot_be_ends_the_connection_before_a_payload_is_run(line: str, why: str, size: str) -> None:
    assert_closes(line % size + "|inspect server|", Refusal(why))


@pytest.mark.parametrize("line", PAYLOAD_LINES)
@pytest.mark.parametrize(
    ("mistake", "why"),
    [
        ("", "Invalid command args"),
        ("1 1", "Invalid command args"),
        ("-a=", "Invalid command flags"),
        ("1 1 -a=", "Invalid command flags"),
        ("x -a=", "Invalid command flags"),
    ],
)
def test_a_size_that_nobody_knows_ends_the_connection(line: str, mistake: str, why: str) -> None:
    assert_closes(line % mistake + "|inspect server|", Refusal(why))


@pytest.mark.parametrize("size", ["+1", "0001", "1", "0" * 30 + "1"])
def test_a_size_may_have_a_sign_and_leading_zeros(size: str) -> None:
    assert_stays(f"complete $ {size}|a|", c.Complete(RAW, b"a"))


def test_numbers_may_have_leading_zeros() -> None:
    assert_stays("add $ q 01000 060000 -0||", c.Add(RAW, "q", 1000, 60000, b""))


def test_numbers_may_have_more_digits_than_python_takes() -> None:
    assert_stays(f"lease q {'0' * 5000}7|", c.Lease(("q",), 7))
    assert_stays(f"lease q {'0' * 5000}|", c.Lease(("q",), 0))
    assert_stays(f"lease q {'9' * 5000}|", Refusal("Invalid wait timeout"))
    assert_closes(f"complete $ -{'9' * 5000}|", Refusal("Invalid payload size"))


@pytest.mark.parametrize(("line", "why"), PAYLOAD_LINES.items())
@pytest.mark.parametrize("payload", ["abcd|", "abcdefgh|", "ab\r\r|", "abc\n|"])
def test_behind_a_payload_that_is_too_long_the_next_command_starts_after_two_bytes(
    line: str, why: str, payload: str
) -> None:
    assert_stays(line % 2 + "|" + payload, Refusal(why), Refusal("Unknown command"))


def test_malformed_flags_win_over_a_payload_that_is_too_long() -> None:
    assert_stays("add $ q 1 1 2 -a=|abcd|", Refusal("Invalid command flags"), Refusal("Unknown command"))


def test_a_payload_of_a_mebibyte_is_fine() -> None:
    payload = b"\n" * MIB
    parser = Parser()
    assert parser.feed(encoded(f"complete $ {MIB}|") + payload) == []
    assert parser.feed(b"\r") == []
    assert typed(parser.feed(b"\n")) == typed([c.Complete(RAW, payload)])


@pytest.mark.parametrize(("line", "why"), PAYLOAD_LINES.items())
def test_a_larger_payload_is_not_even_when_it_is_all_there(line: str, why: str) -> None:
    assert_closes(f"{line % (MIB + 1)}|{'a' * (MIB + 1)}|", Refusal(why))


def test_cr_and_lf_behind_a_payload_may_come_apart() -> None:
    parser = Parser()
    assert parser.feed(encoded("add $ q 1 1 1|a\r")) == []
    assert parser.feed(b"\ninspect ser") == [c.Add(RAW, "q", 1, 1, b"a")]
    assert parser.pending == len(b"inspect ser")
    assert typed(parser.feed(b"ver\r\n")) == typed([c.InspectServer()])


# -- lines and limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["\n", "inspect server\n", "inspect server \n|", "\n|"])
def test_a_line_without_cr_ends_the_connection_without_an_answer(text: str) -> None:
    assert_closes(text)
    assert_closes("delete $|" + text, c.Delete(RAW))


@pytest.mark.parametrize("size", [1_058_572, MAX_COMMAND - 2])
def test_a_line_up_to_the_limit_is_read(size: int) -> None:
    assert_stays("inspect queue q".ljust(size) + "|", c.InspectQueue("q"))


def test_a_line_above_the_limit_ends_the_connection_without_an_answer() -> None:
    assert MAX_COMMAND == 1_058_576
    assert_closes("inspect queue q".ljust(MAX_COMMAND - 1) + "|")
    assert_closes("delete $|" + "x" * MAX_COMMAND, c.Delete(RAW))


def test_a_line_without_end_is_not_collected_for_ever() -> None:
    parser = Parser()
    for _ in range(MAX_COMMAND // 1000):
        assert parser.feed(b"x" * 1000) == []
        assert not parser.is_closed
    assert parser.pending == MAX_COMMAND // 1000 * 1000
    assert parser.feed(b"x" * 1000) == []
    assert (parser.is_closed, parser.pending) == (True, 0)


def test_line_and_payload_share_the_limit() -> None:
    line = f"complete {ID} {MIB}".ljust(MAX_COMMAND - MIB - 4)
    assert_stays(f"{line}|{'a' * MIB}|", c.Complete(RAW, b"a" * MIB))
    assert_closes(f"{line} |{'a' * MIB}|", Refusal("Invalid payload size"))


# -- the end of the stream -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "why"), PAYLOAD_LINES.items())
@pytest.mark.parametrize("payload", ["", "ab", "abc", "abc\r", "abcx"])
def test_a_payload_cut_off_is_refused(line: str, why: str, payload: str) -> None:
    parser = Parser()
    assert parser.feed(encoded(line % 3 + "|" + payload)) == []
    assert parser.end() == [Refusal(why)]
    assert parser.is_closed
    assert parser.end() == parser.feed(b"delete\r\n") == []


def test_a_cut_off_payload_of_a_refused_line_gets_the_refusal_of_the_line() -> None:
    parser = Parser()
    assert parser.feed(encoded("add $ q 1 1 3 -a=|ab")) == []
    assert parser.end() == [Refusal("Invalid command flags")]


@pytest.mark.parametrize("text", ["", "inspect ser", "delete x\r", "add $ q 1 1 3|abc|inspect"])
def test_half_a_line_at_the_end_is_dropped(text: str) -> None:
    parser = Parser()
    parser.feed(encoded(text))
    assert parser.end() == []
    assert (parser.is_closed, parser.pending) == (True, 0)


# -- ids and times -------------------------------------------------------------------------------------------------

HEX = ID.replace("-", "")


@pytest.mark.parametrize(
    "id", [ID, HEX, f"{{{ID}}}", f"{{{HEX}}}", f"urn:uuid:{ID}", f"-{ID}", "00000001-00004000-8000-000000000001"]
)
def test_an_id_has_many_spellings(id: str) -> None:
    assert_stays(f"delete {id}|", c.Delete(RAW))


@pytest.mark.parametrize("variant", "89abAB")
def test_an_id_may_be_in_upper_and_lower_case(variant: str) -> None:
    id = f"ABCDEFab-cdef-4000-{variant}000-00000000000A"
    assert_stays(f"complete {id} 0||", c.Complete(bytes.fromhex(id.replace("-", "")), b""))


@pytest.mark.parametrize(
    "id",
    [
        *(ID[:-1], ID + "0", ID + "TRAILING", ID + "}", "{" + ID, "{{" + ID + "}}", "URN:UUID:" + ID, "--" + ID),
        *("0000000g" + ID[8:], ID.replace("-", "--", 1), ID + "-", "urn:uuid:{" + ID + "}", "{urn:uuid:" + ID + "}"),
        *("urn:uuid:12345678-1234-4234-8234", "urn:uuid:", "{}", "-", ID.replace("-4", "-5"), ID.replace("-8", "-7")),
        *(ID.replace("-8", "-c"), "\xb2" * 32, ID + "\r"),
    ],
)
def test_what_is_no_id_of_version_4_is_refused(id: str) -> None:
    assert_stays(f"delete {id}|", Refusal("Invalid ID"))


@pytest.mark.parametrize(
    ("time", "time_ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.5Z", 500_000_000),
        ("1970-01-01T00:00:01,000000001Z", 1_000_000_001),
        ("1970-01-01T00:00:00.0123456789999Z", 12_345_678),
        ("1969-12-31T23:59:59.25Z", -750_000_000),
        ("2000-02-29T23:59:59Z", 951_868_799 * 10**9),
        ("0001-01-01T00:00:00Z", -62_135_596_800 * 10**9),
        ("9999-12-31T23:59:59.999999999Z", 253_402_300_800 * 10**9 - 1),
    ],
)
def test_a_time_is_kept_to_the_nanosecond(time: str, time_ns: int) -> None:
    assert_stays(f"schedule $ q 1 1 {time} 0||", c.Add(RAW, "q", 1, 1, b"", time=time_ns))


@pytest.mark.parametrize(
    "time",
    [
        *("2099-01-02", "2099-01-02T03:04:05", "2099-01-02T03:04:05+00:00", "2099-13-02T03:04:05Z", "x", "Z"),
        *("2099-02-30T03:04:05Z", "2099-02-29T03:04:05Z", "2099-01-02T24:00:00Z", "2099-01-02T23:60:00Z"),
        *("2099-01-02T23:59:60Z", "2099-01-02t03:04:05z", "99-01-02T03:04:05Z", "2099-1-2T03:04:05Z"),
        *("2099-01-02T03:04:05.Z", "2099-01-02T03:04:05.1_0Z", "0000-01-01T00:00:00Z", "12099-01-02T03:04:05Z"),
        *("209\xb2-01-02T03:04:05Z", "+209-01-02T03:04:05Z", "2099-01-02T03:04:05.5", "2099-00-02T03:04:05Z"),
    ],
)
def test_what_is_no_time_is_refused(time: str) -> None:
    assert_stays(f"schedule $ q 1 1 {time} 0||", Refusal("Invalid Time"))


# -- the real server -----------------------------------------------------------------------------------------------

GOLDEN = Path(os.environ.get("LAMINA_GOLDEN", Path(__file__).parents[3] / "shared" / "golden")) / "workq-transcripts"
TRANSCRIPTS = sorted(path for path in GOLDEN.glob("*.txt") if not path.name.startswith("90_"))  # 90: a bug of theirs
ENGINE = {"Duplicate job", "Duplicate result"}  # not to be seen in the bytes
DIFFERENT = {  # decided: what we say instead
    b"delete 6ba7b810-9dad-11d1-80b4-00c04fd430c4\r\n": ["Invalid ID"],
    b"add 0000000c-0000-4000-8000-00000000000cTRAILING u1 1000 60000 1\r\na\r\n": ["Invalid ID"],
    # Past: the engine knows the clock.
    b"schedule 00000003-0000-4000-8000-000000000003 s2 1000 1000 2026-11-15T06:38:20Z 1\r\np\r\n": [],
    b"schedule 00000001-0000-4000-8000-000000000001 e2 1000 60000 2001-01-01T00:00:00Z 1\r\na\r\n": [],
}


def steps(path: Path) -> list[tuple[str, bytes, bytes]]:
    """What each connection sent at a time, and what it got back for it."""
    found: list[tuple[str, bytes, bytes]] = []
    for mark, client, said in re.findall(r"^([CS])(\d*): (b['\"].*)$", path.read_text(), re.MULTILINE):
        data = ast.literal_eval(said)
        if mark == "C":
            found.append((client, data, b""))
            continue
        last = max(index for index, step in enumerate(found) if step[0] == client)
        found[last] = (*found[last][:2], found[last][2] + data)
    return found


@pytest.mark.skipif(not TRANSCRIPTS, reason="no transcripts of workq here (set LAMINA_GOLDEN)")
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_what_the_real_server_refused_is_refused_with_the_same_words(path: Path) -> None:
    parsers: dict[str, Parser] = {}
    for client, sent, answer in steps(path):
        parser = parsers.setdefault(client, Parser())
        found = parser.feed(sent) + (parser.end() if client == "5" and path.name.startswith("13_") else [])
        theirs = [text for text in re.findall(r"-CLIENT-ERROR (.*)\r", answer.decode()) if text not in ENGINE]
        assert [each.text for each in found if isinstance(each, Refusal)] == DIFFERENT.get(sent, theirs), sent
        if parser.is_closed:
            del parsers[client]
