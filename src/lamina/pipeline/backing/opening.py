"""Does what would be restored start? A generation is restored to a temporary folder, and opened as a server opens it.

Checksums say that bytes are those which were written; that an engine understands them, and misses none, only opening
shows. What a start would heal or leave out is reported, too. The folder is removed again, also when it is interrupted.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Final

from lamina.data import Data
from lamina.engines.queues.looking import layouts_of, look
from lamina.engines.queues.options import QueueOptions
from lamina.errors import BadOption, LaminaError, from_os
from lamina.log.files import join
from lamina.log.files.real import RealFiles
from lamina.log.folders import name_of
from lamina.log.writer import Log
from lamina.pipeline import places
from lamina.pipeline.backing.restoring import restore
from lamina.pipeline.places import LogPlace
from lamina.pipeline.running import Progress

_MOST_WARNINGS: Final = 100
"""Of one log."""


@dataclass(slots=True)
class OpenedLog:
    """One log that was opened, or was to be."""

    log: str
    kind: str
    holds: str = ""
    """In words."""
    problem: str = ""
    """Why it cannot be opened."""
    warnings: list[str] = field(default_factory=list)
    """What opening it healed or left out."""


@dataclass(slots=True)
class OpenProof:
    """What came of it."""

    generation: str
    moment_ns: int
    bytes: int
    logs: list[OpenedLog]
    seconds: float

    @property
    def starts(self) -> bool:
        return not any(log.problem for log in self.logs)

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "starts": self.starts}


def prove(
    backup: str,
    *,
    generation: str | None = None,
    folder: str | None = None,
    progress: Progress = lambda done, total: None,
) -> OpenProof:
    """Restore the newest generation, or the one that is named, and open every engine and log of it.

    ``folder``: where the temporary folder is made; else where the system has them. It needs room for all of it.
    Raises: BadOption; Corruption if the generation is damaged, naming the newest that is not; DiskFull, DiskError.
    """
    start = time.monotonic()
    try:
        temporary = tempfile.mkdtemp(prefix="lamina-open-", dir=folder)
    except OSError as error:
        raise from_os(error, "make a folder", folder or tempfile.gettempdir()) from error
    try:
        path = join(temporary, "data")
        made = restore(backup, path, generation=generation, progress=lambda done, total: progress(done, 2 * total))
        logs = _open_all(path, lambda done, total: progress(made.bytes * (total + done) // total, 2 * made.bytes))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return OpenProof(made.generation or "", made.moment_ns, made.bytes, logs, round(time.monotonic() - start, 3))


def _open_all(path: str, progress: Progress) -> list[OpenedLog]:
    files = RealFiles()
    try:
        found = places.find(files, path)
    except BadOption:
        return []  # nothing was ever written there
    queues = QueueOptions()
    with suppress(LaminaError):  # whoever opens them says so, too
        if layouts_of(files, join(path, "queues")):
            queues = QueueOptions(store="journal")
    opened = []
    with Data(path, queues=queues) as data:
        for number, place in enumerate(found):
            one = OpenedLog(place.path, place.kind)
            try:
                one.holds, warnings = _OPEN[place.kind](data, place)
                one.warnings += list(warnings)[:_MOST_WARNINGS]
            except LaminaError as error:
                one.problem = str(error)
            opened.append(one)
            progress(number + 1, len(found))
    return opened


_Opened = tuple[str, Iterable[str]]
"""What is in it, and what was odd."""


def _jobs(data: Data, place: LogPlace) -> _Opened:
    engine = data.jobs.engine
    return f"{len(engine.state.jobs)} jobs in {len(engine.state.queues)} queues", _warnings(engine.log)


def _topic(data: Data, place: LogPlace) -> _Opened:
    topic = data.topics.engine.get(_raw_name(place.folder))
    if topic is None:
        raise BadOption(f"{place.path} is not found by its name", hint="report this, with the name of its folder")
    return f"{topic.state.length} entries", _warnings(topic.log)


def _groups(data: Data, place: LogPlace) -> _Opened:
    topic = data.topics.engine.get(_raw_name(place.folder.rpartition("/")[0]))
    if topic is None:
        raise BadOption(
            f"{place.path} is of a topic that is not found", hint="report this, with the name of its folder"
        )
    return f"{len(topic.groups.state.groups)} groups", _warnings(topic.groups.log)


def _queues(data: Data, place: LogPlace) -> _Opened:
    warnings: list[str] = []
    files = RealFiles()
    is_journal, messages = bool(layouts_of(files, place.folder)), 0
    if is_journal:  # each is opened when it is first used: so that it can be is looked at here, message by message
        looked = look(files, place.folder)
        messages = sum(len(looked.messages(queue)) for queue in looked.state.queues.values())
        warnings += looked.warnings
    engine = data.queues.engine
    warnings += [str(each) for each in engine.restored.warnings]
    if not is_journal:
        messages = engine.state.messages
    return f"{len(engine.state.queues)} queues, {messages} messages", warnings


def _store(data: Data, place: LogPlace) -> _Opened:
    engine = data.store.engine
    return f"{engine.entries_read} entries, epoch {engine.last_epoch}", engine.warnings


def _plain(data: Data, place: LogPlace) -> _Opened:
    log = data.log(_raw_name(place.folder).decode())
    return f"{log.report.segments} files", _warnings(log)


def _raw_name(folder: str) -> bytes:
    name = name_of(folder.rpartition("/")[2])
    if name is None:
        raise BadOption(f"{folder} has a name that no topic and no log has", hint="rename the folder")
    return name


def _warnings(log: object) -> list[str]:
    return log.report.warnings() if isinstance(log, Log) else []


_OPEN: Final[dict[str, Callable[[Data, LogPlace], _Opened]]] = {
    places.JOBS: _jobs,
    places.TOPIC: _topic,
    places.GROUPS: _groups,
    places.QUEUES: _queues,
    places.STORE: _store,
    places.PLAIN: _plain,
}
