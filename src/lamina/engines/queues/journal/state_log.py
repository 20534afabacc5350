"""The file queue.log of one queue: lines are put at its end, and now and then it is written anew as its last line."""

from __future__ import annotations

import errno
from contextlib import suppress

from lamina.engines.queues.journal import copies, paths, state_line
from lamina.engines.queues.journal.home import Home
from lamina.log.files import File, join, read_at, write_all

NAME = "queue.log"
NEW = "queue.log.new"


class StateLog:
    """Threads: the store's lock. Raises: OSError, everywhere."""

    def __init__(self, home: Home, folder: str) -> None:
        self._home = home
        self._folder = folder
        self._path = join(folder, NAME)
        self._file: File | None = None
        self.exists = False
        self.size = 0
        """Bytes that count. What stands behind them is cut off before anything is put there."""
        self.lines = 0
        self.copies: list[str] = []

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def append(self, lines: list[bytes]) -> None:
        """With one write. After an error, what of them is in the file is not known."""
        file = self._opened()
        data = b"".join(lines)
        write_all(file, [data])
        self.size += len(data)
        self.lines += len(lines)

    def cut_back(self, size: int) -> None:
        """Take off what was put behind ``size`` bytes."""
        file = self._opened()
        file.truncate(size)
        self.size = size

    def sync(self) -> None:
        self._opened().sync()

    def compact(self, lines: list[bytes]) -> None:
        """Leave a copy, then have ``lines`` in place of all lines: a power cut leaves the old ones or the new ones.

        Copies that need not stay go. Durability: when it returns, the lines are synced.
        """
        if self.exists:
            self._copy()
        self.close()
        content = b"".join(lines)
        paths.replace_file(self._home.files, self._folder, NAME, content)
        self.exists = True
        self.size, self.lines = len(content), len(lines)
        self._home.stats.compactions += 1

    def _copy(self) -> None:
        """Not synced: it is for the day when queue.log itself cannot be read, and bad bytes in it show."""
        home = self._home
        name = copies.name_at(home.clock.now_ns(), self.copies)
        source = self._file or home.files.open(self._path)
        try:
            content = read_at(source, 0, source.size())
        finally:
            if self._file is None:
                source.close()
        if state_line.last_of(content, is_start=True).parsed is None:
            return  # it would stand in for nothing; what there was of it is kept aside
        copy = home.files.create(join(self._folder, name))
        try:
            write_all(copy, [content])
        except OSError:
            with suppress(OSError):  # half a copy would stand in for a good one
                home.files.remove(join(self._folder, name))
            raise
        finally:
            copy.close()
        self.copies.append(name)
        self.retain()

    def retain(self) -> None:
        """Let copies go that are too many or too old."""
        home = self._home
        options = home.options
        for name in copies.to_remove(self.copies, home.clock.now_ns(), options.keep_copies, options.keep_copy_days):
            home.files.remove(join(self._folder, name))
            self.copies.remove(name)

    def _opened(self) -> File:
        if self._file is None:
            if self.exists:
                self._file = self._home.files.open(self._path, write=True)
                if self._file.size() < self.size:  # cutting it to that would make it longer, with zeros
                    self.close()
                    raise OSError(errno.EIO, "queue.log is shorter than it was", self._path)
                if self._file.size() != self.size:
                    self._file.truncate(self.size)
            else:
                self._file = self._home.files.create(self._path)
                self.exists = True
        return self._file

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
