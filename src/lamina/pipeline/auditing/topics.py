"""A topic: ids rise, and only what is there is taken away.

Of a topic whose oldest files were let go, the ids from before are known from the first entry or setting on. Of one
whose files were written anew without what was dead, they are not known.
"""

from __future__ import annotations

from array import array

from lamina.engines.topics import codec, ids
from lamina.engines.topics.codec import BadRecord
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.state import State
from lamina.log.scan import Batch
from lamina.pipeline import columns
from lamina.pipeline.auditing.findings import MEANING, TOPIC_IDS, TOPIC_REMOVALS, Findings
from lamina.pipeline.auditing.walking import Record, Walk


def audit(findings: Findings, walk: Walk) -> None:
    """Raises: DiskError."""
    _Topic(findings, walk).audit()


class _Topic:
    def __init__(self, findings: Findings, walk: Walk) -> None:
        self._findings, self._walk = findings, walk
        self._state = State()
        self._is_known = False
        """Ids up to now are."""

    def audit(self) -> None:
        rows = 0
        for held, _, batch in self._walk.batches():
            rows += len(batch.times)
            self._take(held.name.name, batch)
        for name in (MEANING, TOPIC_IDS, TOPIC_REMOVALS):
            self._findings.looked(name, rows)

    def _take(self, file: str, batch: Batch) -> None:
        times, offsets, lengths, start = batch.times, batch.offsets, batch.lengths, 0
        while start < len(times):
            some = slice(start, None)
            try:
                found = columns.topic(batch.data, offsets[some], lengths[some])
                stop = len(times)
            except BadRecord as error:
                stop = start + (error.args[1] if len(error.args) > 1 else 0)
                bad = _record(file, batch, stop)
                self._walk.means_nothing(bad, error)
                found = columns.topic(batch.data, offsets[start:stop], lengths[start:stop])
            milliseconds, sequences = array("Q", found.milliseconds), array("Q", found.sequences)
            for place, kind in enumerate(found.kinds):
                id = EntryId(milliseconds[place] << 64 | sequences[place])
                if kind == codec.ENTRY and id > self._state.last_id:
                    self._state.add(id)
                    self._is_known = True
                else:
                    self._look(_record(file, batch, start + place), kind, id)
            start = stop + 1

    def _look(self, record: Record, kind: int, id: EntryId) -> None:
        state = self._state
        is_whole = self._walk.trace.is_whole
        try:
            if kind == codec.ENTRY:
                word = "there already" if id == state.last_id else f"not larger than {_show(state.last_id)}"
                self._walk.bad(TOPIC_IDS, record, f"id {_show(id)} is {word}")
                return
            items = codec.Items(record.payload)
            items.number()
            if kind == codec.DELETED:
                self._look_at_deleted(record, [items.id() for _ in range(items.left // 2)], is_whole=is_whole)
            elif kind == codec.TRIMMED:
                self._look_at_trimmed(record, id, (items.id(), items.number())[1], is_whole=is_whole)
            state.apply(record.payload)
            self._is_known |= kind == codec.SET
        except BadRecord as error:
            self._walk.means_nothing(record, error)

    def _look_at_deleted(self, record: Record, deleted: list[EntryId], *, is_whole: bool) -> None:
        state, is_known = self._state, self._is_known and not self._walk.trace.rewritten
        for id in deleted:
            if id > state.last_id and (is_whole or is_known):
                self._walk.bad(TOPIC_REMOVALS, record, f"id {_show(id)} is deleted, and was never given")
            elif not state.has(id):
                self._walk.bad(TOPIC_REMOVALS, record, f"id {_show(id)} is deleted, and was gone already")

    def _look_at_trimmed(self, record: Record, id: EntryId, count: int, *, is_whole: bool) -> None:
        state, is_known = self._state, self._is_known and not self._walk.trace.rewritten
        if id > max(state.last_id, state.trimmed_to) and (is_whole or is_known):
            self._walk.bad(TOPIC_REMOVALS, record, f"it is trimmed up to {_show(id)}, which was never given")
        elif id < state.trimmed_to:
            reason = f"it is trimmed up to {_show(id)}, and was up to {_show(state.trimmed_to)} before"
            self._walk.bad(TOPIC_REMOVALS, record, reason)
        elif is_whole and count > state.length:
            reason = f"{count} entries are trimmed where {state.length} are"
            self._walk.bad(TOPIC_REMOVALS, record, reason)


def _record(file: str, batch: Batch, number: int) -> Record:
    return Record(file, batch.record_offset(number), batch.times[number], batch.payload(number))


def _show(id: EntryId) -> str:
    return ids.show(id).decode()
