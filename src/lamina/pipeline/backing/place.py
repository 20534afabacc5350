"""The folder of a backup: which generations it has, and that one at a time changes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lamina.errors import BadOption, LogLocked, StorageError, from_os
from lamina.log import lock, rewrite
from lamina.log.files import Files, join, read_at
from lamina.log.naming import PWAL
from lamina.log.segment import open_for_reading
from lamina.pipeline.backing import contents as content_files
from lamina.pipeline.backing import manifest
from lamina.pipeline.backing.contents import Contents
from lamina.pipeline.backing.manifest import Generation
from lamina.units import parse_time

GENERATIONS: Final = "generations"
_LOCK: Final = "lock"
_OURS: Final = frozenset({GENERATIONS, content_files.FOLDER, _LOCK})


class Backup:
    """A backup. ``check`` or ``begin`` it first. Threads: one at a time."""

    def __init__(self, files: Files, folder: str) -> None:
        self.files, self.folder = files, folder
        self.manifests = join(folder, GENERATIONS)
        self.contents = Contents(files, folder)

    # -- what is there -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises: BadOption if it is none."""
        if not is_backup(self.files, self.folder):
            raise BadOption(f"{self.folder} is no backup", hint="lamina backup DATA --to BACKUP makes one")

    def names(self) -> list[str]:
        """Manifests, oldest first. Raises: DiskError."""
        try:
            names = self.files.list(self.manifests)
        except OSError as error:
            raise from_os(error, "list the folder", self.manifests) from error
        return sorted(name for name in names if manifest.moment_of(name) is not None)

    def load(self, name: str) -> Generation:
        """Raises: Corruption, WrongFormat, DiskError; StorageError if it was pruned meanwhile."""
        try:
            file = open_for_reading(self.files, self.manifests, name)
        except FileNotFoundError:
            raise StorageError(f"{name} was taken away meanwhile", hint="try again") from None
        try:
            return manifest.decode(name, read_at(file, 0, file.size()))
        finally:
            file.close()

    def each(self) -> Iterator[Generation | tuple[str, StorageError]]:
        """All generations, oldest first; the name and the problem of one that cannot be read. Raises: DiskError."""
        for name in self.names():
            try:
                yield self.load(name)
            except StorageError as error:
                yield name, error

    def newest(self) -> Generation | None:
        """The newest that can be read. Raises: DiskError."""
        for name in reversed(self.names()):
            try:
                return self.load(name)
            except StorageError:
                continue
        return None

    def find(self, text: str | None) -> Generation:
        """The generation of this name, or of this time; None: the newest. Raises: BadOption; as ``load``."""
        names = self.names()
        if not names:
            raise BadOption(f"{self.folder} holds no generation", hint="no backup to it was ever finished")
        if text is None:
            return self.load(names[-1])
        wanted = text.removesuffix(manifest.SUFFIX)
        found = [name for name in names if name.startswith(wanted)] if wanted else []
        if not found:
            found = [name for name in names if manifest.moment_of(name) == _moment(text)]
        if len(found) != 1:
            what = "more than one generation begins with" if found else "there is no generation"
            hint = f"lamina backup list {self.folder} shows them; the newest is {names[-1].removesuffix('.json')}"
            raise BadOption(f"{what} {text}", hint=hint, option="generation")
        return self.load(found[0])

    # -- changing it -------------------------------------------------------------------------------------------------

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Be the only one. Raises: BadOption if something else is there; LogLocked, DiskFull, DiskError."""
        try:
            strange = sorted(set(_names(self.files, self.folder)) - _OURS)
            if strange and not is_backup(self.files, self.folder):
                raise BadOption(f"{self.folder} is no backup: {strange[0]} is in it", hint="name a new folder")
            self.files.make_folder(self.folder)
            held = lock.take(self.files, self.folder, _LOCK)
        except LogLocked as error:
            text = f"another run changes the backup {self.folder}"
            raise LogLocked(text, hint="wait until it is done", **error.facts) from error
        except OSError as error:
            raise from_os(error, "make the folder", self.folder) from error
        try:
            self._begin()
            yield
        finally:
            held.release()

    def commit(self, generation: Generation) -> None:
        """The commit point: its manifest gets its name.

        Durability: when it returns, the generation is there. Raises: DiskFull, DiskError; then it is not.
        """
        self.contents.sync()
        rewrite.replace(
            self.files, self.manifests, generation.name + manifest.SUFFIX, [manifest.encode(generation)], PWAL
        )

    def needed(self, without: frozenset[str] = frozenset()) -> set[str]:
        """Digests of what generations have, but those ``without``. Raises: as ``load``."""
        kept: set[str] = set()
        for name in self.names():
            if name not in without:
                kept |= self.load(name).contents().keys()
        return kept

    def _begin(self) -> None:
        """Make the folders, and remove what a run that was killed has left of a manifest."""
        try:
            for folder in (self.contents.folder, self.manifests):
                self.files.make_folder(folder)
            names = self.files.list(self.manifests)
        except OSError as error:
            raise from_os(error, "make the folder", self.folder) from error
        unfinished = [name for name in names if name.endswith(PWAL.temporary_suffix)]
        if unfinished:
            rewrite.remove(self.files, self.manifests, unfinished)
        self.contents.sweep_unfinished()


def is_backup(files: Files, folder: str) -> bool:
    """Raises: DiskError."""
    try:
        return {GENERATIONS, content_files.FOLDER} <= set(_names(files, folder))
    except NotADirectoryError:
        return False
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error


def _names(files: Files, folder: str) -> list[str]:
    try:
        return files.list(folder)
    except FileNotFoundError:
        return []


def _moment(text: str) -> int | None:
    try:
        return parse_time(text)
    except BadOption:
        return None
