"""What tests of publishing from Spark share: batches of rows, readers of topics, and a driver that can be killed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

import lamina
from lamina.engines.topics import ids
from lamina.engines.topics.topics import Topics
from lamina.log.files import Files
from lamina.pipeline.sinking import publishing, sink
from lamina.pipeline.sinking.sink import StreamWriter

ROWS = StructType().add("topic", StringType()).add("value", StringType())


def rows(*pairs: tuple[str | None, str | None]) -> pa.RecordBatch:
    topics, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return pa.record_batch([pa.array(topics, pa.string()), pa.array(values, pa.string())], names=["topic", "value"])


def stream(options: Mapping[str, str]) -> StreamWriter:
    return sink.stream_writer(options, ROWS, False)


def staged(writer: StreamWriter, partitions: Iterable[pa.RecordBatch], query: str = "q") -> list[Any]:
    """What the tasks of a batch say."""
    return [writer.stage([batch], number, query, query) for number, batch in enumerate(partitions)]


def publish(
    options: Mapping[str, str], batch: int, partitions: Iterable[pa.RecordBatch], query: str = "q"
) -> list[Any]:
    """A whole batch, as Spark does it: the one who commits is another than the one who staged."""
    messages = staged(stream(options), partitions, query)
    stream(options).commit(messages, batch)
    return messages


def values(folder: str | Path, topic: str, files: Files | None = None) -> list[str]:
    """What was published into a folder, in order."""
    topics = Topics.open(f"{folder}/topics", files=files, threaded=False)
    try:
        found = topics.get(topic.encode())
        entries = [] if found is None else found.read(ids.FIRST)[0]
        return [flat[flat.index(b"value") + 1].decode() for _, flat in entries]
    finally:
        topics.close()


def served(port: int, topic: str) -> list[str]:
    """The same of a server."""
    with lamina.connect(f"lamina://127.0.0.1:{port}") as server:
        return [message["value"].decode() for message in server.topic(topic).read()]


def twice(found: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(found).items() if count > 1]


# -- a driver --------------------------------------------------------------------------------------------------------

BATCHES, PARTITIONS, EACH = 6, 3, 120
TOPICS = ("a", "b")


def batch_of(batch: int) -> list[pa.RecordBatch]:
    """The rows of a batch: to both topics in turn, every value once."""
    return [
        rows(*((TOPICS[number % 2], f"{batch}.{part}.{number}") for number in range(EACH)))
        for part in range(PARTITIONS)
    ]


def expected(topic: str) -> list[str]:
    """In order of publishing."""
    found = []
    for batch in range(BATCHES):
        for part in batch_of(batch):
            for one, value in zip(part.column(0).to_pylist(), part.column(1).to_pylist(), strict=True):
                if one == topic:
                    found.append(value)
    return found


def drive(options: Mapping[str, str], log: Path) -> None:
    """Publish all batches behind the last one that Spark's own log has. Chunks are small: there are many steps."""
    publishing.MOST_ENTRIES = 16  # type: ignore[misc]
    while (batch := int(log.read_text()) if log.exists() else 0) < BATCHES:
        publish(options, batch, batch_of(batch))
        new = log.with_suffix(".new")
        new.write_text(str(batch + 1))
        new.rename(log)


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:  # one run for each; forked, so that a kill costs no import
        import os

        words = line.split()
        child = os.fork()
        if not child:
            drive(dict(word.split("=", 1) for word in words[1:]), Path(words[0]))
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
