"""Messages of a topic as callers have them, and the moments and ids by which they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Final, TypeAlias

from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.errors import BadName, BadTopic, RecordTooLarge

Value: TypeAlias = str | bytes | int | float
Publishable: TypeAlias = Mapping[str, Value] | Mapping[bytes, Value] | str | bytes
"""Fields by name; or text or bytes alone, which become the one field ``value``."""
Moment: TypeAlias = str | datetime | timedelta | float
"""An id, a time, a time before now, or seconds since 1970."""

VALUE: Final = b"value"
START, END = "start", "end"
"""The oldest message there is, and behind the newest, where a position is meant."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = (1 << 64) - 1
_AROUND: Final = 32  # bytes of a record beside its fields, at most
_HEAD: Final = 5  # bytes in front of each


class Message:
    """One message of a topic."""

    __slots__ = ("_flat", "entry_id")

    def __init__(self, entry_id: EntryId, flat: Sequence[bytes]) -> None:
        """``flat``: name, value, name, value."""
        self.entry_id = entry_id
        self._flat = flat

    @property
    def id(self) -> str:
        """``1700000000123-0``: milliseconds since 1970, and a number among those of the same millisecond."""
        return ids.show(self.entry_id).decode()

    @property
    def time_ms(self) -> int:
        """When it was published, in milliseconds since 1970; or what the publisher chose for its id."""
        return ids.ms_of(self.entry_id)

    @property
    def time(self) -> datetime:
        """The same in UTC. Raises: OverflowError for an id beyond the year 9999, which only a publisher can choose."""
        return _EPOCH + timedelta(milliseconds=self.time_ms)

    @property
    def fields(self) -> dict[bytes, bytes]:
        """Of fields with the same name the last; ``pairs`` has them all."""
        return dict(self.pairs)

    @property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Names and values in the order in which they were given."""
        return list(zip(self._flat[::2], self._flat[1::2], strict=False))

    @property
    def value(self) -> bytes:
        """What was published as text or bytes alone: the field ``value``. Raises: KeyError if it has none."""
        return self[VALUE]

    def __getitem__(self, name: str | bytes) -> bytes:
        return self.fields[name.encode() if isinstance(name, str) else name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and (self.entry_id, [*self._flat]) == (other.entry_id, [*other._flat])

    def __hash__(self) -> int:
        return hash(self.entry_id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


def to_flat(message: Publishable, max_payload: int) -> list[bytes]:
    """Name, value, name, value. Raises: TypeError; BadTopic for no field at all; RecordTooLarge."""
    if isinstance(message, str | bytes):
        flat = [VALUE, _to_bytes(message)]
    elif isinstance(message, Mapping):
        flat = [_to_bytes(part) for pair in message.items() for part in pair]
    else:
        raise TypeError(f"a mapping, text or bytes are needed, not {type(message).__name__}")
    if not flat:
        raise BadTopic("a message has at least one field")
    size = sum(map(len, flat)) + _HEAD * len(flat) + _AROUND
    if size > max_payload:
        raise RecordTooLarge(0, size, max_payload)
    return flat


def _to_bytes(part: Value) -> bytes:
    if isinstance(part, bytes):
        return part
    if isinstance(part, str):
        return to_name(part)
    if isinstance(part, bool) or not isinstance(part, int | float):
        raise TypeError(f"text, bytes or a number are needed, not {type(part).__name__}")
    return repr(part).encode()


def to_name(text: str) -> bytes:
    """The bytes of a name. Raises: BadName for what no name of bytes was shown as."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadName(f"{text[:40]!r} cannot be a name here", hint="it is no text that UTF-8 can hold") from None


def show_name(name: bytes) -> str:
    """Text that ``to_name`` turns back; other clients may have given names that are no UTF-8."""
    return name.decode("utf-8", "surrogateescape")


# -- where to begin and to end -----------------------------------------------------------------------------------------


def starting_at(moment: Moment, now_ns: int) -> EntryId:
    """The first id that is meant: of a time, all of its millisecond. Raises: BadTopic."""
    return parse_id(moment) if isinstance(moment, str) else ids.make(_to_ms(moment, now_ns), 0)


def ending_at(moment: Moment, now_ns: int) -> EntryId:
    """The last id that is meant: of a time, or of an id without a number, all of its millisecond. Raises: BadTopic."""
    if isinstance(moment, str):
        return parse_id(moment, _LAST_MS)
    return ids.make(_to_ms(moment, now_ns), _LAST_MS)


def parse_id(text: str, missing_sequence: int = 0) -> EntryId:
    """Raises: BadTopic."""
    try:
        return ids.parse(text.encode("utf-8", "replace"), missing_sequence)
    except BadTopic:
        raise BadTopic(f"{text[:60]!r} is no id of a message", hint="such as 1700000000123-0") from None


def _is_finite(number: float) -> bool:
    return isinstance(number, int) or isfinite(number)  # which would make a float of any


def _to_ms(moment: datetime | timedelta | float, now_ns: int) -> int:
    """Rounded down: ids have no finer time, and none may be missed."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise BadTopic("a time without a zone says nothing", hint="datetime.now(UTC) - timedelta(...)")
        ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    elif isinstance(moment, timedelta):
        ms = now_ns // 1_000_000 - moment // timedelta(milliseconds=1)
    elif isinstance(moment, bool) or not isinstance(moment, int | float) or not _is_finite(moment):
        raise BadTopic(f"{moment!r} is neither a time nor an id", hint="an id, a datetime, a timedelta or seconds")
    else:
        ms = int(moment * 1000) if isinstance(moment, float) else moment * 1000
    if ms > _LAST_MS:
        raise BadTopic(f"{moment!r} is too far off")
    return max(ms, 0)
