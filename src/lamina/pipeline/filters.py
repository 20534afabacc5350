"""Filters that Spark hands over before it plans: on time they spare files, on names logs, on the rest rows.

Spark applies every filter again to what is left, so one that is not understood here is only not used.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from lamina.pipeline.pieces import Times
from lamina.pipeline.schema import Column
from lamina.pipeline.snapshot import Snapshot

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SIMPLE: Final = ("string", "bigint", "int", "binary", "boolean")
_COMPARED: Final = {
    GreaterThan: "greater",
    GreaterThanOrEqual: "greater_equal",
    LessThan: "less",
    LessThanOrEqual: "less_equal",
    EqualTo: "equal",
}


@dataclass(frozen=True, slots=True)
class Test:
    """A condition on one column: ``compare`` is a function of Arrow, or ``in`` or ``starts_with``."""

    column: str
    compare: str
    value: Any


def push(given: Iterable[Filter], times: Times, columns: Sequence[Column]) -> tuple[Times, list[Test]]:
    """The time that is left, and tests of rows."""
    types = {column.name: column.type for column in columns}
    tests = []
    for one in given:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1 or path[0] not in types:
            continue
        name, kind = path[0], types[path[0]]
        if name in ("time", "time_ns"):
            times = times.within(_times(one, is_micros=name == "time"))
        elif kind in _SIMPLE and (test := _test(one, name)) is not None:
            tests.append(test)
    return times, tests


def _times(one: Filter, *, is_micros: bool) -> Times:
    value = getattr(one, "value", None)
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) - _EPOCH
        number = (moment.days * 86400 + moment.seconds) * 10**6 + moment.microseconds
    elif isinstance(value, int) and not is_micros:
        number = value
    else:
        return Times()
    unit = 1000 if is_micros else 1
    # A time in microseconds stands for all nanoseconds that round down to it.
    here, behind = number * unit, (number + 1) * unit
    if isinstance(one, EqualTo):
        return Times(here, behind)
    if isinstance(one, GreaterThan):
        return Times(behind, None)
    if isinstance(one, GreaterThanOrEqual):
        return Times(here, None)
    if isinstance(one, LessThan):
        return Times(None, here)
    if isinstance(one, LessThanOrEqual):
        return Times(None, behind)
    return Times()


def _test(one: Filter, name: str) -> Test | None:
    if isinstance(one, In):
        values = [value for value in one.value if value is not None]
        return Test(name, "in", tuple(values)) if values else None
    if isinstance(one, StringStartsWith):
        return Test(name, "starts_with", one.value)
    compare = _COMPARED.get(type(one))
    value = getattr(one, "value", None)
    if compare is None or not isinstance(value, str | int | bytes | bytearray | bool):
        return None
    return Test(name, compare, bytes(value) if isinstance(value, bytearray) else value)


def choose_logs(snapshot: Snapshot, tests: Sequence[Test]) -> Snapshot:
    """Without files of logs whose name or path a test turns down."""
    about = [test for test in tests if test.column in ("topic", "log", "file")]
    if not about:
        return snapshot

    def stays(topic: str, log: str, file: str) -> bool:
        names = {"topic": topic, "log": log, "file": file}
        return all(_is_true(test, names[test.column]) for test in about)

    files = [file for file in snapshot.files if stays(file.place.name, file.place.path, file.name)]
    return replace(snapshot, files=tuple(files))


def _is_true(test: Test, value: str) -> bool:
    if test.compare == "equal":
        return bool(value == test.value)
    if test.compare == "in":
        return value in test.value
    return test.compare != "starts_with" or value.startswith(str(test.value))


def apply(batch: pa.RecordBatch, tests: Sequence[Test]) -> pa.RecordBatch:
    """The rows that pass all tests on columns that are there."""
    mask = None
    for test in tests:
        if test.column not in batch.schema.names:
            continue
        column = batch.column(test.column)
        if test.compare == "in":
            found = pc.is_in(column, value_set=pa.array(test.value, column.type))
        elif test.compare == "starts_with":
            found = pc.starts_with(column, test.value)
        else:
            found = getattr(pc, test.compare)(column, pa.scalar(test.value, column.type))
        mask = found if mask is None else pc.and_(mask, found)
    if mask is None:
        return batch
    return batch if pc.all(mask).as_py() is True and builtins.len(mask) else batch.filter(mask)
