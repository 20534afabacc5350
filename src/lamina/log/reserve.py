"""Room on a disk for what has to go on when it is nearly full: ends of work, deletions, cleaning, checkpoints.

All engines on a disk share one. It looks how much is free, and below the *low-water mark* nothing new is taken; what
ends work goes on writing. Below that there is a file of no use but its size: should the disk be full after all, through
others, or through what was being written when the mark was met, the file is given away and who met that tries again.
When there is room again, the file is made anew, and new work is taken, without anybody's help.

                free  ┌───────────────────────────┐
                      │ new work is taken         │
    low water + 1/4 ..│.. and is taken again      │
          low water ..│...........................│
                      │ ends of work, cleaning    │
                  0 ..│...........................│
                      │ the file: given away      │
                      └───────────────────────────┘

Looking asks the operating system, which may wait for a disk, so engines do it in threads: those that look after them do
so twice a second (``look``). In between, whoever takes new work counts it (``takes``): only half of what was free above
the mark is taken before somebody has to look again, however fast clients write.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from lamina.clock import Clock
from lamina.errors import DiskFull
from lamina.log.files import Files, Room, is_full, join
from lamina.units import MIB, show_bytes

SIZE: Final = 16 * MIB
LOW_WATER: Final = 16 * MIB
logger = logging.getLogger("lamina.log")

_EVERY_S: Final = 0.5  # how often it is tried to get the file back
_JUST_S: Final = 0.2  # who met a full disk while another gave the file away, too, tries again
_TOLD_S: Final = 10.0  # how often the log is told
_LARGEST_PART: Final = 8  # of a small disk neither the file nor the low-water mark takes more than one in so many
_AROUND: Final = 64  # bytes that a record takes beside its own


def former(data: str) -> tuple[str, ...]:
    """Where earlier versions kept room in a data folder: in a file for each engine."""
    return tuple(join(data, name) for name in ("jobs/reserve", "topics/.reserve", "queues/reserve"))


def part_of(disk: int, wanted: int) -> int:
    """What is kept free of so large a disk where ``wanted`` bytes are asked for."""
    return min(wanted, disk // _LARGEST_PART)


class Reserve:
    """Of one disk. Threads: safe from any thread."""

    def __init__(
        self,
        files: Files,
        path: str,
        clock: Clock,
        size: int = SIZE,
        low_water: int = LOW_WATER,
        *,
        former: Sequence[str] = (),
    ) -> None:
        """``path`` is that of the file, in a folder that is there; ``files`` get its room when the disk is full.

        ``size`` 0: no file; ``low_water`` 0: new work is taken as long as there is any room. ``former``: reserve files
        of earlier versions, which go.
        """
        self.files = files
        self._path = path
        self._folder = path.rpartition("/")[0]
        self._clock = clock
        self._wanted_size, self._wanted_low_water = size, low_water
        self._lock = threading.RLock()
        self._again_at = self._looked_at = self._given_at = self._tell_at = float("-inf")
        self._has_told = False
        self._unwritten: list[Callable[[], int]] = []
        self.room = Room(0, 0)
        """As it was seen last."""
        self.is_held = False
        """The file is there."""
        self.is_short = False
        """Nothing new is taken. Any thread may look at it."""
        self._above = 0  # bytes above the low-water mark, as it was seen last
        self._credit = self._fresh = 0  # bytes of new work that may be taken before somebody has to look; at first
        self._cannot_keep = False  # the disk cannot keep room: it has to do without a file
        for name in former:
            if name != path:
                self._remove(name)
        files.on_full = self.give
        self.look()

    @property
    def size(self) -> int:
        """Of the file: less than was asked for on a small disk."""
        return part_of(self.room.size, self._wanted_size)

    @property
    def low_water(self) -> int:
        """Bytes that have to be free for new work to be taken; the same holds for it."""
        return part_of(self.room.size, self._wanted_low_water)

    def count_unwritten(self, ask: Callable[[], int]) -> Callable[[], None]:
        """``ask`` says how many bytes of work were taken that no file has yet. Returns what ends that."""
        self._unwritten.append(ask)
        return lambda: self._unwritten.remove(ask)

    # -- new work ----------------------------------------------------------------------------------------------------

    def takes(self, size: int) -> bool:
        """Whether ``size`` bytes of new work may be taken; if so they are counted. Waits for nothing.

        False: nothing new is taken (``is_short``), or somebody has to ``look`` first.
        """
        credit = self._credit
        self._credit = credit - size - _AROUND  # a race with others may lose theirs: half of the room was left for that
        return self._credit >= 0 or (credit == self._fresh and self.fits(size))  # one that is large, after a look

    def fits(self, size: int) -> bool:
        """Whether there was room for ``size`` bytes of new work when somebody looked last."""
        return not self.is_short and size + _AROUND <= self._above

    def look(self, *, at_most_every_s: float = 0.0) -> bool:
        """See how much room there is; whether new work is taken. It may wait for the disk."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._looked_at < at_most_every_s:
                return not self.is_short
            self._looked_at = now
            try:
                self.room = self.files.room(self._folder)
                self._hold(now)
                above = self.room.free - self.low_water - sum(ask() for ask in self._unwritten)
            except OSError as error:  # as if there were much: who writes is told
                logger.warning("%s: nobody can tell how much room is left: %s", self._folder, error)
                above = SIZE
            self._decide(above)
            return not self.is_short

    def _decide(self, above: int) -> None:
        was_short = self.is_short
        self.is_short = not self.is_held or above <= (self.low_water // 4 if was_short else 0)
        self._above = above
        self._credit = self._fresh = -1 if self.is_short else above // 2
        if self.is_short and not was_short:
            self._tell(self.problem() or "")
        elif was_short and not self.is_short and self._has_told:
            self._has_told = False
            logger.info("%s: there is room again (%s): new work is taken", self._folder, show_bytes(self.room.free))

    def _tell(self, text: str) -> None:
        """Not again and again where a disk is full and not full by turns."""
        now = self._clock.monotonic()
        if now >= self._tell_at:
            self._tell_at, self._has_told = now + _TOLD_S, True
            logger.warning("%s: %s", self._folder, text)

    def spare(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The chunks of a file that may be large, and that can be written another time: it ends before it takes the
        last room from ends of work. Raises: DiskFull, OSError.
        """
        for chunk in chunks:
            left = self.files.room(self._folder).free + (self.size if self.is_held and not self._cannot_keep else 0)
            if left - len(chunk) < (self.size + self.low_water) // 4:
                raise DiskFull(f"the disk is full: {show_bytes(left)} are left", hint="make room; it is tried again")
            yield chunk

    def problem(self) -> str | None:
        """Why nothing new is taken, if that is so."""
        if not self.is_short:
            return None
        return (
            f"the disk is full: {show_bytes(self.room.free)} of {show_bytes(self.room.size)} are free, the low-water "
            f"mark is {show_bytes(self.low_water)}; nothing new is taken, reading, ends of work and cleaning go on; "
            "make room"
        )

    # -- the file ----------------------------------------------------------------------------------------------------

    def give(self) -> bool:
        """The disk is full: let others have the room of the file. Whether there is more room now.

        Nothing new is taken from now on.
        """
        with self._lock:
            now = self._clock.monotonic()
            self.is_short = True
            self._credit = self._fresh = -1
            if not self.is_held or self._cannot_keep or not self.size:
                return now - self._given_at < _JUST_S
            self._remove(self._path)
            self.is_held, self._given_at, self._again_at = False, now, now + _EVERY_S
            self._tell("the disk is full: the room of the reserve is given away")
            return True

    def _hold(self, now: float) -> None:
        """Have the file, if there is room for it, and for work besides. Tries twice a second at most."""
        if self._cannot_keep or not self.size:
            self.is_held = True
            return
        try:
            if self.is_held or now < self._again_at:
                self.is_held = self.is_held and self._is_there()
                return
            self._again_at = now + _EVERY_S
            self.is_held = self._is_there() or self._make()
        except OSError as error:
            self._remove(self._path)
            self.is_held = False
            if not is_full(error):
                logger.warning("%s: no room is kept for a full disk: %s", self._folder, error)
                self.is_held = self._cannot_keep = True
        self.room = self.files.room(self._folder)

    def _is_there(self) -> bool:
        try:
            file = self.files.open(self._path)
        except FileNotFoundError:
            return False
        try:
            is_whole = file.size() == self.size
        finally:
            file.close()
        if not is_whole:
            self.files.remove(self._path)
            self.room = self.files.room(self._folder)
        return is_whole

    def _make(self) -> bool:
        if self.room.free < self.size + self.low_water + self.low_water // 4:
            return False
        file = self.files.create(self._path)
        try:
            file.allocate(self.size)
            file.sync()
        finally:
            file.close()
        return True

    def _remove(self, path: str) -> None:
        with contextlib.suppress(OSError):
            self.files.remove(path)
