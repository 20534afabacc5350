"""Messages from one store to the other, while no server runs: all of them or, until it is done, none.

    to journal    1 mark   2 put every message into the folder of its queue   3 prove   4 a dump without messages
    to memory     1 mark   2 -                                                3 -       4 a dump with all messages
    both          5 prove  6 remove what held the messages before             7 remove the mark

The dump is the commit: before it is there the old store counts, behind it the new one. A crash leaves the mark, with
which nobody opens the folder; run again, the migration sees from what the mark says which of the two counts, and goes
on. Nothing expires on the way: what has is told by whoever opens the store next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Final

from lamina.clock import Clock, SystemClock
from lamina.engines.queues import ids, migration_mark, store_files
from lamina.engines.queues.journal import copies, moving, records, state_log
from lamina.engines.queues.journal.home import JournalOptions, no_path
from lamina.engines.queues.journal.paths import ASIDE, parents_of
from lamina.engines.queues.journal.store import JournalStore
from lamina.engines.queues.looking import found_in, has_names, layouts_of, look_at_journals
from lamina.engines.queues.message import Message, Queue
from lamina.engines.queues.migration_mark import Mark
from lamina.engines.queues.opening import JOURNALS
from lamina.engines.queues.options import STORES, QueueOptions
from lamina.engines.queues.proving import Counted, Groups, count, counted, dump_of, in_order
from lamina.engines.queues.restoring import Restored, restore
from lamina.engines.queues.state import State
from lamina.errors import BadOption, Corruption, StorageError, from_os
from lamina.log import lock, rewrite
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.naming import STORED
from lamina.log.sync import ALWAYS

_AT_ONCE: Final = 64  # queues that are synced together

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class MigrationReport:
    """What was there and what is. Both counts are the same, or there is no report."""

    to: str
    before: Counted
    after: Counted
    was_resumed: bool = False
    """A former run had not come to its end."""
    was_there: bool = False
    """Messages were in this store already: nothing was changed."""
    warnings: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def migrate(
    folder: str,
    to: str,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    options: QueueOptions | None = None,
    random: Callable[[int], bytes] = token_bytes,
    force: bool = False,
    progress: Progress = lambda done, total: None,
    step: Callable[[str], None] = lambda name: None,
) -> MigrationReport:
    """Bring all messages to the store ``to``. ``options``: how journals are made. ``force``: leave out what is damaged.

    ``step`` is called at places where a test may want to stop: "marked", "some copied", "copied", "committed",
    "proven", "journals removed", "removed", "unmarked".
    Durability: when it returns, all of it is synced. Order: as before, in every queue.
    Raises: LogLocked while a server runs; BadOption; Corruption: then nothing was changed, or what was there before is
        still there; DiskFull, DiskError: run it again when there is room.
    """
    if to not in STORES:
        raise BadOption(f"{to!r} is no store of queues", hint="give memory or journal", option="to")
    disk = files or RealFiles()
    found_in(disk, folder)
    held = lock.take(disk, folder, STORED.lock_name)
    try:
        work = _Migration(disk, folder, clock or SystemClock(), options or QueueOptions(), random, force=force)
        work.progress, work.step = progress, step
        return work.run(to)
    finally:
        held.release()


class _Migration:
    def __init__(
        self,
        files: Files,
        folder: str,
        clock: Clock,
        options: QueueOptions,
        random: Callable[[int], bytes],
        *,
        force: bool,
    ) -> None:
        self._files, self._folder, self._clock = files, folder, clock
        self._options, self._random, self._force = options, random, force
        self._root = join(folder, JOURNALS)
        self._warnings: list[str] = []
        self._moved = 0
        self.progress: Progress = lambda done, total: None
        self.step: Callable[[str], None] = lambda name: None

    def run(self, to: str) -> MigrationReport:
        mark = migration_mark.read(self._files, self._folder)
        if mark is not None and mark.to != to:
            migration_mark.refuse_if_under_way(self._files, self._folder)
        restored = self._restore()
        self._warnings += [str(each) for each in restored.warnings]
        has_journals = bool(layouts_of(self._files, self._folder))
        was_resumed = mark is not None
        if mark is None:
            if restored.state.messages and has_journals:
                raise BadOption(
                    f"{self._folder}: there are messages in either store",
                    hint=f"no server left it so; take away {JOURNALS}/ if it is not of these queues",
                    option="to",
                )
            if has_journals is (to == "journal"):
                there = self._count_journals(restored.state) if has_journals else count(restored.state)
                return MigrationReport(to, there, there, was_there=True, warnings=self._warnings)
            mark = Mark(to, count(restored.state) if to == "journal" else self._count_opened(restored.state))
            migration_mark.write(self._files, self._folder, mark)
            self.step("marked")
        if to == "journal":
            self._to_journal(mark, restored)
        else:
            self._to_memory(mark, restored)
        after, removed = self._finish(mark)
        return MigrationReport(to, mark.before, after, was_resumed, warnings=self._warnings, removed=removed)

    def _restore(self) -> Restored:
        return restore(self._files, self._folder, now=0, ttl=0, force=self._force)  # so nothing has expired

    # -- to journals -------------------------------------------------------------------------------------------------

    def _to_journal(self, mark: Mark, restored: Restored) -> None:
        state = restored.state
        if count(state) != mark.before:
            # Else this would be what is left when the dump without messages is there.
            self._check(self._count_journals(state), mark.before, "the journals")
            return
        with self._opened() as store:
            self._copy(store, state)
        self.step("copied")
        self._check(self._count_journals(state), mark.before, "the journals")
        self._write_dump(restored, ((queue, []) for queue in in_order(state)), mark.before.queues)
        self.step("committed")

    def _copy(self, store: JournalStore, state: State) -> None:
        total = sum(len(message.body or b"") for queue in state.queues.values() for message in queue.messages)
        copied = 0
        for queue in in_order(state):
            if not queue.messages:
                continue
            there = store.messages(_stand_in(queue))
            if [message.id for message in there] != [message.id for message in queue.messages]:
                if there:  # what a run that was broken off left of it, or it is not ours to remove
                    if {message.id for message in there} <= {message.id for message in queue.messages}:
                        store.delete(_stand_in(queue))
                    else:
                        store.set_aside(queue.rid, ASIDE + copies.stamp(self._clock.now_ns()))
                folder = _stand_in(queue)
                for message in queue.messages:
                    store.put(folder, message)
                copied += 1
                if copied % _AT_ONCE == 0:
                    self._settle(store)
                    self.step("some copied")
            else:
                self._sync(store, queue)
            self._moved += sum(len(message.body or b"") for message in queue.messages)
            self.progress(self._moved, total)
        self._settle(store)

    def _settle(self, store: JournalStore) -> None:
        """Raises: StorageError, if anything was refused."""
        store.settle(store.newest_position())
        if store.stats.refused:
            hint = "make room, or see to the disk, and run it again"
            raise StorageError(f"the disk refused messages: {self._warnings[-1]}", hint=hint)

    def _sync(self, store: JournalStore, queue: Queue) -> None:
        """A run that was killed may have written this and never synced it."""
        path = store.layout.folder(self._root, queue.rid)
        with no_path(queue.rid, "sync its folder"):
            for name in self._files.list(path):
                file = self._files.open(join(path, name))
                try:
                    file.sync()
                finally:
                    file.close()
            for folder in (path, *parents_of(self._root, path), self._root):
                self._files.sync_folder(folder)

    # -- to memory ---------------------------------------------------------------------------------------------------

    def _to_memory(self, mark: Mark, restored: Restored) -> None:
        state = restored.state
        if count(state) == mark.before:
            return  # the dump with all messages is there
        self._check(self._count_opened(state), mark.before, "the journals")
        with self._opened() as store:
            groups = ((queue, self._messages(store, queue)) for queue in in_order(state))
            self._write_dump(restored, groups, mark.before.queues + mark.before.messages)
        self.step("committed")

    def _messages(self, store: JournalStore, queue: Queue) -> list[Message]:
        """Raises: Corruption, if some cannot be read and that is not wanted."""
        folder = _stand_in(queue)
        found = store.messages(folder)
        messages = [message for message in found if not message.is_loss]
        lost = store.size(folder) - len(messages)
        store.forget(queue.rid)
        if lost:
            what = f"queue {ids.handle(queue.rid)}: {lost} messages cannot be read"
            if not self._force:
                raise Corruption(JOURNALS, 0, what, hint="with --force, all others are migrated")
            if what not in self._warnings:
                self._warnings.append(what)
        return messages

    # -- both --------------------------------------------------------------------------------------------------------

    def _finish(self, mark: Mark) -> tuple[Counted, list[str]]:
        """Prove it, then let go of what is not needed any more; all of it may have been done before."""
        restored = self._restore()
        to_journal = mark.to == "journal"
        after = self._count_journals(restored.state) if to_journal else count(restored.state)
        self._check(after, mark.before, f"the store {mark.to}")
        if to_journal and restored.state.messages:
            raise StorageError("there are still messages in the log and its dumps", hint="run it again")
        self.step("proven")
        if not to_journal:
            self._remove_journals(restored.state)
            self.step("journals removed")
        removed = self._remove_older()
        self.step("removed")
        migration_mark.remove(self._files, self._folder)
        self.step("unmarked")
        return after, removed

    def _check(self, found: Counted, wanted: Counted, where: str) -> None:
        if found != wanted:
            reason = (
                f"{where}: {found.queues} queues and {found.messages} messages, digest {found.digest[:16]}; there were "
                f"{wanted.queues} and {wanted.messages}, digest {wanted.digest[:16]}"
            )
            hint = "nothing was removed: what was there before the migration is still there; keep a copy of the folder"
            raise Corruption(migration_mark.NAME, 0, reason, hint=hint)

    def _write_dump(self, restored: Restored, groups: Groups, most: int) -> None:
        """A dump behind all files that are there, synced under its name. ``most``: records that it may have."""
        name = store_files.dump_name(restored.next_number)
        rewrite.replace(self._files, self._folder, name, dump_of(groups, most, restored.last_time), STORED)

    def _remove_older(self) -> list[str]:
        found = found_in(self._files, self._folder)
        newest = max(found.dumps)
        names = [store_files.dump_name(number) for number in found.dumps if number < newest]
        names += [store_files.log_name(number).name for number in found.logs if number <= newest]
        names += [store_files.saving_name(number) for number in found.savings if number <= newest]
        rewrite.remove(self._files, self._folder, names)
        return names

    def _remove_journals(self, state: State) -> None:
        """What was once set aside, what is of queues that nobody knows, and what was kept of damage stays."""
        try:
            if has_names(self._files, self._root):
                self._set_aside_what_is_not_taken(state)
                for name in self._files.list(self._root):
                    if name.startswith(ASIDE):
                        self._files.rename_folder(join(self._root, name), join(self._folder, name[1:]))
                        self._warnings.append(f"{name[1:]}: set aside, and left for you to look at")
                self._files.sync_folder(self._folder)
                self._files.remove_folder(self._root)
            self._files.sync_folder(self._folder)
        except OSError as error:
            raise from_os(error, "remove the journals", self._root) from error

    def _set_aside_what_is_not_taken(self, state: State) -> None:
        """Everything in folders of queues that is no copy of what the dump has now."""
        files, into = self._files, join(self._root, ASIDE + copies.stamp(self._clock.now_ns()))
        for layout in layouts_of(files, self._folder):
            for rid in list(moving.walk(files, self._root, layout)):
                path, there = layout.folder(self._root, rid), layout.folder(into, rid)
                if rid not in state.queues:
                    files.make_folder(there.rpartition("/")[0])
                    files.rename_folder(path, there)
                    continue
                names = files.list(path)
                taken = {state_log.NAME, state_log.NEW, *copies.copies_among(names)}
                for name in names:
                    if name not in taken and not records.NAME.fullmatch(name):
                        files.make_folder(there)
                        files.rename(join(path, name), join(there, name))

    def _opened(self) -> _Opened:
        layouts = layouts_of(self._files, self._folder)
        parts, chars = layouts[0] if layouts else (self._options.path_parts, self._options.part_chars)
        options = self._options
        journal = JournalOptions(
            quota=options.quota,
            max_file_messages=max(options.max_file_messages, options.quota + 1),
            path_parts=parts,
            part_chars=chars,
            keep_copies=options.keep_copies,
            keep_copy_days=options.keep_copy_days,
            most_open=max(options.most_open, 2 * _AT_ONCE),
        )
        return _Opened(
            JournalStore(
                self._root,
                self._files,
                self._clock,
                self._random,
                sync=ALWAYS,
                options=journal,
                tell=lambda problem: self._warnings.append(str(problem)),
            )
        )

    # -- counting ----------------------------------------------------------------------------------------------------

    def _count_opened(self, state: State) -> Counted:
        """Journals as a server would find them: what a crash left is healed, and told."""
        with self._opened() as store:
            return counted((queue, self._messages(store, queue)) for queue in in_order(state))

    def _count_journals(self, state: State) -> Counted:
        """The same by reading alone."""
        looked = look_at_journals(self._files, self._folder, state)
        return counted((queue, looked.messages(queue)) for queue in in_order(state))


class _Opened:
    def __init__(self, store: JournalStore) -> None:
        self._store = store

    def __enter__(self) -> JournalStore:
        return self._store

    def __exit__(self, *problem: object) -> None:
        self._store.close()


def _stand_in(queue: Queue) -> Queue:
    """For the store of journals, which notes in a queue what it knows of its folder."""
    return Queue(queue.rid, None, queue.sid, None)
