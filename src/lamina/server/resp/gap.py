"""Telling a client that retention took entries which it has not read."""

from __future__ import annotations

from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.server.resp import replies
from lamina.server.resp.session import Session


def gap(session: Session, topic: Topic, key: bytes, last: EntryId, what_next: bytes) -> bytes:
    """The error for who read up to ``last`` and was overtaken. The caller holds the lock since it knows that."""
    border = topic.state.let_go_to
    session.rest_on(topic, topic.newest_position())
    text = b"GAP entries behind %b up to %b of '%b' were let go by retention unread; %b"
    return replies.error(text % (ids.show(last), ids.show(border), key, what_next))
