"""The export as a consumer of the logs: cleaning waits for it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from lamina.errors import BadOption
from lamina.log import consumers
from lamina.log.files.real import RealFiles
from lamina.pipeline import places, storage
from lamina.pipeline.exporting.asking import Asked


@dataclass(frozen=True, slots=True)
class Holding:
    """Saves the positions of an export; with no name, it does nothing."""

    asked: Asked
    name: str | None
    expiry_s: float

    def check(self) -> None:
        """Raises: BadOption."""
        if self.name is None:
            return
        if self.asked.is_state:
            raise BadOption(f"{self.asked.view} is a state: nobody has to wait for it", hint="leave out the consumer")
        if not isinstance(storage.open_storage(self.asked.data)[0], RealFiles):
            hint = "leave out the consumer"
            raise BadOption(f"{self.asked.data} is only read: no position can be left there", hint=hint)

    def begin(self, positions: Mapping[str, int]) -> None:
        """Before the logs are looked at: from here on nothing is removed that is seen to be there.

        Raises: BadName, DiskFull, DiskError.
        """
        self._save(positions, is_new=True)

    def save(self, positions: Mapping[str, int]) -> None:
        """When what is before the positions was committed. Raises: BadName, DiskFull, DiskError."""
        self._save(positions, is_new=False)

    def _save(self, positions: Mapping[str, int], *, is_new: bool) -> None:
        if self.name is None:
            return
        now_ns = time.time_ns()
        disk, _ = storage.open_storage(self.asked.data)
        for place in self.asked.table.logs:
            if is_new and any(one.name == self.name for one in consumers.holding(disk, place.folder, now_ns)):
                continue
            streams = {}
            if place.kind in (places.STORE, places.JOURNAL):  # these have several logs in one folder
                prefix = place.path + "/"
                streams = {key.removeprefix(prefix): at for key, at in positions.items() if key.startswith(prefix)}
            expires_ns = now_ns + int(self.expiry_s * 10**9)
            position = positions.get(place.path, 0)
            consumers.save(disk, place.folder, self.name, position, expires_ns, streams=streams, now_ns=now_ns)
