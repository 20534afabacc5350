"""The disks that the folders of a server are on: one reserve for each, which all engines there share.

<data>/reserve              of the disk that the data folder is on, and as a rule of all
<data>/topics/.reserve …    of an engine whose folder is on another one
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from lamina.clock import SystemClock
from lamina.errors import from_os
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.naming import RESERVE
from lamina.log.reserve import LOW_WATER, SIZE, Reserve, former

if TYPE_CHECKING:
    from lamina.server.life import Life


class Disks:
    """Of one server. Threads: ``of`` by the one that opens engines, ``all`` by any."""

    def __init__(
        self,
        life: Life,
        data: str | None,
        *,
        reserve_bytes: int = SIZE,
        low_water_bytes: int = LOW_WATER,
        files: Callable[[], Files] = RealFiles,
    ) -> None:
        """A disk that is full is a problem of ``life``, which ends by itself. ``files`` gives those of each disk."""
        self._life, self._data, self._files = life, data, files
        self._sizes = reserve_bytes, low_water_bytes
        self._reserves: dict[int, Reserve] = {}
        if data is not None:
            self.of(data)

    def of(self, folder: str, name: str = RESERVE) -> Reserve:
        """The reserve of the disk that ``folder`` is on: made there, called ``name``, if nothing else is on that disk.

        Raises: DiskError if the folder cannot be made.
        """
        files = self._files()
        try:
            files.make_folder(folder)
            disk = os.lstat(folder).st_dev  # a link is refused by who opens it: nothing is made behind one
        except OSError as error:
            raise from_os(error, "make the folder", folder) from error
        reserve = self._reserves.get(disk)
        if reserve is None:
            old = former(self._data) if folder == self._data else ()
            reserve = Reserve(files, join(folder, name), SystemClock(), *self._sizes, former=old)
            self._reserves[disk] = reserve
            self._life.watch("disk" if folder == self._data else f"disk of {folder}", reserve.problem)
        return reserve

    def all(self) -> list[Reserve]:
        """That of the data folder first."""
        return list(self._reserves.values())

    @property
    def first(self) -> Reserve | None:
        """That of the data folder, if there is one."""
        return next(iter(self._reserves.values()), None)
