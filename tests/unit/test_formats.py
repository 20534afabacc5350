"""Kinds of file: headers and the kernel's marks."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import WrongFormat
from lamina.log import formats
from lamina.log.formats import ALL, JOBS, PLAIN, TOPIC, Format

MAGICS = {
    "jobs": b"wqwq",
    "topic": b"lmto",
    "group": b"lmgr",
    "queue store": b"lmqs",
    "message journal": b"lmqm",
    "pwal": b"lmpw",
    "epoch": b"lmep",
    "plain": b"lmlg",
}
each_format = pytest.mark.parametrize("format", ALL, ids=lambda each: each.name)
U64 = st.integers(0, 2**64 - 1)


def test_each_kind_of_file_has_its_documented_magic() -> None:
    assert {format.name: format.magic for format in ALL} == MAGICS


@each_format
def test_a_header_is_the_magic_and_version_one(format: Format) -> None:
    assert format.header == format.magic + b"\0\0\0\1"


def test_the_header_of_a_jobs_file_is_that_of_workq() -> None:
    assert JOBS.header == bytes.fromhex("7771777100000001")


@each_format
def test_a_file_is_identified_by_its_header(format: Format) -> None:
    assert formats.identify("some file", format.header) is format


def test_an_unknown_magic_is_a_wrong_format() -> None:
    with pytest.raises(WrongFormat, match="unknown kind of file"):
        formats.identify("some file", b"\x7fELF\0\0\0\1")


def test_a_header_of_zeros_is_a_wrong_format() -> None:
    with pytest.raises(WrongFormat):
        formats.identify("some file", bytes(8))


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_another_version_is_a_wrong_format(version: int) -> None:
    with pytest.raises(WrongFormat, match=f"version {version} of a topic file"):
        formats.identify("some file", struct.pack(">4sI", TOPIC.magic, version))


def test_a_wrong_format_names_the_file_and_the_byte() -> None:
    with pytest.raises(WrongFormat) as caught:
        formats.identify("000000001.log", bytes(8))
    assert (caught.value.file, caught.value.offset) == ("000000001.log", 0)


# -- marks ---------------------------------------------------------------------------------------------------------


@each_format
@given(value=U64)
def test_a_watermark_is_read_back(format: Format, value: int) -> None:
    assert format.read_watermark(format.watermark(value)) == value


@each_format
@given(value=U64)
def test_a_gap_is_read_back(format: Format, value: int) -> None:
    assert format.read_gap(format.gap(value)) == value


@each_format
def test_a_mark_is_read_from_a_view_as_well(format: Format) -> None:
    assert format.read_watermark(memoryview(format.watermark(7))) == 7


@each_format
def test_a_watermark_is_no_gap(format: Format) -> None:
    assert format.read_gap(format.watermark(7)) is None


@each_format
def test_a_gap_is_no_watermark(format: Format) -> None:
    assert format.read_watermark(format.gap(7)) is None


@each_format
def test_both_marks_are_marks(format: Format) -> None:
    assert format.is_mark(format.watermark(0)) and format.is_mark(format.gap(0))


@each_format
def test_a_mark_one_byte_shorter_or_longer_is_none(format: Format) -> None:
    mark = format.watermark(7)
    assert not format.is_mark(mark[:-1]) and not format.is_mark(mark + b"\0")


@each_format
def test_an_empty_payload_is_no_mark(format: Format) -> None:
    assert not format.is_mark(b"")


@each_format
@given(payload=st.binary(max_size=40))
def test_only_payloads_with_a_reserved_prefix_are_marks(format: Format, payload: bytes) -> None:
    assert not format.is_mark(payload) or payload.startswith(format.reserved)


@each_format
def test_the_reserved_prefixes_are_those_of_the_marks(format: Format) -> None:
    assert format.reserved == (format.watermark(7)[:-8], format.gap(7)[:-8])


def test_a_watermark_of_ours_is_a_msgpack_array_of_zero_and_a_number() -> None:
    assert TOPIC.watermark(0x0102030405060708) == bytes.fromhex("92 00 cf 0102030405060708")


def test_a_gap_of_ours_is_a_msgpack_array_of_zero_nil_and_a_number() -> None:
    assert TOPIC.gap(0x0102030405060708) == bytes.fromhex("93 00 c0 cf 0102030405060708")


def test_a_watermark_of_the_jobs_log_is_the_expiry_of_an_id_no_job_has() -> None:
    assert JOBS.watermark(5) == b"\x06" + b"lamsync\0" + bytes(7) + b"\x05"


def test_a_gap_of_the_jobs_log_is_an_expiry_with_a_whole_id() -> None:
    assert JOBS.gap(5) == b"\x06" + b"lamgap\0\0" + bytes(7) + b"\x05"


# -- how far a log came --------------------------------------------------------------------------------------------


def test_a_payload_of_an_engine_shows_that_the_log_came_so_far() -> None:
    assert PLAIN.reaches(10, b"anything")


def test_a_watermark_for_earlier_records_does_not_show_it() -> None:
    assert not PLAIN.reaches(10, PLAIN.watermark(9))


def test_a_watermark_for_its_own_time_stands_in_for_a_record() -> None:
    assert PLAIN.reaches(10, PLAIN.watermark(10))


def test_a_gap_does_not_show_it() -> None:
    assert not PLAIN.reaches(10, PLAIN.gap(10))
