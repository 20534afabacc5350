"""``df.write.format("lamina")`` and ``df.writeStream.format("lamina")``: rows become entries of topics, each once.

Tasks turn rows into entries and stage them in files of their own (sink_parts.py); what tasks that failed, or lost
against a duplicate of themselves, have staged counts for nothing. The driver publishes what the others staged, in the
order of partitions, into a data folder (sink_folder.py) or to a server (sink_server.py), once for each batch of a query
(publishing.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from lamina.clock import SystemClock
from lamina.errors import BadOption, StorageError
from lamina.log.files.real import RealFiles
from lamina.pipeline.sinking.publishing import Outlet, Publisher
from lamina.pipeline.sinking.sink_columns import Layout
from lamina.pipeline.sinking.sink_options import SinkOptions, check_data_folder
from lamina.pipeline.sinking.sink_parts import Part, PartWriter, new_token, staged_name

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

_QUERY_ID: Final = "sql.streaming.queryId"
"""Where Spark tells tasks of a stream which query they are of: the same for as long as its checkpoint lives."""


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Raises: BadOption, BadName, LogLocked: before any task starts."""
    if overwrite:
        hint = 'mode("append"); to begin anew, delete the topic first: lamina topics delete'
        raise BadOption("a topic is published into, never overwritten", hint=hint)
    return BatchWriter(*_prepared(options, schema, is_stream=False))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Raises: BadOption, BadName, LogLocked: before any task starts."""
    if overwrite:
        hint = 'outputMode("append") or outputMode("update")'
        raise BadOption("a topic is published into, never overwritten", hint=hint)
    return StreamWriter(*_prepared(options, schema, is_stream=True))


def _prepared(options: Mapping[str, str], schema: StructType, *, is_stream: bool) -> tuple[SinkOptions, Layout]:
    found = SinkOptions.parse(options, is_stream=is_stream)
    layout = Layout.of(schema, found.topic, can_choose_ids=found.server is None)
    if found.server is None:
        from lamina.pipeline.sinking.sink_folder import check_free

        files = RealFiles()
        check_data_folder(files, found.place)
        check_free(files, found.place)
    return found, layout


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task has staged."""

    partition: int
    staged: str
    query: str | None
    part: Part | None


class _Writer:
    """What both writers do."""

    def __init__(self, options: SinkOptions, layout: Layout) -> None:
        self._options, self._layout = options, layout
        self._token, self._made_ms = new_token(), SystemClock().now_ns() // 1_000_000

    def stage(self, batches: Iterable[RecordBatch], partition: int, query: str | None, of: str) -> Staged:
        """The work of a task. Durability: when it returns, what it staged survives a power cut.

        Raises: BadTopic, BadName, RecordTooLarge for a row that cannot be published; DiskFull, DiskError.
        """
        staged = staged_name(of, self._made_ms, self._token)
        out = PartWriter(RealFiles(), self._publisher().staged_folder(staged), partition)
        for batch in batches:
            for entry in self._layout.entries(batch):
                out.add(entry)
        return Staged(partition, staged, query, out.finish())

    def _publisher(self) -> Publisher:
        options, files = self._options, RealFiles()

        def open_outlet() -> AbstractContextManager[Outlet]:
            if options.server is None:
                from lamina.pipeline.sinking import sink_folder

                return sink_folder.opened(files, options.place)
            from lamina.pipeline.sinking import sink_server

            return sink_server.opened(options.server, options.password, options.place)

        return Publisher(files, options.place, open_outlet, options.in_doubt)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], batch: int, of: str | None) -> None:
        """``of``: None for what the query is called."""
        found = sorted((each for each in messages if isinstance(each, Staged)), key=lambda each: each.partition)
        if len(found) != len(messages):
            raise StorageError("a task has not said what it staged", hint="nothing was published; try again")
        if found:
            query, staged = found[0].query, found[0].staged
            parts = [each.part for each in found if each.part is not None]
            self._publisher().commit(query, batch, staged, parts, query or "" if of is None else of)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        for query, staged in {(each.query, each.staged) for each in messages if isinstance(each, Staged)}:
            self._publisher().abort(query, staged)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Of ``df.write``."""

    @property
    def _of(self) -> str:
        options = self._options
        return self._token if options.query is None else f"{options.query}\n{options.batch}"

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        return self.stage(iterator, _partition(), self._options.query, self._of)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, self._options.batch, self._of)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Of ``df.writeStream``: Spark makes one for the tasks of each batch, and another one to commit it."""

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        query = self._options.query or _task_property(_QUERY_ID)
        if not query:
            hint = 'option("queryId", ...): a name that is its own, and the same after a restart'
            raise BadOption("it is not known which query this is", hint=hint)
        return self.stage(iterator, _partition(), query, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._commit(messages, batchId, None)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._abort(messages)


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _task_property(name: str) -> str | None:
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)
