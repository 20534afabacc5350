"""The plainest model of a store: all sessions that were ever ended, and what became of each."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from lamina.engines.store import codec
from lamina.engines.store.channel import Session
from lamina.engines.store.codec import ADD, CLEAR, DROP, PUT, Entry
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.view import Found, Snapshot
from lamina.errors import LaminaError, LogFailed

Picture = tuple[tuple[tuple[tuple[int, bytes], bytes], ...], frozenset[int]]
"""Everything that can be read, entries in order, and the storages that were added."""


class Fate(Enum):
    """What is known of a session."""

    PENDING = "nobody was told"
    DURABLE = "told to be durable"
    REFUSED = "told never to be"
    DOUBTFUL = "told that the disk failed: either may be so, for all of its epoch"


@dataclass(eq=False)
class Told:
    """A session that ended."""

    epoch: int
    entries: Sequence[Entry]
    fate: Fate = Fate.PENDING

    def tell(self, error: LaminaError | None) -> None:
        """As a waiter of the engine."""
        if error is None:
            self.fate = Fate.DURABLE
        elif isinstance(error, LogFailed):
            self.fate = Fate.DOUBTFUL
        else:
            self.fate = Fate.REFUSED


def entries_of(session: Session) -> list[Entry]:
    """What it was given, with the versions that it took. Before it ends."""
    return [codec.decode(payload) for payload in session._packed][1:]


def picture(sessions: Iterable[Told]) -> Picture:
    """What is there when exactly these count. Versions decide, not the order."""
    newest: dict[tuple[int, bytes], Entry] = {}
    cleared: dict[int, codec.Version] = {}
    there: dict[int, tuple[codec.Version, bool]] = {}
    for session in sessions:
        for entry in session.entries:
            storage = entry.storage
            if entry.kind in (CLEAR, DROP):
                cleared[storage] = max(cleared.get(storage, codec.Version(0, 0)), entry.version)
            if entry.kind in (ADD, DROP):
                if storage not in there or entry.version > there[storage][0]:
                    there[storage] = entry.version, entry.kind == ADD
            elif entry.kind != CLEAR:
                before = newest.get((storage, entry.key))
                if before is None or entry.version > before.version:
                    newest[storage, entry.key] = entry
    seen = {
        place: entry.value
        for place, entry in newest.items()
        if entry.kind == PUT and entry.version >= cleared.get(entry.storage, codec.Version(0, 0))
    }
    return tuple(sorted(seen.items())), frozenset(storage for storage, (_, is_there) in there.items() if is_there)


def seen_in(snapshot: Snapshot) -> Picture:
    """The same of what the engine shows."""
    found: list[Found] = list(snapshot.scan())
    there = snapshot.storages.there
    added = frozenset(storage for storage, (_, is_there) in there.items() if is_there)
    return tuple(((each.storage, each.key), each.value) for each in found), added


@dataclass
class StoreModel:
    """All sessions of one folder, over many lives."""

    sessions: list[Told] = field(default_factory=list)
    told: int = 0
    """The largest epoch that callers heard of."""

    def watch(self, engine: StoreEngine) -> None:
        engine.waiters.add_callback(self.heard)

    def heard(self, epoch: int) -> None:
        assert epoch > self.told, f"epoch {epoch} was told after epoch {self.told}"
        self.told = epoch

    def ended(self, session: Session) -> Told | None:
        """What to remember of a session that is about to end; None if nothing was in it."""
        entries = entries_of(session)
        return Told(session.epoch, entries) if entries else None

    def at(self, epoch: int) -> Picture:
        """What was there when ``epoch`` had become durable."""
        return picture(each for each in self.sessions if each.fate is Fate.DURABLE and each.epoch <= epoch)

    def now(self) -> Picture:
        return self.at(1 << 64)

    # -- over the end of a life ------------------------------------------------------------------------------------

    def settle(self, voids: Sequence[tuple[int, int]], last_epoch: int) -> None:
        """The store was opened again: see that it kept its word, and take from it what was in doubt.

        Of what was refused nothing may be seen; the number of its epoch may be that of another one if nothing of it
        ever came to the disk.
        """

        @functools.cache
        def is_void(epoch: int) -> bool:
            return epoch > last_epoch or any(first <= epoch <= last for first, last in voids)

        for session in self.sessions:
            if session.fate is Fate.DURABLE:
                assert not is_void(session.epoch), f"epoch {session.epoch} was durable, and is lost"
            elif session.fate is Fate.DOUBTFUL:
                session.fate = Fate.REFUSED if is_void(session.epoch) else Fate.DURABLE
            elif session.fate is Fate.PENDING:
                assert is_void(session.epoch), f"epoch {session.epoch} was {session.fate.value}, and is there"
                session.fate = Fate.REFUSED
