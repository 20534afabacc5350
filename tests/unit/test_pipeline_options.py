"""Options of a read and of a stream: what cannot be is refused, and nothing is passed over in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import lamina
from lamina.errors import BadOption
from lamina.pipeline.options import STREAMING, ReadOptions
from lamina.pipeline.source import LaminaSource

_VALUES = {
    "startingOffsets": "earliest",
    "maxRecordsPerTrigger": "5",
    "maxBytesPerTrigger": "5KiB",
    "failOnDataLoss": "true",
    "consumer": "export",
    "consumerExpiry": "1h",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with lamina.open(tmp_path / "data") as opened:
        opened.topic("orders").publish({"n": "1"})
        opened.jobs.add("mail", b"hello")
    return tmp_path / "data"


def source(data: Path, **options: str) -> LaminaSource:
    return LaminaSource({"path": str(data), **options})


def read(data: Path, **options: str) -> None:
    made = source(data, **options)
    made.reader(made.schema()).partitions()


def stream(data: Path, **options: str) -> None:
    made = source(data, **options)
    made.streamReader(made.schema()).initialOffset()


@pytest.mark.parametrize("text", ["²", "٣²", "1" * 5000, "0", "-1", "", "1.5", "many"])
@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerTrigger"])
def test_a_number_that_is_none_is_refused(name: str, text: str) -> None:
    with pytest.raises(BadOption, match=name) as caught:
        ReadOptions.parse({"path": "data", name: text})
    assert caught.value.hint


@pytest.mark.parametrize("name", ["startingTimestamp", "maxPartitionBytes", "maxBytesPerTrigger", "consumerExpiry"])
def test_a_time_or_size_that_is_none_is_refused_by_the_name_of_the_option(name: str) -> None:
    for text in ("²", "soon", ""):
        with pytest.raises(BadOption, match=name) as caught:
            ReadOptions.parse({"path": "data", name: text})
        assert caught.value.hint


@pytest.mark.parametrize("name", STREAMING)
def test_an_option_of_streams_is_refused_in_a_batch_read(data: Path, name: str) -> None:
    for spelt in (name, name.lower()):
        with pytest.raises(BadOption, match=f"{name} is for a stream, and this is a batch read") as caught:
            read(data, **{spelt: _VALUES[name]})
        assert caught.value.hint
        stream(data, **{spelt: _VALUES[name]})


@pytest.mark.parametrize(
    ("name", "value"), [("filterPushdown", "true"), ("filterpushdown", "false"), ("endingTimestamp", "-1s")]
)
def test_an_option_of_batch_reads_is_refused_in_a_stream(data: Path, name: str, value: str) -> None:
    with pytest.raises(BadOption, match=r"(?i)" + name + " is for a batch read, and this is a stream"):
        stream(data, **{name: value})
    read(data, **{name: value})


def test_a_moment_of_a_state_is_refused_in_a_stream(data: Path) -> None:
    with pytest.raises(BadOption, match="asOf is for a batch read"):
        stream(data, view="job_state", asOf="-1s")
    read(data, view="job_state", asOf="-1s")


def test_two_beginnings_are_refused(data: Path) -> None:
    with pytest.raises(BadOption, match="both say where to begin"):
        stream(data, startingTimestamp="-1h", startingOffsets="latest")


def test_topics_are_refused_where_there_are_none(data: Path) -> None:
    for use in (read, stream):
        with pytest.raises(BadOption, match="the view jobs has no rows of topics") as caught:
            use(data, view="jobs", topic="orders")
        assert caught.value.hint
        with pytest.raises(BadOption, match="the view jobs has no rows of topics"):
            use(data / "jobs", topic="orders")
        for view in ("topic", "groups", "records"):
            use(data, view=view, topic="orders")


def test_what_spark_puts_among_the_options_is_let_be(data: Path) -> None:
    ours = {"paths": "[]", "checkpointLocation": "x", "queryName": "q"}
    read(data, **ours)
    stream(data, **ours)
