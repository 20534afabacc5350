"""What the commands about groups have in common: reading their words, and finding the group they mean."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final

from lamina.engines.topics.groups import Groups, Shown
from lamina.engines.topics.topic import Topic
from lamina.server.resp import replies
from lamina.server.resp.entry_replies import show_all, show_id
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


def show_entries(shown: Shown, version: int) -> bytes:
    """Entries as clients get them: id, and fields or none."""
    records = [record for _, record in shown.records if record is not None]
    if len(records) == len(shown.records):
        return show_all(records)
    parts = [b"*%d\r\n" % len(shown.records)]
    nothing = replies.null_array(version)
    for is_there, run in groupby(shown.records, lambda entry: entry[1] is not None):
        if is_there:
            some = show_all([record for _, record in run if record is not None])
            parts.append(some[some.index(b"\n") + 1 :])  # behind how many they are
        else:
            parts += [b"*2\r\n%b%b" % (show_id(id), nothing) for id, _ in run]
    return b"".join(parts)
