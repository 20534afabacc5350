"""Which queues are open: opening them, and closing those that were used longest ago.

A queue that is not open costs nothing here: how many messages wait in it is all that is known, in ``Queue.size``.

Threads: the store's lock guards it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Final

from lamina.engines import loops
from lamina.engines.queues.journal import moving
from lamina.engines.queues.journal.folder import QueueFolder
from lamina.engines.queues.journal.home import Home, no_path, without_path
from lamina.engines.queues.journal.opening import Opening
from lamina.engines.queues.journal.paths import Layout
from lamina.engines.queues.journal.syncing import Left
from lamina.engines.queues.message import Queue
from lamina.errors import LogClosed, QueueRefused, StorageError

GONE: Final = -2
"""``Queue.size`` of a queue whose folder was removed: nothing is ever put there again."""
UNKNOWN: Final = -1
_LOOK: Final = 64  # those in front may all have changes on their way: the next push makes room


class OpenQueues:
    """By the recipient's id; who was used longest ago is first."""

    def __init__(self, home: Home, layout: Layout, old_layout: Layout | None) -> None:
        self.home = home
        self.layout = layout
        self.old_layout = old_layout
        """How folders were made that are yet to be moved; None: all are where they should be."""
        self.folders: OrderedDict[bytes, QueueFolder] = OrderedDict()
        self.suspect: dict[bytes, int | None] = {}
        """Queues of which a write was refused: so many bytes of queue.log count when it is opened anew."""
        self.left: dict[bytes, Left] = {}
        """What closed queues have that is not synced."""
        self.is_closed = False
        self.told: Callable[[bytes, bool], None] = lambda rid, is_left: None
        """Called when a queue was opened or deleted, or when it is not known any more how much waits in it: its id, and
        whether that is so."""

    def folder(self, queue: Queue) -> QueueFolder:
        """Raises: QueueRefused, if it was removed; LogClosed; StorageError."""
        folder = self.folders.get(queue.rid)
        if folder is None:
            folder = self._opened(queue)
        elif folder.queue is not queue:
            self.is_open(queue)
        folder.used_at = self.home.clock.monotonic()
        self.folders.move_to_end(queue.rid)
        return folder

    def is_open(self, queue: Queue) -> bool:
        """Then it is known how much waits in it, also if the state was built anew since."""
        folder = self.folders.get(queue.rid)
        if folder is not None and folder.queue is not queue:  # the same queue, read anew from its log
            folder.queue = queue
            queue.size = folder.state.size
            self.told(queue.rid, False)
        return folder is not None

    def _opened(self, queue: Queue) -> QueueFolder:
        if self.is_closed:
            raise LogClosed("the store of messages was closed")
        if queue.size == GONE:
            raise QueueRefused
        loops.must_wait()
        rid = queue.rid
        with no_path(rid, "open its folder"):
            if self.old_layout is not None:
                moving.move_queue(self.home, rid, self.old_layout, self.layout)
            path = self.layout.folder(self.home.root, rid)
            is_suspect = rid in self.suspect
            opened = Opening(self.home, rid, path, self.suspect.get(rid)).run()
            folder = QueueFolder(self.home, queue, path, opened)
            folder.wants_compaction = folder.wants_compaction or (is_suspect and opened is not None)
            if not self._compact(folder):  # how far it came nobody knows: what is there now counts
                folder.close()
                folder = QueueFolder(self.home, queue, path, Opening(self.home, rid, path, self.suspect.get(rid)).run())
                folder.unsynced_folders, folder.wants_compaction = [folder.path], False
        self.suspect.pop(rid, None)
        self.evict(_LOOK, room=1)  # before it is in: it must not be the one that goes
        self.folders[rid] = folder
        queue.size = folder.state.size
        self.told(rid, False)
        return folder

    def _compact(self, folder: QueueFolder) -> bool:
        """Messages first, then the state that commits them. False if it failed; the queue works all the same."""
        if not folder.wants_compaction:
            return True
        try:
            folder.unsynced_folders = []
            # First: lines go that prove of removed files that nobody needs them, should a power cut bring these back.
            self.home.files.sync_folder(folder.path)
            folder.sync_messages()
            folder.messages_are_synced()
            folder.compact()
        except (OSError, StorageError) as error:
            reason = without_path(error, folder.rid, "compact its state")
            self.home.told(folder.rid, "tidying_failed", detail=reason.message)
            return False
        return True

    def evict(self, look: int | None = None, room: int = 0) -> None:
        """Close those that were used longest ago, if too many are open. ``look``: at so many of them, at most."""
        excess = len(self.folders) + room - self.home.options.most_open
        if excess > 0:
            for folder in [each for each in islice(self.folders.values(), look) if _may_close(each)][:excess]:
                self.let_go(folder)

    def let_go(self, folder: QueueFolder) -> None:
        """Close it, unless something is on its way; what is not synced is remembered."""
        if not _may_close(folder):
            return
        if folder.is_unsynced:
            part = Left.of(folder)
            before = self.left.get(folder.rid)
            self.left[folder.rid] = part if before is None else before.with_more(part)
        self.drop(folder)

    def take_left(self) -> list[Left]:
        """What of closed queues is to be synced now."""
        left, self.left = list(self.left.values()), {}
        return left

    def drop(self, folder: QueueFolder) -> None:
        """Close it in any case."""
        self.folders.pop(folder.rid, None)
        if folder.is_syncing:
            folder.is_abandoned = True
        else:
            folder.close()

    def close_idle(self, idle_s: float) -> int:
        """Close what nobody used for so long. Returns how many were closed."""
        border = self.home.clock.monotonic() - idle_s
        idle = []
        for folder in self.folders.values():
            if folder.used_at > border:
                break
            idle.append(folder)
        before = len(self.folders)
        for folder in idle:
            self.let_go(folder)
        return before - len(self.folders)


def _may_close(folder: QueueFolder) -> bool:
    return not (folder.is_dirty or folder.obsolete or folder.is_syncing)
