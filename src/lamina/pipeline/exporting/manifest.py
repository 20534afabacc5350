"""The manifest of an export: how far each log was exported, what each day holds, and what is still to be put in place.

It is the commit: parts are staged and synced first, then the manifest is replaced, and only then do parts get the names
that readers see. What a crash keeps from its place is named in ``moving``, and the next run puts it there. So nothing
that does not count is ever seen, and a row is in one file at any moment.

It has one line for each log and one for each day, so it does not grow with what they hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from lamina.errors import Corruption, WrongFormat, from_os
from lamina.log.files import Files, join, read_at
from lamina.log.rewrite import write_new

FOLDER: Final = "_lamina"
_FORMAT: Final = "lamina export"
_VERSION: Final = 1
_NEW: Final = ".new"


@dataclass(frozen=True, slots=True)
class Day:
    """What was exported of a day."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    open: str = ""
    """The one file that is still small: what comes next for this day is added to it."""
    open_rows: int = 0
    open_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an export of one view has done."""

    view: str
    format: str
    data: str
    """The data folder."""
    columns: Mapping[str, str]
    """Their names and types."""
    batch: int = 0
    """Number of the last commit."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """Of each log: time of the last record that is in the export, or before which nothing was wanted."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """Of a store: everything up to this epoch is in the export."""
    days: Mapping[str, Day] = field(default_factory=dict)
    moving: tuple[tuple[str, str], ...] = ()
    """Parts that count and may not be in their place yet: where they are, and where they belong, under ``to``."""
    swap: str = ""
    """A folder that is to take the place of the view's, as a whole."""
    pending: Mapping[str, Any] | None = None
    """Of a Delta table: what counts if the table has this batch, and else not (delta.py)."""

    @property
    def rows(self) -> int:
        return sum(day.rows for day in self.days.values())


def load(files: Files, to: str, view: str) -> Manifest | None:
    """None: there is none yet. Raises: Corruption, WrongFormat, DiskError."""
    path = join(join(to, FOLDER), f"{view}.json")
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise from_os(error, "open the manifest", path) from error
    try:
        data = read_at(file, 0, file.size())
    finally:
        file.close()
    try:
        facts = json.loads(data)
        if facts.pop("is") != _FORMAT:
            raise ValueError("it is something else")
        version = facts.pop("version")
        if version == _VERSION:
            facts["days"] = {name: Day(**day) for name, day in facts["days"].items()}
            facts["moving"] = tuple((staged, final) for staged, final in facts["moving"])
            return Manifest(**facts)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "export to another folder; of what is here nobody knows how far it reaches"
        raise Corruption(path, 0, f"this is no manifest of an export: {error}", hint=hint) from error
    raise WrongFormat(path, f"the manifest is of version {version}", hint="use the version of lamina that wrote it")


def save(files: Files, to: str, manifest: Manifest) -> None:
    """The commit point: the rename, made durable by the sync of the folder.

    Durability: when it returns, the manifest is synced.
    Raises: DiskFull, DiskError; then the one before counts (or, if the sync of the folder failed, this one does).
    """
    folder = join(to, FOLDER)
    path = join(folder, f"{manifest.view}.json")
    facts = {"is": _FORMAT, "version": _VERSION, **asdict(manifest)}
    try:
        files.make_folder(folder)
        with suppress(FileNotFoundError):
            files.remove(path + _NEW)
        write_new(files, path + _NEW, [json.dumps(facts, separators=(",", ":")).encode()])
        files.rename(path + _NEW, path)
        files.sync_folder(folder)
    except OSError as error:
        raise from_os(error, "save the manifest", path) from error
