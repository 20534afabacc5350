"""All logs that a stream follows: which there are, and how far each reaches.

New logs are looked for about once a second, less often if that takes long. A log leaves when its folder is gone, and
not because it could not be looked at: what leaves and comes back is read from its beginning.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from lamina.engines.queues.opening import JOURNALS
from lamina.errors import BadOption, DiskError
from lamina.log.files import join
from lamina.log.naming import FileName, parse, sort_out
from lamina.pipeline import places, storage
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.places import LogPlace
from lamina.pipeline.streaming.channel_track import ChannelTrack, DurableEpoch
from lamina.pipeline.streaming.track import Track
from lamina.pipeline.views.base import View
from lamina.pipeline.views.records import RecordsView

_LOOK_S: Final = 1.0
_SHARE, _POLL_SHARE = 50, 10
"""Looking for logs, and at them, takes at most these parts of the time."""


class Watching:
    """Threads: one at a time."""

    def __init__(self, options: ReadOptions, view: View) -> None:
        self._options, self._view = options, view
        self.disk, self._path = storage.open_storage(options.path)
        self._tracks: dict[str, Track] = {}
        self._base: str | None = None
        """The data folder, if it is known."""
        self._epochs: DurableEpoch | None = None
        self._look_at = self._ends_at = 0.0
        self._ends: dict[str, int] = {}
        self._gone: set[str] = set()
        self._asked: set[str] = set()

    def ends(self, *, now: bool = True) -> dict[str, int]:
        """Of each log that has records, the time of the last one. Raises: Corruption, WrongFormat, DiskError.

        Not ``now``: what was found last, if it was so lately that looking again would take much of the time.
        """
        begun = time.monotonic()
        if not now and begun < self._ends_at:
            return self._ends
        self._find()
        found = {}
        for key, track in list(self._tracks.items()):
            try:
                reach = track.look()
            except DiskError:
                if not self._is_gone(track.place.folder):
                    raise
                self._forget(key)
                continue
            if reach:
                found[key] = reach
        self._ends = found
        self._ends_at = begun + (time.monotonic() - begun) * _POLL_SHARE
        return found

    def tracks(self) -> Mapping[str, Track]:
        self._find()
        return self._tracks

    def track(self, key: str) -> Track | None:
        """None: there is no such log, or none any more."""
        if key not in self._tracks:
            self._find(now=True)
        track = self._tracks.get(key)
        if track is not None and self._is_gone(track.place.folder):
            self._forget(key)
            return None
        return track

    def has_left(self, key: str) -> bool:
        """A log that has no end was deleted. Asked often: the answer may be a second old."""
        if key not in self._asked and self._base is not None:
            self._asked.add(key)
            folder, _, last = key.rpartition("/")
            if self._is_gone(join(self._base, folder if parse(last) else key)):
                self._gone.add(key)
        return key in self._gone

    # -- finding -----------------------------------------------------------------------------------------------------

    def _find(self, *, now: bool = False) -> None:
        begun = time.monotonic()
        if not now and begun < self._look_at:
            return
        self._gone.clear()
        self._asked.clear()
        for place in places.find(self.disk, self._path):
            if place.folder.endswith("/" + place.path):
                self._base = place.folder.removesuffix("/" + place.path)
            if place.kind not in self._view.kinds:
                continue
            if place.kind in (places.TOPIC, places.GROUPS) and not self._options.takes_topic(place.name):
                continue
            if place.kind == places.STORE or place.path not in self._tracks:
                self._add(place)
        spent = time.monotonic() - begun
        self._look_at = begun + max(_LOOK_S, spent * _SHARE)

    def _add(self, place: LogPlace) -> None:
        try:
            names = self.disk.list(place.folder)
        except OSError:
            return  # gone meanwhile, or to be looked at again
        has_journals = place.kind == places.QUEUES and JOURNALS in names and self._view.name != RecordsView.name
        if has_journals or place.kind == places.JOURNAL:
            raise BadOption(
                f"{place.path}: messages are kept in journals, which hold what is there now and not what happened",
                hint="read them again and again, or keep queues in one log",
            )
        for stream in {name.stream for name in sort_out(names).segments if _is_streamed(place, name)}:
            key = join(place.path, stream) if place.kind == places.STORE else place.path
            if key not in self._tracks:
                self._tracks[key] = self._follow(place, stream, key)

    def _follow(self, place: LogPlace, stream: str, key: str) -> Track:
        is_permissive = self._options.is_permissive
        if place.kind != places.STORE or self._view.name == RecordsView.name:
            return Track(self.disk, place, stream, key, is_permissive=is_permissive)
        if self._epochs is None:
            self._epochs = DurableEpoch(self.disk, place, is_permissive=is_permissive)
        return ChannelTrack(self.disk, place, stream, key, self._epochs, is_permissive=is_permissive)

    def _is_gone(self, folder: str) -> bool:
        try:
            self.disk.list(folder)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def _forget(self, key: str) -> None:
        track = self._tracks.pop(key, None)
        if track is not None:
            track.close()

    def close(self) -> None:
        for key in list(self._tracks):
            self._forget(key)
        if self._epochs is not None:
            self._epochs.close()


def _is_streamed(place: LogPlace, name: FileName) -> bool:
    """Not dumps and sorted files: they hold again what was in logs. Not the epochs of the store."""
    if place.kind == places.QUEUES:
        return name.stream == "stored"
    return not name.is_part and name.stream != "epoch"
