"""The store of a server, spoken to as if it were in the process: ``lamina.connect(url).store``.

    with lm.store.session() as session:          # one session: all of it or nothing, durable when this returns
        session.put(1, b"key", b"value")
        session.remove(1, b"other")
    lm.store.get(1, b"key")

Methods, arguments, results and errors are those of ``lamina.open(folder).store``; every call may also raise
Disconnected. After one with ``sent`` in its facts a session may have been written or not: read to see.
Threads: every method is safe from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from lamina.client import store_talks as talks
from lamina.client.lines import Lines
from lamina.client.lines_aio import AsyncLines
from lamina.client.store_draft import RemoteDraft
from lamina.engines.store.api import StorageInfo, check_place
from lamina.engines.store.cleaning import CleanUp
from lamina.engines.store.compactions import CompactionReport, Progress
from lamina.engines.store.rotation import Rotated
from lamina.engines.store.view import Found

if TYPE_CHECKING:
    from lamina.client.store_aio import AsyncRemoteStore


class RemoteStore:
    """See the module."""

    def __init__(self, lines: Lines, async_lines: AsyncLines) -> None:
        """Use ``lamina.connect(url).store``."""
        self._lines, self._async_lines = lines, async_lines

    def __repr__(self) -> str:
        return f"<RemoteStore {self._lines.endpoint}>"

    @property
    def aio(self) -> AsyncRemoteStore:
        """The same for coroutines."""
        from lamina.client.store_aio import AsyncRemoteStore

        return AsyncRemoteStore(self._async_lines)

    # -- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def session(self, *, wait: bool = True, timeout: float | None = None) -> Iterator[RemoteDraft]:
        """As ``Store.session``. Nothing is sent before it is left; it has 71 MiB and 333 333 entries at most.

        Raises: StorageError: nothing of it will ever be there; TimeoutError; Disconnected.
        """
        draft = RemoteDraft()
        try:
            yield draft
        except BaseException:
            draft.give_up()
            raise
        draft.epoch = self._lines.do(talks.write(draft.end(), waits=wait and timeout is None))
        if wait and timeout is not None:
            self.wait_durable(draft.epoch, timeout)

    def put(self, storage: int, key: bytes, value: bytes) -> int:
        """As ``Store.put``."""
        with self.session() as session:
            session.put(storage, key, value)
        return session.epoch

    def remove(self, storage: int, key: bytes) -> int:
        """As ``Store.remove``."""
        with self.session() as session:
            session.remove(storage, key)
        return session.epoch

    def channel(self, number: int) -> NoReturn:
        """Raises: BadOption."""
        raise talks.no_channel()

    # -- reading -----------------------------------------------------------------------------------------------------

    def get(self, storage: int, key: bytes) -> bytes | None:
        """As ``Store.get``."""
        found = self.entry(storage, key)
        return None if found is None else found.value

    def entry(self, storage: int, key: bytes) -> Found | None:
        """As ``Store.entry``."""
        return self._lines.do(talks.entry(storage, key))

    def scan(self, storage: int, start: bytes = b"", end: bytes | None = None) -> Iterator[Found]:
        """As ``Store.scan``: as it is now, whatever is written meanwhile. It is asked for in pages.

        Raises: TooOld, if it is paused for so long that what was then is cleaned up.
        """
        check_place(storage, start)
        return self.snapshot().scan(storage, start, end)

    def snapshot(self) -> RemoteSnapshot:
        """As ``Store.snapshot``: by its epoch, as far back as files reach."""
        return RemoteSnapshot(self._lines, self._lines.do(talks.snapshot()))

    def as_of(self, *, epoch: int | None = None, time_ns: int | None = None) -> RemoteSnapshot:
        """As ``Store.as_of``."""
        return RemoteSnapshot(self._lines, self._lines.do(talks.snapshot(talks.moment_of(epoch, time_ns))))

    def storages(self) -> list[StorageInfo]:
        """As ``Store.storages``; of those that the user may read."""
        return self._lines.do(talks.storages())

    # -- epochs ------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """As ``Store.epoch``."""
        return self._lines.do(talks.epochs()).current

    @property
    def last_epoch(self) -> int:
        """As ``Store.last_epoch``."""
        return self._lines.do(talks.epochs()).durable

    def switch_epoch(self, epoch: int | None = None) -> int:
        """As ``Store.switch_epoch``."""
        return self._lines.do(talks.switch(epoch))

    def wait_durable(self, epoch: int, timeout: float | None = None) -> None:
        """As ``Store.wait_durable``."""
        self._lines.do(talks.wait_durable(epoch, timeout, time.monotonic))

    def on_durable(self, callback: Callable[[int], None]) -> NoReturn:
        """Raises: BadOption."""
        raise talks.no_callback()

    # -- looking after it --------------------------------------------------------------------------------------------

    def rotate(self, timeout: float | None = None) -> Rotated:
        """As ``Store.rotate``."""
        return self._lines.do(talks.rotate(timeout))

    def compact(self, progress: Progress | None = None) -> CompactionReport:
        """As ``Store.compact``, but nobody is told how far it is. Raises: BadOption for a progress; Stopped,
        StorageError: then all is as it was; Disconnected: it goes on."""
        if progress is not None:
            raise talks.no_progress()
        return self._lines.do(talks.compact())

    def cancel_compaction(self) -> bool:
        """As ``Store.cancel_compaction``."""
        return self._lines.do(talks.cancel_compaction())

    def clean_up(self, keep_after_epoch: int | None = None) -> CleanUp:
        """As ``Store.clean_up``."""
        return self._lines.do(talks.clean_up(keep_after_epoch))

    def back_up(self, folder: str, *, link: bool = True) -> NoReturn:
        """Raises: BadOption."""
        raise talks.no_back_up()


class RemoteSnapshot:
    """``Snapshot`` over the wire: the store as it was at an epoch. Threads: safe from any thread."""

    def __init__(self, lines: Lines, epoch: int) -> None:
        """Use ``store.snapshot`` or ``store.as_of``."""
        self._lines = lines
        self.epoch = epoch

    def __repr__(self) -> str:
        return f"<RemoteSnapshot of epoch {self.epoch}>"

    def get(self, storage: int, key: bytes) -> bytes | None:
        """As ``Snapshot.get``. Raises: TooOld."""
        found = self.entry(storage, key)
        return None if found is None else found.value

    def entry(self, storage: int, key: bytes) -> Found | None:
        """As ``Snapshot.entry``. Raises: TooOld."""
        return self._lines.do(talks.entry(storage, key, self.epoch))

    def scan(self, storage: int | None = None, start: bytes = b"", end: bytes | None = None) -> Iterator[Found]:
        """As ``Snapshot.scan``; of all storages only from the beginning to the end. Raises: TooOld, BadEntry."""
        if storage is None:
            if start or end is not None:
                raise talks.no_range_of_all()
            for each in self._lines.do(talks.storages(self.epoch)):
                yield from self.scan(each.storage)
            return
        following: bytes | None = start
        while following is not None:
            entries, following = self._lines.do(talks.page(storage, following, end, self.epoch))
            yield from entries
