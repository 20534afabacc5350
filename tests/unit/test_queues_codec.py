"""Records of the queue store: msgpack as the library writes it, and nothing else is read."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lamina.engines.queues import codec
from lamina.engines.queues.message import NO_TTL, Message, Queue

ID = st.binary(min_size=24, max_size=24)
TTL = st.just(NO_TTL) | st.integers(0, 1 << 40)
KEY = st.none() | st.binary(min_size=1, max_size=64)


@given(ID, ID)
def test_an_acknowledgement_is_plain_msgpack(rid: bytes, id: bytes) -> None:
    assert codec.ack(rid, id) == msgspec.msgpack.encode(("ACK", rid, id))
    assert codec.decode(codec.ack(rid, id)) == ["ACK", rid, id]


@given(ID, ID, st.integers(0, 1 << 40), st.binary(max_size=64), st.binary(max_size=300) | st.none(), TTL)
def test_a_message_comes_back(rid: bytes, id: bytes, ts: int, flags: bytes, body: bytes | None, ttl: int) -> None:
    values = codec.decode(codec.message(rid, Message(id, ts, flags, body, ttl)))
    if body is None:
        assert values == ["QUOTA", rid, id, ts]
    else:
        assert values == ["MSG", rid, id, ts, flags, body, *([] if ttl == NO_TTL else [ttl])]


@given(ID, KEY, ID, KEY, st.booleans(), st.integers(0, 1 << 40), TTL)
def test_a_queue_comes_back(
    rid: bytes, rkey: bytes | None, sid: bytes, skey: bytes | None, is_off: bool, day: int, ttl: int
) -> None:
    values = codec.decode(codec.create(Queue(rid, rkey, sid, skey, is_off, day, ttl)))
    status = "off" if is_off else "active"
    assert values == ["CREATE", rid, rkey, sid, skey, status, day, *([] if ttl == NO_TTL else [ttl])]


@given(st.binary(max_size=80))
@example(b"")
@example(b"\x90")
@example(b"\x91\xa3ACK")
@example(b"\x91\x90")
@example(b"\x91" * 5000)
@example(b"\x91\xa3\xff\xff\xff")
def test_any_bytes_are_a_record_or_bad(junk: bytes) -> None:
    try:
        values = codec.decode(junk)
    except codec.BadRecord:
        return
    assert msgspec.msgpack.encode(values) is not None and isinstance(values[0], str)


@pytest.mark.parametrize(
    "values",
    [
        ("ACK", bytes(24)),
        ("ACK", bytes(24), bytes(23)),
        ("ACK", bytes(24), "x" * 24),
        ("MSG", bytes(24), bytes(24), -1, b"", b""),
        ("MSG", bytes(24), bytes(24), 1 << 63, b"", b""),
        ("MSG", bytes(24), bytes(24), 1.5, b"", b""),
        ("MSG", bytes(24), bytes(24), True, b"", b""),
        ("CREATE", bytes(24), None, bytes(24), None, "gone", 0),
        ("CREATE", bytes(24), "key", bytes(24), None, "off", 0),
        ("SECURE", bytes(24), None),
        ("END", 1),
        ("NOTHING", 1),
    ],
)
def test_what_is_not_of_its_form_is_bad(values: tuple[object, ...]) -> None:
    with pytest.raises(codec.BadRecord):
        codec.decode(msgspec.msgpack.encode(values))
