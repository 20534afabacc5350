"""A table: a view of the logs under a path. What Spark's source, the jobs and programs without Spark all read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from lamina.errors import BadOption
from lamina.pipeline import places, schema, snapshot, storage, views
from lamina.pipeline.options import ReadOptions, check_use, nearest
from lamina.pipeline.pieces import Times
from lamina.pipeline.schema import DAMAGE, Column
from lamina.pipeline.snapshot import Snapshot
from lamina.pipeline.views.base import FILE, POSITION, SIZE, View

if TYPE_CHECKING:
    import pyarrow as pa


_WHERE: Final = (SIZE, FILE, POSITION)


class Table:
    """What a read is about: the view and the logs."""

    def __init__(self, options: ReadOptions) -> None:
        """Raises: BadOption; DiskError, Corruption, WrongFormat."""
        self.options = options
        disk, path = storage.open_storage(options.path)
        found = places.find(disk, path)
        only = found[0].kind if found and found[0].folder == path else None  # the path is that log itself
        self.view: View = views.find(options.view, only)
        if options.as_of_ns is not None and not self.view.is_state:
            states = [name for name, view in views.VIEWS.items() if view.is_state]
            raise BadOption(
                f"the view {self.view.name} has a row for each record, not a state that was so at some time",
                hint=f"use endingTimestamp, or one of the views {', '.join(sorted(states))}",
            )
        self.logs = [
            place
            for place in found
            if place.kind in self.view.kinds
            and (place.kind not in (places.TOPIC, places.GROUPS) or options.takes_topic(place.name))
        ]
        self.columns: tuple[Column, ...] = self.view.columns
        if options.is_permissive:
            self.columns = (*self.columns, DAMAGE)

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that Spark gives without being asked: where a record is, a view of what it means leaves out."""
        if self.view.is_state or self.view.name == "records" or self.options.is_permissive:
            return self.columns
        return tuple(column for column in self.columns if column not in _WHERE)

    def pin(self) -> Snapshot:
        """What a read sees from now on. Raises: Corruption, WrongFormat, DiskError."""
        disk, path = storage.open_storage(self.options.path)
        return snapshot.pin(disk, path, self.logs, is_permissive=self.options.is_permissive)

    def choose(self, names: Sequence[str] | None) -> list[Column]:
        """Columns by their names; None: all. Raises: BadOption."""
        known = {column.name: column for column in self.columns}
        for name in names or ():
            if name not in known:
                raise BadOption(f"the view {self.view.name} has no column {name!r}", hint=nearest(name, known))
        return list(self.columns) if names is None else [known[name] for name in names]

    @property
    def times(self) -> Times:
        return Times(self.options.since_ns, self.options.until_ns)

    def plan(self, pinned: Snapshot, times: Times | None = None) -> list[Any]:
        """Tasks that together are all of it, each for ``read``, here or in another process."""
        disk, _ = storage.open_storage(self.options.path)
        return self.view.plan(disk, pinned, self.options, self.times if times is None else times)

    def read(self, task: Any, wanted: Sequence[Column], times: Times | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one task. Raises: Corruption, WrongFormat, DiskError, StorageError."""
        disk, _ = storage.open_storage(self.options.path)
        times = self.times if times is None else times
        return self.view.read(disk, task, wanted, times, is_permissive=self.options.is_permissive)


def scan(
    path: str, view: str | None = None, columns: Sequence[str] | None = None, **options: str
) -> pa.RecordBatchReader:
    """A table as Arrow batches, without Spark. ``options`` as for Spark: ``startingTimestamp="-1h"``.

    Raises: as ``Table``, and when it is read.
    """
    import pyarrow as pa

    given = {"path": path, **({} if view is None else {"view": view}), **options}
    check_use(given, is_stream=False)
    table = Table(ReadOptions.parse(given))
    wanted = table.choose(columns)
    tasks = table.plan(table.pin())
    batches = (batch for task in tasks for batch in table.read(task, wanted))
    return pa.RecordBatchReader.from_batches(schema.arrow_schema(wanted), batches)
