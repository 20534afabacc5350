"""The commands of queues, ``Q.*``: two capabilities a queue, one message at a time.

A connection may use a queue when it has shown the key of the id it names (``Q.AUTH``), made the queue itself, or none
is asked for. Every refusal is the same ``-AUTH`` after the same work, so that nobody learns which queues there are.

A client that shares connections among many users ties nothing to one: it shows the key with each command (``KEY``), and
says ``ANYWHERE`` to what would be remembered of the connection otherwise.
"""

from __future__ import annotations

import asyncio
from functools import partial
from hmac import compare_digest
from typing import Final

from lamina.engines import loops
from lamina.engines.queues import deliveries, ids
from lamina.engines.queues.deliveries import Deliveries, Receiver
from lamina.engines.queues.message import NO_TTL, Message, Queue
from lamina.errors import LaminaError, NoMessage, QueueRefused, QuotaMet
from lamina.server.resp import replies
from lamina.server.resp.dispatch import EVERY_QUEUE, Handler
from lamina.server.resp.replies import Map, Value
from lamina.server.resp.session import Args, Large, Refusal, Session, Wait

_SYNTAX: Final = b"ERR syntax error"
_NOT_A_NUMBER: Final = b"ERR value is not an integer or out of range"
_OFF: Final = b"ERR queues are switched off (lamina serve --queues)"
_MOST_TTL: Final = 1 << 40
QUEUE_KEYS: Final = b"\0queue\0"


def queues_of(session: Session) -> Deliveries:
    """Raises: Refusal where no queues are served."""
    found: Deliveries | None = session.house.queues
    if found is None:
        raise Refusal(_OFF)
    return found


def receiver_of(session: Session) -> Receiver:
    found: Receiver | None = session.receiver
    if found is None:
        found = session.receiver = Receiver(partial(_push, session))
    return found


def wait_key(rid: bytes) -> bytes:
    """What Q.GET waits for: no name that a topic would have."""
    return QUEUE_KEYS + rid


def _held(session: Session, args: Args, at: int) -> dict[bytes, None]:
    """The ids whose keys were shown: on this connection, or with this command, by ``KEY key`` from word ``at`` on.

    Raises: QueueRefused; Refusal.
    """
    if len(args) == at:
        return session.held
    if len(args) != at + 2 or args[at].lower() != b"key":
        raise Refusal(_SYNTAX)
    return _with_key(session, args[1], args[at + 1])


def _with_key(session: Session, id_word: bytes, key: bytes) -> dict[bytes, None]:
    """Raises: QueueRefused, also for a key where none is asked for."""
    id = ids.parse(id_word)
    if not queues_of(session).engine.holds(id, key) or id is None:
        raise QueueRefused
    return {id: None}


# -- what a client is shown -------------------------------------------------------------------------------------------


def shown(message: Message, version: int) -> bytes:
    """``[id, seconds, flags, body]``; of a marker the flags are ``quota`` or ``lost``, and the body is nil."""
    body = message.body
    if body is None:
        return b"*4\r\n$32\r\n%b\r\n:%d\r\n%b\r\n%b" % (
            ids.wire(message.id),
            message.ts,
            b"$4\r\nlost" if message.is_loss else b"$5\r\nquota",
            replies.null(version),
        )
    flags = message.flags
    return b"*4\r\n$32\r\n%b\r\n:%d\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        ids.wire(message.id),
        message.ts,
        len(flags),
        flags,
        len(body),
        body,
    )


def _kind(message: Message) -> bytes:
    return b"lost" if message.is_loss else b"quota" if message.is_marker else b"message"


def pushed(message: Message, rid: bytes, version: int) -> bytes:
    """The same for a subscriber: ``[q.msg, rid, id, seconds, flags, body]``."""
    head = b">6\r\n" if version >= 3 else b"*6\r\n"
    return b"%b$5\r\nq.msg\r\n$32\r\n%b\r\n%b" % (head, ids.wire(rid), shown(message, version)[4:])


def _told(word: bytes, rid: bytes, version: int) -> bytes:
    return replies.encode(replies.Push([word, ids.wire(rid)]), version)


def _push(session: Session, what: int, rid: bytes, message: Message | None) -> None:
    queues = queues_of(session)
    engine = queues.engine
    if message is not None:
        session.push(pushed(message, rid, session.version), engine.keeper, engine.position_of(engine.state.queues[rid]))
    elif what == deliveries.END:  # nothing of that is stored
        session.push(_told(b"q.end", rid, session.version), engine, 0)
    else:
        session.push(_told(b"q.del", rid, session.version), engine, queues.deleted_at)


# -- queues -----------------------------------------------------------------------------------------------------------


def new(session: Session, args: Args) -> bytes:
    """Q.NEW [KEY rkey] [SKEY skey] [SUB] [ANYWHERE] [TTL seconds] [PASSWORD word]: ``[rid, sid]``."""
    queues = queues_of(session)
    key = sender_key = None
    password, ttl, subscribes, holds = b"", NO_TTL, False, True
    words = iter(args[1:])
    for word in words:
        option = word.lower()
        if option == b"sub":
            subscribes = True
            continue
        if option == b"anywhere":
            holds = False
            continue
        value = next(words, None)
        if value is None:
            raise Refusal(_SYNTAX)
        if option == b"key":
            key = value
        elif option == b"skey":
            sender_key = value
        elif option == b"ttl":
            ttl = _seconds(value)
        elif option == b"password":
            password = value
        else:
            raise Refusal(_SYNTAX)
    wanted = session.house.queue_password
    if wanted is not None and not compare_digest(password, wanted):
        raise QueueRefused
    queue, position = queues.engine.create(key, sender_key, ttl)
    session.rest_on(queues.engine, position)
    if holds:
        session.held[queue.rid] = None
    if subscribes:
        queues.subscribe(receiver_of(session), queue)
    return b"*2\r\n$32\r\n%b\r\n$32\r\n%b\r\n" % (ids.wire(queue.rid), ids.wire(queue.sid))


def auth(session: Session, args: Args) -> bytes:
    """Q.AUTH id key: from now on this connection holds what goes with the id."""
    session.held |= _with_key(session, args[1], args[2])
    return replies.OK


def key(session: Session, args: Args) -> bytes:
    """Q.KEY rid skey [KEY key]: senders have to show this key from now on. The same again is no mistake."""
    queues = queues_of(session)
    queue = queues.engine.recipient(ids.parse(args[1]), _held(session, args, 3))
    session.rest_on(queues.engine, queues.engine.secure(queue, args[2]))
    return replies.OK


def off(session: Session, args: Args) -> bytes:
    """Q.OFF rid [KEY key]: nothing more is accepted; what is there can still be received."""
    queues = queues_of(session)
    queue = queues.engine.recipient(ids.parse(args[1]), _held(session, args, 2))
    session.rest_on(queues.engine, queues.engine.suspend(queue))
    return replies.OK


def delete(session: Session, args: Args) -> bytes | Wait:
    """Q.DEL rid [KEY key]: the queue and all its messages are gone before the answer."""
    queues = queues_of(session)
    engine = queues.engine
    queue = engine.recipient(ids.parse(args[1]), _held(session, args, 2))
    if session.is_in_exec and engine.keeper is not engine:
        raise Refusal("ERR Q.DEL is not allowed inside a transaction where queues are journals")
    position = engine.delete(queue)
    queues.was_deleted(queue.rid, position)
    session.held.pop(queue.rid, None)
    if session.receiver is not None and queue.rid in session.receiver.gets:
        queues.unsubscribe(session.receiver, queue.rid)
    session.house.changed(wait_key(queue.rid))
    session.rest_on(engine, position)
    if engine.keeper is engine:
        return replies.OK
    done: list[LaminaError | None] = []

    async def happens() -> None:
        try:
            await asyncio.to_thread(engine.remove_folder, queue, position)
            done.append(None)
        except LaminaError as problem:
            done.append(problem)

    def attempt() -> bytes | None:
        if not done:
            return None
        if done[0] is not None:
            raise done[0]
        return replies.OK

    return Wait((), None, attempt, replies.null(session.version), happens, must_finish=True)


def info(session: Session, args: Args) -> bytes:
    """Q.INFO rid [KEY key]: what is known of the queue."""
    queues = queues_of(session)
    engine = queues.engine
    queue = engine.recipient(ids.parse(args[1]), _held(session, args, 2))
    head = engine.head(queue)
    session.rest_on(engine, engine.newest_position())
    session.rest_on(engine.keeper, engine.position_of(queue))
    subscriber = queues.subscribers.get(queue.rid)
    subscribed = b"no" if subscriber is None else b"here" if subscriber is session.receiver else b"elsewhere"
    pairs: list[tuple[Value, Value]] = [
        (b"status", b"off" if queue.is_off else b"active"),
        (b"secured", int(queue.skey is not None)),
        (b"size", engine.messages.size(queue)),
        (b"closed", int(engine.messages.is_closed(queue))),
        (b"head-id", None if head is None else ids.wire(head.id)),
        (b"head-time", None if head is None else head.ts),
        (b"head-kind", None if head is None else _kind(head)),
        (b"subscribed", subscribed),
        (b"ttl", engine.options.ttl_s if queue.ttl == NO_TTL else queue.ttl),
        (b"created", queue.created_day),
        (b"handle", ids.handle(queue.rid).encode()),
    ]
    return replies.encode(Map(pairs), session.version)


# -- sending ----------------------------------------------------------------------------------------------------------


def send(session: Session, args: Args) -> bytes:
    """Q.SEND sid body [FLAGS f] [TTL seconds] [KEY key]: the message's id."""
    queues = queues_of(session)
    engine = queues.engine
    held = session.held
    flags, ttl = b"", NO_TTL
    if len(args) > 3:
        flags, ttl, key = _sending(args)
        if key is not None:
            held = _with_key(session, args[1], key)
    queue = engine.sender(ids.parse(args[1]), held)
    try:
        id, position = engine.send(queue, args[2], flags, ttl)
    except QuotaMet as problem:
        session.rest_on(engine.keeper, problem.position)
        _has_come(session, queues, queue)
        raise
    session.rest_on(engine.keeper, position)
    _has_come(session, queues, queue)
    return b"$32\r\n%b\r\n" % ids.wire(id)


def _has_come(session: Session, queues: Deliveries, queue: Queue) -> None:
    queues.was_sent(queue)
    session.house.changed(wait_key(queue.rid))


def _sending(args: Args) -> tuple[bytes, int, bytes | None]:
    """Flags, seconds to live, and the key that was shown. Raises: Refusal."""
    flags, ttl, key = b"", NO_TTL, None
    if len(args) % 2 == 0:
        raise Refusal(_SYNTAX)
    for at in range(3, len(args), 2):
        option = args[at].lower()
        if option == b"flags":
            flags = args[at + 1]
        elif option == b"ttl":
            ttl = _seconds(args[at + 1])
        elif option == b"key":
            key = args[at + 1]
        else:
            raise Refusal(_SYNTAX)
    return flags, ttl, key


def _seconds(word: bytes) -> int:
    """0: for ever."""
    if not word.isdigit() or len(word) > 13 or int(word) > _MOST_TTL:
        raise Refusal(_NOT_A_NUMBER)
    return int(word)


# -- receiving --------------------------------------------------------------------------------------------------------


def subscribe(session: Session, args: Args) -> bytes:
    """Q.SUB rid [KEY key]: OK, and from now on messages are pushed, the next one when one was acknowledged."""
    queues = queues_of(session)
    queue = queues.engine.recipient(ids.parse(args[1]), _held(session, args, 2))
    if session.is_in_exec:
        raise Refusal("ERR Q.SUB is not allowed inside a transaction")
    head = queues.subscribe(receiver_of(session), queue)
    if head is not None:
        # Behind the answer, which rests on nothing: who has subscribed is not stored.
        engine = queues.engine
        session.behind.append((pushed(head, queue.rid, session.version), engine.keeper, engine.position_of(queue)))
    return replies.OK


def unsubscribe(session: Session, args: Args) -> bytes:
    """Q.UNSUB rid [KEY key]: nothing more is pushed."""
    queues = queues_of(session)
    queue = queues.engine.recipient(ids.parse(args[1]), _held(session, args, 2))
    queues.unsubscribe(receiver_of(session), queue.rid)
    return replies.OK


def get(session: Session, args: Args) -> bytes | Wait:
    """Q.GET rid [BLOCK milliseconds] [ANYWHERE] [KEY key]: the head, without subscribing; nil if there is none.

    BLOCK 0 waits for ever.
    """
    queues = queues_of(session)
    id = ids.parse(args[1])
    milliseconds, is_anywhere, key = _getting(args)
    held = session.held if key is None else _with_key(session, args[1], key)
    session.asks_for_new = milliseconds is not None and not session.is_in_exec
    queue = queues.engine.recipient(id, held)
    answer = _get(session, queues, queue, is_anywhere)
    nothing = replies.null(session.version)
    if answer is not None or milliseconds is None or session.is_in_exec:
        return nothing if answer is None else answer

    def attempt() -> bytes | None:
        if EVERY_QUEUE in session.house.taken:
            loops.must_wait()
        with queues.engine.lock, queues.engine.keeper.lock:
            return _get(session, queues, queues.engine.recipient(id, held), is_anywhere)

    seconds = milliseconds / 1000 if milliseconds else None
    return Wait((wait_key(queue.rid),), seconds, attempt, nothing, rests_on=(EVERY_QUEUE,))


def _getting(args: Args) -> tuple[int | None, bool, bytes | None]:
    """How long to wait, whether nothing is remembered of it, and the key that was shown. Raises: Refusal."""
    milliseconds, is_anywhere, key = None, False, None
    words = iter(args[2:])
    for word in words:
        option = word.lower()
        if option == b"anywhere":
            is_anywhere = True
            continue
        value = next(words, None)
        if value is None:
            raise Refusal(_SYNTAX)
        if option == b"block":
            if not value.isdigit() or len(value) > 13:
                raise Refusal("ERR timeout is not an integer or out of range")
            milliseconds = int(value)
        elif option == b"key":
            key = value
        else:
            raise Refusal(_SYNTAX)
    return milliseconds, is_anywhere, key


def _get(session: Session, queues: Deliveries, queue: Queue, is_anywhere: bool) -> bytes | None:
    if is_anywhere:
        message, receiver = queues.engine.head(queue), session.receiver
        if receiver is not None and queues.subscribers.get(queue.rid) is receiver:  # it asks what it has, and has it
            receiver.given[queue.rid] = None if message is None else message.id
    else:
        message = queues.get(receiver_of(session), queue)
    session.rest_on(queues.engine.keeper, queues.engine.position_of(queue))
    return None if message is None else shown(message, session.version)


def acknowledge(session: Session, args: Args) -> bytes:
    """Q.ACK rid id [ANYWHERE] [KEY key]: that message was received. The next one, or OK when there is none.

    ANYWHERE: it need not have been given to this connection. If it is not the head it is gone already.
    """
    queues = queues_of(session)
    is_anywhere = len(args) > 3 and args[3].lower() == b"anywhere"
    queue = queues.engine.recipient(ids.parse(args[1]), _held(session, args, 4 if is_anywhere else 3))
    id, receiver = ids.parse(args[2]), session.receiver
    if is_anywhere and id is not None:
        if receiver is None or queues.subscribers.get(queue.rid) is not receiver:
            receiver = Receiver(_tell_nobody)
        receiver.given[queue.rid] = id
    if id is None or receiver is None:
        raise NoMessage
    message, position = queues.acknowledge(receiver, queue, id)
    session.rest_on(queues.engine.keeper, position)
    return replies.OK if message is None else shown(message, session.version)


def _tell_nobody(what: int, rid: bytes, message: Message | None) -> None:
    """For who is given something once, and never subscribes."""


def _whole(handler: Handler) -> Handler:
    """It has the queues to itself from its start to its end: once it has changed something it must not have to wait."""

    def run(session: Session, args: Args) -> bytes | Wait | Large:
        engine = queues_of(session).engine
        if EVERY_QUEUE in session.house.taken:
            loops.must_wait()
        with engine.lock:
            if engine.keeper is engine:
                return handler(session, args)
            with engine.keeper.lock:
                return handler(session, args)

    return run


COMMANDS: dict[bytes, Handler] = {
    b"q.new": _whole(new),
    b"q.auth": _whole(auth),
    b"q.key": _whole(key),
    b"q.off": _whole(off),
    b"q.del": _whole(delete),
    b"q.info": _whole(info),
    b"q.send": _whole(send),
    b"q.sub": _whole(subscribe),
    b"q.unsub": _whole(unsubscribe),
    b"q.get": _whole(get),
    b"q.ack": _whole(acknowledge),
}
