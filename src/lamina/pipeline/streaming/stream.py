"""``spark.readStream.format("lamina")``: batches of what was written since the last one, each record in one of them.

An offset says of each log the time of the last record that belongs to it (stream_offsets.py). Times of a log rise, one
writer appends, and a record is given only when it is whole: so a range of times always means the same records, also
when the batch is read again after a crash, and whatever happened to the files meanwhile. Whole files that cleaning or
retention removed before the stream read them are a loss, and told, unless they were gone when it began.

A stream sees what was written, as any reader in another process: a power cut may take back what was not synced yet.

The driver's reader lives as long as the query. On executors ``read`` is all that is called.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from lamina.errors import BadOption, Gap, StorageError
from lamina.log.files import File, Files
from lamina.pipeline import pieces, reading, schema, storage
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.pieces import Piece, Times
from lamina.pipeline.schema import Column
from lamina.pipeline.streaming import stream_limits, stream_offsets
from lamina.pipeline.streaming.channel_track import ChannelTrack, Facts
from lamina.pipeline.streaming.stream_limits import Limits, Walked
from lamina.pipeline.streaming.stream_offsets import EARLIEST, LATEST, Gone
from lamina.pipeline.streaming.stream_position import StreamPosition
from lamina.pipeline.streaming.track import Track
from lamina.pipeline.streaming.watching import Watching
from lamina.pipeline.views.base import View
from lamina.pipeline.views.store import IS_DURABLE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

Section = tuple[Times, Facts | None, tuple[Piece, ...]]
"""What a task reads of one log: the times that count, of the store what was durable, and files."""
_NOTHING: Final = InputPartition(())

logger = logging.getLogger("lamina.pipeline")


class LaminaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams a view that has a row for each record."""

    def __init__(
        self, options: ReadOptions, view: View, wanted: Sequence[Column], asked: StructType | None = None
    ) -> None:
        """``asked``: the schema that the columns were chosen by. Raises: BadOption, BadName."""
        self._asked = None if asked is None else schema.as_asked(asked, wanted)
        _check(options, view)
        self._options, self._view, self._wanted = options, view, wanted
        self._starting = stream_offsets.parse_starting(options.starting)
        disk, _ = storage.open_storage(options.path)
        self._position = None
        if options.consumer is not None:
            self._position = StreamPosition(disk, options.consumer, options.consumer_expiry_s)
        self._watching: Watching | None = None
        self._read: dict[str, int] | None = None
        self._target: dict[str, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What travels to executors: not the files that are watched."""
        return {**self.__dict__, "_watching": None}

    # -- offsets -----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        watching = self._watch()
        ends, begun = watching.ends(), {}
        gone: dict[str, list[Gone]] = {}
        given = self._starting if isinstance(self._starting, Mapping) else {}
        for key in given:
            if key not in watching.tracks():
                known = ", ".join(sorted(watching.tracks())) or "none"
                raise BadOption(f"startingOffsets: there is no log {key!r}", hint=f"there are: {known}")
        for key, track in watching.tracks().items():
            start = given.get(key, EARLIEST) if given else self._starting
            if self._options.since_ns is not None:
                start = self._options.since_ns - 1
            if start == LATEST:
                begun[key] = ends.get(key, 0)
            elif start == EARLIEST:
                begun[key] = track.begins_after()
            else:
                assert isinstance(start, int)
                begun[key] = track.settle_back(start if given else max(start, track.begins_after()))
            if not isinstance(given.get(key), int):  # who gives a time wants all that came after it
                gone[key] = track.gone_after(begun[key])
        return stream_offsets.show(begun, gone)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        watching, begun = self._watch(), stream_offsets.parse(start)
        if self._position is not None:
            # Until the first batch is committed, where the stream begins; later as a sign of life.
            self._position.give_sign(watching.tracks(), begun if self._read is None else self._read)
        ends = watching.ends(now=False)
        if self._target is not None:
            ends = {key: min(end, self._target[key]) for key, end in ends.items() if key in self._target}
        kept = {key: time_ns for key, time_ns in begun.items() if key in ends or not watching.has_left(key)}
        ahead = {key: end for key, end in ends.items() if end > begun.get(key, self._unseen())}
        if ahead:
            limits = self._limits(limit)
            kept |= ahead if limits is None else self._admit(begun, ahead, limits)
        return start if kept == begun else stream_offsets.show(kept, stream_offsets.parse_gone(start))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark knows one limit at a time; of two the other one is kept to, too."""
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return stream_offsets.show(self._watch().ends(now=False))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._watch().ends()

    def _limits(self, limit: ReadLimit) -> Limits | None:
        if isinstance(limit, ReadMaxRows):
            return Limits(limit.max_rows, self._options.max_bytes)
        return Limits(None, limit.max_bytes) if isinstance(limit, ReadMaxBytes) else None

    def _admit(self, begun: Mapping[str, int], ends: Mapping[str, int], limits: Limits) -> dict[str, int]:
        watching = self._watch()

        def walk(key: str, after: int, until: int, share: Limits, anyhow: int | None) -> Walked:
            track = watching.track(key)
            if track is None:
                return Walked(until, 0, 0)
            return stream_limits.walk(watching.disk, track, after, until, share, anyhow)

        known = {key: begun.get(key, self._unseen()) for key in ends}
        return stream_limits.admit(known, ends, limits, walk)

    def _unseen(self) -> int:
        """Where a log begins that came after the stream."""
        return 0 if self._options.since_ns is None else max(self._options.since_ns - 1, 0)

    # -- batches -----------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raises: Gap, if records of the range were removed (unless failOnDataLoss is false); DiskError, Corruption."""
        begun = stream_offsets.parse(start)
        found: list[tuple[Times, Track]] = []
        for key, until in stream_offsets.parse(end).items():
            after = begun.get(key, self._unseen())
            if until <= after:
                continue
            track = self._watch().track(key)
            if track is None:
                self._lose(key, after, until, "the log was deleted")
                continue
            found.append((Times(after + 1, until + 1), track))
        most = self._options.max_partition_bytes
        cut = self._cut(found, most)
        total = sum(piece.bytes for _, _, its in cut for piece in its)
        target = pieces.target_bytes(total, self._options.min_partitions, most)
        if target < most and any(piece.bytes > 2 * target for _, _, its in cut for piece in its):
            cut = self._cut(found, target)
        # Asked when all files were looked for: what goes later is missed by who reads.
        self._tell_losses(found, stream_offsets.parse_gone(start))
        return [InputPartition(each) for each in _pack(cut, target)] or [_NOTHING]

    def _cut(self, wanted: Sequence[tuple[Times, Track]], target: int) -> list[Section]:
        disk = self._watch().disk
        sections: list[Section] = []
        for times, track in wanted:
            assert times.since is not None and times.until is not None
            files = track.pin(times.since - 1, times.until - 1)
            made = pieces.cut(disk, files, times, target)
            # Tasks travel: what was needed to cut them does not.
            its = tuple(replace(piece, file=replace(piece.file, points=())) for piece in made)
            sections.append((times, track.facts if isinstance(track, ChannelTrack) else None, its))
        return sections

    def _tell_losses(self, wanted: Sequence[tuple[Times, Track]], gone: Mapping[str, Sequence[Gone]]) -> None:
        """``gone``: which files were when the stream began. Raises: Gap."""
        for times, track in wanted:
            assert times.since is not None and times.until is not None
            removed = track.begins_after()
            if removed >= times.since:
                self._lose(track.key, times.since - 1, removed, "they were cleaned away")
            for hole in track.holes(times.since - 1, times.until - 1):
                number = hole.first
                for first, last, _ in gone.get(track.key, ()):
                    if first <= number:
                        number = max(number, last + 1)
                if number <= hole.last:
                    self._lose(track.key, hole.after, hole.until, "they were cleaned away")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        disk, _ = storage.open_storage(self._options.path)
        for times, facts, its in partition.value:
            for piece in its:
                noting = _Noting(disk)
                rows = self._rows(noting, piece, times, facts)
                is_lost = False
                try:
                    yield from rows if self._asked is None else (schema.recast(batch, self._asked) for batch in rows)
                    is_lost = noting.is_missing and piece.file.place.kind not in reading.MERGED
                except StorageError as error:
                    if type(error) is not StorageError:
                        raise  # damage
                    is_lost = True
                if is_lost:
                    since, until = times.since or 0, times.until or 0
                    self._lose(piece.file.place.path, since - 1, until - 1, f"{piece.file.name} was removed meanwhile")

    def _rows(self, disk: Files, piece: Piece, times: Times, facts: Facts | None) -> Iterator[pa.RecordBatch]:
        is_permissive = self._options.is_permissive
        if facts is None:
            yield from self._view.read(disk, (piece,), self._wanted, times, is_permissive=is_permissive)
            return
        # Entries of epochs that never came to be are left out.
        wanted = [*(column for column in self._wanted if column != IS_DURABLE), IS_DURABLE]
        names = [column.name for column in self._wanted]
        for batch in self._view.read(disk, (facts, (piece,)), wanted, times, is_permissive=is_permissive):
            counts = batch.column(len(wanted) - 1).fill_null(True)  # null: it tells of damage
            yield batch.filter(counts).select(names)

    def commit(self, end: dict[str, Any]) -> None:
        self._read = stream_offsets.parse(end)
        if self._position is not None:
            self._position.save(self._watch().tracks(), self._read)

    def stop(self) -> None:
        """The position stays until it expires: the query may be started again."""
        if self._watching is not None:
            if self._position is not None and self._read is not None:
                self._position.save(self._watching.tracks(), self._read, now=True)
            self._watching.close()
            self._watching = None

    def _watch(self) -> Watching:
        if self._watching is None:
            self._watching = Watching(self._options, self._view)
        return self._watching

    def _lose(self, key: str, after: int, until: int, why: str) -> None:
        """Raises: Gap, or tells of it as a warning."""
        if self._options.fail_on_loss:
            raise Gap(
                after,
                until,
                why=f"{key}: {why} before the stream had read them",
                hint="failOnDataLoss=false goes on without them; the option consumer makes cleaning wait",
            )
        logger.warning("%s: records after %d up to %d were not read: %s", key, after, until, why)


def _check(options: ReadOptions, view: View) -> None:
    """Raises: BadOption for what cannot be streamed."""
    if view.is_state:
        raise BadOption(
            f"the view {view.name} is a state, and only what happens can be streamed",
            hint="stream a view with a row for each record, and fold it; or read the state again and again",
        )
    if options.until_ns is not None:
        raise BadOption("a stream has no end", hint="leave endingTimestamp out; trigger(availableNow=True) ends")


def _pack(sections: Sequence[Section], target: int) -> Iterator[tuple[Section, ...]]:
    """Neighbours in one partition while they fit, whatever log they are of."""
    heads = {id(piece): (times, facts) for times, facts, its in sections for piece in its}
    for packed in pieces.pack((piece for _, _, its in sections for piece in its), target):
        by_head: dict[tuple[Times, Facts | None], list[Piece]] = {}
        for piece in packed:
            by_head.setdefault(heads[id(piece)], []).append(piece)
        yield tuple((*head, tuple(its)) for head, its in by_head.items())


class _Noting:
    """A disk that notes whether a file was not there any more."""

    def __init__(self, disk: Files) -> None:
        self._disk = disk
        self.is_missing = False

    def open(self, path: str, *, write: bool = False) -> File:
        try:
            return self._disk.open(path, write=write)
        except FileNotFoundError:
            self.is_missing = True
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)
