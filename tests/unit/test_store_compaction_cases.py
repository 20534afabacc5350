"""Compaction of an open store: cases C1 to C18 and C29 to C34, N1 to N7 and N13 to N20, rules R-CMP1 to R-CMP3.

Blobs (C13) are no part of the store. Versions and times of entries are kept (C8). The catalog is replaced in one step,
so there is neither a copy nor a moment without one (N17). Offline compaction (C29 to C31) is opening and compacting;
asking before it is the command's. Formats of limestone (C33) are read by the import, and tested there.
"""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lamina.engines.store import as_of, cleaning, codec
from lamina.engines.store import catalog as catalogs
from lamina.engines.store import inputs as inputs_of
from lamina.engines.store.api import Store
from lamina.engines.store.channel import Session
from lamina.engines.store.compactions import Compactions
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.options import StoreOptions
from lamina.errors import (
    BadEntry,
    Corruption,
    DiskError,
    LogFailed,
    LogLocked,
    Stopped,
    StorageError,
    TooOld,
    WrongFormat,
)
from lamina.testing import MemoryFiles, PowerLoss
from store_lab import FOLDER, StoreLab, epochs_in, everything


def baseline(lab: StoreLab) -> list[tuple[int, bytes, bytes | None, tuple[int, int]]]:
    """Everything in the parts that the catalog names, in their order: storage, key, value (None: a remove), version."""
    found = []
    for place, item in lab.store.baseline.walk():
        version = codec.version(codec.version_of(item))
        value = codec.value_of(item) if codec.is_put(item) else None
        found.append((codec.storage_of(place), place[8:], value, (version.major, version.minor)))
    return found


# -- what is compacted -------------------------------------------------------------------------------------------------


def test_c01_without_files_of_channels_nothing_is_done() -> None:
    lab = StoreLab()
    before = bytes(lab.data(catalogs.NAME))
    report = lab.compact()
    assert (report.inputs, report.generation, lab.parts()) == ((), 0, [])
    assert bytes(lab.data(catalogs.NAME)) == before


def test_c02_both_channels_are_in_the_parts_and_their_files_are_called_merged() -> None:
    lab = StoreLab()
    lab.s(0, 1, k1="v1")
    lab.s(1, 1, k2="v2")
    report = lab.compact()
    catalog = lab.catalog()
    assert (report.generation, report.epoch, catalog.generation, catalog.epoch) == (1, 1, 1, 1)
    assert [part.name for part in catalog.parts] == ["pwal_compacted.1.0"] == lab.parts()
    assert {name[:9] for name in catalog.merged} == {"pwal_0000", "pwal_0001", "epoch.017"}
    assert {*report.inputs} == {name for name in catalog.merged if name.startswith("pwal")}
    lab.reopen()
    assert lab.entries() == {"k1": "v1", "k2": "v2"}
    assert lab.store.entries_read == 0  # nothing but the parts was read


def test_c03_compacting_again_with_nothing_new_changes_nothing() -> None:
    lab = StoreLab()
    lab.s(0, 1, k1="v1")
    lab.compact()
    before = bytes(lab.data(catalogs.NAME))
    assert lab.compact().inputs == ()
    assert bytes(lab.data(catalogs.NAME)) == before and lab.parts() == ["pwal_compacted.1.0"]


def test_c04_merged_files_that_were_deleted_by_hand_are_not_missed() -> None:
    lab = StoreLab()
    lab.s(0, 1, k1="v1")
    lab.s(1, 1, k2="v2")
    report = lab.compact()
    lab.drop(*report.inputs)
    for _ in range(2):
        lab.reopen()
        assert lab.entries() == {"k1": "v1", "k2": "v2"}


def test_c05_names_of_files_that_are_gone_leave_the_catalog_with_the_next_compaction() -> None:
    lab = StoreLab()
    lab.s(0, 1, k1="v1")
    first = lab.compact()
    lab.drop(*first.inputs)
    lab.reopen()
    lab.s(0, k2="v2")
    second = lab.compact()
    merged = {*lab.catalog().merged}
    assert not merged & {*first.inputs} and {*second.inputs} <= merged
    assert merged <= {*lab.names()}


def test_c06_a_new_value_wins_over_the_compacted_one_without_another_compaction() -> None:
    lab = StoreLab()
    lab.s(0, 1, k1="v1")
    lab.s(1, 1, k2="v2")
    report = lab.compact()
    lab.drop(report.inputs[0])
    lab.reopen()
    lab.s(0, k1="newer", k2=None)
    lab.reopen()
    assert lab.entries() == {"k1": "newer"}


def test_c07_after_any_number_of_compactions_one_generation_counts() -> None:
    lab = StoreLab()
    for number in range(3):
        lab.s(number, k=str(number), **{f"k{number}": "v"})
        lab.compact()
        if number != 1:
            lab.reopen()
        assert [part.name for part in lab.catalog().parts] == [f"pwal_compacted.{number + 1}.0"]
        assert {*lab.catalog().merged} >= {*lab.rotated()}
    done = lab.compactions.clean_up()
    assert lab.parts() == ["pwal_compacted.3.0"] and lab.rotated() == []
    assert lab.catalog().merged == tuple(lab.rotated("epoch")) and done.bytes > 0
    lab.reopen()
    assert lab.entries() == {"k": "2", "k0": "v", "k1": "v", "k2": "v"}


def test_c08_only_what_is_there_is_in_the_parts_with_its_version_and_time() -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        lab.write(session, (1, 0), gone="v", back="v", kept="old")
        lab.write(session, (1, 1), gone=None, back=None, never=None)
        lab.write(session, (1, 2), back="again", kept="new")
    lab.sw()
    found = lab.store.view.get(1, b"kept")
    assert found is not None
    lab.compact()
    assert baseline(lab) == [(1, b"back", b"again", (1, 2)), (1, b"kept", b"new", (1, 2))]
    lab.reopen()
    assert lab.store.view.get(1, b"kept") == found


def test_c09_removes_behind_a_compaction_hide_what_is_in_the_parts() -> None:
    lab = StoreLab()
    lab.s(0, 1, a="1", b="1")
    lab.compact()
    lab.s(0, a=None, c="1")
    lab.s(1, c=None, d="1")
    lab.reopen()
    assert lab.entries() == {"b": "1", "d": "1"}
    lab.compact()
    assert [key for _, key, _, _ in baseline(lab)] == [b"b", b"d"]
    lab.reopen()
    assert lab.entries() == {"b": "1", "d": "1"}


def test_c10_a_storage_that_was_dropped_between_writes_keeps_the_later_ones() -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        session.put(1, b"k", b"other")
        session.put(2, b"before", b"v")
    with lab.begin(1) as session:
        session.remove_storage(2)
        session.put(2, b"behind", b"v")
    lab.compact()
    assert [(storage, key) for storage, key, _, _ in baseline(lab)] == [(1, b"k"), (2, b"behind")]
    lab.reopen()
    assert lab.everything() == {(1, b"k"): b"other", (2, b"behind"): b"v"}


@pytest.mark.parametrize("is_compacted", [False, True])
def test_c11_dropping_a_storage_behind_a_compaction_empties_its_parts(is_compacted: bool) -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        session.put_many(1, [(b"%d" % number, b"v") for number in range(50)])
        session.put(2, b"other", b"v")
    lab.compact()
    with lab.begin(0) as session:
        session.remove_storage(1)
        session.put(1, b"later", b"v")
    lab.sw()
    expected = {(1, b"later"): b"v", (2, b"other"): b"v"}
    assert lab.everything() == expected
    if is_compacted:
        lab.compact()
        assert len(baseline(lab)) == 2
    lab.reopen()
    assert lab.everything() == expected


def test_c12_the_parts_are_in_order_of_storage_then_of_the_bytes_of_the_key() -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        for storage in (65536, 256, 2, 1):
            for key in (b"key8", b"key13", b"\xff", b"", b"\0"):
                session.put(storage, key, b"v")
    lab.compact()
    found = [(storage, key) for storage, key, _, _ in baseline(lab)]
    assert found == [(s, k) for s in (1, 2, 256, 65536) for k in (b"", b"\0", b"key13", b"key8", b"\xff")]


def test_c14_inputs_are_rotated_files_that_are_not_merged_and_no_others() -> None:
    lab = StoreLab()
    lab.s(2, 1, merged="1")
    (merged,) = lab.compact().inputs
    lab.s(1, rotated="1")
    lab.rotate()
    lab.put_file("other_file", b"not ours")
    held_open = lab.begin(3, active="1")
    held_open.end()
    answer = lab.rotate()
    (of_3,) = [name for name in answer.new if name.startswith("pwal_0003")]
    lab.s(3, later="1")
    lab.flush()
    names = [name.name for name in inputs_of.channel_files(lab.names(), [merged])]
    assert [name[:9] for name in names] == ["pwal_0001", "pwal_0003", "pwal_0003"] and names[-1] == "pwal_0003"
    report = lab.compact()
    assert [name[:9] for name in report.inputs] == ["pwal_0001", "pwal_0003", "pwal_0003"]
    assert of_3 in report.inputs and merged not in report.inputs


def test_c15_parts_of_a_generation_that_was_never_committed_are_no_obstacle() -> None:
    """Better than limestone, in which no compaction works any more."""
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.compact()
    lab.s(0, k="2")
    lab.sw()
    for name in ("pwal_compacted.2.0", "pwal_compacted.2.1", "compaction_progress", "run.2.0"):
        lab.put_file(name, b"left by a compaction that was cut short")
    lab.compact()
    assert lab.catalog().generation == 2 and baseline(lab)[0][2] == b"2"
    lab.reopen()
    assert lab.entries() == {"k": "2"}


def test_c17_at_startup_rotated_files_that_are_not_merged_are_read_and_merged_ones_are_not() -> None:
    lab = StoreLab()
    for number in range(2):
        lab.s(number, 1, **{f"k{number}": "1"})
    merged = lab.compact().inputs
    for number in range(2, 4):
        lab.s(number, **{f"k{number}": "1"})
    lab.store.close()
    for name in merged:
        lab.put_file(name, b"nobody reads this any more")
    lab.store = lab.open()
    assert lab.store.entries_read == 2
    assert {*lab.entries()} == {"k0", "k1", "k2", "k3"}


@pytest.mark.parametrize("operation", ["list", "open", "read"])
def test_c18_a_folder_or_file_that_cannot_be_read_is_told_with_its_path(operation: str) -> None:
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.store.close()
    before = lab.disk.contents()
    for nth in range(1, 4):
        lab.files.faults.clear()
        lab.files.fail(operation, nth=nth, times=1000, error=errno.EIO)
        with pytest.raises(DiskError, match="store"):
            lab.open()
        if nth == 1 or operation == "read":  # later ones may meet it when all was found good
            assert lab.disk.contents() == before
    lab.files.heal()
    lab.store = lab.open()
    assert lab.entries() == {"k": "1"}


# -- rules -------------------------------------------------------------------------------------------------------------


def test_cmp1_there_are_never_two_compactions_at_once() -> None:
    disk = MemoryFiles()
    with Store.open(FOLDER, files=disk, options=StoreOptions(epoch_ms=1)) as store:
        store.put(1, b"k", b"v")
        inside, most = 0, 0
        guard = threading.Lock()

        def progress(done: int, total: int) -> None:
            nonlocal inside, most
            with guard:
                inside += 1
                most = max(most, inside)
            store.put(1, b"%d" % done, b"v")
            with guard:
                inside -= 1

        threads = [threading.Thread(target=store.compact, args=(progress,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 1
        assert len({name.split(".")[1] for name in disk.list(FOLDER) if name.startswith("pwal_compacted")}) >= 1


def test_cmp2_a_compaction_begins_with_a_rotation_of_its_own() -> None:
    lab = StoreLab()
    lab.s(0, 3, k="1")
    report = lab.compact()
    assert report.epoch == 3 and lab.store.epoch == 4
    assert report.inputs == tuple(lab.rotated())


def test_cmp3_files_that_are_rotated_while_it_runs_are_no_inputs() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="2")
    later: list[str] = []

    def progress(done: int, total: int) -> None:
        if not later:
            lab.s(0, k="later")
            later.extend(name for name in lab.store.rotate(timeout=5).new if name.startswith("pwal"))

    with lab.switching():
        report = lab.compactions.compact(progress)
    assert later and not {*later} & {*report.inputs}
    assert not {*later} & {*lab.catalog().merged}
    assert lab.entries() == {"k": "later"}
    lab.restart()
    assert lab.entries() == {"k": "later"}
    assert {*later} <= {*lab.compact().inputs}


def test_cmp3_sessions_that_are_in_the_parts_are_not_taken_again_from_a_file_that_is_not_called_merged() -> None:
    """R-CMP3d: the epoch decides, so a key that was removed does not come back from an old file."""
    lab = StoreLab()
    lab.s(0, 2, gone="1", kept="1")
    lab.s(0, 3, gone=None)
    lab.compact()
    lab.store.close()
    catalog = lab.catalog()
    catalogs.replace(lab.disk, FOLDER, catalogs.Catalog(catalog.generation, catalog.epoch, catalog.parts))
    lab.store = lab.open()
    assert lab.entries() == {"kept": "1"}
    lab.s(0, more="1")
    lab.compact()
    lab.reopen()
    assert lab.entries() == {"kept": "1", "more": "1"}


def test_a_version_that_what_was_compacted_may_have_forgotten_is_refused() -> None:
    """The remove is gone from the parts: an older put must not be able to come behind it."""
    lab = StoreLab()
    lab.s(0, 5, k="1")
    lab.s(0, 6, k=None)
    lab.compact()
    session = lab.begin(0)
    with pytest.raises(BadEntry, match=r"version 5\.0 is too old: everything up to epoch 6 was compacted"):
        session.put(1, b"k", b"back", version=(5, 0))
    with pytest.raises(BadEntry, match="too old"):
        session.clear_storage(1, version=(6, 1 << 63))
    session.put(1, b"k", b"new", version=(7, 0))
    session.end()
    lab.reopen()
    assert lab.entries() == {"k": "new"}
    with lab.begin(0) as session, pytest.raises(BadEntry, match="too old"):
        session.put(1, b"k", b"back", version=(6, 0))


def test_removes_and_clears_with_versions_ahead_of_the_boundary_are_kept() -> None:
    lab = StoreLab()
    with lab.begin(0, 2) as session:
        session.put(1, b"a", b"1", version=(50, 0))
        session.remove(1, b"a", version=(100, 0))
        session.put(2, b"b", b"1", version=(50, 0))
        session.clear_storage(2, version=(100, 0))
    lab.compact()
    with lab.begin(0) as session:
        session.put(1, b"a", b"late and older", version=(60, 0))
        session.put(2, b"b", b"late and older", version=(60, 0))
        session.put(2, b"c", b"newer", version=(100, 0))
    lab.sw()
    for _ in range(2):
        assert lab.everything() == {(2, b"c"): b"newer"}
        lab.reopen()
    lab.compact()
    lab.reopen()
    assert lab.everything() == {(2, b"c"): b"newer"}


# -- sessions that are open meanwhile ----------------------------------------------------------------------------------


def compact_with_sessions(lab: StoreLab, sessions: list[tuple[int, dict[str, str | None]]]) -> list[Session]:
    """Compact while sessions of the epoch behind the boundary are open on these channels."""
    opened: list[Session] = []
    store = lab.store

    def nudge() -> None:
        if store.is_urgent():
            store.nudge = lambda: None
            store.switch_epoch()
            opened.extend(lab.begin(channel, **pairs) for channel, pairs in sessions)
            store.nudge = nudge
        store.settle()

    store.nudge = nudge
    try:
        lab.compactions.compact()
    finally:
        store.nudge = store.settle
    return opened


def test_n01_a_session_behind_the_boundary_that_is_open_at_the_rename_is_not_lost() -> None:
    """There is no carry file: its entries go to the next file of its channel, whenever it ends."""
    lab = StoreLab()
    lab.s(0, 2, a="1")
    lab.s(1, 2, b="1")
    (session,) = compact_with_sessions(lab, [(1, {"in_flight": "1"})])
    assert session.epoch == 3
    before = {name: bytes(lab.data(name)) for name in lab.rotated()}
    session.end()
    lab.sw()
    lab.restart()
    assert lab.entries() == {"a": "1", "b": "1", "in_flight": "1"}
    assert {name: bytes(lab.data(name)) for name in before} == before
    assert all(max(epochs_in(lab.disk, name)) <= 2 for name in before)


def test_n02_the_same_with_much_data() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    (session,) = compact_with_sessions(lab, [(0, {})])
    session.put_many(1, [(b"%06d" % number, b"x" * 100) for number in range(20_000)])
    session.end()
    lab.sw()
    lab.restart()
    assert len(lab.everything()) == 20_001


def test_n03_two_channels_in_flight() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    lab.s(1, 2, b="1")
    sessions = compact_with_sessions(lab, [(0, {"c": "1"}), (1, {"d": "1"})])
    for session in sessions:
        session.end()
    lab.sw()
    lab.restart()
    assert {*lab.entries()} == {"a", "b", "c", "d"}


def test_n04_the_next_compaction_takes_what_was_in_flight() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    (session,) = compact_with_sessions(lab, [(0, {"b": "1"})])
    session.end()
    report = lab.compact()
    assert len(report.inputs) == 1 and [key for _, key, _, _ in baseline(lab)] == [b"a", b"b"]
    assert lab.compact().inputs == ()


def test_n05_what_was_in_flight_overwrites_a_key_in_the_parts() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="old", gone="old")
    (session,) = compact_with_sessions(lab, [(1, {"a": "new", "gone": None})])
    session.end()
    lab.sw()
    assert lab.entries() == {"a": "new"}
    lab.compact()
    lab.reopen()
    assert lab.entries() == {"a": "new"}


def test_n06_what_was_in_flight_and_not_durable_at_the_stop_is_not_there() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    (session,) = compact_with_sessions(lab, [(1, {"b": "1"})])
    session.end()
    lab.flush()
    lab.restart()
    assert lab.entries() == {"a": "1"}
    lab.s(0, c="1")
    lab.compact()
    lab.reopen()
    assert lab.entries() == {"a": "1", "c": "1"}


def test_n07_a_compaction_changes_no_byte_of_its_inputs() -> None:
    lab = StoreLab()
    for epoch in range(2, 6):
        lab.s(epoch % 2, epoch, **{f"k{epoch}": "v"})
    lab.rotate()
    before = {name: bytes(lab.data(name)) for name in lab.rotated()}
    report = lab.compact()
    assert {*report.inputs} == {*before}
    assert {name: bytes(lab.data(name)) for name in before} == before


# -- stops -------------------------------------------------------------------------------------------------------------


def stops_of_a_compaction(generation: int) -> list[tuple[str, dict[str, bytes]]]:
    """(what was about to be done, the disk then) at every step of a compaction that makes this generation."""
    lab = StoreLab(part_bytes=1024)
    for number in range(1, generation + 1):
        with lab.begin(0) as session:
            session.put_many(1, [(b"%03d" % each, b"%d " % number * 10) for each in range(30 * number)])
            session.put(1, b"removed", b"v")
        lab.s(1, removed=None, **{f"only{number}": "v"})
        if number < generation:
            lab.compact()
    lab.sw()
    stops: list[tuple[str, dict[str, bytes]]] = []
    lab.files.before = lambda operation, path: stops.append((f"{operation} {path}", lab.disk.contents()))
    lab.compact()
    stops.append(("nothing", lab.disk.contents()))
    assert lab.catalog().generation == generation
    return stops


@pytest.mark.parametrize("generation", [1, 2])
def test_n13_n14_a_stop_anywhere_leaves_one_generation_whole_and_all_data(generation: int) -> None:
    stops = stops_of_a_compaction(generation)
    expected = everything(StoreLab(MemoryFiles(stops[-1][1])).store)
    assert len(expected) == 30 * generation + generation and len(stops) > 20
    generations = set()
    for step, contents in stops:
        lab = StoreLab(MemoryFiles(contents), part_bytes=1024)
        assert lab.everything() == expected, step
        generations.add(lab.catalog().generation)
        named = {part.name for part in lab.catalog().parts}
        assert named <= {*lab.parts()}
    assert generations == {generation - 1, generation}


@pytest.mark.parametrize("generation", [1, 2])
def test_n13_after_a_stop_the_next_compaction_and_clean_up_work(generation: int) -> None:
    stops = stops_of_a_compaction(generation)
    for step, contents in stops[:: max(len(stops) // 25, 1)]:
        lab = StoreLab(MemoryFiles(contents), part_bytes=1024)
        expected = lab.everything()
        lab.compact()
        lab.compactions.clean_up()
        assert lab.everything() == expected, step
        assert lab.parts() == [part.name for part in lab.catalog().parts]
        lab.reopen()
        assert lab.everything() == expected, step
        assert "compaction_progress" not in lab.names()


def test_n13_parts_that_no_catalog_names_are_removed_when_the_store_is_opened() -> None:
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.compact()
    lab.store.close()
    lab.put_file("pwal_compacted.2.0", b"orphan")
    lab.store = lab.open()
    assert lab.parts() == ["pwal_compacted.1.0"] and lab.entries() == {"k": "1"}


def test_n14_former_parts_stay_for_reads_as_of_an_earlier_epoch_until_clean_up() -> None:
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.compact()
    lab.s(0, 5, k="5")
    lab.compact()
    lab.restart()
    assert lab.parts() == ["pwal_compacted.1.0", "pwal_compacted.2.0"]
    lab.compactions.clean_up()
    assert lab.parts() == ["pwal_compacted.2.0"] and lab.entries() == {"k": "5"}


@pytest.mark.parametrize("name", ["compaction_catalog.tmp", "run.2.0", "run.s1", "pwal_compacted.9.9"])
def test_n15_n16_what_was_left_is_removed_and_what_counts_is_kept(name: str) -> None:
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.compact()
    lab.store.close()
    lab.put_file(name, b"junk")
    lab.store = lab.open()
    assert name not in lab.names() and lab.parts() == ["pwal_compacted.1.0"]
    assert lab.entries() == {"k": "1"}


def test_n17_a_catalog_that_is_gone_is_not_replaced_by_an_empty_one() -> None:
    """No crash leaves this: the catalog is replaced in one step. Somebody removed it, so somebody has to decide."""
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.compact()
    lab.store.close()
    lab.drop(catalogs.NAME)
    error = lab.refuses_to_open(Corruption)
    assert error.facts["file"] == "compaction_catalog" and "lamina store repair" in str(error)


@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename", "sync_folder"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_n18_when_the_disk_refuses_the_store_goes_on_and_the_next_request_works(operation: str, error: int) -> None:
    for nth in (1, 2, 4):
        lab = StoreLab()
        lab.s(0, 1, k="1", gone="1")
        lab.rotate()  # so that the errors meet the compaction itself
        lab.s(0, k="2", gone=None)
        lab.sw()
        expected = lab.entries()
        failed_in: list[str] = []

        def fail_in_compaction(done: int, total: int, lab: StoreLab = lab, nth: int = nth) -> None:
            if not failed_in:  # noqa: B023
                failed_in.append("")  # noqa: B023
                lab.files.fail(operation, nth=nth, error=error)

        with lab.switching():
            try:
                lab.compactions.compact(fail_in_compaction)
            except StorageError:
                assert lab.store.failure is None
        lab.files.heal()
        assert lab.entries() == expected
        lab.s(0, more="1")
        lab.sw()
        assert lab.entries() == {**expected, "more": "1"}
        lab.compact()
        assert lab.entries() == {**expected, "more": "1"}
        lab.restart()
        assert lab.entries() == {**expected, "more": "1"}


@pytest.mark.parametrize("is_more_written", [False, True])
def test_n18_a_folder_that_was_not_synced_behind_the_commit_does_not_mix_two_generations(is_more_written: bool) -> None:
    """The new catalog is there, and yet the compaction failed. The next one must not write over the parts it names."""
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.compact()
    lab.s(0, k="2")
    lab.sw()

    def watch(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("compaction_catalog.tmp"):
            lab.files.faults.clear()
            lab.files.fail("sync_folder")

    lab.files.before = watch
    with pytest.raises(DiskError):
        lab.compact()
    lab.files.before = lambda operation, path: None
    lab.files.heal()
    assert lab.catalog().generation == 2
    expected = {"k": "2"}
    lab.compactions.clean_up()  # it is the catalog that counts, for clean-up too
    assert lab.entries() == expected
    if is_more_written:
        expected = {"k": "3", "l": "3"}
        lab.s(0, k="3", l="3")
        lab.sw()
    copies: list[dict[str, bytes]] = []
    lab.files.before = lambda operation, path: copies.append(lab.disk.contents())
    lab.compact()
    for contents in copies:
        assert StoreLab(MemoryFiles(contents)).entries() == expected
    assert lab.entries() == expected
    lab.compactions.clean_up()
    lab.reopen()
    assert lab.entries() == expected


def test_n19_a_part_that_the_catalog_names_and_that_is_not_there_is_refused() -> None:
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.compact()
    lab.store.close()
    good = bytes(lab.data("pwal_compacted.1.0"))
    lab.drop("pwal_compacted.1.0")
    error = lab.refuses_to_open(Corruption)
    assert error.facts["file"] == "pwal_compacted.1.0" and "it is not there" in str(error)
    for bad in (b"", good[:-1], good + b"x"):
        lab.put_file("pwal_compacted.1.0", bad)
        error = lab.refuses_to_open(Corruption)
        assert error.facts["file"] == "pwal_compacted.1.0" and "the catalog says" in str(error)


def test_n19_a_part_that_changed_is_noticed_by_who_reads_that_place() -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        session.put_many(1, [(b"%04d" % number, b"v" * 50) for number in range(2000)])
    lab.compact()
    lab.store.close()
    good = bytes(lab.data("pwal_compacted.1.0"))
    for offset in range(0, len(good), len(good) // 40):
        lab.put_file("pwal_compacted.1.0", good)
        lab.damage("pwal_compacted.1.0", offset)
        with pytest.raises((Corruption, WrongFormat)) as caught:
            lab.store = lab.open()
            try:
                assert len(lab.everything()) == 2000
            finally:
                lab.store.close()
        assert caught.value.facts["file"] == "pwal_compacted.1.0"


def test_n20_what_is_removed_behind_a_compaction_stays_removed_and_looking_changes_nothing() -> None:
    lab = StoreLab()
    lab.s(0, 1, a="1", b="1")
    lab.compact()
    lab.reopen()
    lab.s(0, b=None)
    lab.reopen()
    assert lab.entries() == {"a": "1"}
    before = lab.disk.contents()
    assert cleaning.obsolete(lab.disk, FOLDER, lab.store.catalog)
    assert lab.disk.contents() == before


@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_w06_a_power_cut_anywhere_leaves_everything_that_was_told(model: str) -> None:
    disk = PowerLoss(model=model)  # type: ignore[arg-type]
    lab = StoreLab(disk)
    lab.s(0, 1, a="1", b="1")
    lab.compact()
    lab.s(0, a="2", b=None)
    lab.sw()
    disk.note("told")
    lab.compact()
    lab.compactions.clean_up()
    looked_at = 0
    for state in disk.states(per_point=12):
        if "told" in state.notes:
            after = StoreLab(state.files)
            assert after.entries() == {"a": "2"}, state.label
            after.store.close()
            looked_at += 1
    assert looked_at > 50


# -- the folder as a whole ---------------------------------------------------------------------------------------------


def test_c29_compacting_a_folder_without_a_server(tmp_path: Path) -> None:
    folder = str(tmp_path / "store")
    with Store.open(folder, options=StoreOptions(epoch_ms=0)) as store:
        channel = store.channel(0)
        for epoch, key, value in ((1, b"A", b"0"), (50, b"B", b"0"), (60, b"C", b"0"), (100, b"A", b"1")):
            store.switch_epoch(epoch)
            with channel.begin() as session:
                session.put(1, key, value)
        with channel.begin() as session:
            session.remove(1, b"C")
    with Store.open(folder, options=StoreOptions(epoch_ms=1)) as store:
        assert store.last_epoch == 100
        report = store.compact()
        assert (report.entries_live, report.generation) == (2, 1)
        store.clean_up()
    with Store.open(folder) as store:
        assert store.last_epoch >= 100 and store.engine.entries_read == 0
        assert [(found.key, found.value, found.version.major) for found in store.scan(1)] == [
            (b"A", b"1", 100),
            (b"B", b"0", 50),
        ]


def test_c31_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "store"
    file.write_bytes(b"a file")
    with pytest.raises(StorageError, match="store"):
        StoreEngine.open(str(file))
    assert file.read_bytes() == b"a file"


def test_c32_files_of_an_earlier_run_are_never_written_to() -> None:
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.sw()
    lab.crash()
    data = bytes(lab.data("pwal_0000"))
    lab.store = lab.open()
    assert "pwal_0000" not in lab.names()
    lab.s(0, k="2")
    lab.sw()
    assert bytes(lab.data(lab.rotated("pwal_0000")[0])) == data
    assert epochs_in(lab.disk, "pwal_0000") == [lab.store.last_epoch]


def test_c34_a_second_writer_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    folder = str(tmp_path / "store")
    store = StoreEngine.open(folder, options=StoreOptions(epoch_ms=0))
    with pytest.raises(LogLocked):
        StoreEngine.open(folder)
    with store.channel().begin() as session:
        session.put(1, b"k", b"v")
    store.close()
    with StoreEngine.open(folder) as second:
        assert everything(second) == {(1, b"k"): b"v"}


def test_c34_so_is_another_process(tmp_path: Path) -> None:
    folder = str(tmp_path / "store")
    text = f"""
from lamina.engines.store.engine import StoreEngine
from lamina.errors import LogLocked
try:
    StoreEngine.open({folder!r}).close()
    print("opened")
except LogLocked as error:
    print(error.code)
"""

    def other() -> str:
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.strip()

    with StoreEngine.open(folder, options=StoreOptions(epoch_ms=0)) as store:
        with store.channel().begin() as session:
            session.put(1, b"k", b"v")
        before = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir() if path.is_file()}
        assert other() == "log_locked"
        assert {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir() if path.is_file()} == before
    assert other() == "opened"


def test_a_damaged_catalog_is_refused_at_every_byte_and_nothing_is_changed() -> None:
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.compact()
    lab.store.close()
    good = bytes(lab.data(catalogs.NAME))
    for offset in range(0, len(good), 3):
        lab.put_file(catalogs.NAME, good)
        lab.damage(catalogs.NAME, offset)
        assert lab.refuses_to_open(StorageError).facts["file"] == catalogs.NAME
    for size in range(0, len(good), 5):
        lab.put_file(catalogs.NAME, good[:size])
        assert lab.refuses_to_open(StorageError).facts["file"] == catalogs.NAME
    lab.put_file(catalogs.NAME, good.replace(b"catalog 1\n", b"catalog 2\n"))
    assert "version 2 of a compaction catalog" in str(lab.refuses_to_open(WrongFormat))


def test_a_catalog_ahead_of_the_epoch_file_is_refused() -> None:
    lab = StoreLab()
    lab.s(0, 7, k="1")
    lab.compact()
    lab.compactions.clean_up()
    lab.store.close()
    lab.drop(*lab.names("epoch"))
    error = lab.refuses_to_open(Corruption)
    assert error.facts["file"] == "epoch" and "the catalog is of epoch 7" in str(error)


def test_foreign_files_are_left_alone_and_told() -> None:
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.store.close()
    foreign = {"notes.txt": b"mine", "pwal_00001": b"x", "pwal_abc": b"x", "epoch.back": b"x", "pwal_compacted": b"x"}
    for name, data in foreign.items():
        lab.put_file(name, data)
    lab.store = lab.open()
    assert [warning.split(":")[0] for warning in lab.store.warnings] == sorted(foreign)
    lab.compact()
    lab.compactions.clean_up()
    assert {name: bytes(lab.data(name)) for name in foreign} == foreign
    assert lab.entries() == {"k": "1"}


def test_a_compaction_of_a_damaged_file_fails_and_the_store_goes_on() -> None:
    lab = StoreLab()
    for epoch in (2, 3, 4):
        lab.s(0, epoch, **{f"k{epoch}": "v"})
    (name,) = [name for name in lab.rotate().new if name.startswith("pwal")]
    good = bytes(lab.data(name))
    lab.damage(name, len(good) // 2)
    with pytest.raises(Corruption) as caught:
        lab.compact()
    assert caught.value.file == name
    assert lab.catalog().generation == 0 and {*lab.entries()} == {"k2", "k3", "k4"}
    lab.data(name)[:] = good
    lab.compact()
    lab.reopen()
    assert {*lab.entries()} == {"k2", "k3", "k4"}


def test_after_the_store_failed_a_compaction_is_refused_at_once() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="1")
    lab.flush()
    lab.files.fail("sync", only="pwal_0000")
    lab.sw()
    with pytest.raises(LogFailed):
        lab.compact()


def test_stopping_gives_up_a_compaction_that_waits_or_runs_and_lets_none_begin() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="1")
    outcome: list[BaseException] = []

    def compact() -> None:
        try:
            lab.compactions.compact()
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=compact)
    thread.start()
    while not lab.store.is_urgent():
        pass
    lab.compactions.stop()
    thread.join(5)
    assert [type(error) for error in outcome] == [Stopped]
    with pytest.raises(Stopped):
        lab.compactions.compact()
    lab.compactions = Compactions(lab.store)
    lab.compact()
    assert lab.entries() == {"k": "1"}


def test_as_of_reaches_back_over_compactions_until_clean_up() -> None:
    lab = StoreLab()
    for epoch in (1, 5, 9):
        lab.s(0, epoch, k=str(epoch))
        lab.compact()
    for epoch, value in ((1, b"1"), (4, b"1"), (5, b"5"), (8, b"5"), (9, b"9")):
        found = as_of.as_of_epoch(lab.store, epoch).entry(1, b"k")
        assert found is not None and found.value == value
    assert as_of.as_of_epoch(lab.store, 0).get(1, b"k") is None
    with pytest.raises(BadEntry, match="not durable yet"):
        as_of.as_of_epoch(lab.store, lab.store.epoch)
    lab.compactions.clean_up(keep_after_epoch=5)
    assert as_of.as_of_epoch(lab.store, 5).get(1, b"k") is not None
    with pytest.raises(TooOld):
        as_of.as_of_epoch(lab.store, 4)
    lab.compactions.clean_up()
    with pytest.raises(TooOld):
        as_of.as_of_epoch(lab.store, 5)
