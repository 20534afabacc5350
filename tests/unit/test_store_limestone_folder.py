"""Promises of reading a whole folder of limestone: which files count, how they merge, and what is told as lost."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from lamina.engines.store.limestone import read_folder
from lamina.errors import Corruption, DiskError, LogLocked, WrongFormat
from lamina.log.files.real import RealFiles
from limestone_lab import (
    ACTIVE,
    COMPACTED,
    FOLDER,
    FOOTER,
    HEADER,
    PREVIOUS,
    ROTATED,
    about,
    begin,
    catalog,
    compacted,
    disk,
    durable,
    end,
    manifest,
    pairs,
    put,
    put_with_blobs,
    read,
    remove,
    session,
    void,
)

CATALOG = "compaction_catalog"
OTHER = "pwal_0001.01794725204181.0"
ORPHAN = "pwal_0001"


# -- merging ---------------------------------------------------------------------------------------------------------


def test_the_write_version_decides_not_the_file_nor_the_epoch() -> None:
    files = {
        ACTIVE: session(5, put(b"k", b"older", 4, 9)),
        ORPHAN: session(3, put(b"k", b"newer", 5, 0)),
        ROTATED: session(4, put(b"k", b"oldest", 4, 8), put(b"twice", b"1", 4), put(b"twice", b"2", 4)),
    }
    assert pairs(read(files, epoch=5)) == {b"k": b"newer", b"twice": b"2"}


def test_l09_versions_compare_major_first_as_unsigned_numbers() -> None:
    long = 1 << 63
    data = session(
        1, put(b"a", b"high", 1, long), put(b"a", b"low", 1, 7), put(b"b", b"2", 2, 0), put(b"b", b"1", 1, 9)
    )
    assert pairs(read({ACTIVE: data}, epoch=1)) == {b"a": b"high", b"b": b"2"}


def test_l02_removed_keys_are_gone_and_a_newer_put_brings_them_back() -> None:
    data = session(1, put(b"a", b"", 1), remove(b"b", 2), put(b"b", b"", 1), remove(b"c", 1), put(b"c", b"", 2))
    assert set(pairs(read({ACTIVE: data}, epoch=1))) == {b"a", b"c"}


@pytest.mark.parametrize("kind", [7, 9])
def test_l04_l05_c22_a_storage_that_was_emptied_keeps_entries_of_that_version_and_later(kind: int) -> None:
    data = session(
        1,
        about(kind, 42, 110, 4),
        put(b"before", b"", 110, 3, storage=42),
        put(b"equal", b"", 110, 4, storage=42),
        put(b"after", b"", 120, 4, storage=42),
        put(b"other", b"", 1, storage=43),
        about(kind, 42, 100, 9),
        about(8, 42, 999, 9),
    )
    assert list(read({ACTIVE: data}, epoch=1).entries) == [
        (42, b"after", b""),
        (42, b"equal", b""),
        (43, b"other", b""),
    ]


def test_c11_clearing_a_storage_empties_what_was_compacted_of_it() -> None:
    files = {
        COMPACTED: compacted((b"a", b"1"), (b"b", b"2")),
        CATALOG: catalog(2, is_compacted=True),
        ACTIVE: session(3, about(9, 1, 3), put(b"b", b"new", 3, 1)),
    }
    assert pairs(read(files, epoch=3)) == {b"b": b"new"}


def test_c12_entries_come_by_the_number_of_the_storage_and_the_bytes_of_the_key() -> None:
    places = [(1, b"key13"), (1, b"key8"), (2, b""), (256, b"\x00"), (256, b"\xff"), (65536, b"k")]
    data = session(1, *(put(key, b"v", 1, storage=storage) for storage, key in reversed(places)))
    assert [(storage, key) for storage, key, _ in read({ACTIVE: data}, epoch=1).entries] == places


def test_l06_l07_blobs_are_counted_in_live_entries_only() -> None:
    data = session(
        1,
        put_with_blobs(b"a", b"v", 1, [1, 2, 3]),
        put_with_blobs(b"b", b"v", 1, [4]),
        put(b"b", b"v", 2),
        put_with_blobs(b"c", b"v", 1, [5]),
        remove(b"c", 2),
    )
    found = read({ACTIVE: data}, epoch=1)
    assert (found.blobs, len(found.entries)) == (3, 2)
    assert pairs(found) == {b"a": b"v", b"b": b"v"}


# -- which files count -----------------------------------------------------------------------------------------------


def test_orphans_odd_names_and_rotated_files_count_and_other_files_do_not() -> None:
    files = {
        ACTIVE: b"",
        "pwal_0007": session(1, put(b"orphan", b"", 1)),
        "pwal_10000": session(1, put(b"many channels", b"", 1)),
        "pwal_0001.01794725204181.3": session(1, put(b"repaired", b"", 1)),
        "other_file": b"junk",
        "Pwal_0001": b"junk",
        "data/snapshot": b"junk",
        "pwal_folder/file": b"junk",
        "blob/dir_01/0000000000000001.blob": b"junk",
        "compaction_temp/pwal_0000.compacted": b"junk",
    }
    assert set(pairs(read(files, epoch=1))) == {b"orphan", b"many channels", b"repaired"}


@pytest.mark.parametrize("data", [b"hello", b"\x01\x02", b"\x99" + begin(1)[1:], b"\x00" + begin(1)[1:] + bytes(20)])
def test_a_foreign_file_with_the_name_of_a_pwal_is_refused(data: bytes) -> None:
    with pytest.raises(Corruption, match="where a PWAL file has its first begin mark") as problem:
        read({"pwal_notes.txt": data}, epoch=1)
    assert (problem.value.file, problem.value.offset) == ("pwal_notes.txt", 0)


def test_c14_c17_detached_files_are_not_read_again() -> None:
    files = {
        COMPACTED: compacted((b"a", b"1")),
        ROTATED: session(1, put(b"gone", b"", 1)),
        OTHER: session(3, put(b"b", b"2", 3)),
        CATALOG: catalog(2, detached=(ROTATED,), is_compacted=True),
    }
    found = read(files, epoch=3)
    assert (pairs(found), found.repairs, found.losses) == ({b"a": b"1", b"b": b"2"}, [], [])


def test_c04_c06_detached_files_that_were_deleted_are_not_missed() -> None:
    files = {
        COMPACTED: compacted((b"a", b"1"), (b"b", b"1")),
        ACTIVE: session(3, put(b"b", b"2", 3)),
        CATALOG: catalog(2, detached=(ROTATED, OTHER), is_compacted=True),
    }
    assert pairs(read(files, epoch=3)) == {b"a": b"1", b"b": b"2"}


def test_rule_c3_a_compacted_file_that_the_catalog_does_not_name_is_used_and_removes_count() -> None:
    """A compaction stopped before its catalog, and offline compaction (24) followed by a remove."""
    baseline = compacted((b"a", b"1"), (b"b", b"2"))
    stopped = {COMPACTED: baseline, ROTATED: session(1, put(b"a", b"1", 1), put(b"b", b"2", 1))}
    for files in (stopped, {COMPACTED: baseline}):
        found = read({**files, ACTIVE: session(4, remove(b"b", 4))}, epoch=4)
        assert (pairs(found), found.losses) == ({b"a": b"1"}, [])
        assert found.repairs == [f"{COMPACTED}, byte 0: the catalog does not name it: used all the same"]


def test_rule_c3_the_previous_compacted_file_is_used_when_there_is_no_other() -> None:
    old, inputs = compacted((b"a", b"1")), session(4, remove(b"a", 4), put(b"b", b"2", 4))
    named = catalog(2, is_compacted=True, detached=(PREVIOUS,))
    for text in (named, catalog(2, is_compacted=True), catalog()):
        found = read({PREVIOUS: old, ROTATED: inputs, CATALOG: text}, epoch=4)
        assert pairs(found) == {b"b": b"2"}
        assert found.repairs == [f"{COMPACTED}, byte 0: it is missing, a compaction was stopped: {PREVIOUS} was used"]


def test_rule_c3_the_previous_compacted_file_is_not_read_beside_the_new_one() -> None:
    files = {
        PREVIOUS: compacted((b"a", b"1"), (b"removed", b"1")),
        COMPACTED: compacted((b"a", b"2")),
        CATALOG: catalog(4, is_compacted=True, detached=(ROTATED,)),
        ROTATED: session(4, remove(b"removed", 4)),
    }
    found = read(files, epoch=4)
    assert pairs(found) == {b"a": b"2"}
    assert found.repairs == [f"{PREVIOUS}, byte 0: a compaction was stopped and left it: not used"]


def test_a_compacted_file_that_the_catalog_names_must_be_there() -> None:
    with pytest.raises(Corruption, match="it is missing") as problem:
        read({CATALOG: catalog(2, is_compacted=True)}, epoch=2)
    assert problem.value.file == COMPACTED


@pytest.mark.parametrize("line", ["COMPACTED_FILE cmpct_0001 1", f"COMPACTED_FILE {COMPACTED} 2"])
def test_compacted_files_of_another_kind_are_refused(line: str) -> None:
    text = f"{HEADER}\n{line}\nMAX_EPOCH_ID 1\n{FOOTER}\n".encode()
    with pytest.raises(WrongFormat, match="no known limestone writes"):
        read({CATALOG: text, COMPACTED: compacted()})


WHOLE = compacted((b"a", b"1"), (b"b", b"2"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "holds nothing"),
        (bytes(4096), "holds nothing"),
        (WHOLE[:5], "holds nothing"),
        (WHOLE[:-1], "cut short"),
        (WHOLE[:9] + bytes(30), "no entry"),
        (WHOLE + bytes(30), "no entry"),
        (compacted((b"b", b"1"), (b"a", b"1")), "out of order"),
        (WHOLE + remove(b"c", 0), "only puts"),
        (WHOLE + about(7, 1, 1), "only puts"),
    ],
)
def test_c24_a_compacted_file_that_is_not_whole_is_refused(data: bytes, reason: str) -> None:
    for text in (catalog(), catalog(2, is_compacted=True)):
        with pytest.raises(Corruption, match=reason) as problem:
            read({COMPACTED: data, CATALOG: text}, epoch=2)
        assert problem.value.file == COMPACTED


def test_c23_c25_of_one_key_twice_the_first_counts_and_nothing_compacted_is_whole_too() -> None:
    assert pairs(read({COMPACTED: compacted((b"a", b"1"), (b"a", b"2"))})) == {b"a": b"1"}
    assert pairs(read({COMPACTED: begin(0)})) == {}


# -- what a compaction missed ----------------------------------------------------------------------------------------


def compaction(rotated: bytes, live: dict[str, bytes] | None = None, boundary: int = 1) -> dict[str, bytes]:
    """A folder after a compaction up to ``boundary`` that set ROTATED and OTHER aside."""
    return {
        COMPACTED: compacted((b"k1", b"v1")),
        ROTATED: session(1, put(b"k1", b"v1", 1)),
        OTHER: rotated,
        CATALOG: catalog(boundary, detached=(ROTATED, OTHER), is_compacted=True),
        **(live or {}),
    }


def test_rule_c13_a_session_above_the_boundary_is_taken_back_from_a_detached_file() -> None:
    """As golden 18."""
    found = read(compaction(session(2, put(b"k2", b"v2", 2), put(b"k1", b"new", 2))), epoch=2)
    assert pairs(found) == {b"k1": b"new", b"k2": b"v2"}
    assert found.losses == []
    (repair,) = found.repairs
    assert repair.startswith(f"{OTHER}, byte 0: the session of epoch 2 is above the compaction up to epoch 1")
    newer = {ACTIVE: session(3, remove(b"k2", 3))}
    assert pairs(read(compaction(session(2, put(b"k2", b"v2", 2)), newer), epoch=3)) == {b"k1": b"v1"}


def test_rule_c13_takes_back_only_what_is_durable_and_whole() -> None:
    for snippet in (
        session(1, put(b"merged and removed", b"", 1)),
        session(3, put(b"not durable", b"", 3)),
        begin(2) + put(b"no end", b"", 2),
        begin(2) + put(b"torn", b"", 2) + b"\x01\x02",
    ):
        found = read(compaction(snippet), epoch=2)
        assert (pairs(found), found.losses) == ({b"k1": b"v1"}, [])
    for version, taken in ((5, True), (6, False)):
        found = read(compaction(begin(2) + put(b"no end", b"", 2)), epoch=2, version=version)
        assert (b"no end" in pairs(found)) is taken


def test_a_session_that_a_compaction_marked_void_is_told_as_lost() -> None:
    """As golden 19."""
    found = read(compaction(void(2) + put(b"k2", b"v2", 2) + put(b"k3", b"v3", 2) + end(2)), epoch=2)
    assert (pairs(found), found.repairs) == ({b"k1": b"v1"}, [])
    (loss,) = found.losses
    assert loss.startswith(f"{OTHER}, byte 0: the session of epoch 2 was marked void by the compaction up to epoch 1")
    assert "its 2 entries are lost" in loss


def test_void_sessions_that_were_never_promised_are_no_loss() -> None:
    entry = put(b"k2", b"v2", 2)
    void_session = void(2) + entry + end(2)
    assert read({ACTIVE: void_session}, epoch=5).losses == []
    assert read({OTHER: void_session}, epoch=5).losses == []
    assert read(compaction(void_session), epoch=1).losses == []  # its epoch never became durable
    assert read(compaction(void_session, boundary=2), epoch=5).losses == []  # marked at an open before the compaction
    assert read(compaction(void(2) + entry), epoch=5).losses == []  # it never came to its end
    assert read(compaction(void(2) + entry), epoch=5, version=5).losses != []  # that cannot be told before format 6
    assert read(compaction(void(2) + end(2)), epoch=5).losses == []  # it was empty


def test_damage_in_a_detached_file_is_told_and_refuses_nothing() -> None:
    for damage in (begin(1) + b"\x99", put(b"k", b"v", 1), begin(2) + put(b"k", b"v", 1) + b"\x99", durable(1)):
        found = read(compaction(damage), epoch=2)
        assert (pairs(found), found.losses) == ({b"k1": b"v1"}, [])
        (repair,) = found.repairs
        assert repair.startswith(f"{OTHER}, byte ")


def overlooked(orphan: bytes, *, merged: bytes = b"", live: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """As golden 30: 29 opened with one channel and compacted; the file of channel 1 was left behind."""
    rotated = session(2, put(b"over", b"new value", 2), remove(b"gone", 2)) + merged
    return {
        COMPACTED: compacted((b"over", b"new value")),
        ROTATED: rotated,
        ORPHAN: orphan,
        CATALOG: catalog(2, detached=(ROTATED,), is_compacted=True),
        **(live or {}),
    }


ORPHAN_SESSION = session(1, put(b"gone", b"x", 1), put(b"only1", b"y", 1), put(b"over", b"old value", 1))


def test_w2_older_entries_of_a_file_left_behind_do_not_win_over_merged_ones() -> None:
    found = read(overlooked(ORPHAN_SESSION), epoch=2)
    assert pairs(found) == {b"over": b"new value", b"only1": b"y"}
    (loss,) = found.losses
    assert loss.startswith(f"{ORPHAN}, byte 0: the compaction up to epoch 2 overlooked this file: 2 of its entries")
    later = {ACTIVE: session(3, put(b"gone", b"back", 3), remove(b"only1", 3))}
    assert pairs(read(overlooked(ORPHAN_SESSION, live=later), epoch=3)) == {b"over": b"new value", b"gone": b"back"}


def test_w2_without_the_detached_files_versions_decide_as_for_limestone() -> None:
    files = overlooked(ORPHAN_SESSION)
    del files[ROTATED]
    found = read(files, epoch=2)
    assert pairs(found) == {b"over": b"old value", b"only1": b"y", b"gone": b"x"}


def test_w2_storages_emptied_before_and_behind_the_merged_entries() -> None:
    older, newer = session(1, about(7, 1, 1, 5)), session(2, about(7, 1, 9))
    assert pairs(read(overlooked(older), epoch=2)) == {b"over": b"new value"}
    assert len(read(overlooked(older), epoch=2).losses) == 1
    assert pairs(read(overlooked(newer), epoch=2)) == {}
    cleared = session(2, about(9, 1, 1, 9))
    found = read(overlooked(older + ORPHAN_SESSION, merged=cleared), epoch=2)
    assert pairs(found) == {b"over": b"new value"}
    assert "4 of its entries" in found.losses[0]


def test_sessions_up_to_the_boundary_that_are_newer_are_no_loss() -> None:
    """Idle epochs are forgotten at a restart, so later sessions can have epochs below the boundary."""
    files = overlooked(session(1, put(b"over", b"newest", 3), put(b"c", b"", 3)))
    found = read(files, epoch=2)
    assert (pairs(found), found.losses) == ({b"over": b"newest", b"c": b""}, [])


def test_in_the_epoch_of_the_boundary_an_older_entry_loses_and_is_no_loss() -> None:
    """A compaction right after an open does not wait for the next epoch: sessions of it follow in new files."""
    found = read(overlooked(session(2, put(b"over", b"older", 1), put(b"c", b"", 2))), epoch=2)
    assert (pairs(found), found.losses) == ({b"over": b"new value", b"c": b""}, [])


# -- the lock --------------------------------------------------------------------------------------------------------


def test_s22_c34_a_folder_in_use_is_refused_and_can_be_read_afterwards(tmp_path: Path) -> None:
    contents = {"limestone-manifest.json": manifest(), CATALOG: catalog(), "epoch": durable(1), ACTIVE: session(1)}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    with (tmp_path / "limestone-manifest.json").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(LogLocked, match="another process is using the log folder"):
            read_folder(RealFiles(), str(tmp_path))
    assert read_folder(RealFiles(), str(tmp_path)).durable_epoch == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == contents


def test_a_folder_that_is_taken_into_use_while_it_is_read_is_refused() -> None:
    files = disk({ACTIVE: session(1, put(b"k", b"v", 1))}, epoch=1)
    asked: list[str | None] = [None, "somebody"]
    files.lock_holder = lambda path: asked.pop(0)  # type: ignore[method-assign]
    with pytest.raises(LogLocked):
        read_folder(files, FOLDER)
    assert asked == []


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    for name, data in {"limestone-manifest.json": manifest(), CATALOG: catalog(), "epoch": durable(1)}.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / ACTIVE).symlink_to(tmp_path / "epoch")
    with pytest.raises(DiskError, match=ACTIVE):
        read_folder(RealFiles(), str(tmp_path))
