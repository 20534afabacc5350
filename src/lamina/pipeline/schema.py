"""Columns of a table: what Spark calls their types, what Arrow does, and which of them a read wants.

Everything may be null. Spark has no unsigned numbers: those of 64 bits that are past the middle are negative there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lamina.errors import BadOption
from lamina.pipeline.options import nearest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ARROW: Final = {
    "timestamp": pa.timestamp("us", "UTC"),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "map<string,binary>": pa.map_(pa.string(), pa.binary()),
    "array<string>": pa.list_(pa.string()),
    "array<bigint>": pa.list_(pa.int64()),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a view."""

    name: str
    type: str
    """As Spark writes it."""
    meaning: str

    @property
    def arrow(self) -> pa.DataType:
        return _ARROW[self.type]


DAMAGE: Final = Column("damage", "string", "what is wrong at this place; null for a record that is whole")
"""In the mode ``permissive``."""


def ddl(columns: Sequence[Column]) -> str:
    """The schema as Spark takes it."""
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)


def struct(columns: Sequence[Column], never_null: Collection[str]) -> StructType:
    """The same with what is never null said to be so: Spark then does not look for it, row by row."""
    from pyspark.sql import types

    kinds: dict[str, types.DataType] = {
        "timestamp": types.TimestampType(),
        "bigint": types.LongType(),
        "int": types.IntegerType(),
        "double": types.DoubleType(),
        "boolean": types.BooleanType(),
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "array<string>": types.ArrayType(types.StringType()),
        "array<bigint>": types.ArrayType(types.LongType()),
    }
    fields = []
    for column in columns:
        is_full = column.name in never_null
        kinds["map<string,binary>"] = types.MapType(types.StringType(), types.BinaryType(), not is_full)
        fields.append(types.StructField(column.name, kinds[column.type], nullable=not is_full))
    return types.StructType(fields)


_FULL_MAP: Final = pa.map_(pa.string(), pa.field("value", pa.binary(), nullable=False))


def as_asked(asked: StructType, columns: Sequence[Column]) -> pa.Schema:
    """The columns as a schema asks for them: what it says is never null has to be said by Arrow, too."""
    fields = []
    for field, column in zip(asked.fields, columns, strict=True):
        has_null_values = getattr(field.dataType, "valueContainsNull", True)
        kind = column.arrow if has_null_values else _FULL_MAP
        fields.append(pa.field(column.name, kind, nullable=field.nullable))
    return pa.schema(fields)


def recast(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The same columns, whose types differ in what may be null only."""
    arrays = []
    for array, field in zip(batch.columns, wanted, strict=True):
        if array.type != field.type:  # a map whose values are never null
            _, offsets = array.buffers()[:2]
            items = pa.StructArray.from_arrays(
                [array.keys, array.items], fields=[field.type.key_field, field.type.item_field]
            )
            array = pa.Array.from_buffers(field.type, len(array), [None, offsets], 0, array.offset, children=[items])
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.arrow) for column in columns])


def project(view: str, columns: Sequence[Column], asked: StructType) -> list[Column]:
    """The columns of a view that a schema asks for, in its order. Raises: BadOption for one that is not there."""
    known = {column.name: column for column in columns}
    wanted = []
    for field in asked.fields:
        column = known.get(field.name)
        if column is None:
            raise BadOption(f"the view {view} has no column {field.name!r}", hint=nearest(field.name, known))
        if field.dataType.simpleString() != column.type:
            raise BadOption(
                f"the column {field.name} of the view {view} is {column.type}, not {field.dataType.simpleString()}",
                hint=f"write {field.name} {column.type}, and cast it afterwards",
            )
        wanted.append(column)
    return wanted


# -- arrays from buffers ---------------------------------------------------------------------------------------------


def numbers(data: bytes, kind: pa.DataType | None = None) -> pa.Array:
    """64-bit numbers that stand one behind the other."""
    kind = pa.int64() if kind is None else kind
    return pa.Array.from_buffers(kind, len(data) // 8, [None, pa.py_buffer(data)])


def strings(offsets: bytes, values: bytes, kind: pa.DataType) -> pa.Array:
    """Bytes or text from offsets and values."""
    count = len(offsets) // 4 - 1
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def repeated(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def labels(codes: bytes, words: Sequence[str]) -> pa.Array:
    """One word for each byte."""
    indices = pa.Array.from_buffers(pa.uint8(), len(codes), [None, pa.py_buffer(codes)])
    return pa.array(words, pa.string()).take(indices)
