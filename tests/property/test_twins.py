"""The Python frame and its compiled twin do the same, on whole logs and on any damage."""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Callable
from typing import Any

import crc32c as package
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lamina.errors import RecordTooLarge, ReservedPayload
from lamina.log import frame
from lamina.log.frame import CRC, MAX_PAYLOAD, SECOND, TIME, YEAR_ONE, Stop
from lamina.log.packed import Packed

speed = pytest.importorskip("lamina.log._speed", reason="the compiled twin is not built here")

INT64 = st.integers(-(2**63), 2**63 - 1)
READABLE_NS = st.integers(-9_223_372_036 * SECOND, 9_223_372_035 * SECOND + 999_999_999)
PAYLOAD = st.binary(max_size=40) | st.integers(100, 400).map(lambda size: b"x" * size)
LIMIT = st.sampled_from([MAX_PAYLOAD, MAX_PAYLOAD, 0, 1, 20, 127, 128, 2**40, 2**62])
RESERVED = (b"\x92\x00\xcf", b"\x93\x00\xc0\xcf")


def examples(count: int) -> Callable[[Any], Any]:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# -- what to compare -----------------------------------------------------------------------------------------------


def scanned(scan: Callable[..., frame.Scan], data: bytes, start: int, end: int, limit: int) -> tuple[object, ...]:
    found = scan(data, start, end, limit)
    return list(found.times), list(found.offsets), list(found.lengths), found.stop, found.why


def assert_scanned_alike(data: bytes, limit: int = MAX_PAYLOAD, start: int = 0, end: int | None = None) -> None:
    end = len(data) if end is None else end
    assert scanned(speed.scan, data, start, end, limit) == scanned(frame.scan, data, start, end, limit)


def encoded(encode: Callable[..., bytes], *arguments: object) -> object:
    """The bytes, or the error as plain values."""
    try:
        return encode(*arguments)
    except (RecordTooLarge, ReservedPayload) as error:
        return error.as_dict()


def assert_encoded_alike(*arguments: object) -> None:
    assert encoded(speed.encode_many, *arguments) == encoded(frame.encode_many, *arguments)


# -- logs, whole and damaged ---------------------------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    return b"".join(frame.encode(*each) for each in draw(st.lists(st.tuples(READABLE_NS, PAYLOAD), max_size=5)))


def flip(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([data[at] ^ (value & 0xFF or 1)]) + data[at + 1 :]


def cut(data: bytes, at: int, value: int) -> bytes:
    return data[:at]


def leave_out(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + data[at + 1 + value % 30 :]


def insert(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + value.to_bytes(8, "big")[-1 - value % 8 :] + data[at:]


def zero_fill(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes(len(data) - at)


def zero_stretch(data: bytes, at: int, value: int) -> bytes:
    length = min(1 + value % 30, len(data) - at)
    return data[:at] + bytes(length) + data[at + length :]


DAMAGE = st.tuples(
    st.sampled_from([flip, flip, cut, leave_out, insert, zero_fill, zero_stretch]),
    st.integers(0, 2**32),
    st.integers(0, 2**64 - 1),
)


def damaged(data: bytes, damage: list[tuple[Callable[[bytes, int, int], bytes], int, int]]) -> bytes:
    for hurt, place, value in damage:
        if data:
            data = hurt(data, place % len(data), value)
    return data


SECONDS = (
    st.just(YEAR_ONE)
    | st.integers(-(2**63), 2**63 - 1)
    | st.sampled_from([YEAR_ONE - 9_223_372_036, YEAR_ONE + 9_223_372_035]).flatmap(
        lambda edge: st.integers(edge - 2, edge + 2)
    )
)
NANOS = st.integers(0, SECOND - 1) | st.sampled_from([-1, 0, SECOND - 1, SECOND, 2**31 - 1, -(2**31)])


@functools.lru_cache
def padded_uvarint(number: int, size: int) -> bytes:
    """An uvarint made longer with zero bits, as no writer does and every reader accepts."""
    plain = frame.encode_uvarint(number)
    if len(plain) >= size:
        return plain
    return plain[:-1] + bytes([plain[-1] | 0x80]) + b"\x80" * (size - len(plain) - 1) + b"\x00"


@st.composite
def odd_records(draw: st.DrawFn) -> bytes:
    """A record with any head at all and a checksum that is right for it."""
    payload = draw(PAYLOAD)
    version = draw(st.sampled_from([1] * 9 + [0, 2, 255]))
    head = TIME.pack(version, draw(SECONDS), draw(NANOS), draw(st.integers(-(2**15), 2**15 - 1)))
    size = draw(
        st.just(frame.encode_uvarint(len(payload)))
        | st.integers(1, 11).map(lambda length: padded_uvarint(len(payload), length))
        | st.integers(0, 2**64 - 1).map(frame.encode_uvarint)
        | st.integers(0, 2**70 - 1).map(frame.encode_uvarint)
        | st.binary(min_size=1, max_size=11)
    )
    body = head + size + payload
    return body + CRC.pack(frame.crc32c(body))


@st.composite
def refitted_logs(draw: st.DrawFn) -> bytes:
    """Records hurt in time or size whose checksum was then made right again, so that parsing goes deeper."""
    out = b""
    for time_ns, payload in draw(st.lists(st.tuples(READABLE_NS, PAYLOAD), min_size=1, max_size=4)):
        body = bytearray(frame.encode(time_ns, payload)[: -CRC.size])
        for place, bits in draw(st.lists(st.tuples(st.integers(0, 17), st.integers(1, 255)), max_size=2)):
            if place < len(body):
                body[place] ^= bits
        out += bytes(body) + CRC.pack(frame.crc32c(body))
    return out


# -- encode --------------------------------------------------------------------------------------------------------


@examples(400)
@given(INT64, st.lists(PAYLOAD, max_size=6))
@example(-1, [b"a", b"b", b"c"])
@example(SECOND - 1, [b"a", b"b"])
@example(2**63 - 1, [b"a", b"b"])
@example(0, [bytes(127), bytes(128), bytes(16383), bytes(16384)])
def test_the_twins_encode_the_same_bytes(first_ns: int, payloads: list[bytes]) -> None:
    assert_encoded_alike(first_ns, payloads)


def packed(payloads: list[bytes]) -> Packed:
    made = Packed()
    for payload in payloads:
        made.append(payload)
    return made


@examples(300)
@given(INT64, st.lists(PAYLOAD, max_size=6))
@example(SECOND - 1, [b"a", b"b"])
@example(0, [bytes(127), bytes(128), bytes(70_000), b"behind a point of the index"])
def test_packed_payloads_are_encoded_as_any_others(first_ns: int, payloads: list[bytes]) -> None:
    together = packed(payloads)
    assert list(together) == payloads and len(together) == len(payloads)
    for encode_into in (frame.encode_into, speed.encode_into, speed.encode_into_by_table):
        outcomes = []
        for each in (payloads, together):
            buffer = bytearray(b"before")
            try:
                end, points = encode_into(buffer, 6, first_ns, each, 100_000, RESERVED)
                outcomes.append((bytes(buffer[:end]), points))
            except (RecordTooLarge, ReservedPayload, OverflowError, struct.error) as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]


def test_packed_payloads_that_do_not_fit_are_never_read_beyond_their_buffer() -> None:
    broken = packed([b"whole"])
    broken.data += b"\0\0\0\x09short"
    with pytest.raises(ValueError, match="does not fit"):
        speed.encode_into(bytearray(), 0, 0, broken)


@examples(300)
@given(st.lists(PAYLOAD, max_size=6), st.integers(0, 200))
def test_the_twins_refuse_the_same_payload_for_its_size(payloads: list[bytes], limit: int) -> None:
    assert_encoded_alike(0, payloads, limit)


MARKLIKE = st.builds(
    lambda prefix, rest: prefix + rest, st.sampled_from([*RESERVED, b"", b"\x92"]), st.binary(min_size=6, max_size=10)
)


@examples(300)
@given(st.lists(MARKLIKE, max_size=6), st.sampled_from([MAX_PAYLOAD, 11]), st.sampled_from([RESERVED, (b"", b"")]))
@example([b"fine", RESERVED[0] + bytes(8)], MAX_PAYLOAD, RESERVED)
@example([b"fine", RESERVED[1] + bytes(8)], MAX_PAYLOAD, RESERVED)
@example([RESERVED[1] + bytes(8)], 11, RESERVED)
def test_the_twins_refuse_the_same_marks(payloads: list[bytes], limit: int, reserved: tuple[bytes, bytes]) -> None:
    assert_encoded_alike(0, payloads, limit, reserved)


@pytest.mark.parametrize("encode_many", [frame.encode_many, speed.encode_many], ids=["python", "compiled"])
@pytest.mark.parametrize("payloads", [[5], b"abc", ["text"], [None]], ids=["number", "bare bytes", "text", "nothing"])
def test_neither_twin_makes_a_record_of_what_is_not_bytes(encode_many: Callable[..., bytes], payloads: object) -> None:
    with pytest.raises(TypeError):
        encode_many(0, payloads)


# -- scan ----------------------------------------------------------------------------------------------------------


@examples(600)
@given(st.binary(max_size=120), LIMIT)
def test_the_twins_scan_arbitrary_bytes_alike(data: bytes, limit: int) -> None:
    assert_scanned_alike(data, limit)


@examples(300)
@given(logs(), LIMIT)
def test_the_twins_scan_whole_logs_alike(data: bytes, limit: int) -> None:
    assert_scanned_alike(data, limit)


@examples(200)
@given(st.lists(st.tuples(READABLE_NS, PAYLOAD), max_size=5))
def test_the_compiled_twin_reads_back_what_was_written(records: list[tuple[int, bytes]]) -> None:
    data = b"".join(frame.encode(*each) for each in records)
    found = speed.scan(data, 0, len(data))
    payloads = [data[at : at + size] for at, size in zip(found.offsets, found.lengths, strict=True)]
    assert list(zip(found.times, payloads, strict=True)) == records


@examples(300)
@given(logs(), st.integers(0, 2**32), st.integers(0, 2**32))
def test_the_twins_scan_any_part_of_a_log_alike(data: bytes, one: int, other: int) -> None:
    start, end = sorted((one % (len(data) + 1), other % (len(data) + 1)))
    assert_scanned_alike(data, start=start, end=end)


@examples(600)
@given(logs(), st.lists(DAMAGE, min_size=1, max_size=3), LIMIT)
def test_the_twins_scan_damaged_logs_alike(data: bytes, damage: list[Any], limit: int) -> None:
    assert_scanned_alike(damaged(data, damage), limit)


@examples(500)
@given(refitted_logs(), LIMIT)
def test_the_twins_scan_damage_under_a_right_checksum_alike(data: bytes, limit: int) -> None:
    assert_scanned_alike(data, limit)


@examples(400)
@given(st.lists(odd_records(), min_size=1, max_size=3).map(b"".join), LIMIT)
@example(TIME.pack(1, -(2**63), 0, -1) + bytes(5), MAX_PAYLOAD)
@example(TIME.pack(1, YEAR_ONE, 0, -1) + b"\xff" * 9 + b"\x01" + bytes(4), 2**62)
def test_the_twins_scan_odd_heads_alike(data: bytes, limit: int) -> None:
    assert_scanned_alike(data, limit)


def storm(chance: random.Random) -> bytes:
    """A log whose heads, sizes and bytes are hurt in any mixture, some with checksums made right again."""
    out = b""
    for _ in range(chance.randrange(1, 5)):
        payload = chance.randbytes(chance.choice([0, 1, 9, 127, 128, 300]))
        body = bytearray(frame.encode(chance.randrange(-(2**62), 2**62), payload)[: -CRC.size])
        for _ in range(chance.choice([0, 0, 1, 2])):
            body[chance.randrange(min(len(body), 18))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.2:
            body[15:16] = padded_uvarint(len(payload), chance.randrange(1, 12))
        out += body + CRC.pack(frame.crc32c(body))
    hurts = [flip, cut, leave_out, insert, zero_fill, zero_stretch]
    damage = [(chance.choice(hurts), chance.randrange(2**32), chance.randrange(2**64)) for _ in range(2)]
    return damaged(out, damage[: chance.choice([0, 0, 1, 2])])


@examples(50)
@given(st.integers(0, 2**64 - 1))
def test_the_twins_scan_a_storm_of_damage_alike(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        assert_scanned_alike(storm(chance), chance.choice([MAX_PAYLOAD, 127]))


@examples(200)
@given(logs(), st.lists(DAMAGE, max_size=1), st.sampled_from([bytes, bytearray, memoryview]))
def test_the_twins_scan_any_kind_of_buffer_alike(data: bytes, damage: list[Any], kind: type) -> None:
    assert_scanned_alike(kind(damaged(data, damage)))


def test_the_compiled_twin_names_the_stop_with_the_same_enum() -> None:
    assert speed.scan(b"\0", 0, 1).why is Stop.BAD_TIME


# -- crc -----------------------------------------------------------------------------------------------------------

CRCS = {"python": frame.crc32c, "compiled": speed.crc32c, "by table": speed.crc32c_by_table}
ANY_BYTES = st.binary(max_size=100) | st.integers(0, 3000).map(lambda size: bytes(range(256)) * (size // 256 + 1))


@pytest.mark.parametrize("crc", CRCS.values(), ids=CRCS.keys())
def test_a_checksum_has_the_check_value_of_castagnoli(crc: Callable[..., int]) -> None:
    assert crc(b"123456789") == 0xE3069283


@pytest.mark.parametrize("crc", CRCS.values(), ids=CRCS.keys())
@examples(400)
@given(data=ANY_BYTES, skip=st.integers(0, 9), before=st.integers(0, 2**32 - 1))
def test_a_checksum_is_that_of_the_crc32c_package(crc: Callable[..., int], data: bytes, skip: int, before: int) -> None:
    assert crc(memoryview(data)[skip:], before) == package.crc32c(data[skip:], before)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 40_000), max_size=12),
    st.integers(0, 300),
    st.integers(0, 9_000_000_000 * 10**9),
)
def test_encoding_into_a_buffer_agrees_by_python_by_instruction_and_by_table(
    sizes: list[int], at: int, first_ns: int
) -> None:
    payloads = [bytes([size % 251]) * size for size in sizes]
    found = []
    for encode_into in (frame.encode_into, speed.encode_into, speed.encode_into_by_table):
        buffer = bytearray(b"before" * 50)
        end, points = encode_into(buffer, at, first_ns, payloads)
        found.append((end, points, bytes(buffer[:end])))
    assert found[0] == found[1] == found[2]
    assert found[0][2][:at] == (b"before" * 50)[:at], "what was in the buffer before must stay"
