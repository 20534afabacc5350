"""What the commands about groups have in common: reading their words, and finding the group they mean."""

from __future__ import annotations

import re
from typing import Final

from lamina.engines.topics import ids
from lamina.engines.topics.groups import Groups, Shown
from lamina.engines.topics.topic import Topic
from lamina.server.resp.replies import NULL_ARRAY, Value
from lamina.server.resp.session import Refusal, Session

SYNTAX: Final = b"ERR syntax error"
NOT_A_NUMBER: Final = b"ERR value is not an integer or out of range"
_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]*").fullmatch


def integer(text: bytes, problem: bytes = NOT_A_NUMBER) -> int:
    """A whole number of 64 bits, written as Redis writes it. Raises: Refusal."""
    if len(text) <= 20 and _INTEGER(text):
        number = int(text)
        if -(1 << 63) <= number < 1 << 63:
            return number
    raise Refusal(problem)


def find_group(session: Session, key: bytes, group: bytes, where: bytes = b"") -> tuple[Topic, Groups]:
    """The groups of a topic, ``group`` among them. Raises: Refusal."""
    topic = session.topics.get(key)
    if topic is None or not topic.groups.has(group):
        raise Refusal(b"NOGROUP No such key '%b' or consumer group '%b'%b" % (key, group, where))
    return topic, topic.groups


def rest_on_all(session: Session, topic: Topic) -> None:
    """The answer shows what is: it is true when all of that is safe."""
    session.rest_on(topic, topic.newest_position())
    session.rest_on(topic.groups, topic.groups.newest_position())


def rest_on_shown(session: Session, topic: Topic, shown: Shown) -> None:
    session.rest_on(topic, shown.topic_position)
    # What is shown may rest on what others changed before: their answers may not be out yet.
    session.rest_on(topic.groups, shown.position or topic.groups.newest_position())


def entry_values(shown: Shown) -> list[Value]:
    """Entries as they are shown: id, and fields or none."""
    return [[ids.show(id), NULL_ARRAY if fields is None else fields] for id, fields in shown.entries]
