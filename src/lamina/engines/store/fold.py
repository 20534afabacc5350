"""Which entries of a file count: of whole sessions, whose epochs are durable, not void, and not yet elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.engines.store import codec
from lamina.engines.store.codec import BEGIN, END, BadRecord, Entry


class Fold:
    """How far one file has been read: which session is open, and what is wrong with it if something is."""

    def __init__(self, after: int, until: int, voids: Sequence[tuple[int, int]] = ()) -> None:
        """Sessions of epochs above ``after`` up to ``until`` count, but those in ``voids`` (first, last)."""
        self.after, self.until, self.voids = after, until, tuple(voids)
        self.epoch = 0
        """Of the open session; 0 between sessions."""
        self.counts = False
        """The open session is one that counts."""
        self.entries = 0
        self.first_epoch = 0
        self.newest_epoch = 0
        """Largest epoch met, also of sessions that do not count."""
        self.oldest_taken = 0
        self.sessions = 0
        self.taken = 0
        """Entries of sessions that count."""
        self.begun_at = 0
        """Number of the record with which the session began, for messages."""
        self.records = 0

    def begins(self, epoch: int) -> None:
        if self.epoch:
            raise BadRecord(f"a session of epoch {epoch} begins inside one of epoch {self.epoch}")
        if epoch == 0:
            raise BadRecord("a session of epoch 0")
        if epoch < self.newest_epoch:
            raise BadRecord(f"a session of epoch {epoch} behind one of epoch {self.newest_epoch}")
        self.epoch = self.newest_epoch = epoch
        self.first_epoch = self.first_epoch or epoch
        self.counts = self.after < epoch <= self.until and not any(first <= epoch <= last for first, last in self.voids)
        self.entries = 0
        self.begun_at = self.records
        if self.counts and not self.oldest_taken:
            self.oldest_taken = epoch

    def ends(self, epoch: int, entries: int) -> None:
        if not epoch or epoch != self.epoch or entries != self.entries:
            raise BadRecord(
                f"the end of a session of epoch {epoch} with {entries} entries, behind {self.entries} of one of epoch "
                f"{self.epoch}"
            )
        self.epoch = 0
        self.sessions += self.counts

    def take(self, payload: bytes) -> Entry | None:
        """Look at the next record. Returns it if it is an entry that counts. Raises: BadRecord, and is as before."""
        if payload[:1] in (b"\x92", b"\x93"):
            return None  # a mark of the kernel
        entry = codec.decode(payload)
        if entry.kind == BEGIN:
            self.begins(entry.epoch)
        elif entry.kind == END:
            self.ends(entry.epoch, entry.entries)
        elif not self.epoch:
            raise BadRecord("an entry outside of a session")
        else:
            self.entries += 1
            if self.counts:
                self.taken += 1
                return entry
        return None


def why_not(payload: bytes, fold: Fold) -> str:
    """What is wrong with the record at which ``Table.fold`` stopped."""
    try:
        fold.take(payload)
    except BadRecord as error:
        return str(error)
    return "it is whole after all"
