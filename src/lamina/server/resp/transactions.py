"""MULTI, EXEC, DISCARD, WATCH, UNWATCH: commands that run one behind the other with none of another client between.

A transaction runs within one turn of the loop, so nobody sees a part of it. A power cut may leave a part of it, when
it changes more than one topic, or a topic and its groups: each has a log of its own.
"""

from __future__ import annotations

from lamina.engines.topics.topic import Topic
from lamina.server.resp import replies
from lamina.server.resp.dispatch import Handler, call, find
from lamina.server.resp.session import Args, Refusal, Session


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
    session.forget_transaction()
    if is_spoiled:
        raise Refusal("EXECABORT Transaction discarded because of previous errors.")
    if any(_seen(session, key) != before for key, before in watched.items()):
        return replies.null_array(session.version)
    session.is_in_exec = True
    try:
        return replies.array([_run(session, one) for one in queue])
    finally:
        session.is_in_exec = False


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
