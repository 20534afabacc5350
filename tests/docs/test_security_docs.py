"""docs/reference/security.md and limits.md say what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lamina import runs
from lamina.engines.jobs import engine as jobs_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.store import trigger
from lamina.engines.store.options import StoreOptions
from lamina.engines.topics import codec, finding
from lamina.errors import BadOption
from lamina.log import history, reserve
from lamina.log.options import LogOptions
from lamina.server import client, listening
from lamina.server import settings as server_settings
from lamina.server.resp import (
    dispatch,
    large_replies,
    protocol,
    server_commands,
    settings,
    store_commands,
    store_words,
    stream_reading,
)
from lamina.server.resp import door as resp_door
from lamina.server.resp.guard import NEEDS
from lamina.server.security import rights, strangers, throttle, tls, users
from lamina.server.turns import SHARE_S
from lamina.server.workq import door as workq_door
from lamina.server.workq import fields, line, parse
from lamina.server.workq.commands import Command
from lamina.server.workq.guard import LEVELS

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
SECURITY, LIMITS = (REFERENCE / "security.md").read_text(), (REFERENCE / "limits.md").read_text()


def rows(page: str, head: str) -> dict[str, set[str]]:
    """The commands of a table, by what they ask for."""
    part = page.split(head)[1].split("\n#")[0]
    found = re.findall(r"^\| (nothing|`[a-z]+:[a-z]+`[a-z ]*) \| (.*) \|$", part, re.MULTILINE)
    return {asks.replace("`", ""): set(re.findall(r"`([^`]+)`", names)) for asks, names in found}


def test_every_command_of_the_resp_door_is_in_the_table_of_rights() -> None:
    wanted: dict[str, set[str]] = {}
    for name, need in NEEDS.items():
        wanted.setdefault(str(need), set()).add(name.decode().upper().replace("|", " "))
    assert rows(SECURITY, "### Commands of the RESP door") == wanted


def test_every_command_of_the_workq_door_is_in_the_table_of_rights() -> None:
    ids, names, numbers = b"00000001-0000-4000-8000-000000000001", b"q", b"1"
    words = {b"delete": [ids], b"result": [ids, numbers], b"touch": [ids, numbers], b"release": [ids, numbers]}
    words |= {b"redrive": [ids], b"pause": [names], b"resume": [names], b"lease": [names, numbers]}
    inspected = {b"server": [], b"queue": [names], b"job": [ids], b"view": [ids], b"queues": [numbers, numbers]}
    inspected |= {b"queue-views": [numbers, numbers]}
    inspected |= {kind: [names, numbers, numbers] for kind in (b"jobs", b"scheduled-jobs")}
    inspected |= {kind: [names, b"ready", numbers, numbers] for kind in (b"state", b"views")}
    assert inspected.keys() == line._OBJECTS.keys(), "a new one: say which words it has"
    kinds: dict[str, Command] = {
        **{f"inspect {name.decode()}": line._OBJECTS[name][1](*more) for name, more in inspected.items()},
        **{name.decode(): line._PLAIN[name](more, {}) for name, more in words.items()},
    }
    assert {name.encode() for name in kinds if " " not in name} == line._PLAIN.keys() - {b"auth", b"inspect"}
    wanted: dict[str, set[str]] = {}
    for shown, command in kinds.items():
        level = LEVELS[type(command)]
        wanted.setdefault(f"jobs:{level}" if level else "nothing", set()).add(shown)
    wanted["jobs:write"] |= {name.decode() for name in line.WITH_PAYLOAD}
    assert rows(SECURITY, "### Commands of the workq door") == wanted


def default(kind: type[Any], name: str) -> object:
    return getattr(kind(), name)


CODE: dict[str, object] = {
    "connections of a door": settings.Settings().max_connections,
    "bytes before the login": strangers.MOST_BYTES,
    "time to log in": f"{strangers.LONGEST_S:.0f} s",
    "connections of one address that have not logged in": strangers.MOST_FROM_ADDRESS,
    "wrong logins of one address that are answered at once": throttle.BURST,
    "such logins a second after that": f"{throttle.RATE:g}",
    "how long such a login may wait": f"{throttle.LONGEST_S:.0f} s",
    "TLS handshake, RESP and workq": f"{tls.HANDSHAKE_S:.0f} s",
    "one turn of a client: bytes": client._MOST_PER_TURN,
    "one turn of a client: commands": client._MOST_COMMANDS,
    "one turn of a client: time": f"{SHARE_S * 1000:g} ms",
    "reading from a client that was told to go": f"a piece each {client._BREATH_S * 1000:.0f} ms, "
    f"for {client._LINGER_S:.0f} s",
    "bytes behind a command that waits": client.MOST_UNREAD,
    "answers that wait to be sent before more commands are run": client._MOST_UNSENT,
    "turns whose answers wait for the disk": client._MOST_HELD,
    "connections waiting to be accepted": listening._BACKLOG,
    "one command": resp_door._MOST_COMMAND,
    "words of one command": protocol.MAX_ARGS,
    "one word": settings.Settings().max_bulk,
    "a line without RESP": protocol.MAX_INLINE,
    "commands behind `MULTI` together": dispatch._MOST_QUEUED,
    "answers that clients have not taken, of all connections": server_settings.Settings().max_output_bytes,
    "entries of `XRANGE`, `XREVRANGE` that are read at once": stream_reading._LARGE,
    "bytes of such a piece": large_replies._PIECE,
    "bytes that `XREAD` and `XREADGROUP … >` give of what is new": finding.MOST_NEW,
    "entries in any other answer": finding.MOST_BYTES,
    "entries for one who waited and named no number": stream_reading._MOST_AFTER_WAITING,
    "entries of one `S.SCAN`": store_words.MOST_COUNT,
    "bytes of one `S.SCAN`": store_commands._MOST_BYTES,
    "`DEBUG SLEEP`": f"{server_commands._LONGEST_SLEEP_S:.0f} s",
    "what `ENTRIESADDED`, `ENTRIESREAD` and `RETRYCOUNT` set": codec.MOST_SET,
    "a payload or a result": fields.MAX_PAYLOAD,
    "one command with its payload": parse.MAX_COMMAND,
    "the name of a queue, a unique key": fields.MAX_NAME,
    "TTR": f"{fields.MAX_TTR} ms",
    "TTL": f"{fields.MAX_TTL} ms",
    "jobs or names of one `lease`, jobs of one `redrive`": fields.MAX_BATCH,
    "payloads of one `lease`": jobs_engine._MOST_LEASED_BYTES,
    "jobs or queues of one `inspect`": fields.MAX_PAGE,
    "payloads of one `inspect`": workq_door._MOST_SHOWN,
    "one record of a log": default(LogOptions, "max_payload"),
    "messages that wait in a queue": default(QueueOptions, "quota"),
    "one message of a queue": default(QueueOptions, "max_body"),
    "how long a message is kept": f"{default(QueueOptions, 'ttl_s')} s",
    "queues whose files are open (store `journal`)": default(QueueOptions, "most_open"),
    "one session of the store": default(StoreOptions, "max_session_bytes"),
    "memory for entries of the store that are in no sorted file": default(StoreOptions, "memory_bytes"),
    "room that has to be free for new work": reserve.LOW_WATER,
    "history: files that only the past needs": f"{history.DEFAULT_S} s, {history.SHARE} % of the disk",
    "what is dead in a store before it compacts": f"{default(StoreOptions, 'compact_dead_ratio')} of it, "
    f"and {trigger._LEAST_BYTES} bytes",
    "room kept for a full disk": reserve.SIZE,
    "`users.json`": users._MOST_BYTES,
    "a pattern of a right": rights._MOST_PATTERN,
}
BY_HAND = {
    "a client that does not read its answers": "the high-water mark of asyncio",
    "a client whose machine is gone": "client.keep_alive",
    "a silent client": "never, unless set",
    "the name of a user": "a pattern in users.py",
}
OF_HTTP = {"connections", "head of a request", "time to ask for something", "TLS handshake, HTTP"}
OF_HTTP |= {"body of a request", "fields of a form", "sessions of browsers", "a session that is not used", "live pages"}
OF_HTTP |= {"of a list in one answer", "runs of the pipeline that are kept", "pages of reports that are kept"}


def shown_limits() -> dict[str, str]:
    found = re.findall(r"^\| (.+?) \| ([^|]+?) \| [^|]*? ?\| .+ \|$", LIMITS, re.MULTILINE)
    return {what: limit for what, limit in found if what != "what" and not what.startswith("---")}


def test_every_limit_on_the_page_is_the_one_in_the_code() -> None:
    shown = shown_limits()
    assert shown.keys() == CODE.keys() | BY_HAND.keys() | OF_HTTP
    for what, limit in CODE.items():
        assert shown[what] == str(limit), what


def test_the_limits_of_the_http_door_are_those_in_the_code() -> None:
    visitor = pytest.importorskip("lamina.server.http.visitor")
    shown = shown_limits()
    assert shown["connections"] == str(visitor.MOST)
    assert shown["head of a request"] == str(visitor.HEAD_BYTES)
    assert shown["time to ask for something"] == f"{visitor.LOOK_S:.0f} s"
    http_door = pytest.importorskip("lamina.server.http.door")
    assert shown["TLS handshake, HTTP"] == f"{http_door._HANDSHAKE_S:.0f} s"


def test_the_limits_of_the_api_and_the_console_are_those_in_the_code() -> None:
    asking = pytest.importorskip("lamina.server.http.asking")
    access = pytest.importorskip("lamina.server.http.access")
    live = pytest.importorskip("lamina.server.http.console.live")
    operations = pytest.importorskip("lamina.server.http.operations")
    shown = shown_limits()
    assert shown["body of a request"] == str(asking.MOST_BODY)
    assert shown["fields of a form"] == str(asking.MOST_FIELDS)
    assert shown["sessions of browsers"] == str(access.MOST_SESSIONS)
    assert shown["a session that is not used"] == f"{access.IDLE_S / 3600:.0f} h"
    assert shown["live pages"] == f"{live.MOST_LOOKING}, and {live.MOST_OF_ONE} of one user"
    assert shown["of a list in one answer"] == str(operations.Limit.__metadata__[0].le)
    assert shown["runs of the pipeline that are kept"] == str(runs.MOST_KEPT)
    assert shown["pages of reports that are kept"] == str(runs.MOST_PAGES)


def test_the_page_says_how_many_letters_a_user_may_have() -> None:
    users.check_name("a" * int(shown_limits()["the name of a user"]))
    with pytest.raises(BadOption):
        users.check_name("a" * (int(shown_limits()["the name of a user"]) + 1))
