"""What is published as an object reads back as the same object, whatever is in it."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NotRequired, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.engines.topics.typed_fields import Body
from lamina.errors import BadBody

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    NULL = "null"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Point(msgspec.Struct):
    x: float
    label: str | None = None


class Rich(msgspec.Struct, rename="camel"):
    number: int
    real: float
    text: str
    raw: bytes
    is_on: bool
    moment: datetime
    day: date
    clock: time
    span: timedelta
    price: Decimal
    key: UUID
    color: Color
    level: Level
    word: Literal["a", "null"]
    items: list[int | str]
    by_name: dict[str, list[bytes]]
    by_number: dict[int, float]
    point: Point
    maybe_text: str | None
    maybe_raw: bytes | None = None
    maybe_number: int | None = None
    maybe_real: float | None = 1.5
    maybe_text_else: str | None = "else"
    maybe_raw_else: bytes | None = b"else"
    maybe_day: date | None = None
    maybe_color: Color | None = Color.RED
    maybe_items: list[str] | None = None
    maybe_on: bool | None = None
    number_or_text: int | str = 0
    unset: str | msgspec.UnsetType = msgspec.UNSET
    any_of_it: Any = None


ZONES = st.none() | st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TEXTS = st.text() | st.sampled_from(["", "null", '"', '"x"', "1", "true", "\r\n\x00", "🍵"])
INTS = st.integers() | st.sampled_from([2**63, -(2**70), 10**4000])
REALS = st.floats()
FINITE = st.floats(allow_nan=False, allow_infinity=False)
PLACES = st.builds(Point, FINITE, st.none() | TEXTS)

RICH = st.builds(
    Rich,
    number=INTS,
    real=REALS,
    text=TEXTS,
    raw=st.binary(),
    is_on=st.booleans(),
    moment=st.datetimes(timezones=ZONES).filter(lambda moment: moment.tzinfo is None or 2 < moment.year < 9998),
    day=st.dates(),
    clock=st.times(timezones=ZONES),
    span=st.timedeltas(timedelta(days=-999_999), timedelta(days=999_999)),
    price=st.decimals() | st.sampled_from([Decimal("-0"), Decimal("1E+5"), Decimal("0.10"), Decimal("-Infinity")]),
    key=st.uuids(),
    color=st.sampled_from(Color),
    level=st.sampled_from(Level),
    word=st.sampled_from(["a", "null"]),
    items=st.lists(st.integers(-(2**63), 2**64 - 1) | TEXTS),
    by_name=st.dictionaries(TEXTS, st.lists(st.binary())),
    by_number=st.dictionaries(st.integers(-(2**60), 2**60), FINITE),
    point=PLACES,
    maybe_text=st.none() | TEXTS,
    maybe_raw=st.none() | st.binary() | st.just(b"null"),
    maybe_number=st.none() | INTS,
    maybe_real=st.none() | REALS,
    maybe_text_else=st.none() | TEXTS,
    maybe_raw_else=st.none() | st.binary(),
    maybe_day=st.none() | st.dates(),
    maybe_color=st.none() | st.sampled_from(Color),
    maybe_items=st.none() | st.lists(TEXTS),
    maybe_on=st.none() | st.booleans(),
    number_or_text=st.integers(-(2**63), 2**63) | TEXTS,
    unset=st.just(msgspec.UNSET) | TEXTS,
    any_of_it=st.none() | st.booleans() | TEXTS | st.lists(st.integers(0, 9)),
)


def comparable(value: Any) -> Any:
    """Equal where the values are the same: also nan, and the sign of zero, and the type."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value.hex(), float)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, msgspec.Struct):
        return {name: comparable(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {key: comparable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [comparable(each) for each in value]
    return type(value), value


def round_trip(body: Any, kind: Any = None) -> Any:
    format = Body(kind or type(body))
    written = format.write(body, "t")
    assert written
    assert all(type(part) is bytes for pair in written.items() for part in pair)
    return format.read(written, "t", "1-0")


@given(RICH)
def test_all_that_a_struct_can_hold_comes_back(body: Rich) -> None:
    assert comparable(round_trip(body)) == comparable(body)


def test_others_read_plain_text() -> None:
    body = Rich(
        number=5,
        real=1.5,
        text="grün",
        raw=b"\xff",
        is_on=True,
        moment=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        day=date(2026, 1, 2),
        clock=time(3, 4),
        span=timedelta(seconds=90),
        price=Decimal("0.10"),
        key=UUID(int=1),
        color=Color.RED,
        level=Level.HIGH,
        word="a",
        items=[1, "x"],
        by_name={},
        by_number={1: 2.0},
        point=Point(0.5),
        maybe_text=None,
    )
    written = {key.decode(): value for key, value in Body(Rich).write(body, "t").items()}
    assert written == {
        "number": b"5",
        "real": b"1.5",
        "text": "grün".encode(),
        "raw": b"\xff",
        "isOn": b"true",
        "moment": b"2026-01-02T03:04:05Z",
        "day": b"2026-01-02",
        "clock": b"03:04:00",
        "span": b"PT90S",
        "price": b"0.10",
        "key": b"00000000-0000-0000-0000-000000000001",
        "color": b"red",
        "level": b"10",
        "word": b"a",
        "items": b'[1,"x"]',
        "byName": b"{}",
        "byNumber": b'{"1":2.0}',
        "point": b'{"x":0.5,"label":null}',
        "maybeReal": b"1.5",
        "maybeTextElse": b'"else"',
        "maybeRawElse": b'"ZWxzZQ=="',
        "maybeColor": b'"red"',
        "maybeItems": b"null",
        "maybeOn": b"null",
        "numberOrText": b"0",
        "anyOfIt": b"null",
    }


# -- other classes -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Order:
    item: str
    count: int = 1
    tags: list[str] = dataclasses.field(default_factory=list)
    total: float = dataclasses.field(init=False, default=0.0)
    note: str | None = None


class Row(TypedDict):
    item: str
    count: NotRequired[int | None]
    note: str | None


class Box(msgspec.Struct, Generic[T]):
    inside: T


class Sparse(msgspec.Struct, forbid_unknown_fields=True):
    note: str | None = None


def test_a_dataclass_comes_back() -> None:
    body = Order("tea", 2, ["a"])
    body.total = 7.5
    assert round_trip(body) == body
    assert round_trip(Order("null", note="null")) == Order("null", note="null")


@pytest.mark.parametrize("row", [{"item": "a", "note": None}, {"item": "", "count": None, "note": "null"}])
def test_a_typed_dict_comes_back(row: Any) -> None:
    assert round_trip(row, Row) == row


def test_a_body_without_fields_comes_back() -> None:
    assert Body(Sparse).write(Sparse(), "t") == {b"": b""}
    assert round_trip(Sparse()) == Sparse()
    assert round_trip(Sparse("")) == Sparse("")


def test_a_generic_class_comes_back() -> None:
    assert round_trip(Box(inside=Point(1.0)), Box[Point]) == Box(inside=Point(1.0))


def test_a_later_class_reads_messages_of_an_earlier_one() -> None:
    assert Body(Order).read({b"item": b"tea", b"unknown": b"x"}, "t", "1-0") == Order("tea")


def test_what_people_write_by_hand_is_read() -> None:
    class Loose(msgspec.Struct):
        is_on: bool
        count: int
        maybe: int | None
        moment: datetime

    fields = {b"is_on": b"1", b"count": b"5.0", b"maybe": b"null", b"moment": b"2026-01-02 03:04:05Z"}
    assert Body(Loose).read(fields, "t", "1-0") == Loose(True, 5, None, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


# -- what cannot be ----------------------------------------------------------------------------------------------------


class Strict(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=1)]
    reals: list[float | None] = []
    moment: datetime = datetime(2026, 1, 1)  # noqa: DTZ001  # one without a zone


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "count"),
        ({b"count": b"0"}, "count"),
        ({b"count": b"x"}, "count"),
        ({b"count": b"\xff"}, "count"),
        ({b"count": b""}, "count"),
        ({b"count": b"1", b"reals": b"[1,"}, "reals"),
        ({b"count": b"1", b"reals": b'["x"]'}, "reals"),
        ({b"count": b"1", b"moment": b"yesterday"}, "moment"),
    ],
)
def test_a_message_that_does_not_fit_says_which_field_and_why(fields: Any, field: str) -> None:
    with pytest.raises(BadBody) as told:
        Body(Strict).read(fields, "orders", "5-0")
    assert (told.value.topic, told.value.id, told.value.field) == ("orders", "5-0", field)
    assert "'orders'" in str(told.value) and "5-0" in str(told.value) and told.value.reason in str(told.value)


@pytest.mark.parametrize(
    "body",
    [
        Strict(True),
        Strict("1"),  # type: ignore[arg-type]
        Strict(1, [math.nan]),
        Strict(1, [1.0, math.inf]),
        Strict(1, "x"),  # type: ignore[arg-type]
        Strict(1, moment="now"),  # type: ignore[arg-type]
        Strict(1, moment=datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=1)))),
        Order("\ud800"),
        Order(b"x"),  # type: ignore[arg-type]
        Order("a", tags=["\ud800"]),
        Order("a", 10**5000),
    ],
)
def test_what_could_not_be_read_back_is_not_published(body: Any) -> None:
    with pytest.raises(BadBody) as told:
        Body(type(body)).write(body, "t")
    assert told.value.id is None
    assert told.value.field


def test_an_object_of_another_class_is_a_mistake() -> None:
    class More(Strict):
        extra: int = 0

    for wrong in (Order("a"), {"count": 1}, More(1), None):
        with pytest.raises(TypeError, match="takes Strict"):
            Body(Strict).write(wrong, "t")  # type: ignore[arg-type]
    with pytest.raises(BadBody, match="no such key"):
        Body(Row).write({"item": "a", "note": None, "more": 1}, "t")  # type: ignore[typeddict-unknown-key]
    with pytest.raises(BadBody, match="missing"):
        Body(Row).write({"item": "a"}, "t")  # type: ignore[typeddict-item]
    with pytest.raises(BadBody, match="no such field"):
        Body(Sparse).read({b"more": b""}, "t", "1-0")


@pytest.mark.parametrize("kind", [int, str, dict, object, list[int]])
def test_other_kinds_are_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="cannot be the kind"):
        Body(kind)


class Odd:
    """Nothing knows how to write it."""


class WithOdd(msgspec.Struct):
    odd: Odd


def test_a_type_that_nobody_can_write_is_refused() -> None:
    with pytest.raises(TypeError, match="'odd'"):
        Body(WithOdd)
