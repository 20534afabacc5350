"""Every error the RESP door can send, and what a client makes of it."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

import lamina.server.resp
from lamina.client.refusals import Refused, new_reader, refusal, understood
from lamina.errors import (
    BadEntry,
    BadName,
    BadOption,
    BadTopic,
    Corruption,
    Disconnected,
    DiskError,
    DiskFull,
    Gap,
    GroupExists,
    LaminaError,
    LogFailed,
    MessageTooLarge,
    NoGroup,
    NoMessage,
    NotAllowed,
    Prohibited,
    QueueRefused,
    QuotaMet,
    RecordTooLarge,
    Stopped,
    StorageError,
    TooOld,
    WireError,
    from_os,
)
from lamina.server.resp.dispatch import text_of

_CODE = re.compile(r"""(?:Refusal|error|_SYNTAX|_[A-Z_]+: Final)\s*[(=]\s*f?b?["']([A-Z]+) """)


def codes_in_the_door() -> set[str]:
    """The words in capitals with which texts begin there that look like errors."""
    found: set[str] = set()
    for file in Path(lamina.server.resp.__path__[0]).glob("*.py"):
        text = file.read_text()
        found |= set(_CODE.findall(text))
        if file.name == "dispatch.py":
            found |= set(re.findall(r'b"([A-Z]+) "', text))
    return found


KNOWN = {
    "ERR": BadTopic,
    "NOAUTH": NotAllowed,
    "WRONGPASS": NotAllowed,
    "NOPERM": NotAllowed,
    "NOGROUP": NoGroup,
    "BUSYGROUP": GroupExists,
    "UNBLOCKED": NoGroup,
    "EXECABORT": BadTopic,
    "NOPROTO": WireError,
    "MISCONF": StorageError,
    "GAP": Gap,
    "AUTH": QueueRefused,
    "QUOTA": QuotaMet,
    "LARGE": MessageTooLarge,
    "NOMSG": NoMessage,
    "PROHIBITED": Prohibited,
    "TOOOLD": TooOld,
    "TRYAGAIN": Stopped,
}


def test_every_code_that_the_door_sends_is_known_here() -> None:
    found = codes_in_the_door()
    assert {"ERR", "NOAUTH", "WRONGPASS", "QUOTA", "MISCONF", "TOOOLD"} <= found  # the search finds what it should
    assert found <= KNOWN.keys()


@pytest.mark.parametrize("code", KNOWN)
def test_each_code_has_its_class(code: str) -> None:
    assert type(refusal(f"{code} some text", "XADD")) is KNOWN[code]


ROUND_TRIPS: list[tuple[str, LaminaError]] = [
    ("Q.SEND", QueueRefused()),
    ("Q.SEND", QuotaMet(128)),
    ("Q.SEND", MessageTooLarge(70_000, 65_536)),
    ("Q.SEND", MessageTooLarge(65, 64, "flags")),
    ("Q.ACK", NoMessage()),
    ("Q.GET", Prohibited("this connection has subscribed to the queue", hint="Q.UNSUB first")),
    ("Q.NEW", BadOption("a key of 0 bytes cannot be", hint="give 1 to 512")),
    ("S.WRITE", BadEntry("the session has more than 9 bytes", hint="split it, or raise max_session_bytes")),
    ("s.switch", BadEntry("epoch 1 is not larger", hint="give a larger one")),
    ("S.COMPACT", Stopped("the store is being closed", hint="ask again")),
    ("XADD", BadTopic("The ID specified in XADD is equal or smaller than the target stream top item")),
    ("XADD", RecordTooLarge(0, 70, 60)),
    ("XADD", BadName("'a' cannot be a name here", hint="it is too long")),
    ("XGROUP", GroupExists("Consumer Group name already exists")),
    ("XREADGROUP", NoGroup("No such key")),
    ("S.GET", Corruption("store/pwal_0000", 17, "the checksum does not match")),
    ("XADD", DiskFull("the disk is full: no entry is taken", hint="free some room; it goes on by itself")),
]


@pytest.mark.parametrize(("command", "problem"), ROUND_TRIPS, ids=lambda each: str(getattr(each, "code", each)))
def test_an_error_of_the_engine_is_the_same_on_the_other_side(command: str, problem: LaminaError) -> None:
    again = refusal(text_of(problem).decode(), command)
    assert type(again) is type(problem)
    if not isinstance(problem, BadTopic):  # a text of Redis has no hint
        assert (again.message, again.hint) == (problem.message, problem.hint)
    assert (again.code, again.retryable) == (problem.code, problem.retryable)


def test_facts_come_over_where_the_text_has_them() -> None:
    assert refusal(text_of(TooOld(3, 17, 5)).decode(), "S.GET").facts["oldest_epoch"] == 17
    assert refusal(text_of(QuotaMet(9)).decode(), "Q.SEND").facts["quota"] == 9
    assert refusal(text_of(MessageTooLarge(9, 5)).decode(), "Q.SEND").facts["limit"] == 5
    gap = refusal("GAP entries behind 1-1 up to 7-0 of 'orders' were let go by retention unread; read on", "XREAD")
    assert isinstance(gap, Gap) and (gap.after, gap.until) == ("1-1", "7-0")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_can_be_tried_again(number: int) -> None:
    problem = from_os(OSError(number, "No space left on device"), "append", "/data/x")
    again = refusal(text_of(problem).decode(), "S.WRITE")
    assert type(again) is DiskFull and again.retryable


def test_other_refusals_of_the_disk_are_storage_errors() -> None:
    for problem in (from_os(OSError(errno.EIO, "Input/output error"), "append", "/data/x"), LogFailed("a sync failed")):
        again = refusal(text_of(problem).decode(), "Q.SEND")
        assert isinstance(again, StorageError) and not isinstance(again, DiskFull | DiskError)


def test_a_server_that_cannot_do_it_is_another_thing_than_a_wrong_value() -> None:
    texts = [
        ("Q.NEW", "ERR queues are switched off (lamina serve --queues)"),
        ("S.GET", "ERR the store is switched off (lamina serve --store)"),
        ("S.GET", "ERR unknown command 'S.GET', with args beginning with: '1'"),
        ("L.DUMP", "ERR there is nothing of that name to dump, only queues (lamina serve --queues)"),
        ("XADD", "ERR internal error: the command failed, see the log of the server"),
        ("XADD", "ERR Protocol error: invalid bulk length"),
        ("AUTH", "ERR AUTH <password> called without any password configured for the default user. Are you sure?"),
        ("X", "WHAT is that"),
    ]
    for command, text in texts:
        assert type(refusal(text, command)) is WireError, text


def test_nothing_was_done_by_a_server_that_has_no_place_or_is_not_ready() -> None:
    for text in ("ERR max number of clients reached", "LOADING the server is restoring"):
        problem = refusal(text, "Q.SEND")
        assert type(problem) is Disconnected and problem.facts["sent"] is False and problem.retryable


def test_a_reply_is_understood_by_its_command() -> None:
    reader = new_reader()
    reader.feed(b"-ERR value is not an integer or out of range\r\n*2\r\n+OK\r\n-ERR no such key\r\n-ERR \xff\xfe\r\n")
    first, second, third = reader.gets(), reader.gets(), reader.gets()
    assert isinstance(first, Refused)
    assert type(understood(first, ["Q.SEND"])) is BadOption
    assert type(understood(first, [b"s.scan"])) is BadEntry
    assert type(understood(first, [])) is BadTopic
    in_exec = understood(second, ["EXEC"])
    assert in_exec[0] == b"OK" and type(in_exec[1]) is BadTopic
    assert type(understood(third, ["XADD"])) is BadTopic
    assert understood([1, None], ["XADD"]) == [1, None]
