"""All topics of a data folder, by name: one folder each, opened when they are first asked for.

    topics/<name>/   20261115T061700.123456789Z.dat …   checkpoint   groups/…
    topics/.gone-…   on its way out
    topics/.lock     who writes here

A topic is deleted or renamed by renaming its folder, in one step; what was deleted is removed later (``sweep``).
Threads: every method is safe from any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count

from lamina.clock import Clock, SystemClock
from lamina.engines import loops
from lamina.engines.topics.past import Past
from lamina.engines.topics.topic import Topic
from lamina.errors import BadName, LaminaError, LogClosed, LogLocked, StorageError, from_os
from lamina.log import lock
from lamina.log.commit import Committer
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.folders import folder_name, name_of
from lamina.log.measured import Measured
from lamina.log.naming import CHECKPOINT, sort_out
from lamina.log.options import LogOptions
from lamina.log.reserve import Reserve
from lamina.log.teardown import Teardown

logger = logging.getLogger("lamina.topics")

_GONE = ".gone-"
LOCK, RESERVE = ".lock", ".reserve"
"""Beside the topics, under names that none can have."""


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
        self._opened: dict[bytes, Topic] = {}
        self._written: set[bytes] = set()  # names of which it is known, of those that are not opened
        self._broken: dict[bytes, str] = {}
        with Teardown(folder) as teardown:
            try:
                files.make_folder(folder)
                self._held = lock.take(files, folder, LOCK)
                teardown.later(self._held.release)
                self._look()
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
    ) -> Topics:
        """Become the owner of all topics in ``folder``, making it if need be.

        Raises: LogLocked if another process has them; DiskError.
        """
        return cls(
            folder,
            options or LogOptions(),
            files or RealFiles(),
            clock or SystemClock(),
            committer,
            threaded=threaded,
        )

    def _look(self) -> None:
        """See which topics there are. Raises: OSError."""
        listed = self.files.list(self.folder)
        self._names = {name for name in map(name_of, listed) if name is not None and not self._is_plain_file(name)}
        self._gone = [name for name in listed if name.startswith(_GONE)]

    def _look_again(self) -> None:
        """A folder was to be renamed, and it is not known whether it was: it may be so, and not be synced."""
        with suppress(OSError):
            self._look()

    def _is_plain_file(self, name: bytes) -> bool:
        try:
            self.files.list(self._folder_of(name))
        except OSError:
            return True
        return False

    # -- finding -----------------------------------------------------------------------------------------------------

    def get(self, name: bytes) -> Topic | None:
        """The topic, None if there is none. Raises: what opening a log does."""
        if name in self.taken:
            loops.must_wait()
        topic = self._opened.get(name)
        if topic is None:
            if name not in self._names:
                return None
            topic = self._open(name)
        return topic if topic.state.exists else None

    def get_or_make(self, name: bytes) -> Topic:
        """The topic; a new one exists from its first record on. Raises: BadName; what opening a log does."""
        if name in self.taken:
            loops.must_wait()
        return self._opened.get(name) or self._open(name)

    def _open(self, name: bytes) -> Topic:
        loops.must_wait()
        with self.lock:
            if name in self._opened:
                return self._opened[name]
            if self._is_closed:  # others may have the folder by now
                raise LogClosed(f"{self.folder}: the topics were closed", hint="open them again")
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
            self._broken.pop(name, None)
            self._names.add(name)
            self._written.discard(name)
            self._opened[name] = topic
            self._tell(name)
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

    def _tell(self, name: bytes) -> None:
        self.told(name, name in self._names and name not in self._opened)

    def _folder_of(self, name: bytes) -> str:
        return join(self.folder, folder_name(name))

    def names(self) -> list[bytes]:
        """Of all topics, sorted, broken ones too. Raises: LogClosed."""
        loops.must_wait()
        return [name for name in self.known() if self._is_there(name)]

    def _is_there(self, name: bytes) -> bool:
        """It was written to: seen from outside, where that can be. Thousands must not be opened for a list of names."""
        topic = self._opened.get(name)
        if topic is not None:
            return topic.state.exists
        if name not in self._written:
            try:
                files = self.files.list(self._folder_of(name))
            except FileNotFoundError:
                return False
            except OSError:  # who uses it is told
                return True
            count = len(sort_out(files).segments)
            if count < 2 and CHECKPOINT not in files:  # all there is of it may be the torn beginning of its first file
                try:
                    return bool(count) and self._is_known_to_be_there(name)
                except LogLocked:
                    return True
            self._written.add(name)
        return True

    def _is_known_to_be_there(self, name: bytes) -> bool:
        """One that cannot be opened is there: it is no reason not to list the others, and it can be deleted.

        Raises: LogLocked if somebody else has it; LogClosed.
        """
        try:
            return self.get(name) is not None
        except (LogClosed, LogLocked):
            raise
        except LaminaError:
            return True

    def known(self) -> list[bytes]:
        """Names, sorted, also of such that were never written to: none is opened to find out."""
        with self.lock:
            return sorted(self._names)

    def count(self) -> int:
        """How many are known."""
        return len(self._names)

    def opened(self) -> Iterator[tuple[bytes, Topic]]:
        """Those in use."""
        return iter(list(self._opened.items()))

    # -- whole topics ------------------------------------------------------------------------------------------------

    def delete(self, name: bytes) -> bool:
        """Delete a topic with its groups. False if there is none.

        Durability: when it returns, it is gone for good. Raises: DiskError; then it may be there still.
        """
        loops.must_wait()
        with self.lock:
            existed = self._is_known_to_be_there(name)  # a broken one can be deleted all the same
            if name in self._names:
                self._let_go(name)
                try:
                    self._throw_away(folder_name(name))
                    self._names.discard(name)
                    self._written.discard(name)
                    self._broken.pop(name, None)
                finally:
                    self._tell(name)
            return existed

    def delete_unused(self, name: bytes) -> None:
        """Delete a topic that was made and never written to; one that somebody has written to meanwhile stays.

        Raises: DiskError; then it may be there still.
        """
        loops.must_wait()
        with self.lock:
            topic = self._opened.get(name)
            if topic is None or topic.state.exists:
                return
            self._let_go(name)
            try:
                if not topic.state.exists:  # nobody can write to it any more
                    self._throw_away(folder_name(name))
                    self._names.discard(name)
                    self._written.discard(name)
            finally:
                self._tell(name)

    def rename(self, old: bytes, new: bytes) -> None:
        """Give topic ``old``, which exists, the name ``new``; a topic that had it is deleted.

        Durability: when it returns, it is so for good. A power cut in between may leave ``old`` as it was with ``new``
            already deleted. Raises: BadName; DiskError; what kept records of ``old`` out of its log, then nothing
            was changed.
        """
        target = folder_name(new)
        loops.must_wait()
        with self.lock:
            if old == new:
                return
            self._settle(old)
            self.delete(new)
            self._let_go(old)
            try:
                self.files.rename_folder(self._folder_of(old), join(self.folder, target))
            except OSError as error:
                self._look_again()
                self._tell(old)
                self._tell(new)
                raise from_os(error, "rename the folder", self._folder_of(old)) from error
            self._names.discard(old)
            self._names.add(new)
            self._broken.pop(old, None)
            self._tell(old)
            self._tell(new)

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
        with self.lock, Teardown(self.folder) as teardown:
            for name in list(self._names):
                teardown.step(partial(self.delete, name))

    def _let_go(self, name: bytes) -> None:
        """Close a topic, whatever goes wrong. What of it was refused is told to those who wait for it."""
        topic = self._opened.pop(name, None)
        if topic is not None:
            with Teardown(topic.folder) as teardown:
                teardown.try_to(topic.close, "closed to be deleted or renamed")
                teardown.try_to(partial(self.counts.take, name, topic), "its counts begin anew")
                teardown.try_to(topic.tell_all, "who waits for it is not told")

    def _throw_away(self, name: str) -> None:
        for number in count(self.clock.now_ns()):
            gone = f"{_GONE}{number}"
            try:
                self.files.rename_folder(join(self.folder, name), join(self.folder, gone))
            except FileExistsError:
                continue
            except FileNotFoundError:  # it was never written to
                return
            except OSError as error:
                self._look_again()
                raise from_os(error, "delete the folder", join(self.folder, name)) from error
            self._gone.append(gone)
            return

    def sweep(self) -> None:
        """Give back the room of what was deleted. Raises: DiskError."""
        while self._gone:
            gone = self._gone[-1]
            folder = join(self.folder, gone)
            try:
                with suppress(FileNotFoundError):
                    self.files.remove_folder(folder)
            except OSError as error:
                raise from_os(error, "remove the folder", folder) from error
            self._gone.remove(gone)

    def close(self) -> None:
        """Write and sync everything. Raises: the first error, after all was closed; others are logged."""
        with self.lock, Teardown(self.folder) as teardown:
            self._is_closed = True
            for name in list(self._opened):
                teardown.step(self._opened.pop(name).close)
            teardown.try_to(self.sweep, "what was deleted takes up room until it is opened again")
            teardown.step(self._held.release)


def is_possible(name: bytes) -> bool:
    """A topic can have this name."""
    try:
        folder_name(name)
    except BadName:
        return False
    return True
