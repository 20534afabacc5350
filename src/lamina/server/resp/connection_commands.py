"""Commands about the connection itself: the protocol, who the client is, and the other clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from lamina.server.resp import replies
from lamina.server.resp.dispatch import Handler
from lamina.server.resp.replies import Map, Verbatim, encode
from lamina.server.resp.session import Args, House, Refusal, Session, Wait
from lamina.server.resp.settings import REDIS_VERSION, whole_number
from lamina.server.resp.table import FACTS

_SYNTAX = "ERR syntax error"
_DEFAULT = b"default"
_TYPES = frozenset((b"normal", b"master", b"replica", b"slave", b"pubsub"))
_DATABASES = 16
_INT = 1 << 31
_SECOND_NS = 10**9


# -- greeting ------------------------------------------------------------------------------------------------------


def hello(session: Session, args: Args) -> bytes | Wait:
    """HELLO [version [AUTH user password] [SETNAME name]]."""
    at = next((at for at in range(2, len(args) - 2) if args[at].lower() == b"auth"), None)
    if at is None:
        return _hello(session, args)
    return _in_turn(session, args[at + 2], partial(_hello, session, args))


def _hello(session: Session, args: Args) -> bytes:
    """What comes before a mistake is done, as in Redis."""
    version = session.version
    if len(args) > 1:
        number = whole_number(args[1])
        if number is None:
            raise Refusal("ERR Protocol version is not an integer or out of range")
        if not 2 <= number <= 3:
            raise Refusal("NOPROTO unsupported protocol version")
        version = number
    at = 2
    while at < len(args):
        option, left = args[at].lower(), len(args) - at - 1
        if option == b"auth" and left >= 2:
            _log_in(session, args[at + 1], args[at + 2])
            at += 3
        elif option == b"setname" and left >= 1:
            session.name = _name(args[at + 1])
            at += 2
        else:
            raise Refusal(b"ERR Syntax error in HELLO option '%b'" % args[at])
    if not session.is_known:
        raise Refusal(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> "
            "option can be used to authenticate the client and select the RESP protocol version at the same time"
        )
    session.version = version
    facts: list[tuple[replies.Value, replies.Value]] = [
        (b"server", b"redis"),
        (b"version", REDIS_VERSION.encode()),
        (b"proto", version),
        (b"id", session.id),
        (b"mode", b"standalone"),
        (b"role", b"master"),
        (b"modules", []),
    ]
    return encode(Map(facts), version)


def auth(session: Session, args: Args) -> bytes | Wait:
    """AUTH password, or AUTH user password."""
    if len(args) > 3:
        raise Refusal(_SYNTAX)
    if len(args) == 2 and not session.house.gate.has_password:
        raise Refusal(
            "ERR AUTH <password> called without any password configured for the default user. "
            "Are you sure your configuration is correct?"
        )
    return _in_turn(session, args[-1], partial(_auth, session, args))


def _auth(session: Session, args: Args) -> bytes:
    _log_in(session, args[1] if len(args) == 3 else _DEFAULT, args[-1])
    return replies.OK


def _in_turn(session: Session, token: bytes, log_in: Callable[[], bytes]) -> bytes | Wait:
    """Log in as soon as the failed logins from the address allow another one."""
    delay = session.house.gate.delay(token, session.host)
    if not delay and delay is not None:
        return log_in()
    if delay is None or session.is_in_exec:
        raise Refusal("TRYAGAIN too many failed logins from this address, try again in a few seconds")
    return Wait((), delay, _not_yet, log_in, must_finish=True)


def _not_yet() -> None:
    """Nothing but time makes a difference."""


def _log_in(session: Session, name: bytes, token: bytes) -> None:
    """Every refusal is the same, and takes as long. It leaves a client known that was known before."""
    user = session.house.gate.login(name, token, session.host)
    if user is None:
        raise Refusal("WRONGPASS invalid username-password pair or user is disabled.")
    session.become(user)


def acl_whoami(session: Session, args: Args) -> bytes:
    return replies.bulk(_user_name(session))


def acl_users(session: Session, args: Args) -> bytes:
    return encode([name.encode() for name in session.house.gate.names], session.version)


def _seconds(since_ns: int, now_ns: int) -> int:
    return max(now_ns - since_ns, 0) // _SECOND_NS  # the clock may have been set back


def _user_name(session: Session) -> bytes:
    return b"" if session.user is None else session.user.name.encode()


def ping(session: Session, args: Args) -> bytes:
    if len(args) > 2:
        raise Refusal("ERR wrong number of arguments for 'ping' command")
    return replies.bulk(args[1]) if len(args) == 2 else replies.PONG


def echo(session: Session, args: Args) -> bytes:
    return replies.bulk(args[1])


def quit(session: Session, args: Args) -> bytes:
    session.must_close = True
    return replies.OK


def reset(session: Session, args: Args) -> bytes:
    """The name of the library stays: it is still the same one that speaks."""
    library = session.library_name, session.library_version
    session.start_over()
    session.library_name, session.library_version = library
    return replies.simple(b"RESET")


def select(session: Session, args: Args) -> bytes:
    """All databases show the same topics; the number is kept for CLIENT LIST."""
    number = whole_number(args[1])
    if number is None:
        raise Refusal("ERR value is not an integer or out of range")
    if not -_INT <= number < _INT:
        raise Refusal(f"ERR value is out of range, value must between {-_INT} and {_INT - 1}")
    if not 0 <= number < _DATABASES:
        raise Refusal("ERR DB index is out of range")
    session.database = number
    return replies.OK


# -- this client ---------------------------------------------------------------------------------------------------


def client_id(session: Session, args: Args) -> bytes:
    return replies.integer(session.id)


def client_getname(session: Session, args: Args) -> bytes:
    return encode(session.name or None, session.version)


def client_setname(session: Session, args: Args) -> bytes:
    session.name = _name(args[2])
    return replies.OK


def client_setinfo(session: Session, args: Args) -> bytes:
    option, value = args[2].lower(), args[3]
    if option not in (b"lib-name", b"lib-ver"):
        raise Refusal(b"ERR Unrecognized option '%b'" % args[2])
    if not _is_plain(value):
        raise Refusal(b"ERR %b cannot contain spaces, newlines or special characters." % option)
    if option == b"lib-name":
        session.library_name = value
    else:
        session.library_version = value
    return replies.OK


def _name(name: bytes) -> bytes:
    if not _is_plain(name):
        raise Refusal("ERR Client names cannot contain spaces, newlines or special characters.")
    return name


def _is_plain(text: bytes) -> bool:
    """Whether it cannot break the lines of CLIENT LIST."""
    return all(0x21 <= byte <= 0x7E for byte in text)


def client_no_evict(session: Session, args: Args) -> bytes:
    session.is_no_evict = _is_on(args[2])
    return replies.OK


def client_no_touch(session: Session, args: Args) -> bytes:
    session.is_no_touch = _is_on(args[2])
    return replies.OK


def _is_on(word: bytes) -> bool:
    if word.lower() not in (b"on", b"off"):
        raise Refusal(_SYNTAX)
    return word.lower() == b"on"


def client_reply(session: Session, args: Args) -> bytes:
    """OFF and SKIP are not answered themselves."""
    how = args[2].lower()
    if how == b"on":
        session.says_nothing, session.skip_next = False, 0
        return replies.OK
    if how not in (b"off", b"skip"):
        raise Refusal(_SYNTAX)
    if session.is_in_exec:  # Redis drops the rest of EXEC's array then, and its client waits for ever
        raise Refusal("ERR Command not allowed inside a transaction")
    if how == b"off":
        session.says_nothing = True
    elif not session.says_nothing:
        session.skip_next = 2
    return b""


# -- all clients ---------------------------------------------------------------------------------------------------


def client_info(session: Session, args: Args) -> bytes:
    return encode(Verbatim(_line(session)), session.version)


def client_list(session: Session, args: Args) -> bytes:
    """CLIENT LIST [TYPE type | ID id ...]."""
    house = session.house
    found: Iterable[Session] = house.sessions.values()
    if len(args) == 4 and args[2].lower() == b"type":
        if not _is_normal(args[3]):
            found = ()
    elif len(args) > 3 and args[2].lower() == b"id":
        numbers = [whole_number(word) for word in args[3:]]
        if None in numbers:
            raise Refusal("ERR Invalid client ID")
        found = [house.sessions[number] for number in numbers if number in house.sessions]
    elif len(args) != 2:
        raise Refusal(_SYNTAX)
    return encode(Verbatim(b"".join(map(_line, found))), session.version)


def _is_normal(type: bytes) -> bool:
    """Whether it is the type that all clients are of."""
    if type.lower() not in _TYPES:
        raise Refusal(b"ERR Unknown client type '%b'" % type)
    return type.lower() == b"normal"


def _line(session: Session) -> bytes:
    """The fields of Redis in its order, without those about buffers and descriptors, which nobody counts here."""
    clock = session.house.clock
    fields: dict[str, bytes | int] = {
        "id": session.id,
        "addr": session.address,
        "laddr": session.local_address,
        "name": session.name,
        "age": _seconds(session.came_ns, clock.now_ns()),
        "idle": int(clock.monotonic() - session.heard_at),
        "flags": _flags(session),
        "db": session.database,
        "sub": 0,
        "psub": 0,
        "ssub": 0,
        "multi": -1 if session.queue is None else len(session.queue),
        "events": b"r",
        "cmd": _command(session),
        "user": _user_name(session),
        "redir": -1,
        "resp": session.version,
        "lib-name": session.library_name,
        "lib-ver": session.library_version,
    }
    words = (b"%b=%b" % (k.encode(), v if isinstance(v, bytes) else b"%d" % v) for k, v in fields.items())
    return b" ".join(words) + b"\n"


def _command(session: Session) -> bytes:
    """What a client sends as a command can be anything, line ends or a token too: only what is one is shown."""
    return session.last_command if session.last_command.lower() in FACTS else b"NULL"


def _flags(session: Session) -> bytes:
    flags = b"x" if session.queue is not None or session.is_in_exec else b""
    flags += b"b" if session.is_waiting else b""
    flags += b"c" if session.must_close else b""
    flags += b"e" if session.is_no_evict else b""
    flags += b"T" if session.is_no_touch else b""
    return flags or b"N"


def client_kill(session: Session, args: Args) -> bytes:
    """CLIENT KILL address; or CLIENT KILL filter value ..., which closes the clients that pass all filters."""
    if len(args) == 3:
        if not _kill(session, lambda other: other.address == args[2]):
            raise Refusal("ERR No such client")
        return replies.OK
    filters: list[Callable[[Session], bool]] = []
    skip_me = True
    for name, value in zip(args[2::2], args[3::2], strict=False):
        if name.lower() == b"skipme":
            if value.lower() not in (b"yes", b"no"):
                raise Refusal(_SYNTAX)
            skip_me = value.lower() == b"yes"
        else:
            filters.append(_filter(session.house, name.lower(), value))
    if len(args) % 2:
        raise Refusal(_SYNTAX)
    if skip_me:
        filters.append(lambda other: other is not session)
    return replies.integer(_kill(session, lambda other: all(passes(other) for passes in filters)))


def _filter(house: House, name: bytes, value: bytes) -> Callable[[Session], bool]:
    """What lets through the clients that are meant."""
    if name == b"id":
        number = whole_number(value)
        if number is None or number < 1:
            raise Refusal("ERR client-id should be greater than 0")
        return lambda other: other.id == number
    if name == b"addr":
        return lambda other: other.address == value
    if name == b"laddr":
        return lambda other: other.local_address == value
    if name == b"type":
        is_normal = _is_normal(value)
        return lambda other: is_normal
    if name == b"user":
        if value.decode(errors="replace") not in house.gate.names:
            raise Refusal(b"ERR No such user '%b'" % value)
        return lambda other: _user_name(other) == value
    if name == b"maxage":
        age = whole_number(value)
        if age is None:
            raise Refusal("ERR maxage is not an integer or out of range")
        if age < 1:
            raise Refusal("ERR maxage should be greater than 0")
        now_ns = house.clock.now_ns()
        return lambda other: _seconds(other.came_ns, now_ns) >= age
    raise Refusal(_SYNTAX)


def _kill(session: Session, is_meant: Callable[[Session], bool]) -> int:
    """Close all that are meant, this one after its answer. Returns how many."""
    meant = [other for other in session.house.sessions.values() if is_meant(other)]
    for other in meant:
        if other is session:
            session.must_close = True
        else:
            other.hang_up()
    return len(meant)


COMMANDS: dict[bytes, Handler] = {
    b"hello": hello,
    b"auth": auth,
    b"ping": ping,
    b"echo": echo,
    b"quit": quit,
    b"reset": reset,
    b"select": select,
    b"client|id": client_id,
    b"client|getname": client_getname,
    b"client|setname": client_setname,
    b"client|setinfo": client_setinfo,
    b"client|no-evict": client_no_evict,
    b"client|no-touch": client_no_touch,
    b"client|reply": client_reply,
    b"client|info": client_info,
    b"client|list": client_list,
    b"client|kill": client_kill,
    b"acl|whoami": acl_whoami,
    b"acl|users": acl_users,
}
