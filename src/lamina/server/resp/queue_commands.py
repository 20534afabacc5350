"""The commands of queues, ``Q.*``: two capabilities a queue, one message at a time.

A connection may use a queue when it has shown the key of the id it names (``Q.AUTH``), made the queue itself, or none
is asked for. Every refusal is the same ``-AUTH`` after the same work, so that nobody learns which queues there are.
"""

from __future__ import annotations

import asyncio
from functools import partial
from hmac import compare_digest
from typing import Final

from lamina.engines.queues import deliveries, ids
from lamina.engines.queues.deliveries import Deliveries, Receiver
from lamina.engines.queues.message import NO_TTL, Message, Queue
from lamina.errors import LaminaError, NoMessage, QueueRefused, QuotaMet
from lamina.server.resp import replies
from lamina.server.resp.dispatch import Handler
from lamina.server.resp.replies import Map, Value
from lamina.server.resp.session import Args, Refusal, Session, Wait

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


# -- what a client is shown -------------------------------------------------------------------------------------------


def shown(message: Message, version: int) -> bytes:
    """``[id, seconds, flags, body]``; of a marker the flags are ``quota``, and the body is nil."""
    body = message.body
    if body is None:
        return b"*4\r\n$32\r\n%b\r\n:%d\r\n$5\r\nquota\r\n%b" % (
            ids.wire(message.id),
            message.ts,
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
    """Q.NEW [KEY rkey] [SKEY skey] [SUB] [TTL seconds] [PASSWORD word]: ``[rid, sid]``."""
    queues = queues_of(session)
    key = sender_key = None
    password, ttl, subscribes = b"", NO_TTL, False
    words = iter(args[1:])
    for word in words:
        option = word.lower()
        if option == b"sub":
            subscribes = True
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
    session.held[queue.rid] = None
    if subscribes:
        queues.subscribe(receiver_of(session), queue)
    return b"*2\r\n$32\r\n%b\r\n$32\r\n%b\r\n" % (ids.wire(queue.rid), ids.wire(queue.sid))


def auth(session: Session, args: Args) -> bytes:
    """Q.AUTH id key: from now on this connection holds what goes with the id."""
    id = ids.parse(args[1])
    if not queues_of(session).engine.holds(id, args[2]) or id is None:
        raise QueueRefused
    session.held[id] = None
    return replies.OK


def key(session: Session, args: Args) -> bytes:
    """Q.KEY rid skey: senders have to show this key from now on. The same again is no mistake."""
    queues = queues_of(session)
    queue = queues.engine.recipient(ids.parse(args[1]), session.held)
    session.rest_on(queues.engine, queues.engine.secure(queue, args[2]))
    return replies.OK


def off(session: Session, args: Args) -> bytes:
    """Q.OFF rid: nothing more is accepted; what is there can still be received."""
    queues = queues_of(session)
    queue = queues.engine.recipient(ids.parse(args[1]), session.held)
    session.rest_on(queues.engine, queues.engine.suspend(queue))
    return replies.OK


def delete(session: Session, args: Args) -> bytes | Wait:
    """Q.DEL rid: the queue and all its messages are gone before the answer."""
    queues = queues_of(session)
    engine = queues.engine
    queue = engine.recipient(ids.parse(args[1]), session.held)
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
    """Q.INFO rid: what is known of the queue."""
    queues = queues_of(session)
    engine = queues.engine
    queue = engine.recipient(ids.parse(args[1]), session.held)
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
        (b"head-kind", None if head is None else b"quota" if head.is_marker else b"message"),
        (b"subscribed", subscribed),
        (b"ttl", engine.options.ttl_s if queue.ttl == NO_TTL else queue.ttl),
        (b"created", queue.created_day),
        (b"handle", ids.handle(queue.rid).encode()),
    ]
    return replies.encode(Map(pairs), session.version)


# -- sending ----------------------------------------------------------------------------------------------------------


def send(session: Session, args: Args) -> bytes:
    """Q.SEND sid body [FLAGS f] [TTL seconds]: the message's id."""
    queues = queues_of(session)
    engine = queues.engine
    queue = engine.sender(ids.parse(args[1]), session.held)
    flags, ttl = b"", NO_TTL
    if len(args) > 3:
        flags, ttl = _sending(args)
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


def _sending(args: Args) -> tuple[bytes, int]:
    flags, ttl = b"", NO_TTL
    if len(args) % 2 == 0:
        raise Refusal(_SYNTAX)
    for at in range(3, len(args), 2):
        option = args[at].lower()
        if option == b"flags":
            flags = args[at + 1]
        elif option == b"ttl":
            ttl = _seconds(args[at + 1])
        else:
            raise Refusal(_SYNTAX)
    return flags, ttl


def _seconds(word: bytes) -> int:
    """0: for ever."""
    if not word.isdigit() or len(word) > 13 or int(word) > _MOST_TTL:
        raise Refusal(_NOT_A_NUMBER)
    return int(word)


# -- receiving --------------------------------------------------------------------------------------------------------


def subscribe(session: Session, args: Args) -> bytes:
    """Q.SUB rid: OK, and from now on messages are pushed, the next one when one was acknowledged."""
    queues = queues_of(session)
    queue = queues.engine.recipient(ids.parse(args[1]), session.held)
    if session.is_in_exec:
        raise Refusal("ERR Q.SUB is not allowed inside a transaction")
    head = queues.subscribe(receiver_of(session), queue)
    if head is not None:
        # Behind the answer, which rests on nothing: who has subscribed is not stored.
        engine = queues.engine
        session.behind.append((pushed(head, queue.rid, session.version), engine.keeper, engine.position_of(queue)))
    return replies.OK


def unsubscribe(session: Session, args: Args) -> bytes:
    """Q.UNSUB rid: nothing more is pushed."""
    queues = queues_of(session)
    queue = queues.engine.recipient(ids.parse(args[1]), session.held)
    queues.unsubscribe(receiver_of(session), queue.rid)
    return replies.OK


def get(session: Session, args: Args) -> bytes | Wait:
    """Q.GET rid [BLOCK milliseconds]: the head, without subscribing; nil if there is none. BLOCK 0 waits for ever."""
    queues = queues_of(session)
    id = ids.parse(args[1])
    queue = queues.engine.recipient(id, session.held)
    if len(args) not in (2, 4) or (len(args) == 4 and args[2].lower() != b"block"):
        raise Refusal(_SYNTAX)
    if len(args) == 4 and (not args[3].isdigit() or len(args[3]) > 13):
        raise Refusal("ERR timeout is not an integer or out of range")
    answer = _get(session, queues, queue)
    nothing = replies.null(session.version)
    if answer is not None or len(args) == 2 or session.is_in_exec:
        return nothing if answer is None else answer

    def attempt() -> bytes | None:
        return _get(session, queues, queues.engine.recipient(id, session.held))

    milliseconds = int(args[3])
    return Wait((wait_key(queue.rid),), milliseconds / 1000 if milliseconds else None, attempt, nothing)


def _get(session: Session, queues: Deliveries, queue: Queue) -> bytes | None:
    message = queues.get(receiver_of(session), queue)
    session.rest_on(queues.engine.keeper, queues.engine.position_of(queue))
    return None if message is None else shown(message, session.version)


def acknowledge(session: Session, args: Args) -> bytes:
    """Q.ACK rid id: that message was received. The next one, or OK when there is none."""
    queues = queues_of(session)
    queue = queues.engine.recipient(ids.parse(args[1]), session.held)
    id = ids.parse(args[2])
    if id is None or session.receiver is None:
        raise NoMessage
    message, position = queues.acknowledge(session.receiver, queue, id)
    session.rest_on(queues.engine.keeper, position)
    return replies.OK if message is None else shown(message, session.version)


COMMANDS: dict[bytes, Handler] = {
    b"q.new": new,
    b"q.auth": auth,
    b"q.key": key,
    b"q.off": off,
    b"q.del": delete,
    b"q.info": info,
    b"q.send": send,
    b"q.sub": subscribe,
    b"q.unsub": unsubscribe,
    b"q.get": get,
    b"q.ack": acknowledge,
}
