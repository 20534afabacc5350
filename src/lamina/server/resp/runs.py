"""Runs of XADD, and of S.WRITE: what a client sent one behind the other for one topic, or for the store, done at once.

Publishers send many commands ahead. What each of them costs beside its entry (finding the command and the topic, the
lock, the clock) is paid once for the run; the answers are those of the single commands.
"""

from __future__ import annotations

from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.server.resp.entry_replies import show_id, show_ids
from lamina.server.resp.session import Args, Mark, Session

_XADD = frozenset((b"XADD", b"xadd"))
_WRITE = frozenset((b"S.WRITE", b"s.write"))


class Run:
    """One or more ``XADD key * name value ...`` of one key."""

    def __init__(self, key: bytes, commands: list[Args]) -> None:
        self.key = key
        self.commands = commands


class Writes:
    """One or more ``S.WRITE storage ...``."""

    def __init__(self, commands: list[Args]) -> None:
        self.commands = commands


def grouped(commands: list[Args]) -> list[Args | Run | Writes]:
    """The same commands, in order, with the runs among them put together."""
    found: list[Args | Run | Writes] = []
    run: Run | None = None
    writes: Writes | None = None
    for args in commands:
        words = len(args)
        if args[0] in _WRITE and words > 2:
            run = None
            if writes is not None:
                writes.commands.append(args)
            else:
                writes = Writes([args])
                found.append(writes)
            continue
        writes = None
        if words < 5 or not words % 2 or args[0] not in _XADD or args[2] != b"*":
            run = None
            found.append(args)
        elif run is not None and run.key == args[1]:
            run.commands.append(args)
        else:
            run = Run(args[1], [args])
            found.append(run)
    return found


class Added:
    """What was added of a run."""

    def __init__(self, topic: Topic, ids: list[EntryId], positions: list[int]) -> None:
        self.topic = topic
        self.ids = ids
        self.positions = positions

    def answer(self) -> bytes:
        """All answers, one behind the other."""
        return show_ids(self.ids)

    def answers(self) -> list[tuple[bytes, list[Mark]]]:
        """The same one by one, each with what it rests on."""
        pairs = zip(self.ids, self.positions, strict=True)
        return [(show_id(id), [(self.topic, position)]) for id, position in pairs]


def add(session: Session, run: Run) -> Added:
    """Add the entries of a run, as far as they can be: what is wrong with the next one, the command itself tells.

    Raises: as XADD does.
    """
    topic = session.topics.get_or_make(run.key)
    ids, positions = topic.add_many([args[3:] for args in run.commands])
    return Added(topic, ids, positions)
