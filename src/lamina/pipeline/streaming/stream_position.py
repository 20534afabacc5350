"""The position that a stream leaves beside the logs it reads, so that cleaning waits for it (log/consumers.py)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from lamina.errors import BadOption, StorageError
from lamina.log import consumers
from lamina.log.consumer_file import file_name
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.pipeline.streaming.track import Track

_SIGN_S: Final = 1.0
_SHARE = 20
"""Saving takes at most this part of the time."""
_SIGNS: Final = 4
"""So often a position is said again before it expires, though it has not moved."""

logger = logging.getLogger("lamina.pipeline")


class StreamPosition:
    """Of one stream, in all its logs. Saved anew when it has moved, and as a sign of life."""

    def __init__(self, disk: Files, name: str, expiry_s: float) -> None:
        """Raises: BadOption, BadName."""
        if not isinstance(disk, RealFiles):
            raise BadOption(
                "a consumer's position cannot be left on shared storage", hint="leave the option consumer out"
            )
        if expiry_s <= 0:
            raise BadOption("consumerExpiry is nothing", hint="give 7d, or as long as the stream may stand still")
        file_name(name)
        self._disk, self._name, self._expiry_s = disk, name, expiry_s
        self._saved: dict[str, tuple[dict[str, int], float]] = {}
        self._sign_at = self._save_at = 0.0

    def give_sign(self, tracks: Mapping[str, Track], read: Mapping[str, int]) -> None:
        """As ``save``, for who comes by often."""
        now = time.monotonic()
        if now >= self._sign_at:
            self._sign_at = now + _SIGN_S
            self.save(tracks, read)

    def save(self, tracks: Mapping[str, Track], read: Mapping[str, int], *, now: bool = False) -> None:
        """All up to there was read. Durability: synced when it returns, unless that would take much of the time: then
        a later call does it (``now``: this one).

        A position that cannot be saved is told as a warning: the one before it keeps more, not less.
        """
        begun = time.monotonic()
        if begun < self._save_at and not now:
            return
        by_folder: dict[str, list[Track]] = {}
        for track in tracks.values():
            by_folder.setdefault(track.place.folder, []).append(track)
        for folder, its in by_folder.items():
            places = {track.stream: read.get(track.key, 0) for track in its}
            known = self._saved.get(folder)
            if known is not None and known[0] == places and begun - known[1] < self._expiry_s / _SIGNS:
                continue
            try:
                self._save_one(folder, its, places)
                self._saved[folder] = (places, begun)
            except StorageError as error:
                logger.warning("%s", error)
        self._save_at = begun + (time.monotonic() - begun) * _SHARE

    def _save_one(self, folder: str, its: list[Track], places: dict[str, int]) -> None:
        expires = time.time_ns() + int(self._expiry_s * 1e9)
        if its[0].key == its[0].place.path:
            consumers.save(self._disk, folder, self._name, min(places.values()), expires)
        else:  # of logs of the folder that are not known yet, nothing was read
            consumers.save(self._disk, folder, self._name, 0, expires, streams=places)
