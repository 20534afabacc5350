"""What a row becomes: a topic, an id if one was chosen, and fields.

    topic     the topic, unless the option names one for all rows (then this column is passed over)
    id        the id of the entry, such as 1700000000123-0; only into a folder
    fields    all fields: a map of names to values; then no other column may stand beside it
    else      every other column is a field with the name of the column

Names of the first three are found as Spark finds columns, in capitals or not. Text, bytes and whole numbers are values;
what could be written in more than one way (times, fractions, structures) is for the user to cast. A null is a field
that is not there. The layout is made on the driver, so that what cannot be published is refused before a task starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import parse_id, show_name
from lamina.errors import BadOption, BadTopic
from lamina.log.folders import folder_name
from lamina.pipeline.options import nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

TOPIC, ID, FIELDS = "topic", "id", "fields"
_TEXT: Final = frozenset({"string", "varchar", "char"})
_BYTES: Final = _TEXT | {"binary"}
_VALUES: Final = _BYTES | {"byte", "short", "integer", "long"}
_CAN_BE: Final = "text, bytes and whole numbers can be published"
_SLICE: Final = 1000  # rows that are Python objects at once

Entry = tuple[bytes, EntryId, list[bytes]]
"""Topic, id (0: by the clock), and name, value, name, value."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which column is what, by number."""

    one_topic: bytes | None
    """The topic of all rows."""
    topic: int | None
    id: int | None
    fields: int | None
    others: tuple[tuple[int, bytes], ...]
    """Columns that are fields, with the names of these."""

    @classmethod
    def of(cls, schema: StructType, one_topic: bytes | None, *, can_choose_ids: bool) -> Layout:
        """Raises: BadOption, naming the column."""
        names = [column.name for column in schema]
        special = {name.lower(): at for at, name in enumerate(names) if name.lower() in (TOPIC, ID, FIELDS)}
        for name, at in special.items():
            _check_special(names[at], name, schema[at].dataType)
        if one_topic is None and TOPIC not in special:
            close = nearest(TOPIC, names) if names else ""
            hint = 'option("topic", ...), or a column topic' + (f"; {close}" if close.startswith("did") else "")
            raise BadOption("no topic was given", hint=hint)
        if ID in special and not can_choose_ids:
            hint = "drop it, or rename it to publish it as a field"
            raise BadOption(f"column {names[special[ID]]}: a server gives ids itself", hint=hint)
        others = [at for at in range(len(names)) if at not in special.values()]
        if FIELDS in special and others:
            hint = f"put it into the map {names[special[FIELDS]]}, or drop it"
            raise BadOption(f"column {names[others[0]]}: there is a column of all fields beside it", hint=hint)
        for at in others:
            _check_value(names[at], schema[at].dataType)
        if FIELDS not in special and not others:
            hint = "every column but topic and id becomes a field"
            raise BadOption("no column is left to publish", hint=hint)
        topic = special.get(TOPIC) if one_topic is None else None
        named = tuple((at, names[at].encode("utf-8", "surrogateescape")) for at in others)
        return cls(one_topic, topic, special.get(ID), special.get(FIELDS), named)

    def entries(self, batch: pa.RecordBatch) -> Iterator[Entry]:
        """The rows of a batch. Raises: BadTopic for one that cannot be published; BadName."""
        for start in range(0, batch.num_rows, _SLICE):
            yield from self._entries(batch.slice(start, _SLICE))

    def _entries(self, batch: pa.RecordBatch) -> Iterator[Entry]:
        count = batch.num_rows
        topics = [self.one_topic] * count if self.topic is None else _values(batch.column(self.topic))
        chosen = [None] * count if self.id is None else _values(batch.column(self.id))
        flats = self._columns(batch) if self.fields is None else _maps(batch.column(self.fields))
        for name in set(topics):
            if name is None:
                raise BadTopic("a row has no topic: it is null", hint='filter such rows, or option("topic", ...)')
            folder_name(name)
        for topic, id, flat in zip(topics, chosen, flats, strict=True):
            if not flat:
                raise BadTopic("a row has no field: all of it is null", hint="filter such rows; a message has a field")
            if self.id is None:
                yield topic or b"", ids.FIRST, flat
            elif id is None:
                raise BadTopic("the id of a row is null", hint="give all rows one, or drop the column id")
            else:
                yield topic or b"", _id(id), flat

    def _columns(self, batch: pa.RecordBatch) -> Iterator[list[bytes]]:
        names = [name for _, name in self.others]
        for row in zip(*(_values(batch.column(at)) for at, _ in self.others), strict=True):
            flat: list[bytes] = []
            for name, value in zip(names, row, strict=True):
                if value is not None:
                    flat += (name, value)
            yield flat


def _values(column: pa.Array[Any]) -> list[bytes | None]:
    """As bytes: numbers as their digits."""
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        column = column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _maps(column: Any) -> Iterator[list[bytes]]:
    """The fields of each row: of a null map none, of a null value nothing."""
    offsets = column.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    names = _values(column.keys.slice(first, last - first))
    values = _values(column.items.slice(first, last - first))
    for at, is_there in enumerate(column.is_valid().to_pylist()):
        flat: list[bytes] = []
        if is_there:
            for place in range(offsets[at] - first, offsets[at + 1] - first):
                name, value = names[place], values[place]
                if name is not None and value is not None:
                    flat += (name, value)
        yield flat


def _id(text: bytes) -> EntryId:
    found = parse_id(show_name(text))
    if not found:
        raise BadTopic("0-0 is the id of nothing", hint="ids begin with 0-1")
    return found


def _check_special(name: str, meaning: str, type: DataType) -> None:
    if meaning == FIELDS:
        inside = [getattr(type, part, type).typeName() for part in ("keyType", "valueType")]
        if type.typeName() != "map" or not _BYTES.issuperset(inside):
            hint = "it is a map of text or bytes to text or bytes, such as map<string,binary>"
            raise BadOption(f"column {name}: {type.simpleString()} cannot be the fields of a message", hint=hint)
    elif type.typeName() not in (_TEXT if meaning == ID else _BYTES):
        what = "id of a message, such as 1700000000123-0" if meaning == ID else "name of a topic"
        hint = f"it is the {what}; rename it to publish it as a field, or cast it to string"
        raise BadOption(f"column {name}: {type.simpleString()} is no text", hint=hint)


def _check_value(name: str, type: DataType) -> None:
    kind = type.typeName()
    if kind in _VALUES:
        return
    if kind == "map":
        raise BadOption(f"column {name}: {type.simpleString()} cannot be a value", hint=f"did you mean {FIELDS}?")
    hint = f'{_CAN_BE}: col("{name}").cast("string")' if kind not in ("struct", "array") else f"{_CAN_BE}: to_json"
    raise BadOption(f"column {name}: {type.simpleString()} cannot be a value", hint=hint)
