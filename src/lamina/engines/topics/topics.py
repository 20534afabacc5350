"""All topics of a data folder, by name: one folder each, opened when they are first asked for.

    topics/<name>/   20261115T061700.123456789Z.dat …   checkpoint   groups/…
    topics/.gone-…   on its way out (deleted.py)
    topics/.lock     who writes here

A topic is deleted or renamed by renaming its folder, in one step; what was deleted is removed later (``sweep``).

Whoever opens, deletes or renames a topic has its name for itself meanwhile, which may take long: a disk is slow, a log
has to be recovered. Who wants that name waits; all others go on. The lock of all topics is held for moments.
Threads: every method is safe from any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from lamina.clock import Clock, SystemClock
from lamina.engines import loops
from lamina.engines.logged import check_room
from lamina.engines.topics import catalog, garbage
from lamina.engines.topics.catalog import Catalog, Doubt
from lamina.engines.topics.gone import GoneFolders
from lamina.engines.topics.name_locks import NameLocks
from lamina.engines.topics.open_topics import OpenTopics
from lamina.engines.topics.past import Counted, Past
from lamina.engines.topics.topic import Topic
from lamina.errors import BadName, DiskError, LaminaError, LogClosed, StorageError, from_os
from lamina.log import lock
from lamina.log.commit import Committer, FolderSyncs
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.folders import folder_name, name_of
from lamina.log.measured import Measured
from lamina.log.naming import TIMED
from lamina.log.options import LogOptions
from lamina.log.reserve import Reserve
from lamina.log.teardown import Teardown

logger = logging.getLogger("lamina.topics")

LOCK, RESERVE = lock.OF_ALL, ".reserve"
"""Beside the topics, under names that none can have."""
_AT_ONCE: Final = 8  # topics that wait for the disk at the same time when all are closed, or deleted
_NEW_TOPIC: Final = 8192  # bytes, about: a folder and a file
_FEW: Final = 16  # for fewer it is not worth it


class Topics:
    """Open it with ``Topics.open``."""

    def __init__(
        self,
        folder: str,
        options: LogOptions,
        files: Files,
        clock: Clock,
        committer: Committer | None,
        *,
        threaded: bool,
        most_handles: int | None,
    ) -> None:
        """Use ``Topics.open``."""
        self.folder = folder
        self.options = options
        self.files = files
        self.clock = clock
        self.lock = threading.RLock()
        self.reserve: Reserve | None = None
        self.measured = Measured()
        """What writing all of their logs costs."""
        self.counts = Past()
        """What happened to topics that were closed since."""
        self.told: Callable[[bytes, bool], None] = lambda name, is_left: None
        """Called, with the lock held, when a topic was opened, deleted or renamed: a name, and whether there is a topic
        under it that is not open."""
        self.taken: Mapping[bytes, object] = {}
        """Names of topics that worker threads of a server have: its loop must not touch them meanwhile."""
        self._committer = committer
        self._threaded = threaded
        self._is_closed = False
        self._open_topics = OpenTopics(most_handles, self._close_unused, self.lock, threaded=threaded)
        self._opened = self._open_topics.by_name
        self._folder_syncs = FolderSyncs()
        self._name_locks = NameLocks()
        self._broken: dict[bytes, str] = {}
        with Teardown(folder) as teardown:
            try:
                files.make_folder(folder)
                self._held = lock.take(files, folder, LOCK)
                teardown.later(self._held.release)
                self._names, self._deleted = self._look()
            except OSError as error:
                raise from_os(error, "open the folder", folder) from error
            teardown.cancel()

    @classmethod
    def open(
        cls,
        folder: str,
        *,
        options: LogOptions | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        committer: Committer | None = None,
        threaded: bool = True,
        most_handles: int | None = None,
    ) -> Topics:
        """Become the owner of all topics in ``folder``, making it if need be. ``most_handles``: of files that topics
        keep open, about; those that were used longest ago are closed then.

        Raises: LogLocked if another process has them; DiskError.
        """
        return cls(
            folder,
            options or LogOptions(),
            files or RealFiles(),
            clock or SystemClock(),
            committer,
            threaded=threaded,
            most_handles=most_handles,
        )

    def _look(self) -> tuple[Catalog, GoneFolders]:
        """Which topics there are, and what is left of deleted ones. Raises: OSError."""
        listed = self.files.list(self.folder)
        names: list[tuple[bytes, Doubt | None]] = []
        for entry in listed:
            name = name_of(entry)
            if name is not None:
                with suppress(OSError):  # a plain file
                    names.append((name, catalog.doubt_by_names(self.files.list(join(self.folder, entry)))))
        return Catalog(names), GoneFolders(self.files, self.folder, self.clock, listed)

    def _look_again(self, *names: bytes) -> None:
        """Something happened to the folders of these names: see what there is now, and take it over in one step."""
        found: dict[bytes, Doubt | FileNotFoundError | None] = {}
        for name in names:
            try:
                found[name] = catalog.doubt_by_names(self.files.list(self._folder_of(name)))
            except FileNotFoundError as error:
                found[name] = error
            except OSError:  # nobody knows: it stays what it was
                continue
        with self.lock:
            for name, doubt in found.items():
                if isinstance(doubt, FileNotFoundError):
                    self._names.forget(name)
                    self._broken.pop(name, None)
                else:
                    self._names.note(name, doubt)
            for name in names:
                self._tell(name)

    def _each(self, names: Collection[bytes], act: Callable[[bytes], object], teardown: Teardown) -> None:
        """A step for each name. Where there are many, some are taken at the same time: most of it is waiting."""
        if not self._threaded or len(names) < _FEW:
            for name in names:
                teardown.step(partial(act, name))
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_AT_ONCE, "lamina-topics") as pool:
            for done in [pool.submit(act, name) for name in names]:
                teardown.step(done.result)

    # -- finding -----------------------------------------------------------------------------------------------------

    def get(self, name: bytes) -> Topic | None:
        """The topic, None if there is none. Raises: what opening a log does."""
        if name in self.taken:
            loops.must_wait()
        topic = self._opened.get(name)
        if topic is None:
            if name not in self._names:
                return None
            topic = self._open(name, makes=False)
            if topic is None:
                return None
        topic.was_used = True
        return topic if topic.state.exists else None

    def get_or_make(self, name: bytes) -> Topic:
        """The topic; a new one exists from its first record on. Raises: BadName; what opening a log does."""
        if name in self.taken:
            loops.must_wait()
        topic = self._opened.get(name)
        if topic is None:
            if name not in self._names:
                check_room(self.reserve, _NEW_TOPIC)
            topic = self._open(name, makes=True)
        assert topic is not None
        topic.was_used = True
        return topic

    def if_open(self, name: bytes) -> Topic | None:
        """The topic if it is open. It does not count as used."""
        return self._opened.get(name)

    def _open(self, name: bytes, *, makes: bool) -> Topic | None:
        """None: there is none by that name any more."""
        is_known = name in self._names
        if not (is_known or makes):
            return None
        if is_known or self._open_topics.is_full:
            loops.must_wait()
            self._open_topics.make_room()
        with self._name_locks.of(name):
            topic = self._opened.get(name)
            if topic is not None:
                return topic
            self._check_open()
            is_known = name in self._names
            if not (is_known or makes):
                return None
            if is_known:
                loops.must_wait()
            try:
                topic = self._opened_anew(name, is_new=not is_known)
            except DiskError as error:
                if error.facts.get("errno") not in ("EMFILE", "ENFILE") or not self._open_topics.close_some():
                    raise
                topic = self._opened_anew(name, is_new=not is_known)
            with self.lock:
                self._broken.pop(name, None)
                self._names.note(name, catalog.doubt_about(topic))
                self._open_topics.add(name, topic)
                self._tell(name)
            return topic

    def _opened_anew(self, name: bytes, *, is_new: bool) -> Topic:
        """``is_new``: there is no such folder, and the first record makes it."""
        folder = self._folder_of(name)
        try:
            with Teardown(folder) as teardown:
                topic = Topic.open(
                    folder,
                    options=self.options,
                    files=self.files,
                    clock=self.clock,
                    committer=self._committer,
                    threaded=self._threaded,
                    is_covered=True,
                    is_new=self._folder_syncs if is_new else None,
                )
                teardown.later(topic.close)
                topic.use_reserve(self.reserve)
                topic.measure_with(self.measured)
                teardown.cancel()
        except LaminaError as error:
            self._note_broken(name, error)
            raise
        except Exception as error:  # a mistake of ours, or no memory
            logger.exception("%s cannot be opened", folder)
            hint = "see the log of the server; the topic can be deleted"
            problem = StorageError(f"{folder}: cannot be opened: {error!r}", hint=hint)
            self._note_broken(name, problem)
            raise problem from error
        return topic

    def _note_broken(self, name: bytes, error: LaminaError) -> None:
        """Say which topic it is, and remember why it cannot be opened."""
        if self._folder_of(name) not in error.message:  # some name the file alone
            error.message = f"{self._folder_of(name)}: {error.message}"
        if name in self._names:
            self._broken[name] = str(error)

    def broken(self) -> dict[bytes, str]:
        """Topics that cannot be used as they are, and why: such that could not be opened when somebody asked for them
        last, and open ones that refuse writes.
        """
        failed = {name: str(topic.failure) for name, topic in self.opened() if topic.failure is not None}
        return {**self._broken, **failed}

    # -- idle ones ---------------------------------------------------------------------------------------------------

    @property
    def handles(self) -> int:
        """Of files that topics have open now."""
        return self._open_topics.handles

    @property
    def most_handles(self) -> int | None:
        """So many may be, about; None: any number."""
        return self._open_topics.most

    @property
    def closed_idle(self) -> int:
        """How often a topic was closed for that, since the start."""
        return self._open_topics.closed

    def forget_idle_with(self, forget: Callable[[Topic], None]) -> None:
        """Have ``forget`` called, with the lock held, for a topic that may be closed as nobody uses it: who only keeps
        notes of it gives them up."""
        self._open_topics.forget = forget

    def _close_unused(self, name: bytes) -> bool:
        """Close a topic unless somebody has it; the next who asks for it opens it. Tells whether it was closed."""
        with self._name_locks.of(name):
            with self.lock:
                topic = None if self._is_closed else self._open_topics.take_unused(name)
                if topic is None:
                    return False
                counted = Counted.of(topic)
                self.counts.take(name, counted)
            problem: LaminaError | None = None
            try:
                topic.close(is_idle=True)
            except LaminaError as error:
                logger.warning("%s: closed as nobody uses it: %s", topic.folder, error)
                problem = error
            with self.lock:
                self._open_topics.closed += 1
                self.counts.take(name, Counted.of(topic).minus(counted))
                if topic.state.exists and problem is None:
                    self._names.note(name, None)
                    self.told(name, topic.has_groups())
            if problem is not None:
                self._note_broken(name, problem)
            if problem is not None or not topic.state.exists:
                self._look_again(name)
            topic.let_go_of_parts()
            return True

    def _tell(self, name: bytes) -> None:
        """Holds the lock."""
        self.told(name, name in self._names and name not in self._opened)

    def _check_open(self) -> None:
        """Others may have the folder by now. Raises: LogClosed."""
        if self._is_closed:
            raise LogClosed(f"{self.folder}: the topics were closed", hint="open them again")

    def _folder_of(self, name: bytes) -> str:
        return join(self.folder, folder_name(name))

    def opened(self) -> Iterator[tuple[bytes, Topic]]:
        """Those that are open."""
        with self.lock:
            return iter(list(self._opened.items()))

    # -- names -------------------------------------------------------------------------------------------------------

    def exists(self, name: bytes) -> bool:
        """Something was written to it; broken ones count, too. None is opened to find out. Raises: LogClosed."""
        if name in self.taken:
            loops.must_wait()
        if name not in self._names:
            return False
        doubt = self._names.doubt(name)
        if doubt is None:
            return True
        topic = self._opened.get(name)
        if topic is not None:
            return topic.state.exists
        return doubt is Doubt.UNSEEN and self._look_into(name)

    def _look_into(self, name: bytes) -> bool:
        """Whether there is a record in a folder about which nothing is known; that is remembered.

        Durability: then it is synced. Raises: LogClosed.
        """
        loops.must_wait()
        with self._name_locks.of(name):
            if name in self._opened or self._names.doubt(name) is not Doubt.UNSEEN:
                return self.exists(name)
            self._check_open()
            try:
                doubt = None if catalog.has_record(self.files, self._folder_of(name), self.options) else Doubt.EMPTY
            except (OSError, DiskError):  # who uses it is told
                return True
            with self.lock:
                self._names.note(name, doubt)
            return doubt is None

    def _look_into_all(self) -> None:
        """So that it is known of every name whether there is such a topic. Raises: LogClosed."""
        with self.lock:
            unseen = [
                name
                for name in self._names.unsure()
                if name not in self._opened and self._names.doubt(name) is Doubt.UNSEEN
            ]
        if unseen:
            loops.must_wait()
            with Teardown(self.folder) as teardown:
                self._each(unseen, self._look_into, teardown)

    def rests_on(self, name: bytes) -> Topic | None:
        """The topic of that name, if that it exists rests on a record of it which may not be safe yet."""
        topic = self._opened.get(name)
        if topic is None or self._names.doubt(name) is None or not topic.state.exists:
            return None
        if catalog.doubt_about(topic) is not None:
            return topic
        with self.lock:
            if self._opened.get(name) is topic:
                self._names.note(name, None)
        return None

    def just_made(self) -> list[tuple[bytes, Topic]]:
        """All of which that is so."""
        with self.lock:
            found = [(name, self.rests_on(name)) for name in self._names.unsure()]
            return [(name, topic) for name, topic in found if topic is not None]

    def names(self) -> list[bytes]:
        """Of all topics, sorted, broken ones too. Raises: LogClosed."""
        self._look_into_all()
        return [name for name in self.known() if self.exists(name)]

    def existing(self) -> int:
        """How many there are. Raises: LogClosed."""
        self._look_into_all()
        return len(self._names) - sum(not self.exists(name) for name in self._names.unsure())

    def known(self) -> list[bytes]:
        """Names, sorted, also of such that were never written to: no file is looked at to find out."""
        return sorted(self._names.names())

    def count(self) -> int:
        """How many are known."""
        return len(self._names)

    def page(self, place: int, count: int) -> tuple[list[tuple[int, bytes]], int]:
        """Some of the known names from a place on (catalog.py), and where to go on; 0: at the end."""
        with self.lock:
            return self._names.page(place, count)

    # -- whole topics ------------------------------------------------------------------------------------------------

    def delete(self, name: bytes) -> bool:
        """Delete a topic with its groups. False if there is none.

        Durability: when it returns, it is gone for good. Raises: LogLocked if another process writes to it; DiskError;
        then it may be there still.
        """
        if name in self._names or name in self.taken:
            loops.must_wait()
        with self._name_locks.of(name):
            self._check_open()
            if name not in self._names:
                return False
            existed = self.exists(name)
            try:
                self._throw_away(name)
            finally:
                self._look_again(name)
            return existed

    def delete_unused(self, name: bytes) -> None:
        """Delete a topic that was made and never written to; one that somebody has written to meanwhile stays.

        Raises: DiskError; then it may be there still.
        """
        loops.must_wait()
        with self._name_locks.of(name):
            topic = self._opened.get(name)
            if topic is None or topic.state.exists:
                return
            self._let_go(name)
            if not topic.state.exists:  # nobody can write to it any more
                try:
                    self._deleted.take(self._folder_of(name))
                finally:
                    self._look_again(name)

    def rename(self, old: bytes, new: bytes, *, only_if_free: bool = False) -> bool:
        """Give a topic another name; one that had it is deleted. False: there is no topic ``old``, or there is one with
        the name ``new`` and it was to be done ``only_if_free``.

        Durability: when it returns, it is so for good. A power cut in between may leave ``old`` as it was with ``new``
            already deleted. Raises: BadName; DiskError; what kept records of ``old`` out of its log, then nothing
            was changed.
        """
        target = join(self.folder, folder_name(new))
        loops.must_wait()
        with self._name_locks.of(old, new):
            if not self.exists(old) or (only_if_free and self.exists(new)):
                return False
            if old == new:
                return True
            self._settle(old)
            try:
                if new in self._names:
                    self._throw_away(new)
                self._let_go(old)
                self.files.rename_folder(self._folder_of(old), target)
            except OSError as error:
                raise from_os(error, "rename the folder", self._folder_of(old)) from error
            finally:
                self._look_again(old, new)
            return True

    def _settle(self, name: bytes) -> None:
        """What was refused of a topic must not take the place of another one. Raises: the disk's error."""
        topic = self.get(name)
        if topic is not None:
            topic.settle(topic.newest_position())
            if topic.opened_groups is not None:
                topic.opened_groups.settle(topic.opened_groups.newest_position())

    def delete_all(self) -> None:
        """Raises: DiskError, when all others are gone; then some may be there still."""
        loops.must_wait()
        with Teardown(self.folder) as teardown:
            self._each(self._names.names(), self.delete, teardown)

    def _let_go(self, name: bytes) -> Topic | None:
        """Close a topic, whatever goes wrong. What of it was refused is told to those who wait for it."""
        with self.lock:
            topic = self._opened.pop(name, None)
            if topic is None:
                return None
            counted = Counted.of(topic)
            self.counts.take(name, counted)
        with Teardown(topic.folder) as teardown:
            teardown.try_to(topic.close, "closed to be deleted or renamed")
            teardown.try_to(topic.tell_all, "who waits for it is not told")
        with self.lock:
            self.counts.take(name, Counted.of(topic).minus(counted))  # while it was closed
            self._tell(name)
        return topic

    def _throw_away(self, name: bytes) -> None:
        """Close a topic and put its folder aside."""
        topic = self._let_go(name)
        held = None
        if topic is None:
            with suppress(DiskError):  # one that is broken can be deleted all the same
                held = lock.covered(self.files, self._folder_of(name), TIMED.lock_name)
        try:
            self._deleted.take(self._folder_of(name))
        finally:
            if held is not None:
                held.release()
        if topic is not None and topic.opened_groups is not None:
            garbage.free(topic.opened_groups.forget())

    def sweep(self) -> None:
        """Give back the room of what was deleted. Raises: DiskError."""
        self._deleted.sweep()

    def close(self) -> None:
        """Write and sync everything. Raises: the first error, after all was closed; others are logged."""
        with Teardown(self.folder) as teardown:
            with self.lock:
                self._is_closed = True
            teardown.step(self._open_topics.stop)
            is_idle = len(self._opened) > _FEW  # a stop of thousands must not take a sync for each
            while names := self._name_locks.used() | {*self._opened}:  # also what somebody is just opening
                self._each(names, partial(self._close_one, is_idle=is_idle), teardown)
            teardown.try_to(self.sweep, "what was deleted takes up room until it is opened again")
            teardown.step(self._held.release)

    def _close_one(self, name: bytes, *, is_idle: bool) -> None:
        with self._name_locks.of(name):
            with self.lock:
                topic = self._opened.pop(name, None)
            if topic is not None:
                topic.close(is_idle=is_idle)


def is_possible(name: bytes) -> bool:
    """A topic can have this name."""
    try:
        folder_name(name)
    except BadName:
        return False
    return True
