"""The logs of a server by name, where each is, and which right it takes to see it.

jobs  queues  queues/messages  store  topics/NAME  groups/NAME  logs/NAME
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from lamina.errors import BadName, NotReady, NotThere
from lamina.log.files import join
from lamina.log.folders import folder_name, name_of
from lamina.server.http.names import read_name, show_name
from lamina.server.http.operations import Place
from lamina.server.inside import Inside, not_ready

if TYPE_CHECKING:
    from lamina.engines.topics.topic import Topic
    from lamina.log.writer import Log

T = TypeVar("T")

JOBS, QUEUES, JOURNALS, STORE, TOPIC, GROUPS, PLAIN = "jobs", "queues", "journals", "store", "topic", "groups", "log"
MESSAGES: Final = "queues/messages"
_PREFIX: Final = {TOPIC: "topics/", GROUPS: "groups/", PLAIN: "logs/"}


@dataclass(frozen=True, slots=True)
class Ref:
    """One log."""

    kind: str
    name: str
    folder: str
    of: bytes = b""
    """Which topic, or which log of the folder ``logs``."""

    @property
    def engine(self) -> str:
        """Whose right it takes."""
        if self.kind in (TOPIC, GROUPS):
            return "topics"
        if self.kind == PLAIN:
            return "admin"
        return "queues" if self.kind == JOURNALS else self.kind

    def may(self, place: Place, level: str) -> bool:
        return place.may(self.engine, self._needed(level), self.of)

    def check(self, place: Place, level: str) -> None:
        """Raises: NotAllowed."""
        place.check(self.engine, self._needed(level), self.of)

    def _needed(self, level: str) -> str:
        """Journals tell of single queues: who sees them is who may see all queues."""
        return "admin" if self.kind == JOURNALS else level


def topic_ref(inside: Inside, name: bytes, kind: str = TOPIC) -> Ref:
    """Of a topic, or of its groups. Raises: BadName."""
    folder = join(is_open(inside.topics).folder, folder_name(name))
    return Ref(kind, _PREFIX[kind] + show_name(name), folder if kind == TOPIC else join(folder, "groups"), name)


def whole(inside: Inside) -> Iterator[Ref]:
    """Those of which there is one each."""
    if inside.jobs is not None and inside.jobs.folder is not None:
        yield Ref(JOBS, JOBS, inside.jobs.folder)
    if inside.queues is not None:
        engine = inside.queues.engine
        yield Ref(QUEUES, QUEUES, engine.folder)
        if engine.keeper is not engine:
            yield Ref(JOURNALS, MESSAGES, join(engine.folder, "messages"))
    store = inside.find_store()
    if store is not None:
        yield Ref(STORE, STORE, store.engine.folder)


def plain(inside: Inside) -> Iterator[Ref]:
    """Logs with a name, in the folder ``logs``."""
    if inside.data is None:
        return
    folder = join(inside.data, "logs")
    try:
        listed = sorted(os.listdir(folder))
    except OSError:
        return
    for each in listed:
        name = name_of(each)
        if name is not None:
            yield Ref(PLAIN, _PREFIX[PLAIN] + show_name(name), join(folder, each), name)


def find(place: Place, name: str, level: str = "read") -> Ref:
    """The log that has this name. Raises: NotThere; NotAllowed, before it is said whether there is one; BadName."""
    inside = place.inside
    found = next((ref for ref in whole(inside) if ref.name == name), None)
    if found is None:
        kind = next((kind for kind, prefix in _PREFIX.items() if name.startswith(prefix)), None)
        if kind is None:
            if inside.life.phase != "ready":
                raise not_ready(inside.life)
            raise _not_there(name)
        of = read_name(name[len(_PREFIX[kind]) :])
        Ref(kind, name, "", of).check(place, level)
        found = _named(inside, kind, of)
        if found is None:
            raise _not_there(name)
    found.check(place, level)
    return found


def _named(inside: Inside, kind: str, of: bytes) -> Ref | None:
    if kind == PLAIN:
        return next((ref for ref in plain(inside) if ref.of == of), None)
    if inside.topics is None:
        return None
    try:
        ref = topic_ref(inside, of, kind)
    except BadName:
        return None
    return ref if os.path.isdir(ref.folder) else None


def _not_there(name: str) -> NotThere:
    return NotThere(f"there is no log {name[:80]!r}", hint="GET /api/v1/logs, or the page /log, has all of them")


def topic_of(inside: Inside, ref: Ref) -> Topic:
    """The topic of a log of one, or of its groups; it is opened if need be. Raises: NotThere; as opening a log."""
    topics = inside.topics
    topic = None if topics is None else topics.get(ref.of)
    if topic is None:
        raise _not_there(ref.name)
    return topic


def is_open(part: T | None) -> T:
    """A part of the server, for work that may outlive it. Raises: NotReady."""
    if part is None:
        raise NotReady("this part of the server is not open any more", hint="try again when it is")
    return part


def log_of(inside: Inside, ref: Ref, *, opens: bool = False) -> Log | None:
    """The log that is being written there, None if nobody does: a topic that nobody uses is opened if ``opens``."""
    from lamina.log.writer import Log

    found: object = None
    if ref.kind == JOBS and inside.jobs is not None:
        found = inside.jobs.log
    elif ref.kind == QUEUES and inside.queues is not None:
        found = inside.queues.engine.log
    elif ref.kind in (TOPIC, GROUPS) and inside.topics is not None:
        topic = topic_of(inside, ref) if opens else dict(inside.topics.opened()).get(ref.of)
        if topic is not None:
            groups = topic.opened_groups
            found = topic.log if ref.kind == TOPIC else None if groups is None else groups.log
    elif ref.kind == PLAIN:
        for owner in (inside.audit, getattr(inside, "history", None)):
            log = getattr(owner, "log", None)
            if isinstance(log, Log) and log.reader.folder == ref.folder:
                found = log
    return found if isinstance(found, Log) else None
