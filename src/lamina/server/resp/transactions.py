"""MULTI, EXEC, DISCARD, WATCH, UNWATCH: commands that run one behind the other with none of another client between.

Nobody sees a part of a transaction. It runs within one turn of the loop if all that it works on is at hand, and else in
a worker that has its topics, and all queues, to itself. A power cut may leave a part of it, when it changes more than
one topic, or a topic and its groups: each has a log of its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from lamina.engines import loops
from lamina.engines.logged import Logged
from lamina.engines.topics.topic import Topic
from lamina.server.resp import replies
from lamina.server.resp.dispatch import EVERY_QUEUE, Handler, call, find
from lamina.server.resp.session import Args, Refusal, Session

# Commands that find what they need in memory, once they have the locks of what they work on.
_OF_TOPICS: Final = frozenset((b"xadd", b"xlen", b"xack", b"type"))
_OF_QUEUES: Final = frozenset((b"q.send", b"q.get", b"q.ack", b"q.info"))
_OF_NOTHING: Final = frozenset((b"ping", b"echo", b"time"))


def multi(session: Session, args: Args) -> bytes:
    if session.queue is not None:
        raise Refusal("ERR MULTI calls can not be nested")
    session.queue = []
    return replies.OK


def discard(session: Session, args: Args) -> bytes:
    if session.queue is None:
        raise Refusal("ERR DISCARD without MULTI")
    session.forget_transaction()
    return replies.OK


def exec_(session: Session, args: Args) -> bytes:
    queue, is_spoiled, watched = session.queue, session.is_spoiled, session.watched
    if queue is None:
        raise Refusal("ERR EXEC without MULTI")
    if is_spoiled:
        session.forget_transaction()
        raise Refusal("EXECABORT Transaction discarded because of previous errors.")
    with ExitStack() as held:
        if loops.is_at_once():
            _take_what_is_at_hand(session, queue, held)
        if any(_seen(session, key) != before for key, before in watched.items()):
            session.forget_transaction()
            return replies.null_array(session.version)
        session.forget_transaction()
        session.is_in_exec = True
        try:
            with loops.may_wait():  # nothing will: what is begun here is not begun again
                return replies.array([_run(session, one) for one in queue])
        finally:
            session.is_in_exec = False


def _take_what_is_at_hand(session: Session, queue: list[Args], held: ExitStack) -> None:
    """Take the locks of all that the commands work on. Raises: MustWait if one of them could have to wait."""
    engines: dict[Logged, None] = {}
    for args in queue:
        name = find(args)[0].name
        if name in _OF_QUEUES:
            queues = session.house.queues
            if queues is None or queues.engine.keeper is not queues.engine or EVERY_QUEUE in session.house.taken:
                loops.must_wait()
            else:
                engines[queues.engine] = None
        elif name in _OF_TOPICS:
            topic = session.topics.get(args[1])
            if topic is None or (name == b"xadd" and args[2] != b"*"):
                loops.must_wait()
            else:
                engines[topic] = None
                if name == b"xack":
                    engines[topic.groups] = None
        elif name not in _OF_NOTHING:
            loops.must_wait()
    for engine in engines:
        held.enter_context(engine.lock)
        if engine.refusal is not None or engine.journal.is_careful:
            loops.must_wait()


def _run(session: Session, args: Args) -> bytes:
    answer = call(session, find(args)[1], args)
    assert isinstance(answer, bytes)  # in EXEC no command waits
    return answer


def watch(session: Session, args: Args) -> bytes:
    if session.queue is not None:
        raise Refusal("ERR WATCH inside MULTI is not allowed")
    for key in args[1:]:
        session.watched.setdefault(key, _seen(session, key))
    return replies.OK


def _seen(session: Session, key: bytes) -> tuple[Topic | None, int, int]:
    """What is another one once the entries of the topic, or what else it is, were changed.

    A topic that was built again counts as changed: its newest position is then as if it had just been opened.
    """
    topic = session.topics.get(key)
    return (None, 0, 0) if topic is None else (topic, topic.rebuilds, topic.newest_position())


def unwatch(session: Session, args: Args) -> bytes:
    session.watched.clear()
    return replies.OK


COMMANDS: dict[bytes, Handler] = {
    b"multi": multi,
    b"exec": exec_,
    b"discard": discard,
    b"watch": watch,
    b"unwatch": unwatch,
}
