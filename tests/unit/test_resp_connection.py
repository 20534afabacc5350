"""Commands about the connection: each by what it answers and leaves behind, and all beside a real Redis."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import pytest

from integration.redis_peer import HOST, MISSING, PROGRAM, RedisPeer
from integration.resp_wire import packed
from lamina.clock import ManualClock
from lamina.server.resp.connection_commands import COMMANDS
from lamina.server.resp.dispatch import HANDLERS, run
from lamina.server.resp.session import House, Session
from lamina.server.resp.settings import Settings

HANDLERS.update(COMMANDS)
WRONGPASS = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
NOT_PLAIN = b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n"


def new_house(password: bytes | None = None) -> House:
    house = House(topics=Any, clock=ManualClock(), password=password)  # type: ignore[arg-type]  # none is reached
    house.settings = Settings()
    return house


@pytest.fixture
def house() -> House:
    return new_house()


@pytest.fixture
def session(house: House) -> Session:
    return house.enter(b"127.0.0.1:5001", b"127.0.0.1:6379")


def ask(session: Session, *words: bytes | str) -> bytes:
    answer = run(session, [word.encode() if isinstance(word, str) else word for word in words])
    assert isinstance(answer, bytes)
    return answer


def text(session: Session, *words: bytes | str) -> str:
    """Of an answer that is one bulk string."""
    answer = ask(session, *words)
    assert answer.startswith(b"$")
    return answer.partition(b"\r\n")[2].removesuffix(b"\r\n").decode()


def fields(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.rstrip("\n").split(" "))


# -- greeting ------------------------------------------------------------------------------------------------------


def test_hello_3_speaks_version_3_from_its_answer_on(session: Session) -> None:
    assert ask(session, "HELLO", "3").startswith(b"%7\r\n$6\r\nserver\r\n")
    assert session.version == 3
    assert ask(session, "HELLO", "2").startswith(b"*14\r\n")


@pytest.mark.parametrize("words", [("9",), ("x",), ("3", "SETNAME"), ("3", "AUTH", "default"), ("3", "NOPE")])
def test_a_hello_with_a_mistake_leaves_the_version(session: Session, words: tuple[str, ...]) -> None:
    assert ask(session, "HELLO", *words).startswith(b"-")
    assert session.version == 2


def test_hello_logs_in_and_takes_a_name(session: Session) -> None:
    session = new_house(b"sesame").enter()
    assert ask(session, "HELLO", "3").startswith(b"-NOAUTH HELLO must be called")
    assert ask(session, "HELLO", "3", "AUTH", "default", "sesame", "SETNAME", "worker").startswith(b"%7")
    assert ask(session, "CLIENT", "GETNAME") == b"$6\r\nworker\r\n"


def test_a_name_before_a_wrong_password_is_kept_as_redis_does() -> None:
    session = new_house(b"sesame").enter()
    assert ask(session, "HELLO", "3", "SETNAME", "early", "AUTH", "default", "no") == WRONGPASS
    assert session.name == b"early" and not session.is_known


@pytest.mark.parametrize("words", [("no",), ("default", "no"), ("nobody", "sesame"), ("default", "")])
def test_a_wrong_password_or_user_is_refused(words: tuple[str, ...]) -> None:
    session = new_house(b"sesame").enter()
    assert ask(session, "AUTH", *words) == WRONGPASS
    assert ask(session, "PING") == b"-NOAUTH Authentication required.\r\n"


@pytest.mark.parametrize("words", [("sesame",), ("default", "sesame")])
def test_the_right_password_opens_the_door(words: tuple[str, ...]) -> None:
    session = new_house(b"sesame").enter()
    assert ask(session, "AUTH", *words) == b"+OK\r\n"
    assert ask(session, "PING") == b"+PONG\r\n"


def test_a_wrong_password_does_not_shut_out_who_is_in() -> None:
    session = new_house(b"sesame").enter()
    ask(session, "AUTH", "sesame")
    assert ask(session, "AUTH", "no") == WRONGPASS
    assert ask(session, "PING") == b"+PONG\r\n"


def test_a_password_that_is_no_text_can_be_right() -> None:
    assert ask(new_house(b"\xff\0").enter(), "AUTH", b"\xff\0") == b"+OK\r\n"


def test_quit_closes_behind_its_answer(session: Session) -> None:
    assert ask(session, "QUIT") == b"+OK\r\n"
    assert session.must_close


def test_reset_begins_again_but_the_library_stays_the_same() -> None:
    session = new_house(b"sesame").enter()
    ask(session, "HELLO", "3", "AUTH", "default", "sesame", "SETNAME", "a")
    ask(session, "CLIENT", "SETINFO", "LIB-NAME", "redis-py")
    ask(session, "SELECT", "3")
    assert ask(session, "RESET") == b"+RESET\r\n"
    assert (session.version, session.database, session.name, session.is_known) == (2, 0, b"", False)
    assert session.library_name == b"redis-py"


# -- this client ---------------------------------------------------------------------------------------------------


def test_setinfo_keeps_what_the_library_says(session: Session) -> None:
    assert ask(session, "CLIENT", "SETINFO", "LIB-NAME", "redis-py") == b"+OK\r\n"
    assert ask(session, "CLIENT", "SETINFO", "lib-ver", "8.1.0") == b"+OK\r\n"
    told = fields(text(session, "CLIENT", "INFO"))
    assert (told["lib-name"], told["lib-ver"]) == ("redis-py", "8.1.0")


def test_setinfo_refuses_what_would_break_a_line(session: Session) -> None:
    answer = b"-ERR lib-name cannot contain spaces, newlines or special characters.\r\n"
    assert ask(session, "CLIENT", "SETINFO", "LIB-NAME", "a b") == answer
    assert ask(session, "CLIENT", "SETINFO", "nope", "a") == b"-ERR Unrecognized option 'nope'\r\n"


@pytest.mark.parametrize("name", [b"a b", b"a\n", b"\x7f", b"\xc3\xa9", b"\0"])
def test_a_name_that_would_break_a_line_is_refused(session: Session, name: bytes) -> None:
    assert ask(session, "CLIENT", "SETNAME", name) == NOT_PLAIN


def test_reply_off_and_skip_say_nothing_and_on_ends_both(session: Session) -> None:
    assert ask(session, "CLIENT", "REPLY", "SKIP") == b"" and session.skip_next == 2
    assert ask(session, "CLIENT", "REPLY", "OFF") == b"" and session.says_nothing
    assert ask(session, "CLIENT", "REPLY", "ON") == b"+OK\r\n"
    assert (session.says_nothing, session.skip_next) == (False, 0)


def test_reply_off_is_refused_within_exec_which_has_to_answer(session: Session) -> None:
    session.is_in_exec = True
    assert ask(session, "CLIENT", "REPLY", "OFF") == b"-ERR Command not allowed inside a transaction\r\n"
    assert not session.says_nothing


def test_no_evict_and_no_touch_are_flags(session: Session) -> None:
    assert ask(session, "CLIENT", "NO-EVICT", "on") == b"+OK\r\n"
    assert ask(session, "CLIENT", "NO-TOUCH", "ON") == b"+OK\r\n"
    assert fields(text(session, "CLIENT", "INFO"))["flags"] == "eT"
    ask(session, "CLIENT", "NO-EVICT", "OFF")
    ask(session, "CLIENT", "NO-TOUCH", "off")
    assert fields(text(session, "CLIENT", "INFO"))["flags"] == "N"
    assert ask(session, "CLIENT", "NO-TOUCH", "maybe") == b"-ERR syntax error\r\n"


# -- all clients ---------------------------------------------------------------------------------------------------


def test_info_tells_what_is_known_of_a_client(house: House, session: Session) -> None:
    clock = house.clock
    assert isinstance(clock, ManualClock)
    clock.advance(90)
    session.heard_at = clock.monotonic()
    clock.advance(7.5)
    ask(session, "SELECT", "3")
    ask(session, "CLIENT", "SETNAME", "worker")
    session.queue = []
    told = fields(text_in_transaction(session))
    expected = {
        "id": "1",
        "addr": "127.0.0.1:5001",
        "laddr": "127.0.0.1:6379",
        "name": "worker",
        "age": "97",
        "idle": "7",
        "flags": "x",
        "db": "3",
        "multi": "0",
        "user": "default",
        "resp": "2",
    }
    assert expected.items() <= told.items()


def text_in_transaction(session: Session) -> str:
    answer = COMMANDS[b"client|info"](session, [b"CLIENT", b"INFO"])
    assert isinstance(answer, bytes)
    return answer.partition(b"\r\n")[2].decode().removesuffix("\r\n")


def test_a_clock_that_was_set_back_makes_no_client_older_than_new(house: House, session: Session) -> None:
    assert isinstance(house.clock, ManualClock)
    house.clock.jump(-3600)
    told = fields(text(session, "CLIENT", "INFO"))
    assert (told["age"], told["idle"]) == ("0", "0")


def test_list_has_a_line_for_every_client_or_for_those_asked_for(house: House, session: Session) -> None:
    others = [house.enter() for _ in range(3)]
    ids = lambda *words: [fields(line)["id"] for line in text(session, "CLIENT", "LIST", *words).splitlines()]  # noqa: E731
    assert ids() == ids("TYPE", "normal") == ["1", "2", "3", "4"]
    assert ids("ID", "4", "99", "2") == ["4", "2"]
    assert ids("TYPE", "pubsub") == []
    house.leave(others[0])
    assert ids() == ["1", "3", "4"]


def test_list_is_verbatim_text_in_version_3(session: Session) -> None:
    ask(session, "HELLO", "3")
    assert ask(session, "CLIENT", "LIST", "TYPE", "master") == b"=4\r\ntxt:\r\n"


class Crowd:
    """Clients that note when they are hung up on; the first one gives the commands."""

    def __init__(self, house: House) -> None:
        self.gone: list[int] = []
        self.sessions = [house.enter(b"1.1.1.1:%d" % number, b"2.2.2.2:1") for number in (1, 2, 3)]
        for session in self.sessions:
            session.hang_up = partial(self.gone.append, session.id)

    def kill(self, *words: str) -> bytes:
        return ask(self.sessions[0], "CLIENT", "KILL", *words)


@pytest.fixture
def crowd(house: House) -> Crowd:
    return Crowd(house)


def test_kill_by_address_closes_that_client(crowd: Crowd) -> None:
    assert crowd.kill("1.1.1.1:2") == b"+OK\r\n"
    assert crowd.gone == [2]
    assert crowd.kill("1.1.1.1:9") == b"-ERR No such client\r\n"


def test_who_kills_itself_still_gets_the_answer(crowd: Crowd) -> None:
    assert crowd.kill("1.1.1.1:1") == b"+OK\r\n"
    assert crowd.sessions[0].must_close and crowd.gone == []


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        ("ID 3", [3]),
        ("ID 1", []),
        ("ADDR 1.1.1.1:2", [2]),
        ("LADDR 2.2.2.2:1", [2, 3]),
        ("LADDR 2.2.2.2:1 ID 2", [2]),
        ("TYPE normal", [2, 3]),
        ("TYPE replica", []),
        ("USER default", [2, 3]),
        ("SKIPME yes", [2, 3]),
        ("MAXAGE 1000", []),
    ],
)
def test_kill_by_filters_closes_all_that_pass_and_counts_them(crowd: Crowd, words: str, gone: list[int]) -> None:
    assert crowd.kill(*words.split()) == b":%d\r\n" % len(gone)
    assert crowd.gone == gone


def test_kill_by_age_spares_those_that_came_later(house: House, crowd: Crowd) -> None:
    assert isinstance(house.clock, ManualClock)
    house.clock.advance(60)
    house.enter()
    assert crowd.kill("MAXAGE", "60", "SKIPME", "no") == b":3\r\n"
    assert crowd.gone == [2, 3] and crowd.sessions[0].must_close
    assert crowd.kill("MAXAGE", "0") == b"-ERR maxage should be greater than 0\r\n"
    assert crowd.kill("MAXAGE", "x") == b"-ERR maxage is not an integer or out of range\r\n"


# -- beside Redis --------------------------------------------------------------------------------------------------

SAME: list[bytes] = (
    b"""
HELLO|HELLO 4|HELLO abc|HELLO 0|HELLO 2x|HELLO 99999999999999999999|HELLO 2 SETNAME|HELLO 3 AUTH default|HELLO 3 nope
HELLO 3 AUTH x x|HELLO 3 SETNAME caf\xc3\xa9|CLIENT GETNAME|HELLO 3 SETNAME good AUTH default x|CLIENT GETNAME
HELLO 2|CLIENT SETNAME abc|CLIENT GETNAME|CLIENT SETNAME a\tb|CLIENT SETNAME ~!|CLIENT GETNAME
AUTH x|AUTH default x|AUTH nobody x|AUTH a b c|AUTH|PING|PING a|PING a b|ECHO|ECHO x|ECHO a b
SELECT 0|SELECT 15|SELECT 16|SELECT -1|SELECT abc|SELECT 1.0|SELECT 01|SELECT +1|SELECT -0|SELECT 2147483648|SELECT
SELECT 99999999999999999999|CLIENT|CLIENT nope|CLIENT nope nope|CLIENT ID|CLIENT ID x|client Id
CLIENT LIST TYPE|CLIENT LIST TYPE nope|CLIENT LIST TYPE pubsub|CLIENT LIST TYPE REPLICA|CLIENT LIST TYPE slave
CLIENT LIST TYPE master|CLIENT LIST ID|CLIENT LIST ID x|CLIENT LIST ID 99999|CLIENT LIST ID 1 x|CLIENT LIST nope
CLIENT LIST nope nope|CLIENT LIST TYPE normal x|CLIENT NO-EVICT on|CLIENT NO-EVICT OFF|CLIENT NO-EVICT x
CLIENT REPLY ON|CLIENT REPLY x|CLIENT REPLY|CLIENT KILL|CLIENT KILL 1.2.3.4:55|CLIENT KILL ID|CLIENT KILL ID 99999
CLIENT KILL ID x|CLIENT KILL ID 0|CLIENT KILL ID -1|CLIENT KILL nope nope|CLIENT KILL ADDR 1.1.1.1:1
CLIENT KILL LADDR x|CLIENT KILL TYPE nope|CLIENT KILL TYPE replica|CLIENT KILL USER nobody
CLIENT KILL USER default SKIPME yes|CLIENT KILL SKIPME maybe|CLIENT KILL ID 1 SKIPME|CLIENT KILL ID x SKIPME
CLIENT KILL ID 1 nope nope|CLIENT KILL SKIPME yes|RESET x|CLIENT SETNAME|CLIENT GETNAME x
""".replace(b"\n", b"|")
    .strip(b"|")
    .split(b"|")
)
WITH_A_PASSWORD: list[bytes] = (
    b"""
PING|CLIENT ID|HELLO|HELLO 3|HELLO 9|HELLO 3 SETNAME x|HELLO 2 AUTH default bad|nope|ECHO|CLIENT nope|RESET
AUTH bad|AUTH nobody bad|AUTH default bad|AUTH a b c|AUTH|AUTH sesame|AUTH bad|PING|HELLO 3 SETNAME ok AUTH default bad
CLIENT GETNAME|HELLO|HELLO 3 AUTH default sesame SETNAME zed|CLIENT GETNAME|RESET|PING
""".replace(b"\n", b"|")
    .strip(b"|")
    .split(b"|")
)
ODD: list[list[bytes]] = [
    [b"CLIENT", b"SETNAME", b""],
    [b"CLIENT", b"GETNAME"],
    [b"CLIENT", b"SETNAME", b"a b"],
    [b"SELECT", b""],
    [b"PING", b"a\r\nb"],
    [b"CLIENT", b"LIST", b"TYPE", b"a\r\nb"],
    [b"nope" * 50, b"x" * 200, b"y"],
    [b"CLIENT", b"z" * 200],
    [b"RESET"],
    [b"HELLO"],
]


class Raw:
    """A Redis asked in plain bytes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=20)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *problem: object) -> None:
        self.socket.close()

    def ask(self, words: list[bytes]) -> bytes:
        """All up to the answer to an unknown command, which even a client that is not logged in gets."""
        end = b"-ERR unknown command '~~~', with args beginning with: \r\n"
        self.socket.sendall(packed([*words]) + packed([b"~~~"]))
        found = b""
        while not found.endswith(end):
            more = self.socket.recv(1 << 16)
            assert more, (words, found)
            found += more
        return found.removesuffix(end)


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
@pytest.mark.parametrize("version", [b"2", b"3"])
def test_redis_answers_the_same_bytes(session: Session, version: bytes) -> None:
    with RedisPeer() as peer, Raw(peer.port) as raw:
        session.id = int(raw.ask([b"CLIENT", b"ID"])[1:])
        for words in [[b"HELLO", version], *(line.split(b" ") for line in SAME), [b"HELLO", version], *ODD]:
            assert ask(session, *words) == raw.ask(words), words


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
def test_redis_with_a_password_answers_the_same_bytes() -> None:
    session = new_house(b"sesame").enter()
    with RedisPeer() as peer, Raw(peer.port) as raw:
        session.id = int(raw.ask([b"CLIENT", b"ID"])[1:])
        raw.ask([b"CONFIG", b"SET", b"requirepass", b"sesame"])
        raw.ask([b"RESET"])
        for line in WITH_A_PASSWORD:
            words = line.split(b" ")
            assert ask(session, *words) == raw.ask(words), words
