"""``spark.read.format("lamina")``, ``readStream``, ``write`` and ``writeStream``: the data source that Spark finds.

What is read is pinned when the source is made, and travels with it: the filtered copies that Spark plans see the same.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from lamina.errors import BadOption, LaminaError
from lamina.pipeline import filters, places, schema, storage
from lamina.pipeline.options import ReadOptions, check_use
from lamina.pipeline.pieces import Times
from lamina.pipeline.schema import Column
from lamina.pipeline.snapshot import Snapshot
from lamina.pipeline.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


class LaminaSource(DataSource):
    """The data source ``lamina``. Options: docs/reference/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._table: Table | None = None
        self._snapshot: Snapshot | None = None
        self._problem: LaminaError | None = None
        try:
            self._table = Table(ReadOptions.parse(dict(options)))
            self._snapshot = self._table.pin()
        except LaminaError as error:
            self._problem = error  # told when it is read: to be written to, nothing has to be there

    @classmethod
    def name(cls) -> str:
        return "lamina"

    def schema(self) -> StructType:
        table = self._readable()
        never_null = () if table.options.is_permissive else table.view.never_null
        return schema.struct(table.shown, never_null)

    def reader(self, schema: StructType) -> DataSourceReader:
        check_use(self.options, is_stream=False)
        table = self._readable()
        _check_topic(table)
        assert self._snapshot is not None
        kind = FilteringReader if table.options.pushes_filters else LaminaReader
        return kind(table, self._snapshot, _project(table, schema), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from lamina.pipeline.streaming.stream import LaminaStreamReader

        check_use(self.options, is_stream=True)
        table = self._readable()
        _check_topic(table)
        return LaminaStreamReader(table.options, table.view, _project(table, schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from lamina.pipeline.sinking import sink

        return sink.writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from lamina.pipeline.sinking import sink

        return sink.stream_writer(self.options, schema, overwrite)

    def _readable(self) -> Table:
        if self._problem is not None:
            raise self._problem
        assert self._table is not None
        return self._table


def _check_topic(table: Table) -> None:
    """Raises: BadOption if the option would be passed over."""
    if table.options.topics and not {places.TOPIC, places.GROUPS} & set(table.view.kinds):
        raise BadOption(
            f"topic: the view {table.view.name} has no rows of topics",
            hint="leave it out, or use a view of topics (docs/reference/spark-views.md)",
        )


def _project(table: Table, asked: StructType) -> list[Column]:
    return schema.project(table.view.name, table.columns, asked)


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, work: Any) -> None:
        super().__init__(work)


class LaminaReader(DataSourceReader):
    """Reads a snapshot."""

    def __init__(self, table: Table, snapshot: Snapshot, wanted: Sequence[Column], asked: StructType) -> None:
        self._asked = schema.as_asked(asked, wanted)
        self._options, self._view = table.options, table.view
        self._snapshot, self._wanted = snapshot, wanted
        self._times = Times(table.options.since_ns, table.options.until_ns)
        self._filters: list[filters.Test] = []

    def partitions(self) -> list[InputPartition]:
        disk, _ = storage.open_storage(self._options.path)
        chosen = filters.choose_logs(self._snapshot, self._filters)
        tasks = self._view.plan(disk, chosen, self._options, self._times)
        # An empty list is read as one partition without a value.
        return [Task(task) for task in tasks] or [Task(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        disk, _ = storage.open_storage(self._options.path)
        is_permissive = self._options.is_permissive
        for batch in self._view.read(disk, partition.value, self._wanted, self._times, is_permissive=is_permissive):
            kept = filters.apply(batch, self._filters)
            if kept.num_rows:
                yield schema.recast(kept, self._asked)


class FilteringReader(LaminaReader):
    """The same, taking filters from Spark before it plans. Only when asked for: Spark 4.3 keeps what was planned for
    the last filter with the DataFrame, and gives it to the next query of the same DataFrame, whatever that one asks
    (docs/decisions/0014-filters.md).
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
        """All filters are left to Spark, too: what is done here only spares it rows."""
        from lamina.pipeline import filters as known

        self._times, self._filters = known.push(filters, self._times, self._view.columns)
        yield from filters
