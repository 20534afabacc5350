"""Rotation: requests queue, one is served by a switch of the epoch, and the answer tells files that are closed and hold
every entry up to the boundary and none behind it. Problems R-P1 to R-P6, rules R-ROT1 to R-ROT5, cases B1 to B10, N8 to
N12 of the store."""

from __future__ import annotations

import errno
import random
import threading
import time
from pathlib import Path

import pytest

from lamina.engines.store import backup, epoch_file
from lamina.engines.store import catalog as catalogs
from lamina.engines.store.api import Store
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.rotation import Rotated, RotationRequest
from lamina.errors import BadEntry, BadOption, Corruption, DiskError, LogClosed, Stopped, StorageError
from lamina.log.naming import parse
from lamina.testing import MemoryFiles, PowerLoss
from store_lab import FOLDER, StoreLab, epochs_in, keys_in


def boundaries(lab: StoreLab, names: tuple[str, ...]) -> None:
    """Every session in these files is of an epoch up to the boundary in the name."""
    for name in names:
        if name.startswith("pwal_"):
            epoch = catalogs.rotated_epoch(name)
            assert epoch is not None and max(epochs_in(lab.disk, name)) <= epoch


# -- the problems of the old rotation ----------------------------------------------------------------------------------


def test_rp1_nothing_is_written_to_a_rotated_file_once_the_request_is_answered() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    slow = lab.begin(1, 2, b="1")
    request = lab.store.request_rotation()
    lab.sw(3)
    assert not request.is_answered
    slow.end()
    answer = request.wait(0)
    before = {name: bytes(lab.data(name)) for name in answer.files}
    for epoch in (3, 4, 5):
        lab.s(0, epoch, a=str(epoch))
        lab.s(1, epoch, b=str(epoch))
    lab.sw()
    lab.rotate()
    assert {name: bytes(lab.data(name)) for name in answer.files} == before


def test_rp2_requests_at_the_same_time_are_each_served_by_a_switch_of_their_own() -> None:
    lab = StoreLab()
    requests = [lab.store.request_rotation() for _ in range(5)]
    for number in range(5):
        lab.s(0, k=str(number))
        lab.sw()
        assert [request.is_answered for request in requests] == [each <= number for each in range(5)]
    answers = [request.wait(0) for request in requests]
    assert [answer.epoch for answer in answers] == [1, 2, 3, 4, 5]
    for number, answer in enumerate(answers):
        assert len([name for name in answer.files if name.startswith("pwal_")]) == number + 1
        boundaries(lab, answer.files)


def test_rp3_an_epoch_is_never_split_over_a_rotated_file_and_the_next() -> None:
    lab = StoreLab()
    lab.s(0, 5, a="1")
    open_in_5 = lab.begin(1, 5, b="1")
    request = lab.store.request_rotation()
    lab.sw(6)
    lab.s(0, 6, a="2")
    lab.sw(7)
    open_in_5.end()
    answer = request.wait(0)
    assert answer.epoch == 5
    found = {name: epochs_in(lab.disk, name) for name in answer.files if name.startswith("pwal_")}
    assert sorted(found.values()) == [[5], [5]]
    lab.sw()
    assert epochs_in(lab.disk, "pwal_0000") == [6]


def test_rp4_the_rotated_epoch_file_ends_with_the_boundary() -> None:
    lab = StoreLab()
    for epoch in (3, 6, 9):
        lab.s(0, epoch)
        open_one = lab.begin(1, epoch, b="1")
        request = lab.store.request_rotation()
        lab.sw(epoch + 1)
        lab.s(0, epoch + 1)
        lab.sw(epoch + 2)
        open_one.end()
        answer = request.wait(0)
        newest = [name for name in answer.files if name.startswith("epoch")][-1]
        name = parse(newest)
        assert name is not None and catalogs.rotated_epoch(newest) == answer.epoch == epoch
        found = epoch_file.Epochs()
        epoch_file.read_file(lab.disk, FOLDER, name, found, may_be_torn=False)
        assert found.durable == epoch


def test_rp5_a_session_that_begins_behind_the_request_and_before_the_switch_is_in_the_rotated_file() -> None:
    lab = StoreLab()
    lab.s(0, 2, before="1")
    request = lab.store.request_rotation()
    lab.s(0, 2, behind="1")
    lab.s(1, 2, other="1")
    late = lab.begin(2, 2, late="1")
    lab.sw(3)
    late.end()
    answer = request.wait(0)
    assert keys_in(lab.disk, answer.files) == {b"before", b"behind", b"other", b"late"}


def test_rp6_two_rotations_in_a_row_have_the_right_lists() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    first = lab.rotate()
    lab.s(0, 4, a="2")
    lab.s(1, 4, b="2")
    second = lab.rotate()
    assert first.files == first.new and len(first.files) == 2
    assert second.files == (*first.files, *second.new) and len(second.new) == 3
    third = lab.rotate()
    assert [name for name in third.new if name.startswith("pwal_")] == []


def test_rp6_a_later_rotation_that_is_ahead_on_some_channels_does_not_get_into_an_earlier_answer() -> None:
    """The files of the idle channel are renamed for both requests before the first is answered."""
    lab = StoreLab()
    slow = lab.begin(1, 5, slow="1")
    lab.s(0, 5, a="5")
    first = lab.store.request_rotation()
    second = lab.store.request_rotation()
    lab.sw(6)
    lab.s(0, 6, a="6")
    lab.sw(7)
    lab.s(0, 7, a="7")
    lab.sw(8)
    assert not first.is_answered and not second.is_answered
    slow.end()
    one, two = first.wait(0), second.wait(0)
    assert (one.epoch, two.epoch) == (5, 6)
    for answer in (one, two):
        boundaries(lab, answer.files)
        assert all((catalogs.rotated_epoch(name) or 0) <= answer.epoch for name in answer.files)
    assert keys_in(lab.disk, one.files) == {b"slow", b"a"}
    assert set(one.files) < set(two.files)


def test_rp6_requests_that_overlap_name_each_new_file_once() -> None:
    lab = StoreLab()
    slow = lab.begin(1, 5, slow="1")
    requests = []
    for epoch in range(5, 10):
        lab.s(0, epoch, a=str(epoch))
        requests.append(lab.store.request_rotation())
        lab.sw(epoch + 1)
    assert not any(request.is_answered for request in requests)
    slow.end()
    answers = [request.wait(0) for request in requests]
    new = [name for answer in answers for name in answer.new]
    assert sorted(new) == sorted({*lab.rotated(), *lab.rotated("epoch")})
    for answer in answers:
        assert {catalogs.rotated_epoch(name) for name in answer.new} == {answer.epoch}


def test_rp6_the_files_of_a_request_that_failed_are_new_to_the_one_that_overlaps_it() -> None:
    lab = StoreLab()
    slow = lab.begin(1, 5, slow="1")
    lab.s(0, 5, a="5")
    first = lab.store.request_rotation()
    lab.sw(6)
    second = lab.store.request_rotation()
    lab.s(0, 6, a="6")
    lab.sw(7)
    lab.files.fail("rename", only="pwal_0001", error=errno.EIO)
    slow.end()
    with pytest.raises(DiskError):
        first.wait(0)
    lab.sw(8)
    answer = second.wait(0)
    assert {*answer.new} == {*lab.rotated(), *lab.rotated("epoch")} - {lab.rotated("pwal_0000")[0]}
    assert {*answer.files} == {*lab.rotated(), *lab.rotated("epoch")}


def test_rp6_clean_up_while_a_request_waits_does_not_confuse_its_list() -> None:
    lab = StoreLab()
    for epoch in (2, 4, 6):
        lab.s(0, epoch, a=str(epoch))
        lab.compact()
    lab.s(0, 20, a="20")
    slow = lab.begin(1, 20, b="1")
    request = lab.store.request_rotation()
    lab.sw(21)
    removed = lab.compactions.clean_up().removed
    assert removed
    slow.end()
    answer = request.wait(0)
    assert not {*answer.files} & {*removed}
    assert {name[:9] for name in answer.new} == {"pwal_0000", "pwal_0001", "epoch.017"}
    assert {*answer.files} == {*lab.rotated(), *lab.rotated("epoch")}


# -- the rules ---------------------------------------------------------------------------------------------------------


def test_rot1_a_request_waits_in_a_queue_for_the_next_switch() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    request = lab.store.request_rotation()
    assert not request.is_answered and lab.rotated() == []
    with pytest.raises(TimeoutError):
        request.wait(0.01)
    told: list[int] = []
    request.then(lambda: told.append(1))
    lab.sw(3)
    assert request.wait(0).epoch == 2 and told == [1]
    request.then(lambda: told.append(2))
    assert told == [1, 2]


def test_rot2_a_switch_serves_one_request_and_renames_channels_and_epoch_file() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    lab.s(3, 2, b="1")
    requests = [lab.store.request_rotation() for _ in range(2)]
    lab.sw(3)
    assert [request.is_answered for request in requests] == [True, False]
    assert [name[:9] for name in lab.rotated()] == ["pwal_0000", "pwal_0003"]
    assert len(lab.rotated("epoch")) == 1 and "epoch" in lab.names()
    assert not {"pwal_0000", "pwal_0003"} & {*lab.names()}


def test_rot2_switching_to_the_present_epoch_serves_nobody() -> None:
    lab = StoreLab()
    request = lab.store.request_rotation()
    lab.sw(1)
    assert not request.is_answered
    lab.sw(2)
    assert request.wait(0).epoch == 1


def test_rot3_the_switch_goes_on_while_the_answer_waits() -> None:
    lab = StoreLab()
    slow = lab.begin(0, 2, a="1")
    request = lab.store.request_rotation()
    assert lab.sw(3) == 3 == lab.store.epoch
    lab.s(1, 3, b="1")
    lab.sw(4)
    lab.sw(5)
    assert not request.is_answered and lab.store.epoch == 5
    slow.end()
    assert request.wait(0).epoch == 2 and lab.store.last_epoch == 4


def test_rot4_the_answer_waits_for_all_sessions_that_were_open() -> None:
    lab = StoreLab()
    sessions = [lab.begin(number, 2, **{f"k{number}": "1"}) for number in range(4)]
    request = lab.store.request_rotation()
    lab.sw(3)
    later = lab.begin(4, 3, later="1")  # not one of those
    for each in sessions[:-1]:
        each.end()
        assert not request.is_answered
    sessions[-1].abort()
    answer = request.wait(0)
    assert keys_in(lab.disk, answer.files) == {b"k0", b"k1", b"k2"}
    later.end()


def test_rot5_the_answer_lists_all_rotated_files_that_there_are() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    first = lab.rotate()
    lab.reopen()
    lab.s(1, b="1")
    second = lab.rotate()
    assert {*second.files} == {*lab.rotated(), *lab.rotated("epoch")}
    assert {*first.files} < {*second.files}
    assert first.epoch < second.epoch


# -- how a channel turns over ------------------------------------------------------------------------------------------


def test_n08_an_idle_channel_is_renamed_at_once_and_has_a_new_file_with_its_next_session() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    lab.rotate()
    assert "pwal_0000" not in lab.names() and len(lab.rotated("pwal_0000")) == 1
    session = lab.begin(0, a="2")
    assert "pwal_0000" not in lab.names()
    session.end()
    lab.sw()
    assert "pwal_0000" in lab.names()


def test_n09_an_active_channel_is_renamed_when_its_session_ends() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    session = lab.begin(0, 2, a="2")
    request = lab.store.request_rotation()
    lab.sw(3)
    assert lab.rotated() == [] and not request.is_answered
    session.end()
    (name,) = lab.rotated()
    assert request.wait(0).epoch == 2 and epochs_in(lab.disk, name) == [2, 2]


def test_n10_files_of_channels_that_this_run_has_not_are_rotated() -> None:
    """Opening does it: a file is written by one run of the program only. So no rotation can leave one behind."""
    lab = StoreLab()
    for number in range(4):
        lab.s(number, 2, **{f"k{number}": "1"})
    lab.reopen()
    lab.s(0, 9, k9="1")
    answer = lab.rotate()
    assert {name[:9] for name in answer.files if name.startswith("pwal")} == {f"pwal_000{n}" for n in range(4)}
    assert keys_in(lab.disk, answer.files) == {b"k0", b"k1", b"k2", b"k3", b"k9"}


def test_n11_a_session_that_begins_before_the_rename_was_done_goes_to_the_new_file() -> None:
    """The store's thread has not come to it yet; the session's own end does the rename."""
    lab = StoreLab()
    lab.s(0, 2, old="1")
    lab.store.nudge = lambda: None
    request = lab.store.request_rotation()
    lab.sw(3)
    lab.s(0, 3, new="1")
    assert not request.is_answered
    lab.store.settle()
    answer = request.wait(0)
    assert keys_in(lab.disk, answer.files) == {b"old"}
    lab.sw(4)
    lab.store.settle()
    assert epochs_in(lab.disk, "pwal_0000") == [3]


def test_n11_a_second_rotation_before_the_first_was_done_misses_nothing() -> None:
    """A session of epoch 3 ends after epoch 3 was made the boundary of a second request, and before anybody came to
    rename the file of the first."""
    lab = StoreLab()
    lab.s(0, 2, a="2")
    lab.store.nudge = lambda: None
    first = lab.store.request_rotation()
    lab.sw(3)
    session = lab.begin(0, 3, b="3")
    second = lab.store.request_rotation()
    lab.sw(4)
    session.end()
    lab.s(0, 4, c="4")
    lab.store.settle()
    one, two = first.wait(0), second.wait(0)
    assert (one.epoch, two.epoch) == (2, 3)
    assert keys_in(lab.disk, one.files) == {b"a"}
    assert keys_in(lab.disk, two.files) == {b"a", b"b"}


def test_n11_what_is_behind_the_boundary_is_not_taken_before_the_boundary_is_seen() -> None:
    """A compaction takes what readers see at the boundary, and puts its parts in the place of that: nothing later may
    be among it, also if two switches come between two looks of the store's thread."""
    lab = StoreLab()
    lab.s(0, 2, a="2")
    at_boundary: list[set[str]] = []
    request: list[RotationRequest] = []

    def two_switches(operation: str, path: str) -> None:
        if operation == "sync" and not request:
            request.append(lab.store.request_rotation(lambda: at_boundary.append({*lab.entries()})))
            lab.store.switch_epoch(4)
            lab.s(1, 4, later="4")
            lab.store.switch_epoch(5)

    lab.store.nudge = lambda: None
    lab.sw(3)
    lab.s(1, 3, b="3")
    lab.files.before = two_switches
    lab.store.settle()
    lab.store.settle()
    assert request[0].wait(0).epoch == 3
    assert at_boundary == [{"a", "b"}]
    assert {*lab.entries()} == {"a", "b", "later"}


def test_n12_closing_while_a_rotation_waits_for_an_epoch_fails_the_request() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    request = lab.store.request_rotation()
    lab.store.close()
    with pytest.raises(Stopped, match="closed before the files were rotated"):
        request.wait(0)
    assert lab.rotated() == []
    with pytest.raises(LogClosed):
        lab.store.request_rotation()
    lab.store = lab.open()
    assert lab.entries() == {"a": "1"}


def test_n12_closing_while_a_rotation_waits_for_a_session_fails_the_request() -> None:
    lab = StoreLab()
    lab.s(1, 2, b="1")
    session = lab.begin(0, 2, a="1")
    request = lab.store.request_rotation()
    lab.sw(3)
    lab.store.close()
    with pytest.raises(Stopped):
        request.wait(0)
    with pytest.raises(LogClosed):
        session.end()
    lab.store = lab.open()
    assert lab.entries() == {"b": "1"}


def test_w19_two_rotations_in_one_millisecond_have_names_of_their_own() -> None:
    lab = StoreLab()
    for number in range(20):
        lab.s(0, a=str(number))
        lab.rotate()  # the clock stands still
    lab.clock.jump(-3600)
    for number in range(20, 40):
        lab.s(0, a=str(number))
        lab.rotate()
    assert len(lab.rotated("pwal_0000")) == 40 and len(lab.rotated("epoch")) == 40
    order = [catalogs.rotated_epoch(name) or 0 for name in lab.rotated("pwal_0000")]
    assert order == sorted(order)
    lab.reopen()
    assert lab.entries() == {"a": "39"}


# -- errors of the disk ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["pwal_0000", "/epoch"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_rename_that_fails_is_told_and_the_next_request_does_it(where: str, error: int) -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    lab.s(1, 2, b="1")
    request = lab.store.request_rotation()
    lab.files.fail("rename", only=where, error=error)
    lab.sw(3)
    with pytest.raises(StorageError, match="rotate the file"):
        request.wait(0)
    assert lab.entries() == {"a": "1", "b": "1"}  # durable all the same
    lab.s(0, 3, c="1")
    answer = lab.rotate()
    boundaries(lab, answer.files)
    assert keys_in(lab.disk, answer.files) == {b"a", b"b", b"c"}
    lab.restart()
    assert lab.entries() == {"a": "1", "b": "1", "c": "1"}


def test_a_folder_that_cannot_be_synced_behind_a_rename_loses_nothing() -> None:
    for nth in range(1, 6):
        lab = StoreLab()
        lab.s(0, 2, a="1")
        lab.s(1, 2, b="1")
        lab.flush()
        request = lab.store.request_rotation()
        lab.files.fail("sync_folder", nth=nth)
        lab.sw(3)
        try:
            answer = request.wait(0)
            assert keys_in(lab.disk, answer.files) == {b"a", b"b"}
        except StorageError:
            pass
        lab.files.heal()
        assert lab.entries() == {"a": "1", "b": "1"}
        if lab.store.failure is None:
            lab.s(0, 3, c="1")
            answer = lab.rotate()
            assert keys_in(lab.disk, answer.files) == {b"a", b"b", b"c"}, nth
        expected = lab.entries()
        lab.restart()
        assert lab.entries() == expected


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_power_cut_behind_a_rename_that_was_not_synced_loses_nothing(nth: int) -> None:
    """A new file of the old name must not come to the disk before the rename has: it would stand there alone."""
    disk = PowerLoss()
    lab = StoreLab(disk)
    lab.s(0, 2, a="1")
    lab.sw(3)
    disk.note("a")
    lab.store.request_rotation()
    lab.files.fail("sync_folder", nth=nth)
    lab.sw(4)
    lab.files.heal()
    if lab.store.failure is None:
        lab.s(0, 4, b="1")
        lab.sw(5)
        disk.note("b")
    for state in disk.states(per_point=20):
        found = StoreLab(state.files).entries()
        assert {note for note in state.notes if note in ("a", "b")} <= {*found}, state.label


@pytest.mark.parametrize("where", ["pwal_0000", "/epoch"])
@pytest.mark.parametrize("taken", [0, 20, 60])
def test_a_power_cut_behind_the_rotation_of_a_file_with_a_refused_write_leaves_it_whole(where: str, taken: int) -> None:
    """What the refused write left was cut off: that has to be safe before the file is called closed."""
    disk = PowerLoss()
    lab = StoreLab(disk)
    lab.s(0, 2, a="1")
    lab.sw(3)
    lab.s(0, 3, lost="1" * 100)
    lab.files.fail("append", only=where, taken=taken)
    lab.sw(4)
    lab.rotate()
    disk.note("rotated")
    looked_at = 0
    for state in disk.states(per_point=20):
        if state.notes:
            assert StoreLab(state.files).entries() == {"a": "1"}, state.label
            looked_at += 1
    assert looked_at


def test_a_file_that_holds_nothing_is_not_rotated() -> None:
    lab = StoreLab()
    lab.files.fail("append", only="pwal_0000", nth=2, taken=30)
    lab.s(0, 2, lost="1")
    lab.sw(3)
    answer = lab.rotate()
    assert [name for name in answer.files if name.startswith("pwal")] == []
    lab.s(0, kept="1")
    assert len([name for name in lab.rotate().files if name.startswith("pwal")]) == 1
    lab.restart()
    assert lab.entries() == {"kept": "1"}


def test_b05_a_folder_that_was_removed_under_a_running_store_is_told() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    lab.sw(3)
    request = lab.store.request_rotation()
    lab.disk.remove_folder(FOLDER)
    lab.sw(4)
    with pytest.raises(DiskError, match="No such file or directory"):
        request.wait(0)


# -- under load --------------------------------------------------------------------------------------------------------


def test_100_rotations_from_4_threads_while_8_channels_write() -> None:
    """Every answer is checked when it comes, while everything goes on: the files it lists hold every entry of an epoch
    up to the boundary that had been told, and none behind it."""
    disk = MemoryFiles()
    problems: list[str] = []
    answers: list[Rotated] = []
    written: dict[bytes, int] = {}  # and the epoch
    seen: dict[str, tuple[int, int, set[bytes]]] = {}  # files: bytes, newest epoch, keys
    guard = threading.Lock()
    is_over = threading.Event()
    with Store.open(FOLDER, files=disk, options=StoreOptions(epoch_ms=1)) as store:

        def write(number: int) -> None:
            channel = store.channel(number)
            rng = random.Random(number)
            count = 0
            while not is_over.is_set():
                session = channel.begin()
                keys = [b"%d.%d" % (number, count + each) for each in range(3)]
                count += 3
                session.put_many(1, [(key, b"v") for key in keys])
                if rng.random() < 0.2:
                    time.sleep(0.001)
                session.end()
                with guard:
                    written.update(dict.fromkeys(keys, session.epoch))
                time.sleep(0.001 * rng.random())

        def look(answer: Rotated) -> set[bytes]:
            """Keys in the files. What was seen of a file once holds: it does not change."""
            for name in answer.files:
                size = len(disk.names[f"{FOLDER}/{name}"].data)
                if name not in seen and name.startswith("pwal_"):
                    seen[name] = size, max(epochs_in(disk, name)), keys_in(disk, [name])
                if name in seen and seen[name][0] != size:
                    problems.append(f"{name} has changed")
            files = [seen[name] for name in answer.files if name in seen]
            if any(epoch > answer.epoch for _, epoch, _ in files):
                problems.append(f"behind the boundary {answer.epoch}: {answer.files}")
            return set().union(*(keys for _, _, keys in files))

        def ask() -> None:
            for _ in range(25):
                answer = store.rotate(timeout=30)
                with guard:
                    answers.append(answer)
                    known = dict(written)
                missing = {key for key, epoch in known.items() if epoch <= answer.epoch} - look(answer)
                if missing:
                    problems.append(f"not in the files up to {answer.epoch}: {sorted(missing)[:5]}")
                time.sleep(0.01)

        writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        askers = [threading.Thread(target=ask) for _ in range(4)]
        for thread in (*writers, *askers):
            thread.start()
        for thread in askers:
            thread.join()
        is_over.set()
        for thread in writers:
            thread.join()
    assert problems == []
    assert len(written) > 500
    assert len(answers) == 100 and len({answer.epoch for answer in answers}) == 100
    with Store.open(FOLDER, files=MemoryFiles(disk.contents())) as store:
        assert {found.key for found in store.scan(1)} == {*written}


# -- backup ------------------------------------------------------------------------------------------------------------


def test_b01_a_backup_holds_the_catalog_and_closed_files_only(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store"), options=StoreOptions(epoch_ms=1)) as store:
        store.put(1, b"k", b"v")
        store.channel(900)
        manifest = store.back_up(str(tmp_path / "backup"))
        store.put(1, b"later", b"v")
        names = {file.name for file in manifest.files}
        assert {name.split(".")[0] for name in names} == {"compaction_catalog", "epoch", "pwal_0000"}
        assert all(catalogs.rotated_epoch(name) is not None for name in names - {"compaction_catalog"})
        assert not any("/" in name for name in names)
        assert manifest.epoch <= store.last_epoch


def test_b02_right_behind_a_rotation_there_is_no_active_file_of_a_channel() -> None:
    lab = StoreLab()
    lab.s(0, 42, k1="v1")
    lab.sw(43)
    lab.ch(1)
    lab.rotate()
    assert [name for name in lab.names("pwal_") if name not in lab.rotated() and not name.endswith(".index")] == []
    assert "epoch" in lab.names()


def test_b03_channels_of_an_earlier_run_are_in_the_backup() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    lab.s(1, 2, b="1")
    lab.reopen()
    lab.s(0, a="2")
    back_up(lab)
    assert restored(lab).entries() == {"a": "2", "b": "1"}


def back_up(lab: StoreLab, to: str = "backup") -> backup.Manifest:
    answer = lab.rotate()
    merged = lab.store.catalog.merged
    names = [name for name in answer.files if name not in merged]
    return backup.back_up(lab.disk, FOLDER, names, lab.store.catalog, to, clock=lab.clock)


def restored(lab: StoreLab) -> StoreLab:
    """A store that was restored from the backup, on a disk of its own."""
    disk = MemoryFiles({path: data for path, data in lab.disk.contents().items() if path.startswith("backup/")})
    backup.restore(disk, "backup", FOLDER)
    return StoreLab(disk)


def test_b06_restored_files_are_those_of_the_list_and_no_others() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    manifest = back_up(lab)
    disk = MemoryFiles({path: data for path, data in lab.disk.contents().items() if path.startswith("backup/")})
    disk.write("backup/foreign", b"x")
    backup.restore(disk, "backup", FOLDER)
    assert {*disk.list(FOLDER)} == {file.name for file in manifest.files}


def test_b08_a_damaged_backup_is_refused_and_the_target_is_not_touched() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    manifest = back_up(lab)
    contents = {path: data for path, data in lab.disk.contents().items() if path.startswith("backup/")}
    for name in [file.name for file in manifest.files] + [backup.MANIFEST]:
        disk = MemoryFiles(contents)
        disk.names[f"backup/{name}"].data[-3] ^= 1
        before = disk.contents()
        with pytest.raises(Corruption):
            backup.restore(disk, "backup", FOLDER)
        assert disk.contents() == before
    disk = MemoryFiles({**contents, f"{FOLDER}/pwal_0000": b"precious"})
    with pytest.raises(BadOption):
        backup.restore(disk, "backup", FOLDER)
    assert disk.contents()[f"{FOLDER}/pwal_0000"] == b"precious"


@pytest.mark.parametrize("is_compacted", [False, True])
def test_b09_after_a_backup_rotated_everything_the_store_and_the_restored_one_hold_the_same(is_compacted: bool) -> None:
    lab = StoreLab()
    lab.s(0, 42, k1="v1")
    lab.sw(43)
    if is_compacted:
        lab.compact()
        lab.s(0, k2="v2")
    expected = {"k1": "v1", "k2": "v2"} if is_compacted else {"k1": "v1"}
    back_up(lab)
    lab.s(0, behind="1")
    lab.reopen()
    assert lab.entries() == {**expected, "behind": "1"}
    after = restored(lab)
    assert after.entries() == expected
    after.s(0, more="1")
    after.reopen()
    assert after.entries() == {**expected, "more": "1"}


def test_b10_there_is_no_epoch_0_to_rotate_at() -> None:
    lab = StoreLab()
    with pytest.raises(BadEntry):
        lab.sw(0)
    assert lab.rotate().epoch == 1


def test_w15_a_stop_anywhere_in_a_rotation_leaves_all_data() -> None:
    lab = StoreLab()
    lab.s(0, 2, a="1")
    lab.s(1, 2, b="1")
    lab.store.request_rotation()
    copies: list[dict[str, bytes]] = []
    lab.sw(3)
    lab.s(0, 3, c="1")
    lab.store.request_rotation()
    lab.files.before = lambda operation, path: copies.append(lab.disk.contents())
    lab.sw(4)
    assert len(copies) > 5
    for contents in copies:
        after = StoreLab(MemoryFiles(contents))
        found = after.entries()
        assert found.pop("c", "1") == "1" and found == {"a": "1", "b": "1"}


def test_w15_a_stop_in_a_rotation_behind_epochs_without_sessions_does_not_let_epochs_fall_behind_the_names() -> None:
    """The boundary is in the name of the file, and not recorded yet. A later compaction with a smaller boundary would
    pass over a file whose sessions it calls compacted."""
    lab = StoreLab()
    lab.s(0, 2, a="1")
    lab.sw(9)
    lab.store.request_rotation()
    copies: list[dict[str, bytes]] = []
    lab.files.before = lambda operation, path: copies.append(lab.disk.contents())
    lab.sw(10)
    boundaries_seen = set()
    for contents in copies:
        after = StoreLab(MemoryFiles(contents))
        names = [catalogs.rotated_epoch(name) or 0 for name in after.rotated()]
        assert after.store.last_epoch >= max(names)
        boundaries_seen.update(names)
        after.s(1, b="1")
        after.compact()
        after.reopen()
        assert after.entries() == {"a": "1", "b": "1"}
    assert boundaries_seen >= {2, 9}


@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_w15_a_power_cut_anywhere_in_a_rotation_leaves_all_that_was_told(model: str) -> None:
    disk = PowerLoss(model=model)  # type: ignore[arg-type]
    lab = StoreLab(disk)
    lab.s(0, 2, a="1")
    lab.s(1, 2, b="1")
    lab.sw()
    disk.note("a and b")
    for number in range(2):
        slow = lab.begin(2, **{f"slow{number}": "1"})
        request = lab.store.request_rotation()
        lab.sw()
        lab.s(0, **{f"c{number}": "1"})
        slow.end()
        assert request.wait(0).new
        disk.note(number)
    looked_at = 0
    for state in disk.states(per_point=15):
        found = StoreLab(state.files).entries()
        if state.notes:
            assert {"a", "b"} <= {*found}, state.label
        for number in range(2):
            if number in state.notes:
                assert f"slow{number}" in found, state.label
        looked_at += 1
    assert looked_at > 100


def test_closing_does_not_wait_for_a_backup_that_waits_for_a_session() -> None:
    """A session that nobody ends must not keep the store from being closed."""
    store = Store.open(FOLDER, files=MemoryFiles(), options=StoreOptions(epoch_ms=1))
    session = store.channel(900).begin()
    session.put(1, b"k", b"v")
    outcome: list[BaseException] = []

    def back_it_up() -> None:
        try:
            store.back_up("backup")
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=back_it_up)
    thread.start()
    while store.epoch == session.epoch:
        time.sleep(0.001)
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(5)
    assert not closing.is_alive()
    thread.join(5)
    assert [type(error) for error in outcome] == [Stopped]
