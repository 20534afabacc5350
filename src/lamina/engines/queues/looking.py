"""Looking at the queues of a folder without a lock and without a change: also while a server writes there.

Operators see handles (ids.py), never an id or a key, and what was sent only if they ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from lamina.engines.queues import ids, migration_mark, store_files
from lamina.engines.queues.journal.home import no_path
from lamina.engines.queues.journal.paths import Layout, read_layout
from lamina.engines.queues.message import NO_TTL, Message, Queue
from lamina.engines.queues.opening import JOURNALS
from lamina.engines.queues.peeking import Peeked, peek, waiting
from lamina.engines.queues.restoring import IGNORED_FILE, restore
from lamina.engines.queues.state import State
from lamina.engines.queues.store_reading import TORN_TAIL
from lamina.errors import BadOption, Corruption, DiskError, from_os
from lamina.log import foreign
from lamina.log.files import File, Files, join
from lamina.log.naming import STORED

if TYPE_CHECKING:
    from lamina.engines.queues.engine import QueueEngine

_TRIES: Final = 5
_NORMAL_WHILE_SERVED: Final = (TORN_TAIL, IGNORED_FILE)  # a record is being written, or a dump


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue, as operators see it."""

    handle: str
    status: str
    """``active``, or ``off``: nothing more is accepted."""
    is_secured: bool
    """Senders have to show a key."""
    waiting: int
    """Messages, without the marker of the quota."""
    is_closed: bool
    """A sender met the quota: nothing is taken until all was received."""
    oldest_s: int | None
    """When the first that waits was sent, seconds since 1970."""
    created_s: int
    """The day, seconds since 1970."""
    ttl_s: int | None
    """How long messages are kept here, if the queue says so itself; 0: for ever."""
    problem: str = ""
    """What a server that opens the queue will heal, and tell."""


@dataclass(slots=True)
class Looked:
    """What was found in a folder."""

    files: Files
    folder: str
    state: State
    layouts: tuple[Layout, ...]
    """How the folders of journals are made, and how they were before; empty: messages are in the state."""
    warnings: list[str] = field(default_factory=list)
    handles: dict[str, bytes] = field(default_factory=dict)

    @property
    def store(self) -> str:
        return "journal" if self.layouts else "memory"

    def find(self, handle: str) -> Queue:
        """The queue whose handle begins so. Raises: BadOption if there is none, or more than one."""
        if not self.handles:
            self.handles = {ids.handle(rid): rid for rid in self.state.queues}
        wanted = handle.strip().lower()
        found = [rid for name, rid in self.handles.items() if name.startswith(wanted)]
        if not wanted or not found:
            raise BadOption(f"no queue has the handle {handle[:40]!r}", hint='"lamina queues ls" shows them')
        if len(found) > 1:
            raise BadOption(f"{len(found)} queues have a handle that begins with {handle!r}", hint="give more of it")
        return self.state.queues[found[0]]

    def view(self, queue: Queue) -> QueueView:
        """Raises: DiskError."""
        size, is_closed, head, problem = len(queue.messages), queue.is_closed, queue.messages[:1], ""
        if self.layouts:
            found = self.peek(queue)
            size, is_closed, problem = found.size, found.is_closed, found.problem
            head = [] if found.head is None else [found.head]
        return QueueView(
            handle=ids.handle(queue.rid),
            status="off" if queue.is_off else "active",
            is_secured=queue.skey is not None,
            waiting=size - 1 if is_closed else size,
            is_closed=is_closed,
            oldest_s=head[0].ts if head else None,
            created_s=queue.created_day,
            ttl_s=None if queue.ttl == NO_TTL else queue.ttl,
            problem=problem,
        )

    def peek(self, queue: Queue) -> Peeked:
        """What its journal has. Raises: DiskError."""
        with no_path(queue.rid, "look at"):
            return peek(self.files, self._folder_of(queue))

    def views(self) -> Iterator[QueueView]:
        for queue in list(self.state.queues.values()):
            yield self.view(queue)

    def messages(self, queue: Queue, most: int | None = None) -> list[Message]:
        """What waits, in order, the marker included; or the first ``most``. Raises: DiskError."""
        if not self.layouts:
            return list(queue.messages[:most])
        with no_path(queue.rid, "read"):
            found, problem = waiting(self.files, self._folder_of(queue), most)
        if problem:
            self.warnings.append(f"queue {ids.handle(queue.rid)}: {problem}")
        return found

    def _folder_of(self, queue: Queue) -> str:
        """Where it is while folders are moved to another depth, too."""
        folders = [layout.folder(join(self.folder, JOURNALS), queue.rid) for layout in self.layouts]
        for folder in folders[1:]:
            if not has_names(self.files, folders[0]) and has_names(self.files, folder):
                return folder
        return folders[0]


def look(
    files: Files, folder: str, *, force: bool = False, progress: Callable[[int, int], None] | None = None
) -> Looked:
    """All queues of a folder as they are now. Nothing has expired here: what would is shown.

    A dump that a server finishes meanwhile takes files away: then it is looked again.
    Raises: Corruption, WrongFormat; DiskError; BadOption where there are no queues, or they are being migrated.
    """
    migration_mark.refuse_if_under_way(files, folder)
    for left in reversed(range(_TRIES)):
        found = found_in(files, folder)
        try:
            restored = restore(cast("Files", _Untouched(files)), folder, now=0, ttl=0, force=force, progress=progress)
            break
        except (Corruption, DiskError):
            if not left or found_in(files, folder) == found:
                raise
    layouts = () if restored.state.messages else layouts_of(files, folder)
    is_served = files.lock_holder(join(folder, STORED.lock_name)) is not None
    warnings = [str(each) for each in restored.warnings if not (is_served and each.kind in _NORMAL_WHILE_SERVED)]
    return Looked(files, folder, restored.state, layouts, warnings)


def look_at_served(engine: QueueEngine) -> Looked:
    """The queues of an engine that is open in this process, as they are when each is asked for.

    In the store ``journal`` what waits is read from files, without the engine's lock: what is not on disk yet is not
    seen, and nothing is opened or healed by looking.
    """
    keeper = engine.keeper
    layouts = () if keeper is engine else tuple(each for each in (keeper.layout, keeper.old_layout) if each is not None)
    return Looked(engine.files, engine.folder, engine.state, layouts)


def look_at_journals(files: Files, folder: str, state: State) -> Looked:
    """The journals of queues that are known already. Raises: Corruption, DiskError."""
    return Looked(files, folder, state, layouts_of(files, folder) or (Layout(),))


def found_in(files: Files, folder: str) -> store_files.Found:
    """The files of the store. Raises: DiskError; WrongFormat for the folder of an SMP server; BadOption if nobody ever
    had queues here."""
    try:
        names = files.list(folder)
    except OSError as error:
        raise from_os(error, "look at the folder", folder) from error
    foreign.refuse(folder, names)
    found = store_files.find(names)
    if not found.next_number:
        raise BadOption(f"{folder} holds no queues", hint="a server makes them there: lamina serve --data DIR")
    return found


def layouts_of(files: Files, folder: str) -> tuple[Layout, ...]:
    """How the journals of a folder are made, and how they were if they are on the move; empty if there are none.

    Raises: Corruption, DiskError.
    """
    root = join(folder, JOURNALS)
    try:
        if not has_names(files, root):
            return ()
    except OSError as error:
        raise from_os(error, "look at the folder", root) from error
    found = read_layout(files, root)
    if found is None:
        return (Layout(),)
    old, target = found
    return (target,) if old == target else (target, old)


def has_names(files: Files, folder: str) -> bool:
    """There is such a folder, and something in it."""
    try:
        return bool(files.list(folder))
    except (FileNotFoundError, NotADirectoryError):
        return False


class _Untouched:
    """A disk on which nothing can be changed, not even by a sync: what is restored from it is only looked at."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.list = files.list

    def open(self, path: str, *, write: bool = False) -> File:
        assert not write
        return cast("File", _UntouchedFile(self._files.open(path)))

    def sync_folder(self, folder: str) -> None:
        pass


class _UntouchedFile:
    def __init__(self, file: File) -> None:
        self.path, self.identity = file.path, file.identity
        self.size, self.read_into, self.close = file.size, file.read_into, file.close

    def sync(self) -> None:
        pass
