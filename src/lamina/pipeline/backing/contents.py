"""Bytes under their own digest: written once, never changed, shared by all files and generations that have them.

    1 write them under a temporary name     2 sync     3 rename to the digest     4 sync the folder, once for all

A name that is a digest stands for bytes that were synced before they got it. So what a backup that was killed has left
is either whole, and of use for the next one, or has a temporary name, and is removed.

Disks rot. So a content that is there already is read before it is shared, and one that is not what its name says is
healed: the same four steps, the rename over it. A crash leaves the rotten one or the right one, never none.
"""

from __future__ import annotations

import errno
import hashlib
import re
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final, NamedTuple, cast

from lamina.errors import Corruption, DiskError, StorageError, from_os
from lamina.log import rewrite
from lamina.log.files import File, Files, file_size, join, read_at
from lamina.pipeline.backing.manifest import BackedFile, Content

FOLDER: Final = "contents"
_NAME: Final = re.compile(r"[0-9a-f]{64}")
_UNFINISHED: Final = re.compile(r"[0-9a-f]{16}\.new")
_AT_ONCE: Final = 1 << 20
_HINT: Final = "another generation may have it whole: lamina backup verify names those that are"


_MISSING: Final = "is missing"


class Added(NamedTuple):
    """What became of bytes that were handed in."""

    content: Content
    is_new: bool
    """They were written: the backup did not have them, or had them rotten."""
    healed_at: int | None = None
    """The first byte of the rotten content that they took the place of which was wrong; None: there was none."""


class Contents:
    """The folder of them. Threads: one at a time; who writes holds the lock of the backup."""

    def __init__(self, files: Files, backup: str) -> None:
        self.files, self.folder = files, join(backup, FOLDER)

    def has(self, content: Content) -> bool:
        """It is there, with the right size, as far as can be seen without reading it."""
        try:
            file = self._open(content.sha256)
        except (FileNotFoundError, StorageError):
            return False
        try:
            return file.size() == content.bytes
        finally:
            file.close()

    def add(self, chunks: Iterable[bytes]) -> Added:
        """Keep these bytes. What is there already under their digest is read before it is shared, and healed if it is
        rotten.

        Durability: they are synced; ``sync`` their name before anybody relies on it.
        Raises: DiskFull, DiskError; what ``chunks`` raises. Then nothing is left.
        """
        new, content = self._write_aside(chunks)
        try:
            problem = self.problem_with(content)
            if not problem:
                self.files.remove(new)
                return Added(content, False)
            healed_at = None if problem == _MISSING else self._first_difference(content.sha256, new)
            self.files.rename(new, join(self.folder, content.sha256))
        except OSError as error:
            self._remove_quietly(new)
            raise from_os(error, "write the file", new) from error
        except BaseException:
            self._remove_quietly(new)
            raise
        return Added(content, True, healed_at)

    def heal(self, content: Content, chunks: Iterable[bytes]) -> int | None:
        """Put ``chunks`` in the place of a content that is rotten or missing, if that is what they are.

        Returns the first byte that was wrong; None if ``chunks`` are other bytes: then nothing was changed.
        Durability: as ``add``. A crash leaves the content as it was, or whole.
        Raises: DiskFull, DiskError; what ``chunks`` raises. Then nothing was changed.
        """
        new, found = self._write_aside(chunks)
        try:
            if found != content:
                self.files.remove(new)
                return None
            byte = self._first_difference(content.sha256, new)
            self.files.rename(new, join(self.folder, content.sha256))
        except OSError as error:
            self._remove_quietly(new)
            raise from_os(error, "write the file", new) from error
        except BaseException:
            self._remove_quietly(new)
            raise
        return byte

    def _write_aside(self, chunks: Iterable[bytes]) -> tuple[str, Content]:
        """Write and sync them under a temporary name. Returns that, and what they are."""
        digest = hashlib.sha256()

        def watched() -> Iterator[bytes]:
            for chunk in chunks:
                digest.update(chunk)
                yield chunk

        new = join(self.folder, f"{secrets.token_hex(8)}.new")
        try:
            size = rewrite.write_new(self.files, new, watched())
        except BaseException:
            self._remove_quietly(new)
            raise
        return new, Content(digest.hexdigest(), size)

    def _first_difference(self, name: str, new: str) -> int:
        """The first byte of the content ``name`` that is not as in the file ``new``; where it cannot be read counts."""
        at = 0
        right = self.files.open(new)
        try:
            rotten = self._open(name)
            try:
                for at in range(0, file_size(right), _AT_ONCE):
                    there, wanted = read_at(rotten, at, _AT_ONCE), read_at(right, at, _AT_ONCE)
                    if there != wanted:
                        pairs = zip(there, wanted, strict=False)
                        same = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
                        return at + (min(len(there), len(wanted)) if same is None else same)
                return file_size(right)
            finally:
                rotten.close()
        except (FileNotFoundError, DiskError):
            return at
        finally:
            right.close()

    def sync(self) -> None:
        """Durability: all names that were given are there to stay. Raises: DiskError."""
        try:
            self.files.sync_folder(self.folder)
        except OSError as error:
            raise from_os(error, "sync the folder", self.folder) from error

    def open(self, file: BackedFile) -> File:
        """To be read. Raises: Corruption if something of it is missing or has another size; DiskError."""
        return cast("File", ContentsFile(self, file))

    def problem_with(self, content: Content) -> str:
        """What is wrong with it, every byte looked at; nothing if it is whole."""
        try:
            file = self._open(content.sha256)
        except FileNotFoundError:
            return _MISSING
        except StorageError as error:
            return error.message
        try:
            if (size := file_size(file)) != content.bytes:
                return f"has {size} bytes, the manifest says {content.bytes}"
            digest = hashlib.sha256()
            for start in range(0, size, _AT_ONCE):
                digest.update(read_at(file, start, _AT_ONCE))
            return "" if digest.hexdigest() == content.sha256 else "is not what was backed up"
        except StorageError as error:  # a sector that cannot be read is as bad as one that is wrong
            return error.message
        finally:
            file.close()

    def sweep(self, kept: set[str]) -> tuple[int, int]:
        """Remove all others, and what was left unfinished. Returns how many, and their bytes. Raises: DiskError."""
        return self._remove([name for name in self._names() if name not in kept])

    def sweep_unfinished(self) -> None:
        """Remove what a backup that was killed had not finished. Raises: DiskError."""
        self._remove([name for name in self._names() if _UNFINISHED.fullmatch(name)])

    def would_sweep(self, kept: set[str]) -> tuple[int, int]:
        """What ``sweep`` would remove. Raises: DiskError."""
        names = [name for name in self._names() if name not in kept]
        return len(names), sum(self._size(name) for name in names)

    def _remove(self, names: Sequence[str]) -> tuple[int, int]:
        if not names:
            return 0, 0
        size = sum(self._size(name) for name in names)
        rewrite.remove(self.files, self.folder, names)
        return len(names), size

    def _names(self) -> list[str]:
        """Ours; what else is here is left alone."""
        try:
            names = self.files.list(self.folder)
        except OSError as error:
            raise from_os(error, "list the folder", self.folder) from error
        return sorted(name for name in names if _NAME.fullmatch(name) or _UNFINISHED.fullmatch(name))

    def _size(self, name: str) -> int:
        file = self._open(name)
        try:
            return file.size()
        finally:
            file.close()

    def _open(self, name: str) -> File:
        path = join(self.folder, name)
        try:
            return self.files.open(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise from_os(error, "open the file", path) from error

    def _remove_quietly(self, path: str) -> None:
        """Clean up after another error, which is the one to report."""
        with suppress(OSError):
            self.files.remove(path)


class ContentsFile:
    """A file of a generation, open to be read: its contents one behind the other."""

    def __init__(self, contents: Contents, file: BackedFile) -> None:
        self.path, self._shown = file.path, file.shown
        self.identity = identity_of(file)
        self._starts = [0, *accumulate(content.bytes for content in file.contents)]
        self._opened: list[File] = []
        try:
            for content in file.contents:
                self._opened.append(self._open(contents, content))
        except BaseException:
            self.close()
            raise

    def _open(self, contents: Contents, content: Content) -> File:
        try:
            found = contents._open(content.sha256)
        except FileNotFoundError:
            raise Corruption(self._shown, 0, f"{FOLDER}/{content.sha256} is missing", hint=_HINT) from None
        if found.size() != content.bytes:
            found.close()
            raise Corruption(self._shown, 0, f"{FOLDER}/{content.sha256} has another size", hint=_HINT)
        return found

    def size(self) -> int:
        return self._starts[-1]

    def read_into(self, buffer: memoryview, offset: int) -> int:
        done = 0
        while done < len(buffer) and offset + done < self._starts[-1]:
            at = bisect_right(self._starts, offset + done) - 1
            start = offset + done - self._starts[at]
            most = min(len(buffer) - done, self._starts[at + 1] - self._starts[at] - start)
            count = self._opened[at].read_into(buffer[done : done + most], start)
            if count <= 0:
                raise OSError(errno.EIO, "the file is shorter than it was", self._opened[at].path)
            done += count
        return done

    def sync(self) -> None:
        """Nothing of it is ever unsynced."""

    def close(self) -> None:
        for file in self._opened:
            file.close()
        self._opened = []


def identity_of(file: BackedFile) -> tuple[int, int]:
    """Of a file of a generation: what tells it from any other content."""
    digest = hashlib.sha256("".join(content.sha256 for content in file.contents).encode()).digest()
    return int.from_bytes(digest[:8]), int.from_bytes(digest[8:16])


def check_whole(contents: Contents, file: BackedFile, checked: set[str]) -> None:
    """Read every byte, but of what is in ``checked``, which is added to. Raises: Corruption."""
    for content in file.contents:
        if content.sha256 not in checked:
            if problem := contents.problem_with(content):
                raise Corruption(file.shown, 0, f"{FOLDER}/{content.sha256} {problem}", hint=_HINT)
            checked.add(content.sha256)
