"""All queues of the store ``journal``: which are open, what is pending, and when it is as safe as was promised.

A change is made in memory at once and gets a position. ``push`` puts all that is pending on disk: the message bytes of
each queue with one write, then its state lines with one write; where changes are answered when they are synced, all
message files are synced before the first line is written, and then the lines. What goes wrong with one queue concerns
that queue alone: its pending changes are refused and taken back, and it is opened anew when somebody needs it.

Threads: every method is safe from any thread. ``lock`` guards all of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from lamina.clock import Clock
from lamina.engines import loops
from lamina.engines.lock import Lock
from lamina.engines.queues.journal import moving, paths
from lamina.engines.queues.journal.folder import QueueFolder
from lamina.engines.queues.journal.home import Home, JournalOptions, no_path
from lamina.engines.queues.journal.open_queues import GONE, OpenQueues
from lamina.engines.queues.journal.problem import Problem
from lamina.engines.queues.journal.pushing import Pushing
from lamina.engines.queues.journal.syncing import Left
from lamina.engines.queues.message import Message, Queue
from lamina.errors import NoMessage, from_os
from lamina.log.files import Files
from lamina.log.positions import Position
from lamina.log.sync import Sync
from lamina.log.teardown import Teardown

_MOST_LEFT: Final = 10_000  # closed queues with something that is not synced


class _NoLog:
    """Positions of this store are reached by ``push``, not by a log of the kernel."""

    position = written = next_position = Position(0)

    def append_at(self, first: Position, payloads: object) -> None:
        raise AssertionError("messages do not go to a log")

    def close(self) -> None:
        pass


class JournalStore(Pushing):
    """Open it with the root folder; it is made if it is not there.

    Raises: BadOption where the file system takes names that differ in case for the same; StorageError.
    """

    def __init__(
        self,
        root: str,
        files: Files,
        clock: Clock,
        random: Callable[[int], bytes],
        *,
        sync: Sync,
        options: JournalOptions,
        tell: Callable[[Problem], None],
    ) -> None:
        layout = paths.Layout(options.path_parts, options.part_chars).check()
        try:
            files.make_folder(root)
        except OSError as error:
            raise from_os(error, "make the folder", root) from error
        paths.check_case(files, root)
        home = Home(root, files, clock, random, sync, options, tell)
        super().__init__(home, OpenQueues(home, layout, moving.begin(files, root, layout)))
        moving.sweep(files, root)
        self.lock = Lock()
        self.log = _NoLog()
        self._told = 0
        self.told_rebuilt: Callable[[], None] = lambda: None
        """Called when changes were taken back."""
        self._one_sync = threading.Lock()

    @property
    def open_count(self) -> int:
        return len(self._queues.folders)

    @property
    def layout(self) -> paths.Layout:
        """How folders are made."""
        return self._queues.layout

    @property
    def old_layout(self) -> paths.Layout | None:
        """How folders were made that are yet to be moved; None: all are where they should be."""
        return self._queues.old_layout

    def tell(self, told: Callable[[bytes, bool], None]) -> None:
        """Have ``told`` called, with the lock held, when a queue was opened or deleted, or when it is not known any
        more how much waits in it: with its id, and whether that is so."""
        with self.lock:
            self._queues.told = told

    def is_open(self, queue: Queue) -> bool:
        """Its files are open: how much waits in it is known, also if the state was built anew since."""
        with self.lock:
            return self._queues.is_open(queue)

    # -- commands ----------------------------------------------------------------------------------------------------

    def head(self, queue: Queue) -> Message | None:
        """The message that is next, None if none waits. Raises: StorageError."""
        with self.lock:
            if queue.size == 0:
                return None
            self._make_room()
            folder = self._queues.folder(queue)
            message = folder.head()
            self._give_positions(folder)
            if message is None and not folder.is_dirty and not loops.is_at_once():
                self._queues.let_go(folder)  # when all clients come back at once, most queues are empty
            return message

    def size(self, queue: Queue) -> int:
        """How many messages wait, markers included. Raises: StorageError."""
        with self.lock:
            if queue.size < 0:
                folder = self._queues.folder(queue)
                if folder.state.size == 0 and not folder.is_dirty and not loops.is_at_once():
                    self._queues.let_go(folder)
            size: int = queue.size
            return size

    def is_closed(self, queue: Queue) -> bool:
        """A sender met the quota, and the queue was not empty since. Raises: StorageError."""
        with self.lock:
            return self.size(queue) != 0 and not self._queues.folder(queue).state.can_write

    def put(self, queue: Queue, message: Message) -> int:
        """Store a message, or a marker, at the end. Raises: QueueRefused, if its folder was removed; StorageError."""
        with self.lock:
            self._make_room()
            folder = self._queues.folder(queue)
            folder.put(message)
            return self._give_positions(folder)

    def drop_head(self, queue: Queue) -> int:
        """The head was received. Raises: NoMessage; StorageError."""
        with self.lock:
            if self.head(queue) is None:
                raise NoMessage
            self._make_room()
            folder = self._queues.folder(queue)
            if not folder.has_next_at_hand():
                loops.must_wait()  # whoever drops a message asks for the next one
            folder.drop_head()
            queue.is_worn = True
            return self._give_positions(folder)

    def drop_expired(self, queue: Queue, now: int, ttl: int) -> tuple[int, int]:
        """Let what has expired at the head go; ``ttl`` is what counts for this queue.

        Returns how many went, and the position of the newest change that is not on disk yet.
        """
        with self.lock:
            if queue.size == 0:
                return 0, 0
            self._make_room()
            folder = self._queues.folder(queue)
            loops.must_wait()  # nobody knows how many they are
            count = folder.drop_expired(now, ttl)
            if count:
                queue.is_worn = True
            return count, self._give_positions(folder)

    def messages(self, queue: Queue) -> list[Message]:
        """All that wait, in order. Changes nothing. Raises: StorageError."""
        with self.lock:
            return [] if queue.size == 0 else self._queues.folder(queue).messages()

    def clean(self, queue: Queue) -> int:
        """Remove from the disk what was received. Returns the bytes that went.

        Durability: when it returns, they are gone for good. Blocks on the disk. Raises: StorageError.
        """
        with self.lock:
            self._push_pending()
            folder = self._queues.folder(queue)
            with no_path(folder.rid, "clean its folder"):
                freed = folder.begin_cleaning()
            queue.is_worn = False
            if not freed and not folder.obsolete:
                if folder.state.size == 0:
                    self._queues.let_go(folder)
                return 0
            position = self._give_positions(folder)
            self._push([folder], must_sync=True)
            self._refusals.check(position)
            self.stats.cleanings += 1
            self.stats.cleaned_bytes += freed
            if queue.size == 0:
                self._queues.let_go(folder)
            return freed

    def delete(self, queue: Queue) -> None:
        """The folder goes, and those above it that are empty then. Nothing can be put there any more.

        Durability: when it returns, that is so for good; a power cut leaves all of it or none.
        Raises: StorageError; then it can be called again.
        """
        with self.lock:
            rid = queue.rid
            folder = self._queues.folders.get(rid)
            if folder is not None:
                self._dirty.pop(rid, None)  # whoever sent it was before whoever deletes it
                folder.are_safe()
                self._queues.drop(folder)
            self._queues.suspect.pop(rid, None)
            queue.size = GONE
            self._queues.told(rid, False)
            with no_path(rid, "remove its folder"):
                for layout in (self.layout, self.old_layout):
                    if layout is not None:
                        moving.remove_queue(self.home, rid, layout)

    def set_aside(self, rid: bytes, name: str) -> bool:
        """Its folder goes into ``name`` in the root, with all that is in it. Returns whether there was one.

        For a queue that nobody knows. Durability: when it returns, that is so for good. Raises: StorageError.
        """
        with self.lock:
            self.forget(rid)
            with no_path(rid, "set its folder aside"):
                layouts = [layout for layout in (self.layout, self.old_layout) if layout is not None]
                is_done = sum(moving.set_aside(self.home, rid, layout, name) for layout in layouts) > 0
            if is_done:
                detail = f"the log of the queues does not know it; it is in {name} now"
                self.home.told(rid, "queue_set_aside", is_error=True, detail=detail)
            return is_done

    def bring_back(self, is_known: Callable[[bytes], bool]) -> int:
        """Of the folders that were set aside, those of queues that are known again, and have no other, are used again.

        Returns how many. Raises: StorageError.
        """
        count = 0
        with self.lock:
            for rid, path in list(moving.aside(self.home.files, self.home.root)):
                if is_known(rid):
                    with no_path(rid, "bring its folder back"):
                        if moving.bring_back(self.home, rid, path, self.layout):
                            self.home.told(rid, "queue_brought_back")
                            count += 1
        return count

    def aside_count(self) -> int:
        """How many folders of queues were set aside, at any time. Raises: DiskError."""
        return sum(1 for _ in moving.aside(self.home.files, self.home.root))

    @property
    def damage(self) -> list[Problem]:
        """What was found that is not as it was written, since the store was opened: the newest of it."""
        return list(self.home.damage)

    def forget(self, rid: bytes) -> None:
        """Close its files. What is pending is pushed first."""
        with self.lock:
            if rid in self._dirty:
                self._push_pending()
            folder = self._queues.folders.get(rid)
            if folder is not None:
                self._queues.let_go(folder)

    # -- positions ---------------------------------------------------------------------------------------------------

    def newest_position(self) -> int:
        """Of the newest change."""
        return self._position

    def position_of(self, queue: Queue) -> int:
        """Of the newest change of that queue that is not on disk yet; 0: all of it is."""
        folder = self._queues.folders.get(queue.rid)
        try:  # without the lock: nobody has to wait to be told this
            return folder.positions[-1] if folder is not None else 0
        except IndexError:
            return 0

    def _tell_rebuilt(self) -> None:
        """Not while the lock is held: whoever is told takes the engine's, which comes first."""
        if self.rebuilds != self._told:
            self._told = self.rebuilds
            self.told_rebuilt()

    def try_push(self) -> bool:
        """For a loop, which leaves it to ``settled``: the disk has to be waited for."""
        return True

    def push(self) -> None:
        """Put all that is pending on disk, as safe as the policy promises. What is refused, ``settle`` tells."""
        with self.lock:
            self._push_pending()
        self._tell_rebuilt()

    def _push_pending(self) -> None:
        if self._dirty:
            loops.must_wait()
            dirty, self._dirty = list(self._dirty.values()), {}
            self._push(dirty, must_sync=self.home.is_always)
            self._queues.evict()
            if len(self._queues.left) > _MOST_LEFT:  # nobody calls ``sync``, or not often enough
                self._sync_left()

    def settle(self, position: int) -> None:
        """Wait until what was done up to ``position`` is as safe as the policy promises.

        Raises: the disk's error, if the change at ``position`` was refused; then it was not made.
        """
        self.push()
        self._refusals.check(position)

    async def settled(self, position: int) -> None:
        """``settle`` for coroutines."""
        if self._dirty or not self.lock.acquire(False):
            await asyncio.to_thread(self.push)
        else:
            self.lock.release()
        self._refusals.check(position)

    reached = settled

    def has_synced(self, position: int) -> bool:
        """What was done up to ``position`` survives a power cut. Raises: the disk's error, if it was refused."""
        self.push()
        with self.lock:
            self._refusals.check(position)
            return self.home.is_always or position <= self._synced_to

    async def synced(self, position: int) -> None:
        """Sync it now, whatever the policy."""
        await asyncio.get_running_loop().run_in_executor(None, self.sync)
        self._refusals.check(position)

    def is_kept(self) -> bool:
        """Nothing is pending, nobody is at it, and nothing was refused since the last look. Does not wait."""
        if not self.lock.acquire(False):
            return False
        try:
            return not (self._refusals.happened() or self._dirty)
        finally:
            self.lock.release()

    def _make_room(self) -> None:
        """Before a change: each queue with changes that are pending has files open."""
        if len(self._dirty) >= self.home.options.most_open:
            self._push_pending()

    def _give_positions(self, folder: QueueFolder) -> int:
        """Give positions to changes that have none. Returns that of its newest; 0: nothing of it is pending."""
        for _ in range(len(folder.lines) - len(folder.positions)):
            self._position += 1
            folder.positions.append(self._position)
            self._dirty[folder.rid] = folder
        return folder.positions[-1] if folder.positions else 0

    def idle_s(self, queue: Queue) -> float | None:
        """Seconds since somebody used it; None: its files are not open, nobody knows."""
        folder = self._queues.folders.get(queue.rid)
        return None if folder is None else max(self.home.clock.monotonic() - folder.used_at, 0.0)

    def close_idle(self, idle_s: float) -> int:
        """Close what nobody used for so long. Returns how many were closed."""
        with self.lock:
            return self._queues.close_idle(idle_s)

    # -- by the clock ------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Sync what was written and is not: messages first, then states; then let files go that nobody needs.

        Does not hold the lock while the disk works. An error is told, and concerns its queue alone.
        """
        with self._one_sync:
            with self.lock:
                self._push_pending()
                upto = self._position
                busy = [
                    folder for folder in self._queues.folders.values() if folder.is_unsynced and not folder.is_dirty
                ]
                parts = [Left.of(folder) for folder in busy]
                for folder, part in zip(busy, parts, strict=True):
                    part.take_over(folder)
                left = self._queues.take_left()
            errors = self._run_all([*left, *parts])
            with self.lock:
                self._after_sync_of_left(left, errors[: len(left)])
                for folder, part, error in zip(busy, parts, errors[len(left) :], strict=True):
                    self._after_sync(folder, part, error)
                self._synced_to = upto
        self._tell_rebuilt()

    def oldest_known(self) -> int | None:
        """When the oldest message was sent of those that are next in open queues, in seconds; None: none is known."""
        with self.lock:
            return min((ts for each in self._queues.folders.values() if (ts := each.head_ts) is not None), default=None)

    def walk(self) -> Iterator[bytes]:
        """The ids of all queues that have a folder. Raises: DiskError."""
        for layout in (self.layout, self.old_layout):
            if layout is not None:
                yield from moving.walk(self.home.files, self.home.root, layout)

    def move_all(self, progress: Callable[[int], None] = lambda moved: None) -> moving.Moved:
        """Move every folder to where it should be, while queues are used. Raises: StorageError; call it again then."""
        with self.lock:
            old = self.old_layout
        if old is None:
            return moving.Moved()
        moved = moving.move_all(self.home, old, self.layout, progress, self.lock)
        if not moved.refused:
            with self.lock:
                self._queues.old_layout = None
        return moved

    def close(self) -> None:
        """Write and sync everything. Raises: what kept changes from the disk."""
        with self.lock:
            if self._queues.is_closed:
                return
            before = self._refusals.newest()
        with Teardown(self.home.root) as teardown:
            teardown.step(self.push)
            teardown.step(self.sync)
            with self._one_sync, self.lock:  # nobody is at the files any more
                if self._dirty:  # came in between
                    teardown.step(partial(self._push, list(self._dirty.values()), must_sync=True))
                self._queues.is_closed = True
                for folder in self._queues.folders.values():
                    teardown.step(folder.close)
                self._queues.folders.clear()
                teardown.step(self._pool.close)
                newest = self._refusals.newest()
            if newest != before:
                teardown.step(partial(self._refusals.check, newest))

    def __repr__(self) -> str:
        return f"<journals of {self.open_count} open queues>"
