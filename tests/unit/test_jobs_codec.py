"""Records of the command log: the real server's are read and written byte for byte, and no damage does more than raise.

The twins (compiled, and the same source as plain Python) are held equal on everything, damage included.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import lamina.engines.jobs as package
from lamina.engines.jobs import codec, core
from lamina.log import Reader
from lamina.log.formats import JOBS
from pure import load_pure

GOLDEN = Path(os.environ.get("LAMINA_GOLDEN", Path(__file__).parents[3] / "shared" / "golden")) / "workq"
CASES = sorted(case.name for case in GOLDEN.glob("g*")) if GOLDEN.is_dir() else []
golden = pytest.mark.skipif(not CASES, reason="no golden folders of workq here (set LAMINA_GOLDEN)")

ID = bytes.fromhex("00000001000040008000000000000001")
LARGE = 500  # bytes of a payload above which damage is done to its edges only
BAD = "bad record"


def examples(count: int) -> Any:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# -- the twins -----------------------------------------------------------------------------------------------------


pure_packing = load_pure(package, "packing")
pure_codec = load_pure(package, "codec", packing=pure_packing)
pure_job = load_pure(package, "job")
pure_core = load_pure(package, "core", codec=pure_codec, job=pure_job)
both = pytest.mark.skipif(not package.IS_COMPILED, reason="the compiled twins are not built here")


@both
def test_the_twins_are_two() -> None:
    assert codec.__file__.endswith(".so")
    assert pure_codec.__file__.endswith(".py")
    assert codec.BadRecord is not pure_codec.BadRecord
    assert (pure_core.codec, pure_core.Job) == (pure_codec, pure_job.Job)


def decoded(module: ModuleType, payload: bytes) -> object:
    """The values of a record, or that it is bad."""
    try:
        if len(payload) < 17:
            raise module.BadRecord("short")
        if payload[0] in (module.ADD, module.SCHEDULE):
            return module.decode_job(payload)
        if module.is_note(payload):
            return module.decode_note(payload)
        if payload[0] in (module.COMPLETE, module.FAIL):
            return module.decode_result(payload)
    except module.BadRecord:
        return BAD
    return payload


def applied(module: ModuleType, payloads: list[bytes]) -> object:
    """All that a state is after these records; bad ones are noted and passed over."""
    state, bad = module.State(), []
    for position, payload in enumerate(payloads, 1):
        try:
            state.apply(position, payload)
        except module.codec.BadRecord:
            bad.append(position)
    names = [name for name in vars(pure_job.Job(ID, pure_job.Queue(""), b"")) if name not in ("queue", "slot", "key")]
    jobs = {id: {name: getattr(job, name) for name in names} for id, job in state.jobs.items()}
    lists = {name: [[job.id for job in jobs] for jobs in queue.lists] for name, queue in state.queues.items()}
    return bad, jobs, lists, {name: queue.is_paused for name, queue in state.queues.items()}, state.next_due()


# -- the real server's records -------------------------------------------------------------------------------------


@cache
def payloads_of(case: str) -> list[bytes]:
    found = (record.payload for record in Reader(str(GOLDEN / case / "cmdlog")).read())
    return [payload for payload in found if not JOBS.is_mark(payload)]


@cache
def distinct_payloads() -> list[bytes]:
    return sorted({payload for case in CASES for payload in payloads_of(case)})


def ns(moment: dict[str, int]) -> int:
    return moment["unix"] * 10**9 + moment["nsec"]


def shown(data: bytes) -> str:
    """As records.jsonl has it: large ones by their hash."""
    return data.hex() if len(data) <= 256 else "sha256:" + hashlib.sha256(data).hexdigest()


@golden
@pytest.mark.parametrize("case", CASES)
def test_every_golden_record_has_the_listed_values_and_is_written_as_the_same_bytes(case: str) -> None:
    listed = [json.loads(line) for line in (GOLDEN / case / "records.jsonl").read_text().splitlines()]
    for payload, wanted in zip(payloads_of(case), listed, strict=True):
        id = bytes.fromhex(wanted["id"])
        kind = payload[0]
        assert (kind, codec.NAMES[kind], payload[1:17]) == (wanted["type"], wanted["cmd"], id)
        if kind in (codec.ADD, codec.SCHEDULE):
            job = codec.decode_job(payload)
            names = ("name", "ttr", "ttl", "priority", "max_attempts", "max_fails")
            assert job[:7] == (id, *(wanted[name] for name in names))
            assert shown(job[7]) == wanted["payload_hex"]
            assert job[8:] == (ns(wanted["time"]) if kind == codec.SCHEDULE else None, ns(wanted["created"]))
            again = codec.encode_job(*job)
        elif kind in (codec.COMPLETE, codec.FAIL):
            result = codec.decode_result(payload)
            assert shown(result) == wanted["result_hex"]
            again = codec.encode_result(kind, id, result)
        else:
            again = codec.encode_plain(kind, id)
        assert again == payload


@golden
def test_the_golden_records_have_every_kind() -> None:
    assert {payload[0] for payload in distinct_payloads()} == set(range(1, 9))


@golden
def test_no_golden_record_is_taken_for_a_note() -> None:
    assert not any(map(codec.is_note, distinct_payloads()))


def test_the_worked_example_of_the_format() -> None:
    payload = bytes.fromhex(
        "01 00000001000040008000000000000001 02 6131 3c 8090fbd309 00 00 00 0e 74776963652c2070656e64696e67"
        "01 0000000000000000 00000000 ffff 01 0000000f69f98517 2ec8c92b ffff"
    )
    created = (0x0F69F98517 - 62135596800) * 10**9 + 0x2EC8C92B
    values = (ID, "a1", 60, 2_592_000_000, 0, 0, 0, b"twice, pending", None, created)
    assert codec.decode_job(payload) == values
    assert codec.encode_job(*values) == payload


@pytest.mark.parametrize(
    ("priority", "zigzag"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-(2**31), "ffffffff0f")],
)
def test_only_the_priority_is_zigzag(priority: int, zigzag: str) -> None:
    record = codec.encode_job(ID, "q", 1, 1, priority, 0, 0, b"", None, 0)
    assert record[21 : 21 + len(zigzag) // 2].hex() == zigzag
    assert codec.decode_job(record)[4] == priority


def test_any_zone_is_read_as_utc_and_utc_is_written() -> None:
    record = codec.encode_job(ID, "q", 1, 1, 0, 0, 0, b"", 5, 7)
    for zone in ("0000", "003c", "fff6"):
        times = record[-30:-17] + bytes.fromhex(zone) + record[-15:-2] + bytes.fromhex(zone)
        assert codec.encode_job(*codec.decode_job(record[:-30] + times)) == record


# -- round trips ---------------------------------------------------------------------------------------------------

IDS = st.binary(min_size=16, max_size=16)
NAME = st.text("AZaz09_.-", min_size=1, max_size=255)
TIME = st.integers(codec.ZERO_TIME, 253402300799_999999999)
JOB = st.tuples(
    IDS,
    NAME,
    st.integers(1, 86_400_000),
    st.integers(1, 2_592_000_000),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 255),
    st.integers(0, 255),
    st.binary(max_size=300),
    st.none() | TIME,
    TIME,
)
KINDS_OF_NOTE = st.integers(1, len(codec.NOTE_NAMES) - 1)
NOTE = st.tuples(KINDS_OF_NOTE, IDS, st.integers(0, 2_592_000_000), st.binary(max_size=300))


@examples(300)
@given(JOB)
@example((ID, "n" * 255, 1, 1, 0, 255, 255, bytes(1 << 20), None, 0))
def test_a_job_comes_back_as_it_was(job: Any) -> None:
    record = codec.encode_job(*job)
    assert codec.decode_job(record) == job
    assert record[0] == (codec.ADD if job[8] is None else codec.SCHEDULE)


@examples(200)
@given(st.sampled_from([codec.COMPLETE, codec.FAIL]), IDS, st.binary(max_size=300))
@example(codec.COMPLETE, ID, bytes(1 << 20))
def test_a_result_comes_back_as_it_was(kind: int, id: bytes, result: bytes) -> None:
    record = codec.encode_result(kind, id, result)
    assert (record[0], record[1:17], codec.decode_result(record)) == (kind, id, result)


@examples(200)
@given(NOTE)
@example((codec.RETRY, ID, 86_400_000, bytes(1 << 20)))
def test_a_note_comes_back_as_it_was(note: Any) -> None:
    record = codec.encode_note(*note)
    assert codec.is_note(record)
    assert codec.decode_note(record) == note


@examples(100)
@given(NOTE)
def test_a_note_is_a_result_of_an_id_that_no_job_can_have(note: Any) -> None:
    record = codec.encode_note(*note)
    assert record[0] == codec.COMPLETE
    assert record[1:17] == codec.RESERVED + bytes([note[0]])
    assert record[7] >> 4 == 4 and record[9] >> 6 == 2, "workq takes only these"
    assert codec.decode_result(record)[:16] == note[1]


@pytest.mark.parametrize("size", [(1 << 20) - 17, (1 << 20) - 16, 1 << 20])
def test_a_note_that_is_too_large_for_a_result_is_a_job_whose_life_was_over_in_1970(size: int) -> None:
    note = (codec.RETRY, ID, 5, bytes(size))
    record = codec.encode_note(*note)
    assert codec.is_note(record) and codec.decode_note(record) == note
    if record[0] == codec.COMPLETE:
        assert len(codec.decode_result(record)) <= 1 << 20
    else:
        job = codec.decode_job(record)
        assert size > (1 << 20) - 17 and (job[3], job[9]) == (0, 0)
    state = core.State()
    state.apply(1, codec.encode_job(ID, "q", 1, 1, 0, 0, 0, b"", None, 0))
    state.apply(2, codec.encode_plain(codec.START, ID))
    state.apply(3, record)
    assert list(state.jobs) == [ID] and state.jobs[ID].result == bytes(size)


@examples(100)
@given(NOTE)
def test_a_note_of_before_says_the_same_and_is_renewed_to_the_same(note: Any) -> None:
    body = note[1] + codec.uvarint(note[2]) + note[3]
    old = b"\x03lamjob\0" + bytes([note[0]]) + bytes(8) + codec.uvarint(len(body)) + body
    assert codec.is_note(old) and codec.is_old_note(old) and codec.decode_note(old) == note
    assert codec.renewed(old) == codec.encode_note(*note) == codec.renewed(codec.renewed(old))


def test_a_fence_is_a_note_about_nothing() -> None:
    state = core.State()
    state.apply(1, codec.FENCE_RECORD)
    assert state.is_fenced and not state.jobs and not state.queues
    assert codec.decode_note(codec.FENCE_RECORD) == (codec.FENCE, bytes(16), 0, b"")


@examples(200)
@given(st.lists(st.one_of(JOB.map(lambda job: codec.encode_job(*job)), NOTE.map(lambda n: codec.encode_note(*n)))))
def test_whatever_was_written_can_be_applied(records: list[bytes]) -> None:
    assert applied(core, records)[0] == []  # type: ignore[index]


# -- damage --------------------------------------------------------------------------------------------------------


def places(payload: bytes) -> list[int]:
    """Every byte; of a large record those of its fields."""
    size = len(payload)
    return list(range(size)) if size <= LARGE else [*range(80), size // 2, *range(size - 40, size)]


@golden
@pytest.mark.parametrize("kind", range(1, 9), ids=codec.NAMES[1:])
def test_a_record_cut_anywhere_is_bad(kind: int) -> None:
    for payload in distinct_payloads():
        if payload[0] == kind:
            for size in places(payload):
                state = core.State()
                with pytest.raises(codec.BadRecord):
                    state.apply(1, payload[:size])
                assert not state.jobs


@golden
@pytest.mark.parametrize("case", CASES)
def test_a_byte_changed_anywhere_gives_a_bad_record_or_another_one(case: str) -> None:
    """``applied`` lets only BadRecord pass."""
    payloads = payloads_of(case)
    small = [payload[:0] if len(payload) > LARGE else payload for payload in payloads]
    for number, payload in enumerate(payloads):
        for at in places(payload):
            for bits in (0x80, 0x01, 0xFF):
                flipped = payload[:at] + bytes([payload[at] ^ bits]) + payload[at + 1 :]
                applied(core, [*small[max(number - 3, 0) : number], flipped, *small[number + 1 : number + 3]])


def test_bytes_behind_the_end_make_a_record_bad() -> None:
    whole = [
        codec.encode_job(ID, "q", 1, 1, 0, 0, 0, b"p", None, 0),
        codec.encode_result(codec.COMPLETE, ID, b"r"),
        codec.encode_result(codec.FAIL, ID, b""),
        *(codec.encode_plain(kind, ID) for kind in range(codec.DELETE, codec.TIMEOUT + 1)),
    ]
    for record in whole:
        assert applied(core, [record])[0] == []  # type: ignore[index]
        assert applied(core, [record + b"\0"])[0] == [1]  # type: ignore[index]


@pytest.mark.parametrize("kind", [0, 9, 10, 127, 128, 255])
def test_an_unknown_kind_is_bad(kind: int) -> None:
    with pytest.raises(codec.BadRecord, match="unknown kind"):
        core.State().apply(1, bytes([kind]) + ID)


NUMBERS = ("ttr", "ttl", "priority", "max attempts", "max fails")


def with_number(field: str, number: bytes) -> bytes:
    """An add in which that field is these bytes."""
    numbers = b"".join(number if name == field else b"\x05" for name in NUMBERS)
    return b"\x01" + ID + b"\x01q" + numbers + b"\0" + codec.encode_time(codec.ZERO_TIME) + codec.encode_time(0)


TOO_LARGE = [
    b"\xff" * 9 + b"\x01",
    b"\xff" * 9 + b"\x7f",
    b"\x80" * 9 + b"\x01",
    b"\x80" * 9 + b"\x02",
    b"\xff" * 8 + b"\x7f",
]


@pytest.mark.parametrize("field", ["ttr", "ttl", "max attempts", "max fails"])
def test_a_number_that_is_beyond_all_limits_is_bad(field: str) -> None:
    leased = codec.encode_plain(codec.START, ID)
    for number in TOO_LARGE:
        assert 1 in applied(core, [with_number(field, number), leased])[0]  # type: ignore[index]


def test_a_length_beyond_the_record_is_bad() -> None:
    tail = b"n" * 60 + codec.encode_time(codec.ZERO_TIME) * 2
    for size in (b"\xff" * 8 + b"\x7f", b"\xff" * 9 + b"\x01", b"\xf0" + b"\xff" * 8 + b"\x01"):
        for payload in (b"\x01" + ID + size + tail, b"\x01" + ID + b"\x01n\x01\x01\0\0\0" + size + tail):
            for cut in range(20):
                with pytest.raises(codec.BadRecord):
                    codec.decode_job(payload[: len(payload) - cut])


# -- the twins, again ----------------------------------------------------------------------------------------------


def flip(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([data[at] ^ (value % 255 + 1)]) + data[at + 1 :]


def insert(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value % 256]) * (1 + value % 4) + data[at:]


def leave_out(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + data[at + 1 + value % 5 :]


HURTS = st.tuples(st.sampled_from([flip, flip, insert, leave_out]), st.integers(0, 2**16), st.integers(0, 2**16))
PLAIN = st.tuples(st.integers(5, 8), IDS).map(lambda each: codec.encode_plain(*each))
RECORD = st.one_of(
    JOB.map(lambda job: codec.encode_job(*job)),
    NOTE.map(lambda note: codec.encode_note(*note)),
    st.tuples(st.sampled_from([3, 4]), IDS, st.binary(max_size=40)).map(lambda each: codec.encode_result(*each)),
    PLAIN,
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data: bytes = draw(RECORD)
    for hurt, place, value in draw(st.lists(HURTS, max_size=4)):
        if data:
            data = hurt(data, place % len(data), value)
    return data


@both
@examples(800)
@given(damaged())
def test_the_twins_read_any_record_alike(payload: bytes) -> None:
    assert decoded(codec, payload) == decoded(pure_codec, payload)


@both
@examples(300)
@given(JOB, NOTE)
def test_the_twins_write_the_same_bytes(job: Any, note: Any) -> None:
    assert codec.encode_job(*job) == pure_codec.encode_job(*job)
    assert codec.encode_note(*note) == pure_codec.encode_note(*note)
    assert codec.encode_result(4, job[0], job[7]) == pure_codec.encode_result(4, job[0], job[7])


@both
@golden
@pytest.mark.parametrize("case", CASES)
def test_the_twins_replay_a_golden_folder_alike(case: str) -> None:
    assert applied(core, payloads_of(case)) == applied(pure_core, payloads_of(case))


FEW = [bytes([number]) * 16 for number in (1, 2, 3)]
STORY = st.lists(
    st.one_of(
        st.builds(lambda job, who: codec.encode_job(who, "q", *job[2:8], None, job[9]), JOB, st.sampled_from(FEW)),
        st.builds(lambda job, who, at: codec.encode_job(who, "r", *job[2:8], at, 5), JOB, st.sampled_from(FEW), TIME),
        st.builds(codec.encode_plain, st.integers(5, 8), st.sampled_from(FEW)),
        st.builds(codec.encode_result, st.sampled_from([3, 4]), st.sampled_from(FEW), st.sampled_from([b"", b"r"])),
        st.builds(codec.encode_note, KINDS_OF_NOTE, st.sampled_from(FEW), st.integers(0, 9), st.sampled_from([b"q"])),
        damaged(),
    ),
    max_size=25,
)


@both
@examples(200)
@given(STORY)
def test_the_twins_replay_any_story_alike(records: list[bytes]) -> None:
    assert applied(core, records) == applied(pure_core, records)


@both
@pytest.mark.parametrize("field", NUMBERS)
def test_the_twins_read_the_largest_numbers_alike(field: str) -> None:
    for number in TOO_LARGE:
        record = with_number(field, number)
        assert decoded(codec, record) == decoded(pure_codec, record)
        records = [record, codec.encode_plain(codec.START, ID), codec.encode_plain(codec.TIMEOUT, ID)]
        assert applied(core, records) == applied(pure_core, records)
