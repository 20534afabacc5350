"""Names of log files: five families, each by its full pattern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import BadName, BadOption
from lamina.log import naming
from lamina.log.naming import JOURNAL, NUMBERED, PWAL, STORED, TIMED, FileName, parse, sort_out

TIME = "20261115T061700.123456789Z"
TIME_NS = 1_794_723_420_123_456_789
YEAR_ONE_NS = -62_135_596_800 * 10**9

OURS = {
    "000000001.log": "numbered",
    "000000000.log": "numbered",
    "999999999.log": "numbered",
    f"{TIME}.dat": "timed",
    "20240229T000000.000000000Z.dat": "timed",
    "smp-server-store-0.log": "stored",
    "smp-server-store-7.log": "stored",
    "smp-server-store-10.dump": "stored",
    "messages.aZ09_-.log": "journal",
    "pwal_0000": "pwal",
    "pwal_0000.01794725200506.3": "pwal",
    "pwal_compacted.2.0": "pwal",
    "epoch": "pwal",
    "epoch.01794725200506.3": "pwal",
}

FOREIGN = [
    "",
    ".",
    "..",
    "notes.txt",
    "1.log",
    "00000001.log",
    "0000000001.log",
    "000000001.LOG",
    "000000001.log ",
    " 000000001.log",
    "000000001.log\n",
    "\n000000001.log",
    "000000001\n.log",
    "000000001.log\0",
    "-00000001.log",
    "+00000001.log",
    "0x0000001.log",
    "00000000१.log",
    "０００００００００.log",
    "000000001.log.bak",
    "000000001.log~",
    ".000000001.log",
    "20261115T061700.123456789Z",
    "20261115T061700.12345678Z.dat",
    "20261115T061700.1234567890Z.dat",
    "20261115T061700,123456789Z.dat",
    "20261115t061700.123456789z.dat",
    "2026-11-15T06:17:00.123456789Z.dat",
    "２0261115T061700.123456789Z.dat",
    "20261115T061700.123456789Z.dat\n",
    "smp-server-store-.log",
    "smp-server-store-07.log",
    "smp-server-store-00.log",
    "smp-server-store--1.log",
    "smp-server-store-7.log\n",
    "smp-server-store-７.log",
    "smp-server-store-7.bak",
    "SMP-server-store-7.log",
    "messages..log",
    "messages.log",
    "messages.a.b.log",
    "messages.a/b.log",
    "messages.é.log",
    "messages.a b.log",
    "messages.abc.log\n",
    "pwal_000",
    "pwal_00000",
    "pwal_0000\n",
    "pwal_0000.",
    "pwal_0000.01794725200506",
    "pwal_0000.1794725200506.3",
    "pwal_0000.01794725200506.-3",
    "pwal_000０",
    "pwal_0000.01794725200506.123456789012345678901",
    "run",
    "run.",
    "run.xy1",
    "run.1.",
    "run.1\n",
    "run.१",
    "running",
    "compaction_catalog.",
    "compaction_catalog.x",
    "compaction_catalog.1.2",
    "compaction_catalog.back",
    "compaction_catalogs",
    "compaction_progress.1",
    "ctrl.1",
    "ctrl.tmp",
    "pwal_compacted",
    "pwal_compacted.2",
    "pwal_compacted.2.0.1",
    "epoch\n",
    "epochs",
    "queue.log",
    "\ud800.log",
    "日本.log",
]

IMPOSSIBLE = [
    "20261315T061700.123456789Z.dat",
    "20261100T061700.123456789Z.dat",
    "20260230T061700.123456789Z.dat",
    "20250229T061700.123456789Z.dat",
    "20261115T240000.000000000Z.dat",
    "20261115T066000.000000000Z.dat",
    "20261115T061760.000000000Z.dat",
    "00001115T061700.000000000Z.dat",
]


def parsed(name: str) -> FileName:
    found = parse(name)
    assert found is not None
    return found


def in_order(*names: str) -> list[str]:
    return [segment.name for segment in sort_out(names).segments]


# -- which family --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "family"), OURS.items())
def test_a_name_is_told_by_its_full_pattern(name: str, family: str) -> None:
    assert parsed(name).family == family


@pytest.mark.parametrize("name", FOREIGN, ids=ascii)
def test_a_name_that_only_resembles_ours_is_foreign(name: str) -> None:
    assert sort_out([name]).foreign == [name]


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_moment_that_cannot_be_is_foreign(name: str) -> None:
    assert sort_out([name]).foreign == [name]


def test_a_parsed_name_keeps_the_name() -> None:
    assert parsed("smp-server-store-7.log").name == "smp-server-store-7.log"


def test_a_numbered_file_has_its_number() -> None:
    assert parsed("000000042.log").number == 42


def test_a_timed_file_has_the_time_of_its_first_record() -> None:
    assert parsed(f"{TIME}.dat").number == TIME_NS


# -- order ---------------------------------------------------------------------------------------------------------


def test_numbered_files_are_ordered_by_number() -> None:
    assert in_order("000000010.log", "000000009.log") == ["000000009.log", "000000010.log"]


def test_stored_files_are_ordered_by_number_not_as_text() -> None:
    names = in_order("smp-server-store-10.log", "smp-server-store-9.log", "smp-server-store-100.log")
    assert names == ["smp-server-store-9.log", "smp-server-store-10.log", "smp-server-store-100.log"]


def test_timed_files_are_ordered_by_time() -> None:
    names = ["20261115T061700.000000001Z.dat", "20261115T061659.999999999Z.dat"]
    assert in_order(*names) == names[::-1]


def test_rotated_channel_files_come_before_the_active_one() -> None:
    assert in_order("pwal_0000", "pwal_0000.01794725200506.3") == ["pwal_0000.01794725200506.3", "pwal_0000"]


def test_rotated_channel_files_of_one_millisecond_are_ordered_by_epoch() -> None:
    names = ["pwal_0000.01794725200506.10", "pwal_0000.01794725200506.9"]
    assert in_order(*names) == names[::-1]


@pytest.mark.parametrize(
    ("name", "is_closed"),
    [
        ("pwal_0000", False),
        ("epoch", False),
        ("pwal_0000.01794725200506.3", True),
        ("epoch.01794725200506.3", True),
        ("pwal_compacted.2.0", True),
        ("000000001.log", False),
        (f"{TIME}.dat", False),
    ],
)
def test_a_rotated_file_of_the_store_is_closed_by_its_name(name: str, is_closed: bool) -> None:
    assert parsed(name).is_closed is is_closed


def test_only_a_compacted_file_is_a_part() -> None:
    assert [name for name in OURS if parsed(name).is_part] == ["pwal_compacted.2.0"]


@given(st.lists(st.integers(0, 999_999_999), unique=True))
def test_any_numbers_are_ordered_by_number(numbers: list[int]) -> None:
    found = sort_out(f"smp-server-store-{number}.log" for number in numbers)
    assert [segment.number for segment in found.segments] == sorted(numbers)


# -- streams -------------------------------------------------------------------------------------------------------


def test_each_channel_is_a_stream_of_its_own() -> None:
    found = sort_out(["pwal_0000", "pwal_0001", "pwal_0000.01794725200506.3", "epoch"])
    assert sorted(found.streams()) == ["epoch", "pwal_0000", "pwal_0001"]


def test_each_dump_is_a_stream_of_its_own() -> None:
    found = sort_out(["smp-server-store-7.log", "smp-server-store-8.log", "smp-server-store-8.dump"])
    assert {stream: len(files) for stream, files in found.streams().items()} == {
        "stored": 2,
        "smp-server-store-8.dump": 1,
    }


def test_each_journal_is_a_stream_of_its_own() -> None:
    assert len(sort_out(["messages.a.log", "messages.b.log"]).streams()) == 2


def test_a_family_finds_only_the_files_of_its_log() -> None:
    found = sort_out(["000000001.log", f"{TIME}.dat", "smp-server-store-1.dump", "smp-server-store-1.log"])
    assert [segment.name for segment in found.of_family(STORED)] == ["smp-server-store-1.log"]


# -- companions and leftovers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["index", f"torn-{TIME}", f"broken-{TIME}"])
@pytest.mark.parametrize("name", OURS)
def test_a_companion_stands_beside_its_file(name: str, suffix: str) -> None:
    assert sort_out([f"{name}.{suffix}"]).companions == [f"{name}.{suffix}"]


@pytest.mark.parametrize("name", ["lamina.lock", "append.lock", "read.lock", "compaction.lock"])
def test_a_lock_is_a_companion(name: str) -> None:
    assert sort_out([name]).companions == [name]


STORE = [
    "compaction_catalog",
    "compaction_catalog.0",
    "compaction_catalog.17",
    "compaction_progress",
    "run.3",
    "run.3.1",
]


@pytest.mark.parametrize("name", [*STORE, "ctrl"])
def test_what_the_store_keeps_of_its_own_is_a_companion(name: str) -> None:
    assert sort_out([name]).companions == [name]


@pytest.mark.parametrize("name", STORE)
def test_so_is_what_repair_put_aside_of_it(name: str) -> None:
    assert sort_out([f"{name}.broken-{TIME}"]).companions == [f"{name}.broken-{TIME}"]


@pytest.mark.parametrize("name", STORE)
def test_a_half_done_file_of_the_store_is_a_leftover(name: str) -> None:
    assert sort_out([f"{name}.tmp"]).leftovers == [f"{name}.tmp"]


def test_rotated_epoch_files_are_one_stream_with_the_active_one() -> None:
    names = ["epoch", "epoch.01794725200507.12", "epoch.01794725200506.3", "pwal_0000", "pwal_compacted.1.0"]
    found = [segment.name for segment in sort_out(names).of_stream("epoch")]
    assert found == ["epoch.01794725200506.3", "epoch.01794725200507.12", "epoch"]


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt.index",
        ".index",
        "index",
        "000000001.log.index.index",
        "000000001.log.index\n",
        "000000001.log\n.index",
        "000000001.log.torn-",
        "000000001.log.torn-20261115",
        f"000000001.log.torn-{TIME}.gz",
        f"000000001.log.lost-{TIME}",
        "000000001.log.torn-２0261115T061700.123456789Z",
        "000000001.log.broken-20261115T061700.12345678९Z",
        "other.lock",
        "lamina.lock\n",
    ],
    ids=ascii,
)
def test_what_only_resembles_a_companion_is_foreign(name: str) -> None:
    assert sort_out([name]).foreign == [name]


@pytest.mark.parametrize(
    "name",
    [
        "000000001.log.rw",
        f"{TIME}.dat.rw",
        "smp-server-store-7.dump.saving",
        "messages.abc.log.new",
        "pwal_compacted.2.0.tmp",
        "pwal_0000.tmp",
    ],
)
def test_a_half_done_replacement_is_a_leftover(name: str) -> None:
    assert sort_out([name]).leftovers == [name]


@pytest.mark.parametrize("name", [".rw", "rw", "notes.rw", "notes.txt.tmp", "000000001.log.rw\n", "000000001.log.swp"])
def test_a_half_done_file_of_somebody_else_is_foreign(name: str) -> None:
    assert sort_out([name]).foreign == [name]


@given(st.lists(st.text(max_size=20) | st.sampled_from(sorted(OURS)), unique=True))
def test_every_name_is_sorted_into_exactly_one_place(names: list[str]) -> None:
    found = sort_out(names)
    places = [*(segment.name for segment in found.segments), *found.leftovers, *found.companions, *found.foreign]
    assert sorted(places) == sorted(names)


# -- the next name -------------------------------------------------------------------------------------------------


def test_the_first_numbered_file_is_number_one() -> None:
    assert NUMBERED.next_name(None, TIME_NS) == "000000001.log"


def test_the_next_numbered_file_counts_on() -> None:
    assert NUMBERED.next_name(parsed("000000999.log"), TIME_NS) == "000001000.log"


def test_the_last_numbered_file_can_be_made() -> None:
    assert NUMBERED.next_name(parsed("999999998.log"), TIME_NS) == "999999999.log"


def test_used_up_numbers_are_a_bad_name() -> None:
    with pytest.raises(BadName, match="used up"):
        NUMBERED.next_name(parsed("999999999.log"), TIME_NS)


@pytest.mark.parametrize("previous", [None, parse("20200101T000000.000000000Z.dat")])
def test_a_timed_file_is_named_for_its_first_record(previous: FileName | None) -> None:
    assert TIMED.next_name(previous, TIME_NS) == f"{TIME}.dat"


def test_the_first_stored_file_is_number_nought() -> None:
    assert STORED.next_name(None, TIME_NS) == "smp-server-store-0.log"


def test_the_next_stored_file_counts_on_without_padding() -> None:
    assert STORED.next_name(parsed("smp-server-store-9.log"), TIME_NS) == "smp-server-store-10.log"


@pytest.mark.parametrize("family", [JOURNAL, PWAL], ids=lambda family: family.name)
def test_files_of_a_journal_or_channel_are_named_by_their_engine(family: naming.Family) -> None:
    with pytest.raises(BadOption):
        family.next_name(None, TIME_NS)


def test_there_are_five_families() -> None:
    assert sorted(naming.FAMILIES) == ["journal", "numbered", "pwal", "stored", "timed"]


# -- times in names ------------------------------------------------------------------------------------------------


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_time_in_a_name_is_read_back(time_ns: int) -> None:
    assert naming.parse_file_time(naming.show_file_time(time_ns)) == time_ns


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_times_in_names_sort_as_text(one: int, other: int) -> None:
    assert (one < other) == (naming.show_file_time(one) < naming.show_file_time(other))


@pytest.mark.parametrize("time_ns", [YEAR_ONE_NS, -40_000_000_000 * 10**9])
def test_a_time_of_any_year_has_the_same_width(time_ns: int) -> None:
    assert len(naming.show_file_time(time_ns)) == len(TIME)
