"""The record frame, byte for byte."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import RecordTooLarge, ReservedPayload
from lamina.log import frame, kernel
from lamina.log.frame import CRC, SECOND, TIME, YEAR_ONE, Head, Stop

# The first two records of a log that workq wrote.
ADD_PAYLOAD = bytes.fromhex(
    "01 00000001000040008000000000000001 02 6131 3c 8090fbd309 00 00 00 0e 74776963652c2070656e64696e67"
    "01 0000000000000000 00000000 ffff 01 0000000f69f98517 2ec8c92b ffff"
)
ADD_RECORD = bytes.fromhex("01 0000000f69f98517 2eccbe4d ffff 4a") + ADD_PAYLOAD + bytes.fromhex("0074ad97")
ADD_NS = (0x0F69F98517 - YEAR_ONE) * SECOND + 0x2ECCBE4D
START_PAYLOAD = bytes.fromhex("07 00000001000040008000000000000001")
START_RECORD = bytes.fromhex("01 0000000f69f98517 2ecf66c9 ffff 11") + START_PAYLOAD + bytes.fromhex("828b620a")
START_NS = (0x0F69F98517 - YEAR_ONE) * SECOND + 0x2ECF66C9

FIRST_NS = -9_223_372_036 * SECOND
LAST_NS = 9_223_372_035 * SECOND + 999_999_999


def with_crc(body: bytes) -> bytes:
    return body + CRC.pack(frame.crc32c(body))


def record(
    *, version: int = 1, seconds: int = YEAR_ONE, nanos: int = 0, zone: int = -1, size: bytes = b"\x03"
) -> bytes:
    """A record with payload ``abc`` and a right checksum, whatever its head says."""
    return with_crc(TIME.pack(version, seconds, nanos, zone) + size + b"abc")


def decode(data: bytes, max_payload: int = frame.MAX_PAYLOAD) -> Head | Stop:
    return frame.decode(data, 0, len(data), max_payload)


# -- the worked example --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time_ns", "payload", "expected"),
    [(ADD_NS, ADD_PAYLOAD, ADD_RECORD), (START_NS, START_PAYLOAD, START_RECORD)],
    ids=["add", "start-attempt"],
)
def test_a_record_of_workq_is_encoded_byte_for_byte(time_ns: int, payload: bytes, expected: bytes) -> None:
    assert frame.encode(time_ns, payload) == expected


def test_records_of_workq_decode_to_their_times() -> None:
    data = ADD_RECORD + START_RECORD
    assert list(frame.scan(data, 0, len(data)).times) == [ADD_NS, START_NS]


def test_records_of_workq_decode_to_their_payloads() -> None:
    data = ADD_RECORD + START_RECORD
    found = frame.scan(data, 0, len(data))
    payloads = [data[at : at + size] for at, size in zip(found.offsets, found.lengths, strict=True)]
    assert payloads == [ADD_PAYLOAD, START_PAYLOAD]


def test_records_of_workq_are_read_to_the_end() -> None:
    data = ADD_RECORD + START_RECORD
    found = frame.scan(data, 0, len(data))
    assert (found.stop, found.why) == (len(data), Stop.END)


# -- the checksum --------------------------------------------------------------------------------------------------


def test_the_checksum_has_the_check_value_of_castagnoli() -> None:
    assert frame.crc32c(b"123456789") == 0xE3069283


def test_the_chosen_kernel_has_the_check_value_of_castagnoli() -> None:
    assert kernel.crc32c(b"123456789") == 0xE3069283


def test_the_checksum_of_nothing_is_zero() -> None:
    assert frame.crc32c(b"") == 0


def test_a_checksum_goes_on_from_an_earlier_one() -> None:
    assert frame.crc32c(b"6789", frame.crc32c(b"12345")) == 0xE3069283


# -- uvarint -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**63 - 1, "ffffffffffffffff7f"),
        (2**64 - 1, "ffffffffffffffffff01"),
    ],
)
def test_an_uvarint_has_seven_bits_a_byte_lowest_first(number: int, expected: str) -> None:
    assert frame.encode_uvarint(number).hex() == expected


@given(st.integers(0, 2**64 - 1))
def test_an_uvarint_is_never_longer_than_ten_bytes(number: int) -> None:
    assert len(frame.encode_uvarint(number)) <= frame.MAX_UVARINT


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 2_097_151, 2_097_152])
def test_record_size_is_the_size_of_the_encoded_record(size: int) -> None:
    assert frame.record_size(size) == len(frame.encode(0, bytes(size)))


def test_the_smallest_record_is_one_without_a_payload() -> None:
    assert len(frame.encode(0, b"")) == frame.MIN_RECORD


@pytest.mark.parametrize("size", [b"\x83\x00", b"\x83\x80\x00", b"\x83" + b"\x80" * 8 + b"\x00"])
def test_a_size_not_in_its_shortest_form_is_no_size(size: bytes) -> None:
    assert decode(record(size=size)) is Stop.BAD_SIZE


# -- why a scan stops ----------------------------------------------------------------------------------------------


def test_no_bytes_are_an_end() -> None:
    assert decode(b"") is Stop.END


@pytest.mark.parametrize("kept", range(1, len(START_RECORD)))
def test_a_record_cut_anywhere_is_truncated(kept: int) -> None:
    assert decode(START_RECORD[:kept]) is Stop.TRUNCATED


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_time_version_is_a_bad_time(version: int) -> None:
    assert decode(record(version=version)) is Stop.BAD_TIME


@pytest.mark.parametrize("count", [1, 14, 15, 20, 4096])
def test_zero_filled_bytes_are_a_bad_time(count: int) -> None:
    assert decode(bytes(count)) is Stop.BAD_TIME


def test_a_zero_filled_tail_stops_the_scan_behind_the_last_record() -> None:
    data = START_RECORD + bytes(100)
    assert frame.scan(data, 0, len(data)).stop == len(START_RECORD)


@pytest.mark.parametrize("nanos", [-1, SECOND, -(2**31), 2**31 - 1])
def test_nanoseconds_that_are_no_part_of_a_second_are_a_bad_time(nanos: int) -> None:
    assert decode(record(nanos=nanos)) is Stop.BAD_TIME


@pytest.mark.parametrize("position", range(frame.MIN_RECORD + 17))
def test_any_flipped_bit_is_noticed(position: int) -> None:
    damaged = bytearray(START_RECORD)
    damaged[position] ^= 0x10
    assert isinstance(decode(bytes(damaged)), Stop)


def test_a_changed_payload_is_a_bad_checksum() -> None:
    assert decode(START_RECORD.replace(b"\x07", b"\x08")) is Stop.BAD_CRC


def test_a_changed_checksum_is_a_bad_checksum() -> None:
    assert decode(START_RECORD[:-1] + b"\x0b") is Stop.BAD_CRC


def test_every_stop_that_is_not_the_end_has_a_reason_in_words() -> None:
    assert set(frame.REASONS) == set(Stop) - {Stop.END}


# -- sizes that cannot be ------------------------------------------------------------------------------------------

ABSURD = {
    "2^31": frame.encode_uvarint(2**31),
    "2^40": frame.encode_uvarint(2**40),
    "2^63": frame.encode_uvarint(2**63),
    "ten bytes, 2^64-1": b"\xff" * 9 + b"\x01",
    "ten bytes, over 64 bits": b"\xff" * 9 + b"\x02",
    "ten bytes, high bit": b"\x80" * 9 + b"\x7f",
    "eleven bytes": b"\xff" * 10 + b"\x01",
    "eleven bytes of zero bits": b"\x80" * 10 + b"\x00",
}


@pytest.mark.parametrize("size", ABSURD.values(), ids=ABSURD.keys())
def test_an_absurd_size_is_a_bad_size(size: bytes) -> None:
    assert decode(record(size=size)) is Stop.BAD_SIZE


@pytest.mark.parametrize("size", ABSURD.values(), ids=ABSURD.keys())
def test_an_absurd_size_allocates_nothing(size: bytes) -> None:
    data = record(size=size)
    kernel.scan(data, 0, len(data))  # what is loaded at the first call does not count
    tracemalloc.start()
    kernel.scan(data, 0, len(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16_384


def test_a_size_above_the_limit_of_the_log_is_a_bad_size() -> None:
    assert decode(frame.encode(0, b"12345"), max_payload=4) is Stop.BAD_SIZE


def test_a_size_at_the_limit_of_the_log_is_accepted() -> None:
    assert isinstance(decode(frame.encode(0, b"1234"), max_payload=4), Head)


def test_a_size_above_the_default_limit_is_a_bad_size() -> None:
    assert decode(record(size=frame.encode_uvarint(frame.MAX_PAYLOAD + 1))) is Stop.BAD_SIZE


def test_a_size_at_the_default_limit_is_only_cut_short() -> None:
    assert decode(record(size=frame.encode_uvarint(frame.MAX_PAYLOAD))) is Stop.TRUNCATED


# -- times ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("time_ns", [FIRST_NS, -SECOND, -1, 0, 1, LAST_NS])
def test_a_time_is_read_back_as_written(time_ns: int) -> None:
    found = decode(frame.encode(time_ns, b""))
    assert isinstance(found, Head) and found.time_ns == time_ns


@pytest.mark.parametrize("time_ns", [FIRST_NS - 1, LAST_NS + 1])
def test_a_time_that_does_not_fit_into_64_bits_is_a_bad_time(time_ns: int) -> None:
    assert decode(frame.encode(time_ns, b"")) is Stop.BAD_TIME


@pytest.mark.parametrize("seconds", [-(2**63), 2**63 - 1, 0])
def test_a_second_far_off_is_a_bad_time(seconds: int) -> None:
    assert decode(record(seconds=seconds)) is Stop.BAD_TIME


def test_a_time_before_1970_has_nanoseconds_that_count_forward() -> None:
    assert frame.encode_time(-1) == struct.pack(">Bqih", 1, YEAR_ONE - 1, 999_999_999, -1)


@given(st.integers(-(2**15), 2**15 - 1))
def test_any_zone_is_accepted(zone: int) -> None:
    found = decode(record(zone=zone))
    assert isinstance(found, Head) and found.time_ns == 0


def test_times_are_written_as_utc() -> None:
    assert frame.encode(0, b"")[13:15] == b"\xff\xff"


# -- many at once --------------------------------------------------------------------------------------------------


def test_records_of_a_batch_are_a_nanosecond_apart() -> None:
    data = frame.encode_many(SECOND - 1, [b"a", b"b", b"c"])
    assert list(frame.scan(data, 0, len(data)).times) == [SECOND - 1, SECOND, SECOND + 1]


def test_no_payloads_are_no_bytes() -> None:
    assert frame.encode_many(0, []) == b""


def test_a_payload_above_the_limit_is_refused_by_its_place_in_the_batch() -> None:
    with pytest.raises(RecordTooLarge) as caught:
        frame.encode_many(0, [b"1234", b"12345"], max_payload=4)
    assert caught.value.facts == {"index": 1, "size": 5, "limit": 4}


def test_a_payload_of_the_form_of_a_mark_is_refused_by_its_place_in_the_batch() -> None:
    with pytest.raises(ReservedPayload) as caught:
        frame.encode_many(0, [b"fine", b"mark" + bytes(8)], reserved=(b"mark", b"gap"))
    assert caught.value.facts == {"index": 1}


@pytest.mark.parametrize("payload", [b"mark", b"mark" + bytes(7), b"mark" + bytes(9), b"Mark" + bytes(8)])
def test_a_payload_that_only_begins_like_a_mark_is_accepted(payload: bytes) -> None:
    assert payload in frame.encode_many(0, [payload], reserved=(b"mark", b"gap"))


# -- scanning a part -----------------------------------------------------------------------------------------------


def test_a_scan_starts_where_it_is_told_to() -> None:
    data = ADD_RECORD + START_RECORD
    assert list(frame.scan(data, len(ADD_RECORD), len(data)).times) == [START_NS]


def test_a_scan_does_not_look_behind_its_end() -> None:
    data = ADD_RECORD + START_RECORD
    found = frame.scan(data, 0, len(data) - 1)
    assert (found.stop, found.why) == (len(ADD_RECORD), Stop.TRUNCATED)
