"""What was removed before a stream had read it is told; what was gone when it began is not."""

from __future__ import annotations

import json
import os
import shutil

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadMaxRows

from lamina.errors import Gap
from unit.test_pipeline_stream import ALL, Lab, Query, lab, looks_always

__all__ = ["lab", "looks_always"]


def test_what_retention_took_before_it_was_read_is_told(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    written = lab.write("a", 0, 100, 20)
    query = Query(lab.folder)
    given = query.batch(ReadMaxRows(10))
    lab.remove_oldest("a", 2)
    with pytest.raises(Gap, match="logs/a: they were cleaned away") as caught:
        query.batch()
    assert query.offset is not None
    assert caught.value.after == query.offset["logs"]["logs/a"]
    assert "failOnDataLoss" in caught.value.hint
    query.options["failOnDataLoss"] = "false"
    query.restart()
    rest = query.batch()
    assert 0 < len(rest) < 90
    assert rest == written[-len(rest) :]
    assert given == written[:10]
    assert "logs/a: records after" in caplog.text


def test_what_was_gone_before_the_stream_began_is_no_loss(lab: Lab) -> None:
    lab.write("a", 0, 100, 20)
    middle = [record.time_ns for record in lab.logs["a"].reader.read()][5]
    lab.remove_oldest("a", 2)
    assert 0 < len(Query(lab.folder).batch()) < 100
    assert 0 < len(Query(lab.folder, startingTimestamp=str(middle)).batch()) < 100
    with pytest.raises(Gap):
        Query(lab.folder, startingOffsets=json.dumps({"logs/a": middle})).batch()


def test_a_whole_file_that_cleaning_took_from_the_middle_is_told_also_after_a_restart(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    written = lab.write("a", 0, 100, 20)
    query = Query(lab.folder)
    given = query.batch(ReadMaxRows(5))
    last, until = lab.remove_from_the_middle("a", 2)
    query.restart()
    for limit in (ALL, ReadMaxRows(80)):
        with pytest.raises(Gap, match="logs/a: they were cleaned away") as caught:
            query.batch(limit)
        assert (caught.value.after, caught.value.until) == (last, until)
    query.options["failOnDataLoss"] = "false"
    query.restart()
    caplog.clear()
    while some := query.batch(ReadMaxRows(20)):
        given += some
    assert caplog.text.count("logs/a: records after") == 1
    assert given == [each for each in written if each in given] and 0 < len(given) < 100


def test_a_file_that_goes_from_the_middle_of_a_planned_batch_is_told(lab: Lab) -> None:
    lab.write("a", 0, 100, 20)
    counts = [lab.count("a", place) for place in range(4)]
    query = Query(lab.folder)
    query.batch(ReadMaxRows(5))
    assert query.offset is not None
    inside = query.plan(ReadMaxRows(sum(counts[:2]) + 1 - 5))  # ends with the first record of the third file
    before = query.plan(ReadMaxRows(sum(counts[:2]) - 5))
    lab.remove_from_the_middle("a", 2)
    assert len(query.read(query.offset, before)) == sum(counts[:2]) - 5
    with pytest.raises(Gap):
        query.read(query.offset, inside)


def test_what_was_gone_from_the_middle_before_the_stream_began_is_no_loss(lab: Lab) -> None:
    lab.write("a", 0, 200, 20)
    time_ns = [record.time_ns for record in lab.logs["a"].reader.read()][1]
    lab.remove_from_the_middle("a", 2)
    lab.remove_from_the_middle("a", 4)
    left = len(list(lab.logs["a"].reader.read()))
    queries = [
        Query(lab.folder),
        Query(lab.folder, startingTimestamp=str(time_ns)),
        Query(lab.folder, startingOffsets='{"logs/a": -2}'),
    ]
    for query in queries:
        given = query.batch(ReadMaxRows(2))
        query.restart()
        given += query.batch(ReadMaxRows(40))
        query.restart()
        given += query.batch()
        assert left - 1 <= len(given) <= left
        assert query.offset is not None and "gone" not in query.offset
    with pytest.raises(Gap):
        Query(lab.folder, startingOffsets=json.dumps({"logs/a": time_ns})).batch()
    again = Query(lab.folder)
    again.batch(ReadMaxRows(2))
    lab.remove_from_the_middle("a", 1)  # beside one that was gone
    again.restart()
    with pytest.raises(Gap):
        again.batch()


def test_a_number_that_is_missing_is_no_loss_by_itself(lab: Lab) -> None:
    """As when the file in between had no records."""
    written = lab.write("a", 0, 100, 20)
    query = Query(lab.folder)
    given = query.batch(ReadMaxRows(2))
    query.reader.stop()
    lab.close()
    folder = lab.folder / "logs/a"
    for name in sorted((each for each in os.listdir(folder) if each[:9].isdecimal()), reverse=True):
        if int(name[:9]) > 2:
            os.rename(folder / name, folder / f"{int(name[:9]) + 1:09d}{name[9:]}")
    query.restart()
    assert given + query.batch() == written


def test_losses_of_a_log_that_came_after_the_stream_are_told(lab: Lab) -> None:
    lab.write("a", 0, 3)
    query = Query(lab.folder)
    query.batch()
    lab.write("b", 0, 100, 20)
    lab.remove_oldest("b")
    with pytest.raises(Gap, match="logs/b: they were cleaned away") as caught:
        query.batch()
    assert caught.value.after == 0
    query.options["failOnDataLoss"] = "false"
    query.restart()
    assert 0 < len(query.batch()) < 100


def test_a_log_that_was_cut_when_the_stream_began_stays_without_loss(lab: Lab) -> None:
    lab.write("a", 0, 3)
    lab.write("b", 0, 100, 20)
    lab.remove_oldest("b")
    query = Query(lab.folder, maxRecordsPerTrigger="1")
    assert len(query.rest()) > 50


def test_what_is_removed_between_planning_and_reading_is_told(lab: Lab) -> None:
    lab.write("a", 0, 100, 20)
    query = Query(lab.folder)
    assert query.offset is not None
    partitions = list(query.reader.partitions(query.offset, query.plan()))
    lab.remove_oldest("a", 1)
    with pytest.raises(Gap, match=r"000000001\.log was removed meanwhile"):
        for each in partitions:
            list(query.reader.read(each))


def test_a_log_that_was_deleted_with_a_planned_batch_is_told(lab: Lab) -> None:
    lab.write("a", 0, 3)
    lab.write("b", 0, 3)
    query = Query(lab.folder)
    assert query.offset is not None
    end = query.plan()
    lab.logs.pop("a").close()
    shutil.rmtree(lab.folder / "logs/a")
    with pytest.raises(Gap, match="logs/a: the log was deleted"):
        query.read(query.offset, end)
    query.options["failOnDataLoss"] = "false"
    query.restart()
    assert len(query.read(query.offset, end)) == 3
